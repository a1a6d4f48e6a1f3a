"""A mesh whose server goes away and whose links break, on a virtual clock: the members of `pilot/leader/` as pilots run them,
and a ledger of what was begun where [promise I17; ADR 0056].
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from shoal.pilot.leader import events as decide
from shoal.pilot.leader.member import Member
from shoal.pilot.leader.messages import Elect, Follow
from shoal.sched.fit import give, take
from shoal.wire.messages import Capacity, Leadership, Lease

LATENCY = 0.001
ROOM = Capacity(cores=1)


class Host:
    """One pilot: its member, its slots and what it runs."""

    def __init__(self, world: World, at: int, slots: int) -> None:
        self.id = f"{world.rng.getrandbits(256):064x}"
        self.at, self.address = at, f"h{at}:1"
        self.free = Capacity(cores=slots)
        self.member = Member(self.id, self.address, world.beat, Random(world.rng.random()), world.now)
        self.is_alive = True
        self.is_alone = False  # the server does not reach it even if it is up
        self.tick_at = float("inf")
        self.waits: deque[Lease] = deque()


class World:
    """A server, a mesh, and faults."""

    def __init__(self, seed: int, hosts: int = 5, tasks: int = 40, slots: int = 1, beat: float = 10.0) -> None:
        self.rng, self.beat, self.now = Random(seed), beat, 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.is_up, self.loss = True, 0.0
        self.parts: list[int] = [0] * hosts  # which part of the network a host is in
        self.one_way: set[tuple[int, int]] = set()  # (from, to) that is cut
        self.hosts = [Host(self, at, slots) for at in range(hosts)]
        self.by_id = {host.id: host for host in self.hosts}
        self.seconds = 30.0  # that a task takes
        self.window = [Lease(f"r1.{n}#1@1~00000000000000aa", ROOM, "safe", ["true"]) for n in range(1, tasks + 1)]
        self.begun: dict[str, list[tuple[float, int]]] = {}  # attempt -> when and where
        self.ended: Counter[str] = Counter()
        self.leaders: dict[int, set[str]] = {}  # term -> who led in it
        self.notes: list[str] = []
        self._tickets: dict[int, Callable[[Any], None]] = {}
        self._ticket = itertools.count(1)
        self._named = 0
        self._asking: dict[int, list[Callable[[], None]]] = {at: [] for at in range(hosts)}  # what breaks with a host
        self.leader_at: list[tuple[float, int, str]] = []

    # --- the clock
    def at(self, when: float, work: Callable[[], None]) -> None:
        """Have something done later."""
        heapq.heappush(self._events, (when, next(self._order), work))

    def run(self, until: float) -> None:
        """Go on until then."""
        while self._events and self._events[0][0] <= until:
            self.now, _, work = heapq.heappop(self._events)
            work()
        self.now = until

    # --- the server
    def start(self) -> None:
        """The server names a leader, all follow it, and it gets its window."""
        for host in self.hosts:
            self._beat_of(host)
        self.name(self.hosts[0])
        self.run(self.now + 1.0)
        self.grant()
        self.run(self.now + 1.0)

    def name(self, leader: Host) -> None:
        """The server names a leader and tells all that it reaches."""
        self._named += 1
        term = (1 << 40) | (self._named << 20)
        for host in self.hosts:
            if host.is_alive:
                self.feed(host, decide.Named(Leadership(term, leader.id, leader.address)))

    def grant(self) -> None:
        """The window goes to whoever leads."""
        leader = next(host for host in self.hosts if host.is_alive and host.member.is_leader)
        for number, low in enumerate(range(0, len(self.window), 100), 1):
            self.feed(leader, decide.Granted(number, tuple(self.window[low : low + 100]), ()))

    def _beat_of(self, host: Host) -> None:
        if self.is_up and host.is_alive and not host.is_alone:
            self.feed(host, decide.Contact(self.now))
        self.at(self.now + self.beat * self.rng.uniform(0.8, 1.2), lambda: self._beat_of(host))

    # --- members
    def kill(self, host: Host) -> None:
        """kill -9 of a pilot: its connections break at once."""
        host.is_alive = False
        broken, self._asking[host.at] = self._asking[host.at], []
        for fail in broken:
            self.at(self.now + LATENCY, fail)

    def reaches(self, sender: int, to: int) -> bool:
        """True if a message from one to the other arrives."""
        return self.parts[sender] == self.parts[to] and (sender, to) not in self.one_way

    def feed(self, host: Host, event: decide.Event) -> None:
        """Deliver an event, and perform what follows."""
        if not host.is_alive:
            return
        before = host.member.term, host.member.is_leader
        self.perform(host, host.member.handle(event, self.now))
        member = host.member
        if member.is_leader:
            self.leaders.setdefault(member.term, set()).add(host.id)
        if (member.term, member.is_leader) != before and member.is_leader:
            self.leader_at.append((self.now, host.at, host.id))
        due = member.deadline(self.now)
        if due is not None:
            due = max(due, self.now + 0.001)
            host.tick_at = due
            self.at(due, lambda: self.feed(host, decide.Tick()) if host.tick_at == due else None)

    def perform(self, host: Host, actions: list[decide.Action]) -> None:
        """Do what a member decided."""
        for action in actions:
            if isinstance(action, decide.Ask):
                self._ask(host, action)
            elif isinstance(action, decide.Say):
                answer = self._tickets.pop(action.ticket, None)
                if answer is not None:
                    answer(action.message)
            elif isinstance(action, decide.Start):
                for lease in action.leases:
                    self.begun.setdefault(lease.attempt, []).append((self.now, host.at))
                    host.waits.append(lease)
                self._start(host)
            elif isinstance(action, decide.Note):
                self.notes.append(f"{self.now:.3f} h{host.at} {action.text}")

    def _start(self, host: Host) -> None:
        while host.waits and host.free.cores > 0:
            lease = host.waits.popleft()
            host.free = take(host.free, ROOM)
            self.at(self.now + self.seconds * self.rng.uniform(0.5, 1.5), partial(self._end, host, lease))
        self.at(self.now, lambda: self.feed(host, decide.State(host.free, {}, False)))

    def _end(self, host: Host, lease: Lease) -> None:
        if host.is_alive:
            self.ended[lease.attempt] += 1
            host.free = give(host.free, ROOM)
            self._start(host)

    def _ask(self, host: Host, action: decide.Ask) -> None:
        to = self.by_id[action.to]
        message: Follow | Elect = action.message
        done: list[bool] = []

        def fail() -> None:
            if not done:
                done.append(True)
                self.feed(host, decide.Failed(action.to, message))

        def answer(reply: Any) -> None:
            if self.reaches(to.at, host.at) and self.rng.random() >= self.loss:
                self.at(self.now + LATENCY * self.rng.uniform(0.5, 4.0), lambda: deliver(reply))

        def deliver(reply: Any) -> None:
            if not done:
                done.append(True)
                self.feed(host, decide.Answered(action.to, message, reply))

        def arrive() -> None:
            if not to.is_alive:
                self.at(self.now + LATENCY, fail)
                return
            self._asking[to.at] = [*self._asking[to.at][-100:], fail]
            ticket = next(self._ticket)
            self._tickets[ticket] = answer
            self.feed(to, decide.Asked(host.id, host.address, message, ticket))

        self.at(self.now + action.hold + 1.5, fail)
        if self.reaches(host.at, to.at) and self.rng.random() >= self.loss:
            self.at(self.now + LATENCY * self.rng.uniform(0.5, 4.0), arrive)

    # --- the ledger
    def begin_slots(self) -> None:
        """All slots are free from now on."""
        for host in self.hosts:
            self.feed(host, decide.State(host.free, {}, False))

    def wrong(self) -> list[str]:
        """What may never be."""
        twice = [
            f"{attempt} was begun {len(where)} times: {where}"
            for attempt, where in self.begun.items()
            if len(where) > 1
        ]
        led = [f"term {term} had {len(who)} leaders" for term, who in self.leaders.items() if len(who) > 1]
        return twice + led
