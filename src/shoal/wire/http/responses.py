"""What the server answers, one dataclass a call: the OpenAPI description is made from here and tests hold answers to it.

Rows of lists are the columns of the database, which grow; they are described as plain objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

Row = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """Why a call was refused."""

    code: str
    message: str
    field: str
    hint: str


@dataclass(frozen=True)
class ErrorAnswer:
    """Every refusal."""

    error: Failure


@dataclass(frozen=True)
class Ok:
    """Someone is there."""

    ok: bool


@dataclass(frozen=True)
class Submitted:
    """A run was accepted, or had been with the same key."""

    run: str
    tasks: int
    reused: int
    again: bool
    reruns: list[Row]
    warnings: list[str]


@dataclass(frozen=True)
class Added:
    """Tasks were added to an open run, or had been."""

    run: str
    first: int
    tasks: int
    again: bool


@dataclass(frozen=True)
class ClosedRun:
    """Nothing more is added to a run."""

    run: str
    finished: bool


@dataclass(frozen=True)
class ResultsPage:
    """Tasks that became final: element, state, result, cause, message, attempt, last line, bytes of stdout and of
    stderr; and ranges of those that never ran: low, high (not in it), state, cause, message. `foreign`: elements of the
    page whose result was made on a pilot that is not the reader's own."""

    results: list[list[Any]]
    closed: list[list[Any]]
    last: int
    finished: bool
    foreign: list[int]
    nonce: (
        str  # names the run, also where its number is used again: a database that was restored begins another history
    )


@dataclass(frozen=True)
class BlobPut:
    """How much of a blob is here; `whole`: all of it, and the caller holds it."""

    digest: str
    size: int
    offset: int
    whole: bool


@dataclass(frozen=True)
class RunsPage:
    """Runs, newest first."""

    runs: list[Row]
    next: Optional[str]


@dataclass(frozen=True)
class OneRun:
    """One run whole, but for its tasks."""

    run: int
    owner: str
    name: str
    created: float
    finished: Optional[float]
    total: int
    counts: dict[str, int]
    arrays: list[Row]
    spans: list[Row]


@dataclass(frozen=True)
class TasksPage:
    """Rows of a run's tasks."""

    tasks: list[Row]
    next: Optional[int]


@dataclass(frozen=True)
class OneTask:
    """One task with its history."""

    run: Row
    array: Row
    task: Optional[Row]
    span: Optional[Row]
    state: str
    events: list[Row]


@dataclass(frozen=True)
class Because:
    """One reason, and what would help."""

    text: str
    fix: str


@dataclass(frozen=True)
class WhyAnswer:
    """Why something is where it is."""

    target: str
    state: str
    reasons: list[Because]


@dataclass(frozen=True)
class Cancelled:
    """How many tasks were cancelled."""

    cancelled: int
    already_final: int


@dataclass(frozen=True)
class Retried:
    """How many tasks are ready again, and of which runs."""

    tasks: int
    runs: list[str]


@dataclass(frozen=True)
class Signalled:
    """How many running tasks get the signal."""

    signalled: int
    not_running: int


@dataclass(frozen=True)
class EventsPage:
    """A part of the journal; go on after `last`."""

    events: list[Row]
    last: int


@dataclass(frozen=True)
class PilotsPage:
    """Pilots, newest first."""

    pilots: list[Row]


@dataclass(frozen=True)
class HostsPage:
    """Hosts, the one seen last first."""

    hosts: list[Row]


@dataclass(frozen=True)
class AcctAnswer:
    """Sums of the accounts. A line has the words of `by` and useful, failed, lost and duplicated core seconds, tasks,
    seconds queued and of staging. A place has those words and the core seconds that its pilots offered and that were
    used by anybody; there are none where lines are of owners or runs."""

    by: list[str]
    since: float
    until: float
    lines: list[Row]
    places: Optional[list[Row]]


@dataclass(frozen=True)
class Drained:
    """How many pilots were asked to end."""

    pilots: int


@dataclass(frozen=True)
class PolicyAnswer:
    """The policy: its version, who changed it last and when, the document, how many lines of it concern only others,
    and each limit with what of it is used."""

    version: int
    author: str
    changed: Optional[float]
    policy: Row
    hidden: int
    quotas: list[Row]


@dataclass(frozen=True)
class PolicyChanged:
    """What changed (or would), a line each, and what that means for what runs already."""

    version: int
    changes: list[str]
    notes: list[str]
    dry_run: bool


@dataclass(frozen=True)
class SharesPage:
    """Shares of people and groups: what part of the cores is due, what part is used, and usage as it weighs now."""

    shares: list[Row]
    groups: list[Row]


@dataclass(frozen=True)
class WhoAnswer:
    """Who the caller is."""

    owner: str
    group: str
    role: str
    kind: str
    scopes: list[str]
    expires: float
    token: str


@dataclass(frozen=True)
class UserAnswer:
    """One person."""

    name: str
    group: str
    role: str
    created: float


@dataclass(frozen=True)
class UsersPage:
    """People."""

    users: list[UserAnswer]


@dataclass(frozen=True)
class GroupAnswer:
    """One group."""

    name: str
    created: float


@dataclass(frozen=True)
class GroupsPage:
    """Groups."""

    groups: list[Row]


@dataclass(frozen=True)
class SiteAnswer:
    """One site and whose its name is: owners, "@GROUP"s, "*" for everybody."""

    name: str
    holders: list[str]
    created: float


@dataclass(frozen=True)
class SitesPage:
    """Sites."""

    sites: list[SiteAnswer]


@dataclass(frozen=True)
class TokensPage:
    """Tokens without their secrets."""

    tokens: list[Row]


@dataclass(frozen=True)
class TokenMade:
    """A new token: its secret is in this answer and nowhere else."""

    id: str
    token: str
    kind: str
    owner: str
    group: str
    site: str
    expires: float
    addresses: list[str]
    fingerprint: str
    pilot_sha256: str


@dataclass(frozen=True)
class Revoked:
    """How many tokens and pilots ended."""

    revoked: int
    pilots: int


@dataclass(frozen=True)
class AuditPage:
    """Uses of tokens, newest first."""

    audit: list[Row]
    next: Optional[int]


@dataclass(frozen=True)
class ServerAnswer:
    """What a server says of itself; administrators get more."""

    mode: str
    since: float
    version: str


@dataclass(frozen=True)
class Stopping:
    """The server ends."""

    stopping: bool


@dataclass(frozen=True)
class PruneAnswer:
    """What was deleted."""

    events: int
    log_bytes: int
