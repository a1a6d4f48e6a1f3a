"""Broadcast with aggregation over the table of a site [LBO D7]: one peer reaches all others, and gets one merged answer.

Whoever covers a region of ids, which always contains its own, divides it into eight by the next three bits and passes the
message on to one contact in each: nobody sends to more than eight, and the tree is as deep as the logarithm to the base 8
of the number of peers. Answers are merged on their way back. Pure: `handle(event, now)` returns the actions to perform.

Rules: (1) a contact that does not confirm the message in time is replaced by another one of its region, which repairs stale
tables. (2) A parent waits longer than its children, so that a peer that dies costs its branch only. (3) What comes later than
that is dropped and counted: its peer waits for the next broadcast. (4) Whoever is known in a region with few others gets all
of it in which no other one is known. (5) A peer covers a region once; the part of it that contains its own id may go to another
peer, and a region within that may come back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from random import Random
from typing import NamedTuple, Optional, Union

from shoal.dht import messages as wire
from shoal.dht.key import BITS
from shoal.dht.routing_table import Contact, RoutingTable
from shoal.model.lazy_dataclass import dataclass

DIVIDE_BITS = 3  # by which a region is divided: eight parts
PARTS = 1 << DIVIDE_BITS
CONFIRM_WITHIN = 0.5  # seconds: peers are on one local network
TRIES = 6  # contacts that may be dead before a region is given up
DEEPEST = 12  # levels: 8 to the power of it is more than the peers of any site
LEVEL_WAIT = CONFIRM_WITHIN * (TRIES + 1)  # seconds by which a parent waits longer than its children
LONGEST_WORK = 600.0  # seconds that peers may take for their own answer
KEPT = 256  # broadcasts that a peer remembers
MOST_ITEMS = 100_000  # of a merged answer


# --- events
class Begin(NamedTuple):
    """Reach all peers, of which there are about so many. `own`: what we say ourselves; `within`: seconds in which peers may
    work on their answer."""

    name: str
    content: str
    own: tuple[str, ...]
    within: float
    peers: int


class Arrived(NamedTuple):
    """A message about a broadcast came from a peer."""

    sender: Contact
    message: wire.SpreadMessage


class Answer(NamedTuple):
    """What this peer says to a broadcast that was delivered to it."""

    name: str
    items: tuple[str, ...]


class Tick(NamedTuple):
    """A deadline has come."""


Event = Union[Begin, Arrived, Answer, Tick]


# --- actions
class Send(NamedTuple):
    """Send a message to a peer."""

    to: Contact
    message: wire.SpreadMessage


class Deliver(NamedTuple):
    """A broadcast is for this peer, too: give an `Answer`."""

    name: str
    content: str


class Gathered(NamedTuple):
    """What all peers said that answered in time, and how many they were; `missing`: branches that did not."""

    name: str
    items: tuple[str, ...]
    peers: int
    missing: int


Action = Union[Send, Deliver, Gathered]


@dataclass
class _Branch:
    """A region that a contact covers for us."""

    prefix: int
    length: int
    contact: Contact
    due: float  # until when it is to confirm
    tried: tuple[int, ...]  # contacts of the region that are dead
    is_confirmed: bool = False


class _Coverage:
    """A region that this peer covers in one broadcast. `parent` is None where it began."""

    def __init__(self, message: wire.Broadcast, parent: Optional[Contact], now: float) -> None:
        self.message, self.parent = message, parent
        self.ends = now + message.within + LEVEL_WAIT * max(1, message.levels)  # then what is there goes to the parent
        self.branches: list[_Branch] = []
        self.items: list[str] = []
        self.peers = self.missing = 0
        self.own_part = BITS + 1  # length of the part with our own id, if that went to another peer
        self.waits_for_us = False  # for our own answer
        self.is_over = False


class Spread:
    """The part of one peer in the broadcasts of its site. The table is that of its `Peer`."""

    def __init__(self, own: Contact, table: RoutingTable, rng: Random) -> None:
        self.own, self._table, self._rng = own, table, rng
        self._known: OrderedDict[str, list[_Coverage]] = OrderedDict()  # each for a larger region than the one before
        self.late = 0  # answers that came after their time
        self.ignored = 0  # messages that break a bound

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event; returns what to do."""
        actions: list[Action] = []
        if isinstance(event, Begin):
            message = wire.Broadcast(event.name, event.content, 0, levels_of(event.peers), event.within)
            made = self._open(message, None, now)
            made.items, made.peers = list(event.own), 1
            self._divide(made, now, actions)
        elif isinstance(event, Arrived):
            if isinstance(event.message, wire.Broadcast):
                self._on_broadcast(event.sender, event.message, now, actions)
            else:
                self._on_reply(event.sender, event.message)
        elif isinstance(event, Answer):
            for known in self._known.get(event.name, ()):
                if known.waits_for_us:
                    known.items += event.items
                    known.peers, known.waits_for_us = known.peers + 1, False
        self._on_time(now, actions)
        return actions

    def deadline(self) -> Optional[float]:
        """When the next `Tick` is due."""
        due = []
        for one in self._open_ones():
            due += [one.ends, *(branch.due for branch in one.branches if not branch.is_confirmed)]
        return min(due, default=None)

    def _covers(self, name: str, length: int) -> Optional[_Coverage]:
        """The coverage of ours that a region around our id belongs to, and that does not leave it to another peer."""
        for one in self._known.get(name, ()):
            if one.message.length <= length < one.own_part:
                return one
        return None

    def _open_ones(self) -> list[_Coverage]:
        return [one for known in self._known.values() for one in known if not one.is_over]

    # --- what comes from others
    def _on_broadcast(self, sender: Contact, message: wire.Broadcast, now: float, actions: list[Action]) -> None:
        is_within = 0 <= message.length <= BITS and -DEEPEST <= message.levels <= DEEPEST
        if not is_within or not 0.0 <= message.within <= LONGEST_WORK:
            self.ignored += 1
            return
        covered = self._covers(message.name, message.length)
        if covered is not None:
            # The same parent again: our confirmation was lost, and the answer is still to come.
            is_repeated = covered.parent is not None and covered.parent.id == sender.id and not covered.is_over
            actions.append(Send(sender, wire.Confirm(message.name, message.length, had_it=not is_repeated)))
            return
        is_new = message.name not in self._known
        actions.append(Send(sender, wire.Confirm(message.name, message.length)))
        made = self._open(message, sender, now)
        if is_new:
            made.waits_for_us = True
            actions.append(Deliver(message.name, message.content))
        self._divide(made, now, actions)

    def _on_reply(self, sender: Contact, message: Union[wire.Confirm, wire.Answers]) -> None:
        for known in self._known.get(message.name, ()):
            for branch in known.branches:
                if branch.contact.id == sender.id and branch.length == message.length:
                    self._take(known, branch, message)
                    return
        self.late += isinstance(message, wire.Answers)

    def _take(self, known: _Coverage, branch: _Branch, message: Union[wire.Confirm, wire.Answers]) -> None:
        if isinstance(message, wire.Answers):
            if len(known.items) + len(message.items) > MOST_ITEMS or message.peers < 0 or message.missing < 0:
                self.ignored += 1
                return
            known.items += message.items
        branch.is_confirmed = True
        is_last = message.had_it if isinstance(message, wire.Confirm) else not message.more
        if is_last:
            known.branches.remove(branch)
        if is_last and isinstance(message, wire.Answers):
            known.peers += message.peers
            known.missing += message.missing

    def _open(self, message: wire.Broadcast, parent: Optional[Contact], now: float) -> _Coverage:
        made = _Coverage(message, parent, now)
        self._known.setdefault(message.name, []).append(made)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return made

    # --- passing on
    def _divide(self, made: _Coverage, now: float, actions: list[Action]) -> None:
        """Pass a broadcast on to one contact in each part of our region."""
        length = made.message.length
        region = [one.id for one in self._table if _is_inside(one.id, self.own.id, length)]
        longest = length + DIVIDE_BITS if len(region) > PARTS else BITS
        for prefix, bits in _parts(region, length, longest, self.own.id):
            if _is_inside(self.own.id, prefix, bits):
                made.own_part = bits
            self._pass_on(made, prefix, bits, (), now, actions)

    def _pass_on(
        self, made: _Coverage, prefix: int, length: int, dead: tuple[int, ...], now: float, actions: list[Action]
    ) -> None:
        """Pass a broadcast on to a contact in a region, another one than those that are dead. If nobody is left there, somebody
        next to it gets it with the region around it: that one may know others."""
        inside = self._contacts(prefix, length, dead)
        while dead and not inside and length > made.message.length:
            length -= 1
            prefix = prefix >> (BITS - length) << (BITS - length)
            inside = self._contacts(prefix, length, dead)
        if not inside or len(dead) >= TRIES:
            made.missing += 1
            return
        # Whoever sent it to us covers part of the region already: it is asked if there is nobody else.
        inside = [one for one in inside if made.parent is None or one.id != made.parent.id] or inside
        contact = inside[self._rng.randrange(len(inside))]
        made.branches.append(_Branch(prefix, length, contact, now + CONFIRM_WITHIN, dead))
        given = made.message
        message = wire.Broadcast(given.name, given.content, length, given.levels - 1, given.within)
        actions.append(Send(contact, message))

    def _contacts(self, prefix: int, length: int, dead: tuple[int, ...]) -> list[Contact]:
        return [one for one in self._table if one.id not in dead and _is_inside(one.id, prefix, length)]

    # --- time
    def _on_time(self, now: float, actions: list[Action]) -> None:
        for made in self._open_ones():
            for branch in [one for one in made.branches if not one.is_confirmed and one.due <= now]:
                made.branches.remove(branch)
                self._table.remove(branch.contact.id)
                dead = (*branch.tried, branch.contact.id)
                self._pass_on(made, branch.prefix, branch.length, dead, now, actions)
            if not (made.waits_for_us or made.branches) or now >= made.ends:
                self._finish(made, actions)

    def _finish(self, made: _Coverage, actions: list[Action]) -> None:
        made.is_over = True
        made.missing += len(made.branches)
        made.branches.clear()
        made.waits_for_us = False
        items, made.items = made.items, []
        name, length = made.message.name, made.message.length
        if made.parent is None:
            actions.append(Gathered(name, tuple(items), made.peers, made.missing))
            return
        while len(items) > wire.MAX_ITEMS:
            actions.append(Send(made.parent, wire.Answers(name, length, items[: wire.MAX_ITEMS], more=True)))
            items = items[wire.MAX_ITEMS :]
        actions.append(Send(made.parent, wire.Answers(name, length, items, made.peers, made.missing)))


def levels_of(peers: int) -> int:
    """How deep the tree of so many peers is, and two levels more: ids are not spread evenly."""
    return min(DEEPEST, -(-max(1, peers).bit_length() // DIVIDE_BITS) + 2)


def _parts(ids: list[int], length: int, longest: int, own: Optional[int]) -> list[tuple[int, int]]:
    """Regions, as prefix and length, that together hold all of a region in which these ids are known; each has one of them.

    `own`: our id, if it is in the region. Where nobody is known in a half of that, nobody is there: each peer knows somebody in
    every half beside its own. Elsewhere somebody may be: such a half stays with the other one, in which somebody is known who
    knows better.
    """
    if not ids:
        return []
    if length >= longest:
        return [(ids[0], length)]
    bit = 1 << (BITS - 1 - length)
    halves = ([id for id in ids if not id & bit], [id for id in ids if id & bit])
    if own is None and not all(halves):
        return [(ids[0], length)]
    found: list[tuple[int, int]] = []
    for half, is_upper in zip(halves, (False, True)):
        found += _parts(half, length + 1, longest, own if own is not None and bool(own & bit) == is_upper else None)
    return found


def _is_inside(id: int, prefix: int, length: int) -> bool:
    return (id ^ prefix) >> (BITS - length) == 0


def parts_of(content: Iterable[str], most: int) -> list[list[str]]:
    """Texts in parts of at most so many characters together, for one broadcast each; a longer text is a part of its own."""
    found: list[list[str]] = []
    size = 0
    for text in content:
        if not found or size + len(text) > most:
            found.append([])
            size = 0
        found[-1].append(text)
        size += len(text)
    return found
