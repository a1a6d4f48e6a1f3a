"""Broadcasts between the peers of a simulated site [LBO D7]: each peer of a `Mesh` also has the product's own `dht.spread`."""

from __future__ import annotations

from collections import Counter
from random import Random

from shoal.dht import messages as wire
from shoal.dht.routing_table import Contact
from shoal.dht.spread import Answer, Arrived, Begin, Deliver, Event, Gathered, Send, Spread, Tick
from shoal.sim.clock import Alarm
from shoal.sim.mesh import LATENCY, Mesh


class Broadcasts:
    """Broadcasts over the tables of a mesh. A peer answers with its own id, after some time of work."""

    def __init__(self, mesh: Mesh, work: float = 0.01) -> None:
        self.mesh, self._work = mesh, work
        self.reached: set[int] = set()  # peers to which the last broadcast was delivered
        self.sent: Counter[int] = Counter()  # broadcasts that each peer passed on, by id, in the last one
        self.received: Counter[int] = Counter()  # messages with answers that each peer got in it
        self._spreads: dict[int, Spread] = {}
        self._alarms: dict[int, Alarm] = {}
        self._gathered: list[Gathered] = []
        self._number = 0

    def broadcast(self, root: int, within: float = 1.0) -> tuple[Gathered, float]:
        """Have a peer reach all others; what it gathered, and how many seconds that took."""
        self.reached, self.sent, self.received, self._gathered = {root}, Counter(), Counter(), []
        self._number += 1
        began, clock = self.mesh.clock.now, self.mesh.clock
        self._do(root, Begin(f"b{self._number}", "tasks", (str(root),), within, len(self.mesh.peers)))
        while not self._gathered and clock.step():
            pass
        return self._gathered[0], clock.now - began

    def late(self) -> int:
        """Answers that came after their time, at all living peers."""
        return sum(self._spreads[id].late for id in self.mesh.peers if id in self._spreads)

    def _do(self, id: int, event: Event) -> None:
        peer = self.mesh.peers.get(id)
        if peer is None:
            return
        if id not in self._spreads:
            self._spreads[id] = Spread(peer.own, peer.table, Random(self.mesh.rng.getrandbits(64)))
            self._alarms[id] = Alarm(self.mesh.clock, lambda: self._do(id, Tick()))
        for action in self._spreads[id].handle(event, self.mesh.clock.now):
            if isinstance(action, Send):
                self._carry(peer.own, action)
            elif isinstance(action, Deliver):
                self.reached.add(id)
                answer = Answer(action.name, (str(id),))
                self.mesh.clock.after(self._work, lambda a=answer: self._do(id, a))  # type: ignore[misc]  # bound now
            else:
                self._gathered.append(action)
        self._alarms[id].set(self._spreads[id].deadline())

    def _carry(self, sender: Contact, action: Send) -> None:
        if isinstance(action.message, wire.Broadcast):
            self.sent[sender.id] += 1
        elif isinstance(action.message, wire.Answers):
            self.received[action.to.id] += 1
        arrived = Arrived(sender, action.message)
        self.mesh.clock.after(self.mesh.rng.uniform(*LATENCY), lambda: self._do(action.to.id, arrived))
