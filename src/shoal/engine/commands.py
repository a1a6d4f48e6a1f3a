"""What the engine can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from shoal.engine.changes import TaskRow
from shoal.model.ids import TaskId
from shoal.model.lazy_dataclass import dataclass
from shoal.model.policy import Policy
from shoal.model.task.spec import Submission
from shoal.sched.placement.question import Plan
from shoal.wire.http.requests import SiteStatus
from shoal.wire.messages import Exchange, Register

# Runs and tasks of other runs that have ended, as the database knows it -> did all of it succeed?
Outcomes = Mapping[int | TaskId, bool]


@dataclass(frozen=True)
class Submit:
    """Accept a run. `reused` are results of earlier runs, as rows still numbered by their own run."""

    submission: Submission
    owner: str
    digest: str
    signature: str = ""
    reused: tuple[tuple[int, TaskRow], ...] = ()
    env_file: str = ""
    outcomes: Outcomes = field(default_factory=dict)
    plan: dict[str, Any] | None = None  # what the steps of its planning are told; None: it starts at once


@dataclass(frozen=True)
class AdvancePlan:
    """A run leaves the planning state `stage`; `data` is what was found, `reused` results of earlier runs."""

    run: int
    stage: str
    to: str
    data: dict[str, Any] = field(default_factory=dict)
    reused: tuple[tuple[int, TaskRow], ...] = ()


@dataclass(frozen=True)
class Accept:
    """A submission, or an addition of so many tasks from element `first` on, is durable: they may be handed out. Before
    that only its own command leases, in its transaction: a crash would give their numbers to other work [ADR 0034]."""

    run: int
    first: int = 1
    tasks: int | None = None  # None: all that the run has; of an open one, what was added since is not durable yet


@dataclass(frozen=True)
class Add:
    """Put more tasks into an open run, from element `first` on."""

    run: int
    first: int
    submission: Submission


@dataclass(frozen=True)
class NoteChance:
    """A run meets its deadline with this chance, by a forecast that was made just now."""

    run: int
    chance: float


@dataclass(frozen=True)
class Noticed:
    """A URL or a command was told of something, or that was given up: `wrong` says why."""

    seq: int
    target: str
    place: str  # of it, as the journal may show: an address may hold a secret
    run: int
    owner: str
    what: str
    tries: int
    wrong: str = ""


@dataclass(frozen=True)
class TellFiles:
    """There are these files (names as seen from the run's directory, bytes); `end`: no more will come."""

    run: int
    files: tuple[tuple[str, int], ...] = ()
    end: bool = False


@dataclass(frozen=True)
class Close:
    """Nothing more will be added to a run."""

    run: int


@dataclass(frozen=True)
class Rest:
    """The reports of an exchange that also asks for work are durable: may its answer wait for work?"""

    pilot: str
    seq: int


@dataclass(frozen=True)
class PollRun:
    """The submitter of an open run asked about it."""

    run: int


@dataclass(frozen=True)
class Cancel:
    """Cancel runs (by number) or single tasks; `unless_running`: those that are known to run are left alone."""

    targets: tuple[int | TaskId, ...]
    why: str = "cancelled by the user"
    unless_running: bool = False


class RetrySpan(NamedTuple):
    """Elements low .. high - 1 that are final in one state and have no rows."""

    low: int
    high: int
    state: str


@dataclass(frozen=True)
class Retry:
    """Make final tasks of one run ready again: `rows` had a row, `spans` did not."""

    run: int
    rows: tuple[TaskRow, ...]
    spans: tuple[RetrySpan, ...] = ()
    outcomes: Outcomes = field(default_factory=dict)


@dataclass(frozen=True)
class SetFields:
    """Give tasks of a run, or one of them, other values of task fields, as far as they have not begun. `fields` are the
    values as they were given; `tables` the tables of the run's arrays with them, by first element, as JSON."""

    target: int | TaskId
    fields: dict[str, Any]
    tables: dict[int, str]


@dataclass(frozen=True)
class Remove:
    """Forget finished runs for good."""

    runs: tuple[int, ...]


@dataclass(frozen=True)
class Enrol:
    """Take a pilot in."""

    register: Register
    owner: str  # whose tasks it runs; empty: those of `group`
    site: str
    group: str = ""
    token: str = ""  # the enrolment token that lets it in
    max_pilots: int | None = None  # of that token, at one time
    bound: bool = False  # it gets a certificate, without which its session is no good


@dataclass(frozen=True)
class Talk:
    """An exchange of a pilot. `is_sealed`: it came by way of its leader, without its session, and its seal was checked."""

    exchange: Exchange
    is_sealed: bool = False


@dataclass(frozen=True)
class Signal:
    """Send a signal to the running attempts of runs or tasks [GWP G11]."""

    targets: tuple[int | TaskId, ...]
    number: int


@dataclass(frozen=True)
class Watch:
    """Somebody reads along: have a running task's stream sent for a while."""

    task: TaskId
    stream: str


@dataclass(frozen=True)
class Look:
    """Somebody looks at the files of a running task: have its pilot answer `request`."""

    task: TaskId
    kind: str  # of the order: list_files, read_file
    request: str
    path: str = ""
    offset: int = 0
    count: int = 0


@dataclass(frozen=True)
class SetPolicy:
    """Another policy from now on."""

    policy: Policy
    document: str  # the same as JSON
    author: str


@dataclass(frozen=True)
class Expel:
    """Tokens were revoked: the pilots they let in end at once and may not come back."""

    tokens: tuple[str, ...]
    why: str
    tickets: tuple[tuple[str, str, str], ...] = ()  # site, owner or group, and name of those that a ticket goes with


@dataclass(frozen=True)
class Regroup:
    """A person is in this group from now on; empty: in none."""

    owner: str
    group: str


@dataclass(frozen=True)
class Drain:
    """Ask pilots to finish and end; after `within` seconds they stop what still runs. `stop`: what can write a checkpoint
    does so at once and goes on elsewhere."""

    pilots: tuple[str, ...]
    why: str
    within: float | None = None
    stop: bool = False


@dataclass(frozen=True)
class Bury:
    """A pilot's process is known to be dead: do not wait for its lease to end."""

    pilot: str
    why: str


@dataclass(frozen=True)
class ReportSite:
    """The provisioner of a person reports what happens at one of their sites."""

    owner: str
    site: str
    status: SiteStatus


@dataclass(frozen=True)
class UsePlan:
    """Direct tasks to sites by this plan; None: by none."""

    plan: Plan | None


@dataclass(frozen=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True)
class Resume:
    """The server itself did not run for so many seconds until now; to be told before anything else."""

    gap: float


Command = (
    Submit | Accept | Add | Close | PollRun | Cancel | Retry | Signal | SetFields | Remove
    | Enrol | Talk | Rest | Watch | Look | Expel | Regroup | SetPolicy | Drain | Bury | ReportSite | Tick | Resume | Noticed
    | NoteChance | TellFiles | AdvancePlan | UsePlan
)  # fmt: skip
