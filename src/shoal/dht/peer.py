"""One pilot as a peer of its site's table: who has which file, asked and answered [LBO D2; ADR 0046]. Pure.

`handle(event, now)` takes an event and returns the actions to perform; `deadline()` says when the next `Tick` is due. Rules:
(1) a peer that is not a member of the mesh is neither answered nor remembered; (2) a request without an answer in time is a
failure of that contact, never an error; (3) what we publish is published again before it expires, and on leaving handed on;
(4) a record is a hint: the digest proves the bytes, and a lookup that fails twice is a question to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple, Optional, Union

from shoal.dht import messages as wire
from shoal.dht.key import key_in_bucket, parse_key, show_key
from shoal.dht.lookup import REPLICAS, Lookup
from shoal.dht.records import Holder, Records
from shoal.dht.routing_table import BUCKET_SIZE, Contact, RoutingTable
from shoal.model.lazy_dataclass import dataclass

ANSWER_WITHIN = 1.5  # seconds: peers are on one local network
REPUBLISH = 600.0  # seconds after which a holder tells again that it has a file
BELIEVED = 1_500.0  # seconds that a note is believed: two renewals may be lost
REFRESH = 900.0  # seconds after which a bucket without a lookup gets one
SWEEP = 120.0  # seconds between two looks for notes that have expired
PUBLISH_AT_ONCE = 8  # lookups for publishing that are under way at one time
DISJOINT = 3  # paths of a lookup that is tried again


# --- events
class Join(NamedTuple):
    """Become a peer, with contacts that the server named."""

    contacts: tuple[Contact, ...]


class Publish(NamedTuple):
    """We have files with these digests from now on."""

    keys: tuple[int, ...]


class Unpublish(NamedTuple):
    """We no longer have files with these digests."""

    keys: tuple[int, ...]


class Find(NamedTuple):
    """Who has a file? `again`: the first answer did not help, so ask along disjoint paths."""

    request: int
    key: int
    again: bool = False


class Received(NamedTuple):
    """A message came from a peer whose certificate names this id. Without an address it is reached by nobody: it is answered,
    and neither a contact nor a holder."""

    sender: Contact
    message: wire.PeerMessage


class Failed(NamedTuple):
    """A message cannot be delivered to this peer: what it was asked is not waited for."""

    id: int


class Drop(NamedTuple):
    """This peer is a member no more."""

    id: int


class End(NamedTuple):
    """Leave the table."""


class Tick(NamedTuple):
    """A deadline has come."""


Event = Union[Join, Publish, Unpublish, Find, Received, Failed, Drop, End, Tick]


# --- actions
class Send(NamedTuple):
    """Send a message to a peer."""

    to: Contact
    message: wire.PeerMessage


class Holders(NamedTuple):
    """The answer to `Find`; no contacts: nobody was found."""

    request: int
    contacts: tuple[Contact, ...]
    asked: int  # requests that it took
    hops: int  # of the longest chain of answers


Action = Union[Send, Holders]


@dataclass
class _Waiting:
    """A request without an answer yet."""

    contact: Contact
    due: float
    lookup: Optional[Lookup]  # None: an answer changes nothing


@dataclass
class _Task:
    """Why a lookup was begun."""

    request: int = -1  # of a `Find`; -1: none
    publishes: bool = False
    joins: bool = False


class Peer:
    """The state and the rules of one peer."""

    def __init__(self, own: Contact, rng: Random, is_member: Callable[[int], bool], now: float) -> None:
        self.own, self._rng, self._is_member = own, rng, is_member
        self.table = RoutingTable(own.id, now)
        self.records = Records(rng)
        self._published: dict[int, float] = {}  # key -> when it is published again, the soonest first
        self._to_publish: dict[int, None] = {}
        self._publishing = 0  # lookups for that which are under way
        self._keepers: dict[int, tuple[Contact, ...]] = {}  # of what we published
        self._waiting: dict[int, _Waiting] = {}
        self._tasks: dict[Lookup, _Task] = {}
        self._next_number = 1
        self._sweep_at, self._is_leaving = 0.0, False
        self.ignored = 0  # messages of strangers, or that break a bound

    # --- the machine
    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event; returns what to do."""
        actions: list[Action] = []
        if isinstance(event, Received):
            self._on_received(event, now, actions)
        elif isinstance(event, Join):
            for contact in event.contacts:
                if contact.id != self.own.id and self._is_member(contact.id):
                    self.table.note_told(contact)
            self._look_for_peers(self.own.id, _Task(joins=True), now, actions)
        elif isinstance(event, Publish):
            self._to_publish.update(dict.fromkeys(event.keys))
        elif isinstance(event, Unpublish):
            self._unpublish(event.keys, now, actions)
        elif isinstance(event, Find):
            self._find(event, now, actions)
        elif isinstance(event, Failed):
            self._on_failed(event.id, now, actions)
        elif isinstance(event, Drop):
            self.table.remove(event.id)
            self.records.remove_holder(event.id)
            self._on_failed(event.id, now, actions)
        elif isinstance(event, End):
            self._leave(now, actions)
        self._on_time(now, actions)
        return actions

    def deadline(self) -> Optional[float]:
        """When the next `Tick` is due."""
        if self._is_leaving:
            return None
        due = [next(iter(self._waiting.values())).due] if self._waiting else []  # the oldest request is due first
        due += [self._sweep_at] if len(self.records) else []
        due += [next(iter(self._published.values()))] if self._published else []
        refresh = self.table.next_refresh(REFRESH)
        due += [refresh[0]] if refresh is not None else []
        return min(due, default=None)

    # --- what comes from others
    def _on_received(self, event: Received, now: float, actions: list[Action]) -> None:
        sender, message = event.sender, event.message
        if self._is_leaving or sender.id == self.own.id or not self._is_member(sender.id):
            self.ignored += 1
            return
        if isinstance(message, wire.Leave):
            self.table.remove(sender.id)
            self.records.remove_holder(sender.id)
            return
        if sender.address:
            self.table.note_seen(sender)
        try:
            if isinstance(message, wire.Found):
                self._on_found(sender, message, now, actions)
            elif isinstance(message, wire.Done):
                self._answered(sender, message.number)
            else:
                self._on_request(sender, message, now, actions)
        except ValueError:
            self.ignored += 1  # a key that is none, or more than a message may hold

    def _on_request(self, sender: Contact, message: wire.PeerRequest, now: float, actions: list[Action]) -> None:
        if isinstance(message, (wire.FindPeers, wire.FindHolders)):
            key = parse_key(message.key)
            holders = self.records.holders(key, now) if isinstance(message, wire.FindHolders) else []
            known = [one for one in self.table.closest(key, BUCKET_SIZE + 1) if one.id != sender.id][:BUCKET_SIZE]
            found = wire.Found(message.number, _addresses(known), _addresses(one.contact for one in holders))
            actions.append(Send(sender, found))
            return
        if isinstance(message, wire.Store):
            for key in _keys(message.keys) if sender.address else ():
                self._keep(key, sender, now + BELIEVED, sender.id, now)
        elif isinstance(message, wire.HandOver):
            if len(message.holders) != len(message.seconds):
                raise ValueError("each holder has its time")
            for holder, seconds in zip(self._contacts(message.holders), message.seconds):
                self._keep(parse_key(message.key), holder, now + min(BELIEVED, max(0.0, seconds)), sender.id, now)
        elif isinstance(message, wire.Withdraw):
            self.records.withdraw(sender.id, _keys(message.keys))
        if not isinstance(message, wire.Leave):
            actions.append(Send(sender, wire.Done(message.number)))

    def _keep(self, key: int, holder: Contact, expires: float, source: int, now: float) -> None:
        if not len(self.records):
            self._sweep_at = now + SWEEP
        self.records.store(key, holder, expires, source)

    def _on_found(self, sender: Contact, message: wire.Found, now: float, actions: list[Action]) -> None:
        waiting = self._answered(sender, message.number)
        if waiting is None or waiting.lookup is None:
            return
        contacts = self._contacts(message.contacts)
        for contact in contacts:
            self.table.note_told(contact)
        waiting.lookup.note_answer(sender.id, contacts, self._contacts(message.holders))
        self._go_on(waiting.lookup, now, actions)

    def _answered(self, sender: Contact, number: int) -> Optional[_Waiting]:
        waiting = self._waiting.get(number)
        if waiting is None or waiting.contact.id != sender.id:
            return None  # late, or never asked
        return self._waiting.pop(number)

    def _contacts(self, addresses: list[wire.PeerAddress]) -> list[Contact]:
        """The members among these; ValueError if they are too many or no ids."""
        if len(addresses) > wire.MAX_CONTACTS:
            raise ValueError("too many contacts")
        found = [Contact(parse_key(one.id), one.address) for one in addresses]
        return [one for one in found if one.address and self._is_member(one.id)]

    def _on_failed(self, id: int, now: float, actions: list[Action]) -> None:
        self.table.remove(id)
        for number in [number for number, waiting in self._waiting.items() if waiting.contact.id == id]:
            self._give_up(number, now, actions)

    def _give_up(self, number: int, now: float, actions: list[Action]) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is None:
            return
        self.table.remove(waiting.contact.id)
        if waiting.lookup is not None:
            waiting.lookup.note_failure(waiting.contact.id)
            self._go_on(waiting.lookup, now, actions)

    # --- lookups
    def _find(self, event: Find, now: float, actions: list[Action]) -> None:
        known = [one.contact for one in self.records.holders(event.key, now) if one.contact.id != self.own.id]
        if known and not event.again:
            actions.append(Holders(event.request, tuple(known), 0, 0))
            return
        start = self.table.closest(event.key, BUCKET_SIZE)
        lookup = Lookup(event.key, self.own.id, start, wants_holders=True, paths=DISJOINT if event.again else 1)
        self._begin(lookup, _Task(request=event.request), now, actions)

    def _look_for_peers(self, key: int, task: _Task, now: float, actions: list[Action]) -> None:
        start = self.table.closest(key, BUCKET_SIZE)
        self._begin(Lookup(key, self.own.id, start, wants_holders=False), task, now, actions)

    def _begin(self, lookup: Lookup, task: _Task, now: float, actions: list[Action]) -> None:
        self.table.note_lookup(lookup.key, now)
        self._tasks[lookup] = task
        self._go_on(lookup, now, actions)

    def _go_on(self, lookup: Lookup, now: float, actions: list[Action]) -> None:
        """Ask the next peers of a lookup, or finish it."""
        task = self._tasks.get(lookup)
        if task is None:
            return
        for query in lookup.next_queries():
            number, key = self._next_number, show_key(lookup.key)
            request = wire.FindHolders(number, key) if task.request >= 0 else wire.FindPeers(number, key)
            self._ask(query.contact, request, lookup, now, actions)
        if not lookup.is_done:
            return
        del self._tasks[lookup]
        if task.request >= 0:
            holders = tuple(one for one in lookup.holders.values() if one.id != self.own.id)
            actions.append(Holders(task.request, holders, lookup.asked, lookup.hops))
        elif task.publishes:
            self._publishing -= 1
            self._store(lookup, now, actions)
        elif task.joins:
            # Those next to us are known now. A broadcast needs somebody in each farther region, too.
            for bucket in self.table.empty_buckets():
                self._look_for_peers(key_in_bucket(self.own.id, bucket, self._rng), _Task(), now, actions)

    def _ask(
        self, to: Contact, request: wire.PeerRequest, lookup: Optional[Lookup], now: float, actions: list[Action]
    ) -> None:
        self._waiting[self._next_number] = _Waiting(to, now + ANSWER_WITHIN, lookup)
        self._next_number += 1
        actions.append(Send(to, request))

    # --- what we have
    def _store(self, lookup: Lookup, now: float, actions: list[Action]) -> None:
        """Tell the closest peers that we have a file; we may be one of them."""
        key = lookup.key
        if key not in self._published:
            return  # it was given up meanwhile
        closest = sorted([*lookup.closest(), self.own], key=lambda contact: contact.id ^ key)[:REPLICAS]
        for contact in closest:
            if contact.id == self.own.id:
                self._keep(key, self.own, now + BELIEVED, self.own.id, now)
            else:
                self._ask(contact, wire.Store(self._next_number, [show_key(key)]), None, now, actions)
        self._keepers[key] = tuple(contact for contact in closest if contact.id != self.own.id)

    def _unpublish(self, keys: Iterable[int], now: float, actions: list[Action]) -> None:
        by_keeper: dict[Contact, list[str]] = {}
        for key in keys:
            self._to_publish.pop(key, None)
            self._published.pop(key, None)
            self.records.withdraw(self.own.id, [key])
            for keeper in self._keepers.pop(key, ()):
                by_keeper.setdefault(keeper, []).append(show_key(key))
        for keeper, texts in by_keeper.items():
            for at in range(0, len(texts), wire.MAX_KEYS):
                request = wire.Withdraw(self._next_number, texts[at : at + wire.MAX_KEYS])
                self._ask(keeper, request, None, now, actions)

    def _leave(self, now: float, actions: list[Action]) -> None:
        """Hand on the records that we keep, and tell all contacts [LBO D2]."""
        self.records.remove_holder(self.own.id)
        for key in self.records:
            holders = self.records.holders(key, now)
            for contact in self.table.closest(key, REPLICAS):
                actions.append(Send(contact, _hand_over(self._next_number, key, holders, now)))
                self._next_number += 1
        told = {contact.id: contact for contact in self.table}
        told.update((keeper.id, keeper) for keepers in self._keepers.values() for keeper in keepers)
        actions.extend(Send(contact, wire.Leave()) for contact in told.values())
        self._is_leaving = True
        self._waiting.clear()
        self._tasks.clear()
        self._published.clear()

    # --- time
    def _on_time(self, now: float, actions: list[Action]) -> None:
        if self._is_leaving:
            return
        while self._waiting:
            number, waiting = next(iter(self._waiting.items()))
            if waiting.due > now:
                break
            self._give_up(number, now, actions)
        if self._sweep_at <= now and len(self.records):
            self._sweep_at = now + SWEEP
            self.records.expire(now)
        while self._published and next(iter(self._published.values())) <= now:
            key = next(iter(self._published))
            del self._published[key]
            self._to_publish[key] = None
        self._publish_some(now, actions)
        refresh = self.table.next_refresh(REFRESH)
        if refresh is not None and refresh[0] <= now:
            self._look_for_peers(key_in_bucket(self.own.id, refresh[1], self._rng), _Task(), now, actions)

    def _publish_some(self, now: float, actions: list[Action]) -> None:
        """Begin lookups for what waits to be published, a few at a time."""
        while self._to_publish and self._publishing < PUBLISH_AT_ONCE:
            key = next(iter(self._to_publish))
            del self._to_publish[key]
            self._published[key] = now + REPUBLISH
            self._publishing += 1
            self._look_for_peers(key, _Task(publishes=True), now, actions)


def _hand_over(number: int, key: int, holders: list[Holder], now: float) -> wire.HandOver:
    return wire.HandOver(
        number, show_key(key), _addresses(one.contact for one in holders), [one.expires - now for one in holders]
    )


def _addresses(contacts: Iterable[Contact]) -> list[wire.PeerAddress]:
    return [wire.PeerAddress(show_key(one.id), one.address) for one in contacts]


def _keys(texts: list[str]) -> list[int]:
    if len(texts) > wire.MAX_KEYS:
        raise ValueError("too many keys")
    return [parse_key(text) for text in texts]
