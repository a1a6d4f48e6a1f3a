"""The bridge: to its own server a pilot, with the pilot's own rules (`pilot/agent/`), whose slots are tasks of another server.

So a task that is routed there keeps its owner, share, quota and fence: it is leased to the bridge, held by it in each
exchange, and reported under its attempt's name; the site of the bridge stands for the other organisation. Only `safe`
tasks go there: if this process dies, its attempts are lost like those of any pilot.
"""

from __future__ import annotations

import logging
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from random import Random

from shoal.bridge.peer import Peer
from shoal.bridge.translate import given_back, why_not
from shoal.pilot.agent import events
from shoal.pilot.agent.agent import Agent
from shoal.pilot.commands import peek
from shoal.pilot.guard.proctree import now
from shoal.pilot.host import probe
from shoal.pilot.uplink.latency import Latency
from shoal.pilot.uplink.server_address import ServerAddress
from shoal.pilot.uplink.uplink import Uplink
from shoal.wire.messages import BRIDGE, Capacity, Lease, Register, Report, TagValue

log = logging.getLogger(__name__)
PLENTY = 1 << 50  # bytes of memory and disk: what a task may have decides the other server
SHUT = 30.0  # seconds for which nothing is asked for after the other server refused


class Bridge:
    """One bridge from a server to another."""

    def __init__(
        self, address: ServerAddress, server: str | None, site: str, slots: int, say: Callable[[str], None]
    ) -> None:
        rng = Random(secrets.randbits(64))
        self._agent, self._site, self._say = Agent(Capacity(slots, PLENTY, PLENTY), rng), site, say
        self._inbox: SimpleQueue[events.Event] = SimpleQueue()
        self._uplink = Uplink(address, self._inbox.put, say, Latency(rng))
        self._peer = Peer(server, site, self._on_report, lambda attempt: self._inbox.put(events.Started(attempt)))
        self._events: deque[events.Event] = deque()
        self._code: int | None = None
        self._shut_until, self._is_shut = 0.0, False
        self._why = ""

    def _on_report(self, report: Report) -> None:
        self._inbox.put(events.Ended(report))

    def run(self) -> int:
        """Work until a signal, or the server, ends it; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._inbox.put(events.Leave("a signal", now=True)))
        self._uplink.start()
        self._peer.start()
        self._feed(events.Tick())
        while self._code is None:
            due = self._agent.deadline()
            try:
                event = self._inbox.get(timeout=None if due is None else min(1.0, max(0.001, due - now())))
            except Empty:
                event = events.Tick()
            self._feed(event)
            self._open_or_shut()
        self._peer.close()
        self._uplink.close()
        self._say(f"bridge ended: {self._why}")
        return self._code

    def _feed(self, event: events.Event) -> None:
        if isinstance(event, (events.Joined, events.Answered)):
            self._uplink.beat = event.registered.beat if isinstance(event, events.Joined) else event.reply.hold
        self._events.append(event)
        while self._events and self._code is None:
            for action in self._agent.handle(self._events.popleft(), now()):
                self._perform(action)

    def _perform(self, action: events.Action) -> None:
        if isinstance(action, events.Join):
            self._uplink.register(self._register(action))
        elif isinstance(action, events.Send):
            self._uplink.exchange(action.exchange)
        elif isinstance(action, events.Begin):
            self._begin(action.lease)
        elif isinstance(action, events.Stop):
            self._peer.withdraw(action.attempt, action.why)
        elif isinstance(action, events.Look):
            self._events.append(events.Looked(peek.not_running(action.order)))
        elif isinstance(action, events.Fetch):
            self._events.append(events.Fetched(action.digest, None))
        elif isinstance(action, events.Complain):
            log.error("%s", action.message)
        elif isinstance(action, events.Finish):
            self._code, self._why = action.code, action.why

    def _register(self, action: events.Join) -> Register:
        tags: dict[str, TagValue] = {BRIDGE: True, **({"unfit": self._peer.refused} if self._is_shut else {})}
        return probe.describe(self._site, self._agent.room, action.former, nonce=action.nonce, facts=tags)

    def _begin(self, lease: Lease) -> None:
        if lease.count > 1:  # one at a time: each becomes a run of its own
            self._events.append(events.Called(lease.attempt, over=True, apart=True))
            return
        wrong = why_not(lease)
        if wrong:
            self._events.append(events.Ended(given_back(lease.attempt, wrong, is_unseen=True)))
        else:
            self._peer.take(lease)

    def _open_or_shut(self) -> None:
        """While the other server refuses, no tasks are asked for: they go elsewhere."""
        if self._peer.refused and not self._is_shut:
            self._is_shut, self._shut_until = True, time.monotonic() + SHUT
            self._feed(events.Noticed({"unfit": f"the other server takes nothing: {self._peer.refused}"}))
        elif self._is_shut and time.monotonic() >= self._shut_until:
            self._is_shut, self._peer.refused = False, ""
            self._feed(events.Noticed({"unfit": ""}))
