"""What happens to a pilot and what it does: the events and actions between `agent` (thought) and `loop` (hands)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from shoal.wire.messages import Exchange, Former, Lease, Registered, Reply, Report, TagValue, Tail


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
    """No answer to exchange `seq`, or to a registration (seq 0)."""

    seq: int


@dataclass(frozen=True)
class Outdated:
    """The server has gone on past exchange `seq` (409 `replay`): what it carried must be said again in a new one."""

    seq: int


@dataclass(frozen=True)
class Disowned:
    """The server does not know this session any more: enrol again [E57]."""

    seq: int


@dataclass(frozen=True)
class Started:
    """The hands began an attempt."""

    attempt: str


@dataclass(frozen=True)
class Ended:
    """An attempt is over; `tails` hold its streams where the server cannot read them."""

    report: Report
    tails: tuple[Tail, ...] = ()


@dataclass(frozen=True)
class Leave:
    """Take nothing new, finish, end; `now` also stops what runs."""

    why: str
    now: bool = False


@dataclass(frozen=True)
class Noticed:
    """Tags that changed."""

    tags: dict[str, TagValue]


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Event = Union[Joined, Answered, NoAnswer, Outdated, Disowned, Started, Ended, Leave, Noticed, Tick]


# --- what a pilot does
@dataclass(frozen=True)
class Join:
    """Register with the server."""

    former: Optional[Former]


@dataclass(frozen=True)
class Send:
    """Send an exchange."""

    exchange: Exchange


@dataclass(frozen=True)
class Begin:
    """Start an attempt, with these graphics devices."""

    lease: Lease
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stop:
    """End a running attempt: SIGTERM, then SIGKILL after the grace."""

    attempt: str
    why: str


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
    """The pilot ends."""

    code: int
    why: str


Action = Union[Join, Send, Begin, Stop, Settle, Contact, Finish]
