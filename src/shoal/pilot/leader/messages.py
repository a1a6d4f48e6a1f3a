"""What the members of a mesh say to each other about their leader and their window [protocol 12; ADR 0056]."""

from __future__ import annotations

from dataclasses import field
from typing import Optional

from shoal.model.lazy_dataclass import dataclass
from shoal.wire.messages import Capacity, Lease

MEMBER, LEFT, TASK, GIVEN, GONE = "member", "left", "task", "given", "gone"


@dataclass(frozen=True)
class Entry:
    """One change of what all members keep, as the leader numbers it: a member (`value`: its address), one that left, a task of
    the window, a task that is given to a member (`value`: its id) to be started, a task that is in the window no more."""

    number: int
    kind: str
    name: str  # id of a member, or an attempt
    value: str = ""
    lease: Optional[Lease] = None


@dataclass(frozen=True)
class KindBid:
    """The sender can run tasks of this kind, and how well."""

    kind: str
    rank: float


@dataclass(frozen=True)
class Follow:
    """A follower to its leader: what it has of the window, and what it bids for. The answer waits for news, for a while."""

    term: int
    seq: int
    version: int  # it has every entry up to this one
    is_cut_off: bool = False  # the server does not answer it
    free: Capacity = Capacity()
    bids: list[KindBid] = field(default_factory=list)
    leaving: bool = False


@dataclass(frozen=True)
class Lead:
    """The answer: what is new. Another or no leader: the sender is not led by whom it asked."""

    term: int
    leader: str
    address: str = ""
    entries: list[Entry] = field(default_factory=list)
    committed: int = 0  # a majority has every entry up to this one
    more: bool = False  # of them there are more: ask again at once


@dataclass(frozen=True)
class Elect:
    """Let me lead: the leader does not answer, nor does the server. `after`: entries of the vote that came already."""

    term: int
    after: int = 0


@dataclass(frozen=True)
class Vote:
    """The answer. A vote tells who the members are, and which tasks were given or are gone, so that nobody begins them again."""

    term: int  # the greatest that the sender has seen
    granted: bool
    leader: str = ""  # of that term, as far as it knows
    address: str = ""
    entries: list[Entry] = field(default_factory=list)
    more: bool = False
