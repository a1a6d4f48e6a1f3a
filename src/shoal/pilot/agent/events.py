"""The events that `loop` delivers to `agent`, and the actions that it performs for it."""

from __future__ import annotations

from dataclasses import field
from typing import Optional, Union

from shoal.model.lazy_dataclass import dataclass
from shoal.wire.messages import (
    Accusation,
    Batch,
    Exchange,
    FileAnswer,
    FormerPilot,
    Lease,
    LogPiece,
    Order,
    Registered,
    Reply,
    Report,
    Sealed,
    TagValue,
)


# --- events
@dataclass(frozen=True)
class Joined:
    """The registration succeeded."""

    registered: Registered
    sees_logs: bool = True  # what tasks write goes to the server's own files, and is not sent


@dataclass(frozen=True)
class Answered:
    """A reply arrived."""

    reply: Reply


@dataclass(frozen=True)
class NoAnswer:
    """No answer to exchange `seq`, or to a registration (seq 0); the server wants no retry before `after` seconds."""

    seq: int
    after: Optional[float] = None


@dataclass(frozen=True)
class Outdated:
    """The server is past exchange `seq` (409 `replay`): what it carried must be sent again in a new one."""

    seq: int


@dataclass(frozen=True)
class Rejected:
    """Exchange `seq` was refused for its content. `is_sure`: by the server itself, which would refuse it again; else
    perhaps by a proxy."""

    seq: int
    why: str = ""
    is_sure: bool = True


@dataclass(frozen=True)
class Disowned:
    """The server does not know this session any more: enrol again [input E57]."""

    seq: int


@dataclass(frozen=True)
class Started:
    """The process of an attempt was started."""

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
    emitted: str = ""  # what it had emitted by then


@dataclass(frozen=True)
class Emitting:
    """What a running attempt has emitted so far, reduced."""

    attempt: str
    text: str


@dataclass(frozen=True)
class Called:
    """Those of a piece ended, in order, beginning with the first not reported before: such as succeeded, then such as
    did not. `over`: the piece holds its slot no longer, and what is left of it never began."""

    piece: str  # its first attempt
    batch: Optional[Batch] = None
    reports: tuple[Report, ...] = ()
    over: bool = False
    apart: bool = False  # such commands begin one by one on this host: each needs a directory of its own


@dataclass(frozen=True)
class Wrote:
    """Pieces of streams that the server cannot read itself; `more` of ended attempts waits to be sent."""

    tails: tuple[LogPiece, ...]
    more: bool = False


@dataclass(frozen=True)
class Looked:
    """What was asked about the files of an attempt is answered."""

    answer: FileAnswer


@dataclass(frozen=True)
class Leave:
    """Take nothing new, finish, end; `now` also stops what runs, `mute`: the server refuses us for good. `checkpoint`:
    what can write one does so at once and goes on elsewhere, because there may be little time left."""

    why: str
    now: bool = False
    mute: bool = False
    checkpoint: bool = False


@dataclass(frozen=True)
class Fetched:
    """The zip of the pilot to become was fetched; `fits`: it has the digest, or None if it did not come."""

    digest: str
    fits: Optional[bool]
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Outlived:
    """Other pilots of this host died; named by the digests of their sessions."""

    sessions: tuple[str, ...]


@dataclass(frozen=True)
class Accused:
    """A peer gave wrong bytes again and again."""

    accusation: Accusation


@dataclass(frozen=True)
class Deliver:
    """Copies of others' reports, to be brought to the server with the next exchange."""

    copies: tuple[Sealed, ...]


@dataclass(frozen=True)
class Noticed:
    """Tags of this pilot changed."""

    tags: dict[str, TagValue]


@dataclass(frozen=True)
class CacheChanged:
    """Files came into the cache of this host, each with its size, or left it."""

    added: tuple[tuple[str, int], ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class Announced:
    """A running attempt, or the running call of a piece, published tags [GWP G4]."""

    attempt: str
    tags: dict[str, TagValue]


@dataclass(frozen=True)
class Waits:
    """A running attempt, or the call `call` of a piece, began or ceased to wait for other tasks."""

    attempt: str
    call: str  # as people read it: r12.7#1
    is_waiting: bool


@dataclass(frozen=True)
class Shortened:
    """Those of a piece from `count` on did not begin and do not belong to it any more."""

    piece: str  # its first attempt
    count: int


@dataclass(frozen=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True)
class Assigned:
    """Tasks of the window of our mesh were given to us, while the server is away."""

    leases: tuple[Lease, ...]


@dataclass(frozen=True)
class Reserved:
    """The window of our mesh changed: what our exchanges say of it, and how many tasks of it may still come to us."""

    window: int
    seen: int
    reserve: int


Event = Union[
    Joined, Answered, NoAnswer, Outdated, Rejected, Disowned, Started, Ended, Saved, Called, Wrote, Leave, Fetched,
    Noticed, Announced, Emitting, Accused, CacheChanged, Outlived, Looked, Waits, Shortened, Deliver, Assigned, Reserved,
    Tick,
]  # fmt: skip


# --- actions
@dataclass(frozen=True)
class Join:
    """Register with the server; the nonce is the same while one registration is repeated."""

    former: Optional[FormerPilot]
    nonce: str = ""


@dataclass(frozen=True)
class Send:
    """Send an exchange; `itself`: to the server, and not by way of the leader of our mesh."""

    exchange: Exchange
    itself: bool = False


@dataclass(frozen=True)
class Begin:
    """Start an attempt, have a runner make these calls one after another, or the guard run these commands, with these GPUs."""

    lease: Lease
    gpus: tuple[int, ...] = ()
    after: str = ""  # not before this attempt is over, whose slot and GPUs it takes over


@dataclass(frozen=True)
class Stop:
    """End a running attempt: SIGTERM, then SIGKILL after the grace."""

    attempt: str
    why: str
    keep: bool = False  # it may go on later from the checkpoint that it wrote


@dataclass(frozen=True)
class Recall:
    """Take an attempt back from the guard's queue; one that has begun meanwhile goes on."""

    attempt: str


@dataclass(frozen=True)
class Shorten:
    """Take those of a piece that have not begun from its runner, or from the guard, because the one that runs waits for
    other tasks, or something else has a use for the slot."""

    piece: str


@dataclass(frozen=True)
class Signal:
    """Send a signal to a running attempt."""

    attempt: str
    number: int


@dataclass(frozen=True)
class Watch:
    """For a while, upload what an attempt writes as it writes it; no stream: both."""

    attempt: str
    stream: str


@dataclass(frozen=True)
class Look:
    """List a directory of a running attempt, or read a part of a file in it; answered by `Looked`."""

    order: Order


@dataclass(frozen=True)
class Fetch:
    """Fetch the zip of the pilot that the server wants us to become."""

    digest: str


@dataclass(frozen=True)
class Complain:
    """Log an error."""

    message: str


@dataclass(frozen=True)
class Settle:
    """The server decided on a report: publish the outputs or delete them."""

    attempt: str
    accepted: bool


@dataclass(frozen=True)
class Delivered:
    """The server has these reports of others: they need not be kept any longer."""

    copies: tuple[Sealed, ...]


@dataclass(frozen=True)
class Contact:
    """The last contact with the server; from then on the guard counts the time of exclusive tasks without contact."""

    at: float


@dataclass(frozen=True)
class Finish:
    """End the pilot; `renew`: it becomes the one with this digest, which was fetched."""

    code: int
    why: str
    renew: str = ""


Action = Union[
    Join, Send, Begin, Stop, Recall, Shorten, Signal, Watch, Look, Fetch, Complain, Settle, Delivered, Contact, Finish
]
