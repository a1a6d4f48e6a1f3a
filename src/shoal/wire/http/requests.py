"""Bodies of requests by people, one dataclass each: checked by `codec`, and the source of their OpenAPI description.

The fields of a task are those of the table in `model/task/spec.py`; messages of pilots are in `wire/messages.py`.
"""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

from shoal.model.lazy_dataclass import dataclass
from shoal.model.task.spec import Spec
from shoal.model.task.task_field import Quantity, task_fields


@dataclass(frozen=True)
class Nothing:
    """An empty object."""


@dataclass(frozen=True)
class Targets:
    """Runs and tasks; `unless_running`: those that run are left alone."""

    targets: list[str]
    unless_running: bool = False


@dataclass(frozen=True)
class Where:
    """Which of the tasks that did not succeed; texts may be globs, what is not given fits all."""

    state: Optional[str] = None
    cause: Optional[str] = None
    exit_code: Optional[int] = None
    host: Optional[str] = None
    site: Optional[str] = None
    message: Optional[str] = None


@dataclass(frozen=True)
class FilesBody:
    """Files for the rules of a run: names as seen from its directory, with their bytes (0: not known); `end`: no more will
    come."""

    files: dict[str, int] = field(default_factory=dict)
    end: bool = False


@dataclass(frozen=True)
class RetryRequest:
    """What to run again."""

    targets: list[str] = field(default_factory=list)
    where: Optional[Where] = None


@dataclass(frozen=True)
class SignalRequest:
    """A signal by name or number, and who gets it."""

    targets: list[str]
    signal: Union[str, int]


@dataclass(frozen=True)
class SetRequest:
    """Other values of task fields for the tasks of these runs, or for these tasks, that have not begun."""

    targets: list[str]
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CopyRequest:
    """What is different in a copy of a run. `only`: states and ranges of tasks, such as "failed" or "1-20,33"; `env` of
    the fields is added to what the tasks have."""

    fields: dict[str, Any] = field(default_factory=dict)
    only: str = ""
    name: Optional[str] = None
    seed: Optional[int] = None
    key: str = ""  # idempotency


@dataclass(frozen=True)
class RemoveRequest:
    """Finished runs to be removed."""

    runs: list[str]


@dataclass(frozen=True)
class DrainRequest:
    """Pilots that shall end; none: all one may end. `within`: when they stop what still runs; `stop`: what can write a
    checkpoint does so at once."""

    pilots: list[str] = field(default_factory=list)
    why: str = ""
    within: Optional[Quantity] = None
    stop: bool = False


@dataclass(frozen=True)
class PruneRequest:
    """What to keep of the past."""

    older_than: Optional[Quantity] = None
    keep: Optional[Quantity] = None


@dataclass(frozen=True)
class NewToken:
    """A token to be made."""

    kind: str = "submit"
    owner: str = ""  # empty: the caller, unless there is a group
    group: str = ""  # of an enrolment: its pilots serve the whole group
    site: str = ""
    max_pilots: Optional[int] = None
    expires: Optional[Quantity] = None  # from now on
    uses: Optional[int] = None
    scopes: list[str] = field(default_factory=list)
    note: str = ""
    ticket: bool = False  # of an enrolment of one use: what its pilot needs if it starts while the server is away


@dataclass(frozen=True)
class Revoke:
    """Tokens by their names, or all of a person or a site, or all but the caller's."""

    tokens: list[str] = field(default_factory=list)
    user: str = ""
    site: str = ""
    all: bool = False


@dataclass(frozen=True)
class NewUser:
    """A person; one that is there is changed."""

    name: str
    group: str = ""
    role: str = "user"


@dataclass(frozen=True)
class NewGroup:
    """A group."""

    name: str


@dataclass(frozen=True)
class SiteHolders:
    """Whose the name of a site is: users, "@GROUP"s or "*" for everybody; `only`: nobody else's any more."""

    name: str
    holders: list[str] = field(default_factory=list)
    only: bool = False


@dataclass(frozen=True)
class AllocationChange:
    """Something happened to an allocation: it was submitted, started or ended."""

    change: str
    name: str
    reason: str = ""  # in the batch system's own words
    cores: int = 0
    seconds: float = 0.0  # of wall time that it asked for, or took if it ended


@dataclass(frozen=True)
class PilotShape:
    """What one pilot of a site gets, by what tasks were seen to take. 0 bytes of memory: what the site gives."""

    cores: int
    seconds: float  # of wall time
    memory: int = 0
    hosts: int = 1  # of its allocation


@dataclass(frozen=True)
class SiteStatus:
    """What a provisioner reports of a site. `trouble` and `fix`: why no machines come from there; `note`: why it asks for
    more, or for none; `reasons`: why allocations wait, each in the batch system's own words; `failure`: how the last
    allocation ended that brought no pilot, with what it printed, until one does; `shape`: of the pilots that it asked for
    last, if it was known by then what tasks take; `pilot_cores` and `open_pilots`: of a pilot there, and how many more may be
    asked for; `wait`: seconds that one waited in its queue lately; `free_slots`: as its batch system tells them."""

    site: str
    backend: str
    queued: int = 0
    running: int = 0
    trouble: str = ""
    fix: str = ""
    note: str = ""
    reasons: list[str] = field(default_factory=list)
    changes: list[AllocationChange] = field(default_factory=list)
    failure: str = ""
    shape: Optional[PilotShape] = None
    pilot_cores: int = 0
    open_pilots: int = 0
    wait: Optional[float] = None
    free_slots: Optional[int] = None
    is_removed: bool = False  # the last report of a site that is forgotten


@dataclass(frozen=True)
class PolicyBody:
    """A whole policy in place of the version it is based on; `dry_run`: only list what it would change."""

    version: int
    policy: dict[str, Any]
    dry_run: bool = False


@dataclass(frozen=True)
class SharesBody:
    """Shares by owner or "@group"; who is not named keeps theirs."""

    shares: dict[str, float]


def table_type(spec: type) -> type:
    """The wire form of a task: a dataclass with the fields of a table, each optional, in the types of JSON."""
    made = make_dataclass("TaskTable", [(f.name, f.kind.json, field(default=None)) for f in task_fields(spec).values()])
    made.__doc__ = "One task or array of a submission, in the fields of the table in `model/task/spec.py`."
    return made


if TYPE_CHECKING:

    class TaskTable:
        """One task or array of a submission."""

else:
    TaskTable = table_type(Spec)


@dataclass(frozen=True)
class SubmissionBody:
    """One submission as it travels; checked by `wire/submission.py` and `server/handlers/submit.py`."""

    tasks: list[TaskTable]
    name: str = ""
    cwd: str = ""
    max_fail: Optional[int] = None
    max_running: Optional[int] = None
    seed: Optional[int] = None
    key: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    open: bool = False
    reduce: dict[str, str] = field(default_factory=dict)
    until: str = ""
    stated: Optional[float] = None
    notify: list[str] = field(default_factory=list)
    plan: Optional[float] = None  # the server plans it first; accepted by itself from this chance on
    rules: list[dict[str, Any]] = field(default_factory=list)  # that make tasks of files
    environment: Optional[dict[str, str]] = None
    environment_file: Optional[str] = None
    fingerprints: Optional[dict[str, Any]] = None  # of files and environment, as the client saw them
    resume: bool = False  # take over results of earlier runs of the same work
    dry_run: bool = False  # check it, and say what `resume` would take over; accept nothing
    strict: bool = False  # refuse a task that no pilot which is connected could ever run


@dataclass(frozen=True)
class AdditionBody:
    """Tasks for an open run; `first` is the element that the first of them becomes."""

    first: int
    tasks: list[TaskTable]
