"""Messages between the pilots of a site [LBO D2; ADR 0046]: plain frozen dataclasses, encoded by `codec`.

Ids and keys travel as 64 hexadecimal digits. A request has a number that its reply repeats. Every list is bounded; whoever
sends more is not listened to.
"""

from __future__ import annotations

from dataclasses import field
from typing import Union

from shoal.model.lazy_dataclass import dataclass

MAX_CONTACTS = 16  # in one reply
MAX_KEYS = 200  # in one message
MAX_ITEMS = 2_000  # in one message with answers to a broadcast


@dataclass(frozen=True)
class PeerAddress:
    """A peer, and where it listens."""

    id: str
    address: str


@dataclass(frozen=True)
class FindPeers:
    """Which peers are closest to this key?"""

    number: int
    key: str


@dataclass(frozen=True)
class FindHolders:
    """Who has the file with this digest? Without a record: which peers are closest to it?"""

    number: int
    key: str


@dataclass(frozen=True)
class Found:
    """The answer to both: holders, where there is a record, and the closest peers."""

    number: int
    contacts: list[PeerAddress] = field(default_factory=list)
    holders: list[PeerAddress] = field(default_factory=list)


@dataclass(frozen=True)
class Store:
    """Keep the note that the sender has these files."""

    number: int
    keys: list[str]


@dataclass(frozen=True)
class HandOver:
    """The sender leaves: others have this file, which is believed for so many seconds from now."""

    number: int
    key: str
    holders: list[PeerAddress]
    seconds: list[float]


@dataclass(frozen=True)
class Withdraw:
    """The sender no longer has these files."""

    number: int
    keys: list[str]


@dataclass(frozen=True)
class Done:
    """A request that has no other answer was carried out."""

    number: int


@dataclass(frozen=True)
class Leave:
    """The sender ends: it is no contact and no holder any more. Nobody answers."""


PeerRequest = Union[FindPeers, FindHolders, Store, HandOver, Withdraw, Leave]
PeerMessage = Union[PeerRequest, Found, Done]


@dataclass(frozen=True)
class Broadcast:
    """Pass this on to all peers whose ids begin with the same bits as the receiver's, and answer for all of them
    [LBO D7]."""

    name: str
    content: str
    length: int  # how many bits
    levels: int  # of the tree, that are expected from here on
    within: float  # seconds in which each may work on its own answer


@dataclass(frozen=True)
class Confirm:
    """A broadcast for a region of so many bits arrived; `had_it`: it did before, for that region or a larger one."""

    name: str
    length: int
    had_it: bool = False


@dataclass(frozen=True)
class Answers:
    """What the peers of a region say to a broadcast; `more`: another message follows, with the numbers."""

    name: str
    length: int
    items: list[str] = field(default_factory=list)
    peers: int = 0  # that answered
    missing: int = 0  # branches that did not
    more: bool = False


SpreadMessage = Union[Broadcast, Confirm, Answers]
