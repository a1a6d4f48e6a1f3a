"""What happens to a pilot and what it does: the events and actions between `agent` (thought) and `loop` (hands)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, Union

from shoal.wire.messages import Batch, Exchange, FormerPilot, Lease, LogPiece, Registered, Reply, Report, TagValue


# --- what happens to a pilot
@dataclass(frozen=True)
class Joined:
    """The server took us in."""

    registered: Registered


@dataclass(frozen=True)
class Answered:
    """A reply came."""

    reply: Reply


@dataclass(frozen=True)
class NoAnswer:
    """No answer to exchange `seq`, or to a registration (seq 0); none is wanted before `after` seconds."""

    seq: int
    after: Optional[float] = None


@dataclass(frozen=True)
class Outdated:
    """The server has gone on past exchange `seq` (409 `replay`): what it carried must be said again in a new one."""

    seq: int


@dataclass(frozen=True)
class Rejected:
    """Exchange `seq` was refused for what it is. `is_sure`: by the server itself, and the same again would be refused
    again; else something between may have spoken."""

    seq: int
    why: str = ""
    is_sure: bool = True


@dataclass(frozen=True)
class Disowned:
    """The server does not know this session any more: enrol again [input E57]."""

    seq: int


@dataclass(frozen=True)
class Started:
    """The hands began an attempt."""

    attempt: str


@dataclass(frozen=True)
class Ended:
    """An attempt is over; `tails` and `more` as in `Wrote`."""

    report: Report
    tails: tuple[LogPiece, ...] = ()
    more: bool = False


@dataclass(frozen=True)
class Saved:
    """The checkpoint files of a running attempt are on the server, as they were at one moment: name -> digest."""

    attempt: str
    files: dict[str, str]


@dataclass(frozen=True)
class Called:
    """Calls of a piece ended, in order, from the first not told of before: those that succeeded, then those that did
    not. `over`: the piece holds its slot no longer, and what is left of it never began."""

    piece: str  # its first attempt
    batch: Optional[Batch] = None
    reports: tuple[Report, ...] = ()
    over: bool = False


@dataclass(frozen=True)
class Wrote:
    """Pieces of streams that the server cannot read itself; `more` of ended attempts waits for room to say it."""

    tails: tuple[LogPiece, ...]
    more: bool = False


@dataclass(frozen=True)
class Leave:
    """Take nothing new, finish, end; `now` also stops what runs, `mute`: nobody listens to us any more. `checkpoint`:
    what can write one does so at once and goes on elsewhere, for there may be little time left."""

    why: str
    now: bool = False
    mute: bool = False
    checkpoint: bool = False


@dataclass(frozen=True)
class Fetched:
    """The zip of the pilot that we should become came: does it fit its digest? None: it did not come."""

    digest: str
    fits: Optional[bool]
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Outlived:
    """Other pilots of this host are dead; by the digests of their sessions."""

    sessions: tuple[str, ...]


@dataclass(frozen=True)
class Noticed:
    """Tags that changed."""

    tags: dict[str, TagValue]


@dataclass(frozen=True)
class Announced:
    """A running attempt, or a call of this piece, published tags [GWP G4]."""

    attempt: str
    tags: dict[str, TagValue]


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Event = Union[
    Joined, Answered, NoAnswer, Outdated, Rejected, Disowned, Started, Ended, Saved, Called, Wrote, Leave, Fetched,
    Noticed, Announced, Outlived, Tick,
]  # fmt: skip


# --- what a pilot does
@dataclass(frozen=True)
class Join:
    """Register with the server; the nonce is the same while one registration is repeated."""

    former: Optional[FormerPilot]
    nonce: str = ""


@dataclass(frozen=True)
class Send:
    """Send an exchange."""

    exchange: Exchange


@dataclass(frozen=True)
class Begin:
    """Start an attempt, or have a runner make these calls one after another, with these graphics devices."""

    lease: Lease
    gpus: tuple[int, ...] = ()
    after: str = ""  # not before this attempt is over, whose room and devices it takes over


@dataclass(frozen=True)
class Stop:
    """End a running attempt: SIGTERM, then SIGKILL after the grace."""

    attempt: str
    why: str
    keep: bool = False  # it may go on later from the checkpoint that it wrote


@dataclass(frozen=True)
class Recall:
    """Take an attempt out of the line it stands in; one that has begun meanwhile goes on."""

    attempt: str


@dataclass(frozen=True)
class Signal:
    """Send a signal to a running attempt."""

    attempt: str
    number: int


@dataclass(frozen=True)
class Watch:
    """For a while, say what an attempt writes as it writes it; no stream: both."""

    attempt: str
    stream: str


@dataclass(frozen=True)
class Fetch:
    """Get the zip of the pilot that the server wants us to become."""

    digest: str


@dataclass(frozen=True)
class Complain:
    """Tell whoever reads our log of something that should not be."""

    words: str


@dataclass(frozen=True)
class Settle:
    """The server decided on a report: publish the outputs or throw them away."""

    attempt: str
    accepted: bool


@dataclass(frozen=True)
class Contact:
    """The guard may count an exclusive task's time without contact from `at`."""

    at: float


@dataclass(frozen=True)
class Finish:
    """The pilot ends; `renew`: it becomes the one with this digest, which was fetched."""

    code: int
    why: str
    renew: str = ""


Action = Union[Join, Send, Begin, Stop, Recall, Signal, Watch, Fetch, Complain, Settle, Contact, Finish]
