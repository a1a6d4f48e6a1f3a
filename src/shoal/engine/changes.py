"""What the engine wants made durable, and what it answers: the order between the two is A7's.

A change is a whole row, so that the last one of a transaction stands for all before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shoal.model.event import Event
from shoal.model.people import PeopleRow
from shoal.wire.messages import Reply


class RunRow(NamedTuple):
    """One submission, with how far it is."""

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


class ArrayRow(NamedTuple):
    """One spec of a run: elements first .. first + size - 1; `task` is its table as JSON."""

    run: int
    first: int
    size: int
    name: str
    task: str


class TaskRow(NamedTuple):
    """A task that was leased or differs from its array."""

    run: int
    element: int
    state: str
    attempt: int  # the highest number handed out
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


class HostRow(NamedTuple):
    """What one host did for one owner or group, over all its pilots [G13]."""

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


class SpanDrop(NamedTuple):
    """The elements low .. high - 1 are not final any more."""

    run: int
    low: int
    high: int


Change = RunRow | ArrayRow | TaskRow | SpanRow | PilotRow | HostRow | SpanDrop | Event | PeopleRow


@dataclass(frozen=True)
class Answer:
    """A reply to an exchange, parked or fresh; `durable`: only after everything so far is committed."""

    pilot: str
    seq: int
    reply: Reply
    durable: bool


@dataclass
class Outcome:
    """What one command led to."""

    result: Any = None
    changes: list[Change] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
