"""What the engine wants made durable, and its replies; the order between the two is that of [ADR 0002].

A change is a whole row, so that of several changes to one row in a transaction only the last has to be written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, NamedTuple

from shoal.model.blobs import BlobChange
from shoal.model.event import Event
from shoal.model.lazy_dataclass import dataclass
from shoal.model.people import PeopleRow
from shoal.wire.messages import Batch, Reply


class RunRow(NamedTuple):
    """One submission and its progress."""

    run: int
    owner: str
    name: str
    created: float
    finished: float | None
    total: int
    counts: str  # JSON: tasks by state; what is not counted is ready or waiting
    cwd: str
    seed: int
    max_fail: int | None
    key: str
    digest: str
    labels: str
    signature: str
    env_file: str = ""  # the submitter's environment in their own directories; empty: kept by the server
    open: int = 0  # 1: more tasks may be added
    nonce: str = ""  # identifies the run in all messages between pilots and server [ADR 0015]
    base: int = 0  # attempt numbers up to this one may have been used by a server that crashed
    max_running: int | None = None  # so many of its tasks run at once at most
    due: float | None = None  # its deadline, if all its tasks have the same one
    notify: str = ""  # JSON: URLs and commands that are told of it; empty: none


class ArrayRow(NamedTuple):
    """One spec of a run: elements first .. first + size - 1; `task` is its table as JSON."""

    run: int
    first: int
    size: int
    name: str
    task: str


class ArrayTable(NamedTuple):
    """Other fields of an array that is there: its table as JSON."""

    run: int
    first: int
    task: str


class TaskRow(NamedTuple):
    """A task that was leased or differs from its array."""

    run: int
    element: int
    state: str
    attempt: int  # the highest number used
    winner: str  # the attempt whose report counts, as `number@incarnation`
    retries: int  # burnt
    losses: int
    live: str  # JSON: [[number, incarnation, pilot, leased|running|lost, when leased], ...]
    cause: str
    message: str
    exit_code: int | None
    signal: int | None
    leased: float | None
    started: float | None
    ended: float | None
    duration: float | None
    cpu: float | None
    max_rss: int | None
    pilot: str
    host: str
    site: str
    last_line: str
    new_files: str
    reused: str  # the earlier task whose result this is
    result: str = ""  # of a function, as a payload text
    special: str = ""  # JSON of records.TaskOverrides: what makes it differ from its array


class ChunkRow(NamedTuple):
    """Elements low .. high - 1 leased together. Those that have a TaskRow since, or are final, have left it."""

    run: int
    low: int
    high: int
    number: int
    incarnation: int
    pilot: str
    leased: float


class ChunkDrop(NamedTuple):
    """Every element has left this chunk."""

    run: int
    low: int
    number: int
    incarnation: int


class Successes(NamedTuple):
    """Neighbouring elements that succeeded together: what they share, and a column for each thing that differs. It
    stands for a TaskRow and an Event each, which are made only where they are needed [ADR 0009]."""

    run: int
    low: int
    high: int
    number: int  # of the attempt
    winner: str
    exit_code: int | None
    leased: float
    ended: float
    pilot: str
    host: str
    site: str
    owner: str
    seq: int  # of the first event
    columns: Batch  # its columns from index `at` on; an empty column has no values
    at: int

    def values(self) -> Iterator[tuple[int, float | None, float, float, int, str, str]]:
        """Element, started, duration, cpu, max_rss, last line and result of each."""
        columns, count, at = self.columns, self.high - self.low, self.at

        def column(values: list[Any], otherwise: Any) -> Iterable[Any]:
            return values[at : at + count] if values else itertools.repeat(otherwise, count)

        return zip(
            range(self.low, self.high), column(columns.started, None), column(columns.duration, 0.0),
            column(columns.cpu, 0.0), column(columns.max_rss, 0), column(columns.last_line, ""), column(columns.result, ""),
            strict=True,
        )  # fmt: skip

    def rows(self) -> Iterator[TaskRow]:
        """The row of each."""
        for element, started, duration, cpu, rss, line, result in self.values():
            yield TaskRow(
                self.run, element, "succeeded", self.number, self.winner, 0, 0, "", "", "", self.exit_code, None,
                self.leased, started, self.ended, duration, cpu, rss, self.pilot, self.host, self.site, line, "", "", result,
            )  # fmt: skip

    def events(self) -> Iterator[Event]:
        """The last event of each."""
        for seq, (element, started, duration, cpu, rss, _, _) in enumerate(self.values(), self.seq):
            yield Event(
                seq, self.ended, "task_finished", self.run, element, self.number, self.pilot, self.site,
                self.data(started, duration, cpu, rss), self.owner,
            )  # fmt: skip

    def data(self, started: float | None, duration: float, cpu: float, rss: int) -> dict[str, Any]:
        """The data of the event of one of them."""
        return {
            "state": "succeeded", "duration": duration, "host": self.host, "exit_code": self.exit_code, "cpu": cpu,
            "max_rss": rss, "started": started, "leased": self.leased,
        }  # fmt: skip


class SpanRow(NamedTuple):
    """Elements low .. high - 1 that became final together and never had a row of their own."""

    run: int
    low: int
    high: int
    state: str
    cause: str
    message: str
    ended: float


class PilotRow(NamedTuple):
    """One pilot."""

    pilot: str
    state: str
    reason: str
    owner: str
    site: str
    host: str
    identity: str
    session: str  # SHA-256
    former: str  # JSON: names it had before
    cores: int
    memory: int
    disk: int
    gpus: int
    version: str
    tags: str
    joined: float
    ended: float | None
    grp: str = ""  # it serves this group; empty: its owner alone
    token: str = ""  # the enrolment token that let it in
    revoked: int = 0  # 1: expelled, it may not come back
    ends: float | None = None  # when its allocation ends
    bound: int = 0  # 1: its session is bound to a certificate, and good over TLS only


class HostRow(NamedTuple):
    """What one host did for one owner or group, over all its pilots [GWP G13]."""

    identity: str
    owner: str
    grp: str
    site: str
    host: str
    first: float
    seen: float
    pilots: int
    succeeded: int
    failed: int
    lost: int
    busy: float  # core seconds of attempts that came to an end


class AcctAdd(NamedTuple):
    """What ended within an hour, to be added to that hour's row of the accounts [GWP G12]; times in core seconds."""

    hour: int  # since 1970
    owner: str
    site: str
    host: str
    pilot: str
    run: int
    useful: float = 0.0
    failed: float = 0.0
    lost: float = 0.0
    duplicated: float = 0.0
    tasks: int = 0  # attempts that ended
    queued: float = 0.0  # seconds that tasks were ready before their lease
    staging: float = 0.0  # seconds of moving files


class UsageRow(NamedTuple):
    """What an owner used, as the share policy remembers it."""

    owner: str
    data: str  # JSON, see sched.share


class PlaceRow(NamedTuple):
    """A pilot, host or site that failed lately, see sched.ban; empty data: it is good again."""

    holder: str  # whose pilots failed there
    kind: str
    name: str
    data: str


class PolicyRow(NamedTuple):
    """One version of the policy; the newest counts."""

    version: int
    time: float
    author: str
    document: str  # JSON


class PartialRow(NamedTuple):
    """What the tasks of a run emitted, of those that succeeded, reduced and merged."""

    run: int
    reduce: str  # JSON: name -> how its values are reduced
    until: str  # the goal
    reached: str  # the values by which it was reached
    tasks: int  # that are merged
    merged: str  # as a contribution's text


class PlanRow(NamedTuple):
    """The planning state of a run that is planned before it starts."""

    run: int
    stage: str
    data: str  # JSON: what its steps found


class GrowthRow(NamedTuple):
    """The rules of a run that make tasks of files."""

    run: int
    rules: str  # JSON: their tables, in order
    since: float  # when the last file came from outside
    watching: int  # 1: more may come from there
    stopped: int  # 1: nothing is made any more


class GrownRow(NamedTuple):
    """A file that a rule took."""

    run: int
    rule: int  # its place among the rules
    file: str
    size: int
    seen: float
    element: int  # first element of the task that has it; 0: it waits


class NoticeRow(NamedTuple):
    """Something that a URL or a command is to be told; the row is there until that is done, or given up."""

    seq: int  # of the event that it is about
    target: str
    run: int
    owner: str
    time: float
    what: str  # end, first_failure, deadline
    text: str  # for people
    data: str  # JSON


class NoticeDrop(NamedTuple):
    """It was told, or given up."""

    seq: int
    target: str


class SpanDrop(NamedTuple):
    """The elements low .. high - 1 are not final any more."""

    run: int
    low: int
    high: int


class RunDrop(NamedTuple):
    """A finished run is removed; its accounts and its events stay, and its number is not used again."""

    run: int


Change = (
    RunRow | RunDrop | ArrayRow | ArrayTable | TaskRow | Successes | ChunkRow | ChunkDrop | SpanRow | SpanDrop | PilotRow
    | HostRow | AcctAdd | UsageRow | PlaceRow | PolicyRow | PartialRow | GrowthRow | GrownRow | PlanRow | NoticeRow | NoticeDrop
    | Event | PeopleRow | BlobChange
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """A reply to an exchange, parked or fresh; `durable`: only after everything so far is committed. `rests`: there is
    nothing to do with it then, so `Rest` is asked first whether it waits for work."""

    pilot: str
    seq: int
    reply: Reply
    durable: bool
    rests: bool = False


class ResultRow(NamedTuple):
    """A final task as the results call returns it, as a JSON array in this order."""

    element: int
    state: str
    result: str
    cause: str
    message: str
    attempt: int
    last_line: str
    out: int  # bytes of standard output
    err: int


class ClosedRow(NamedTuple):
    """Elements low .. high - 1 that became final without rows, as the results call returns them."""

    low: int
    high: int
    state: str
    cause: str
    message: str


class Final(NamedTuple):
    """A task of an open run became final."""

    run: int
    seq: int  # of its event
    row: ResultRow
    holder: str = ""  # owner of the pilot that ran it; empty: a group's, or none ran it


class Closed(NamedTuple):
    """Elements of an open run became final without rows."""

    run: int
    seq: int
    row: ClosedRow


class Notice(NamedTuple):
    """Something that an administrator's command is called for (policy: ban.hook)."""

    what: str  # banned, lifted
    kind: str  # of the place
    name: str
    reason: str
    until: float
    holder: str = ""  # whose pilots it concerns


@dataclass
class Outcome:
    """The effects of one command. `finals`: results that followers of open runs get once all this is durable."""

    result: Any = None
    finals: list[Final | Closed] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    offers: list[tuple[int, int, int]] = field(default_factory=list)  # run, first, count: to be accepted when durable
    is_due: bool = False  # there are rows of notices among the changes
    is_underway: bool = False  # it brought calls, all of them leased at once: reports of it may come in a moment
