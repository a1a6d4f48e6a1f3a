"""The clock, the threads and the connections around `dht.peer`, which decides [LBO D2; ADR 0048].

Any thread may hand it an event; one lock keeps the decisions apart. What is to be sent goes to a few threads, each of which
waits for one answer at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from queue import SimpleQueue
from random import Random
from typing import Callable, NamedTuple, Optional, Union

from shoal.dht import messages as wire
from shoal.dht import peer as decide
from shoal.dht.routing_table import Contact
from shoal.pilot.mesh.links import Links

log = logging.getLogger(__name__)

SENDERS = 6  # requests to peers that are under way at one time: a lookup has three
MOST_QUEUED = 1_000  # messages that wait for a sender; further ones are dropped, and count as not answered
FIND_WITHIN = 15.0  # seconds: a lookup that takes longer helps nobody
LEAVE_WITHIN = 2.0  # seconds in which messages of farewell are sent
TABLE_ANSWERS = (wire.Found, wire.Done)


class Finding(NamedTuple):
    """What a lookup found."""

    holders: tuple[Contact, ...]
    asked: int
    seconds: float


class _Search:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.found: Optional[decide.Holders] = None


class PeerTable:
    """One pilot's part of the table of its mesh."""

    def __init__(self, own: Contact, links: Links, rng: Random, is_member: Callable[[int], bool]) -> None:
        self.links, self._lock = links, threading.Condition()
        self._peer = decide.Peer(own, rng, is_member, time.monotonic())
        self._queue: SimpleQueue[Optional[decide.Send]] = SimpleQueue()
        self._searches: dict[int, _Search] = {}
        self._number = 0
        self._is_closed = False
        self._threads = [threading.Thread(target=self._keep_time, name="mesh-time", daemon=True)]
        self._threads += [
            threading.Thread(target=self._send_all, name=f"mesh-send-{at}", daemon=True) for at in range(SENDERS)
        ]

    @property
    def own(self) -> Contact:
        """Our id, and where we are reached."""
        return self._peer.own

    @property
    def size(self) -> int:
        """How many contacts we have."""
        with self._lock:
            return len(self._peer.table)

    def become_client(self) -> None:
        """Others do not reach us: we are neither a contact nor a holder."""
        with self._lock:
            self._peer.own = self._peer.own._replace(address="")

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def handle(self, event: decide.Event) -> None:
        """Take an event and send what it causes."""
        self._perform(self._decide(event), None)

    def answer(self, sender: Contact, message: wire.PeerRequest) -> list[Union[wire.Found, wire.Done]]:
        """What a peer that connected to us and asked gets over the same connection."""
        return self._perform(self._decide(decide.Received(sender, message)), sender.id)

    def find(self, key: int, again: bool = False) -> Finding:
        """Peers that are believed to have a file; blocks until the lookup is over."""
        search, began = _Search(), time.monotonic()
        with self._lock:
            self._number += 1
            number = self._number
            self._searches[number] = search
        self.handle(decide.Find(number, key, again))
        search.done.wait(FIND_WITHIN)
        with self._lock:
            self._searches.pop(number, None)
        found = search.found
        took = time.monotonic() - began
        return Finding(found.contacts, found.asked, took) if found is not None else Finding((), 0, took)

    def close(self, leaves: bool) -> None:
        """End; `leaves`: what we keep for others is handed on, and our contacts are told."""
        until = time.monotonic() + LEAVE_WITHIN
        if leaves:
            self.handle(decide.End())
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        for _ in range(SENDERS):
            self._queue.put(None)
        if leaves:
            for thread in self._threads:
                thread.join(max(0.0, until - time.monotonic()))
        for search in list(self._searches.values()):
            search.done.set()

    # --- decisions, and what they cause
    def _decide(self, event: decide.Event) -> list[decide.Action]:
        with self._lock:
            before = self._peer.deadline()
            actions = self._peer.handle(event, time.monotonic())
            if self._peer.deadline() != before:
                self._lock.notify_all()
        return actions

    def _perform(self, actions: list[decide.Action], asker: Optional[int]) -> list[Union[wire.Found, wire.Done]]:
        answers: list[Union[wire.Found, wire.Done]] = []
        for action in actions:
            if isinstance(action, decide.Holders):
                search = self._searches.get(action.request)
                if search is not None:
                    search.found = action
                    search.done.set()
            elif isinstance(action.message, TABLE_ANSWERS):
                if action.to.id == asker:
                    answers.append(action.message)
            elif self._queue.qsize() < MOST_QUEUED:
                self._queue.put(action)
        return answers

    # --- threads
    def _keep_time(self) -> None:
        while True:
            with self._lock:
                if self._is_closed:
                    return
                due = self._peer.deadline()
                wait = None if due is None else due - time.monotonic()
                if wait is None or wait > 0:
                    self._lock.wait(wait)
                    continue
            self.handle(decide.Tick())

    def _send_all(self) -> None:
        while True:
            action = self._queue.get()
            if action is None:
                return
            try:
                self._send(action.to, action.message)
            except (OSError, ValueError) as error:
                log.debug("peer=%s does not answer: %s", action.to.address, error)
                self.handle(decide.Failed(action.to.id))
            except Exception:  # a thread that ends would slow down all lookups for ever
                log.exception("a message to a peer met a defect")

    def _send(self, to: Contact, message: wire.PeerMessage) -> None:
        if isinstance(message, wire.Leave):
            self.links.tell(to, message)
            return
        answer = self.links.ask(to, message)
        if isinstance(answer, TABLE_ANSWERS):
            self.handle(decide.Received(to, answer))
