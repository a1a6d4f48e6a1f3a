"""Messages between the pilot's loop and its guard, and how they are packed.

Each is packed as its number in `TYPES` and its field values, in the order of declaration. Only what `marshal` knows may be
in a field: no enum, no subclass of int or str.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Optional, Union

from shoal.model.lazy_dataclass import dataclass
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
class StartPiece:
    """Run commands on neighbouring elements one after another [ADR 0033], now or when the attempt `after` is over."""

    attempt: str  # the first; the piece is known by it
    start: list[Any]  # the fields of `Start` of the first one, which hold for all but for the following
    envs: list[dict[str, str]]  # for each element: variables over those of `start`
    argvs: list[list[str]]  # likewise; empty: all have the same
    folder: str  # of their logs


@dataclass
class Shorten:
    """Begin no more commands of a piece."""

    attempt: str


@dataclass
class Stop:
    """End an attempt, or take it out of the queue; without a grace only the latter, and of pieces only whole ones."""

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

    path: str  # empty: another guard of the pilot removes it
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
    piece: str = ""  # of which it is one; of those only such as take a while are reported


@dataclass
class NotStarted:
    """There never was a process; `cause` as in model.states."""

    attempt: str
    cause: str
    message: str
    exit_code: Optional[int] = None
    errno: int = 0
    piece: str = ""  # of which it is one


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
    piece: str = ""  # of which it is one, and
    started: float = 0.0  # when it began


@dataclass
class Ran:
    """Commands of a piece ended, in order, beginning with the first not reported before: all with exit code 0, and none
    wrote anything. `over`: the piece holds its slot no longer, and what is left of it never began."""

    attempt: str  # the piece
    started: list[float]  # seconds since the epoch
    duration: list[float]
    cpu: list[float]
    max_rss: list[int]
    over: bool = False


@dataclass
class Shortened:
    """Those of a piece from `count` on will not begin."""

    attempt: str
    count: int


ToGuard = Union[Start, StartPiece, Shorten, Stop, SendSignal, LastContact, WorkDirectory, Quit]
OnProcess = Union[Started, NotStarted, Ended]
FromGuard = Union[OnProcess, Ran, Shortened]
Message = Union[ToGuard, FromGuard]
TYPES: tuple[type, ...] = (
    Start, StartPiece, Shorten, Stop, SendSignal, LastContact, WorkDirectory, Quit, Started, NotStarted, Ended, Ran,
    Shortened,
)  # fmt: skip
_NUMBERS = {kind: number for number, kind in enumerate(TYPES)}


def pack(message: Message) -> tuple[Any, ...]:
    """A message as `marshal` takes it."""
    return (_NUMBERS[type(message)], *vars(message).values())


def unpack(packed: tuple[Any, ...]) -> Any:
    """The message that was packed."""
    return TYPES[packed[0]](*packed[1:])
