"""Peers of one site's table on a virtual clock [LBO D2]: they join, publish, ask, leave, die and lie. The peers are the
product's own `dht.peer`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from random import Random

from shoal.dht import messages as wire
from shoal.dht.key import BITS, parse_key, show_key
from shoal.dht.peer import Event, Holders, Join, Peer, Received, Send, Tick
from shoal.dht.routing_table import Contact
from shoal.sim.clock import Alarm, Clock

LATENCY = (0.000_2, 0.001)  # seconds on a local network, from the least to the most
START_CONTACTS = 3  # that the server names to a new peer


class Mesh:
    """All peers of a site. Hostile ones answer every question with others of their kind, and never with a holder."""

    def __init__(self, seed: int, loss: float = 0.0) -> None:
        self.clock, self.rng, self._loss = Clock(0.0), Random(seed), loss
        self.peers: dict[int, Peer] = {}  # those that live
        self.hostile: dict[int, Contact] = {}
        self.messages = 0
        self._roster: dict[int, Contact] = {}  # all that ever joined: the server is slow to notice a death
        self._ids: list[int] = []  # the same, to draw from
        self._alarms: dict[int, Alarm] = {}
        self._requests = 0
        self._found: dict[int, Holders] = {}

    def join(self, is_hostile: bool = False) -> int:
        """A new peer joins; returns its id."""
        own = Contact(self.rng.getrandbits(BITS), f"10.0.0.1:{len(self._ids) + 1}")
        named = [self._ids[self.rng.randrange(len(self._ids))] for _ in range(8 * START_CONTACTS) if self._ids]
        contacts = [self._roster[id] for id in named if id in self.peers][:START_CONTACTS]
        self._roster[own.id] = own
        self._ids.append(own.id)
        if is_hostile:
            self.hostile[own.id] = own
        self.peers[own.id] = Peer(own, Random(self.rng.getrandbits(64)), self._roster.__contains__, self.clock.now)
        self._alarms[own.id] = Alarm(self.clock, lambda: self.do(own.id, Tick()))
        self.do(own.id, Join(tuple(contacts)))
        return own.id

    def do(self, id: int, event: Event) -> None:
        """Let a peer handle an event, and carry out what it says; nothing happens to one that is dead."""
        peer = self.peers.get(id)
        if peer is None:
            return
        if id in self.hostile and isinstance(event, Received) and self._mislead(peer.own, event):
            return
        for action in peer.handle(event, self.clock.now):
            if isinstance(action, Send):
                self._carry(peer.own, action.to, action.message)
            else:
                self._found[action.request] = action
        self._alarms[id].set(peer.deadline())

    def find(self, id: int, make: Callable[[int], Event], within: float = 60.0) -> Holders:
        """Have a peer look for a file; returns its answer."""
        self._requests += 1
        number = self._requests
        self.do(id, make(number))
        end = self.clock.now + within
        while number not in self._found and self.clock.now < end and self.clock.step():
            pass
        return self._found.pop(number)

    def kill(self, id: int) -> None:
        """A peer is gone without a word."""
        del self.peers[id], self._alarms[id]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.clock.now + seconds
        self.clock.at(end, lambda: None)
        while self.clock.now < end and self.clock.step():
            pass

    def _carry(self, sender: Contact, to: Contact, message: wire.PeerMessage) -> None:
        self.messages += 1
        if self.rng.random() >= self._loss:
            self.clock.after(self.rng.uniform(*LATENCY), lambda: self.do(to.id, Received(sender, message)))

    def _mislead(self, own: Contact, event: Received) -> bool:
        """A hostile peer's answer to a question: hostile peers that look close to the key."""
        message = event.message
        if not isinstance(message, (wire.FindPeers, wire.FindHolders)):
            return False
        key = parse_key(message.key)
        liars = nsmallest(wire.MAX_CONTACTS, self.hostile.values(), key=lambda one: one.id ^ key)
        answer = wire.Found(message.number, [wire.PeerAddress(show_key(one.id), one.address) for one in liars])
        self._carry(own, event.sender, answer)
        return True
