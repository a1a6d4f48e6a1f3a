"""Messages between the pilot's loop and its guard, and how they are packed.

Each is packed as its number in `TYPES` and its field values, in the order of declaration. Only what `marshal` knows may be
in a field: no enum, no subclass of int or str.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional, Union

from shoal.model.limits import MAX_STREAM


# --- from pilot to guard
@dataclass
class Start:
    """Start a command, now or when the attempt `after` is over."""

    attempt: str
    argv: list[str]
    cwd: str
    env: dict[str, str]  # added to the shared environment `base`
    stdout: str
    stderr: str
    grace: float  # seconds from SIGTERM to SIGKILL
    umask: int
    stdin: Optional[str] = None
    base: Optional[int] = None  # number of an environment that many starts share
    base_env: Optional[dict[str, str]] = None  # its content, with the first start that names it
    after: str = ""
    time: Optional[float] = None  # limits: seconds, bytes, seconds of processor time, bytes of one file
    memory: int = 0
    cpu: Optional[float] = None
    file_size: Optional[int] = None
    exclusive: bool = False  # killed when contact with the server is lost
    stage_file: str = ""  # of a container: the file that says which runtime has it
    container: str = ""
    max_output: int = MAX_STREAM  # bytes that are kept of each stream
    own_streams: list[str] = field(default_factory=list)  # streams whose files are the submitter's: they have no bound


@dataclass
class Stop:
    """End an attempt, or take it out of the queue; without a grace only the latter."""

    attempt: str
    grace: Optional[float]


@dataclass
class SendSignal:
    """Send a signal to the process group of an attempt."""

    attempt: str
    number: int


@dataclass
class LastContact:
    """When the server last answered, and after how many seconds exclusive tasks are killed."""

    at: float
    kill_after: float


@dataclass
class WorkDirectory:
    """What the guard removes if the pilot dies, and what marks and limits its tasks."""

    path: str
    mark: str = ""  # in the environment of every task process
    entry: str = ""  # our file in the registry of pilots
    kill_group: str = ""  # cgroups, see `cgroup.Groups`
    memory_group: str = ""


@dataclass
class Quit:
    """The pilot ends in order."""


# --- from guard to pilot
@dataclass
class Started:
    """A process was started."""

    attempt: str
    pid: int
    at: float  # seconds since the epoch


@dataclass
class NotStarted:
    """There never was a process; `cause` as in model.states."""

    attempt: str
    cause: str
    message: str
    exit_code: Optional[int] = None
    errno: int = 0


@dataclass
class Ended:
    """Nothing is left of an attempt."""

    attempt: str
    exit_code: Optional[int]
    signal: Optional[int]
    why: str  # for which limit or request the guard ended it: time, memory, contact, stopped, space; or nothing
    duration: float
    cpu: float
    max_rss: int
    wrote: list[str] = field(default_factory=lambda: ["stdout", "stderr"])  # streams that may hold something
    left_out: dict[str, int] = field(default_factory=dict)  # bytes by stream, of those that lost their middle
    is_oom: bool = False  # the kernel killed it for want of memory
    no_space: int = 0  # number of the error by which output was lost
    folder: str = ""  # where that was
    sizes: dict[str, int] = field(default_factory=dict)  # bytes by stream, of what is kept


ToGuard = Union[Start, Stop, SendSignal, LastContact, WorkDirectory, Quit]
FromGuard = Union[Started, NotStarted, Ended]
Message = Union[ToGuard, FromGuard]
TYPES: tuple[type, ...] = (
    Start, Stop, SendSignal, LastContact, WorkDirectory, Quit, Started, NotStarted, Ended,
)  # fmt: skip
_NUMBERS = {kind: number for number, kind in enumerate(TYPES)}


def pack(message: Message) -> tuple[Any, ...]:
    """A message as `marshal` takes it."""
    return (_NUMBERS[type(message)], *vars(message).values())


def unpack(packed: tuple[Any, ...]) -> Any:
    """The message that was packed."""
    return TYPES[packed[0]](*packed[1:])
