"""Events that a member of a mesh takes, and actions that it decides on (`member`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Union

from shoal.pilot.leader.messages import Elect, Follow, Lead, Vote
from shoal.wire.messages import Capacity, Leadership, Lease, TagValue

Message = Union[Follow, Elect]
Reply = Union[Lead, Vote]


# --- events
class Named(NamedTuple):
    """The server says who leads."""

    leadership: Leadership


class Granted(NamedTuple):
    """The server changes the window that we lead."""

    number: int
    leases: tuple[Lease, ...]
    gone: tuple[str, ...]


class Ended(NamedTuple):
    """The server says that these members are none any more."""

    ids: tuple[str, ...]


class Contact(NamedTuple):
    """The server answered something that was sent then."""

    at: float


class State(NamedTuple):
    """What is free here, and what requirements read of this pilot."""

    free: Capacity
    tags: Mapping[str, TagValue]
    leaving: bool


class Asked(NamedTuple):
    """A member asks; the answer goes to this ticket."""

    sender: str
    address: str
    message: Message
    ticket: int


class Answered(NamedTuple):
    """A member that we asked answered."""

    sender: str
    asked: Message
    message: Reply


class Failed(NamedTuple):
    """A member that we asked did not answer."""

    sender: str
    message: Message


class Tick(NamedTuple):
    """A deadline has come."""


Event = Union[Named, Granted, Ended, Contact, State, Asked, Answered, Failed, Tick]


# --- actions
class Ask(NamedTuple):
    """Ask a member; it may hold its answer for so long."""

    to: str
    address: str
    message: Message
    hold: float


class Say(NamedTuple):
    """Answer a member that asked."""

    ticket: int
    message: Reply


class Start(NamedTuple):
    """These tasks of the window were given to us: begin them."""

    leases: tuple[Lease, ...]


class Kept(NamedTuple):
    """What our exchanges say of the window: how many tasks, -1 if we do not lead; the last change that a majority keeps."""

    window: int
    seen: int
    reserve: int  # tasks that may still be begun here without the server


class Note(NamedTuple):
    """For the log."""

    text: str


Action = Union[Ask, Say, Start, Kept, Note]
