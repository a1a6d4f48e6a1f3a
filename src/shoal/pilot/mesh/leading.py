"""The clock, the threads and the connections around `pilot/leader/member`, which decides: who leads this mesh, and what of its
window is begun here while the server is away [LBO III.B; ADR 0056].
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from queue import SimpleQueue
from random import Random
from typing import Any, Callable, NamedTuple, Optional

from shoal.dht.key import parse_key
from shoal.dht.routing_table import Contact
from shoal.pilot.guard import proctree
from shoal.pilot.leader import events as decide
from shoal.pilot.leader.member import Member
from shoal.pilot.leader.messages import Elect, Follow, Lead, Vote
from shoal.pilot.mesh.links import ANSWER_WITHIN, Links
from shoal.wire.messages import Capacity, Leadership, Lease, TagValue

log = logging.getLogger(__name__)

SENDERS = 6  # requests under way at one time: one waits at the leader, elections ask all members
MOST_QUEUED = 1_000  # requests that wait for a sender; further ones count as not answered


class Handlers(NamedTuple):
    """Who is told what becomes of a window."""

    begin: Callable[[tuple[Lease, ...]], None]
    kept: Callable[[int, int, int], None]  # tasks in the window, -1 if we do not lead; last change; tasks not begun


class _Ticket:
    """A request of another member that waits for its answer."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.reply: Any = None


class Leading:
    """One pilot as a member of a mesh that has a leader. Any thread may hand it an event."""

    def __init__(self, own: Contact, beat: float, links: Links, handlers: Handlers, is_guest: bool = False) -> None:
        """`is_guest`: the server has not registered us yet."""
        self._links, self._handlers = links, handlers
        self._lock = threading.Condition()
        rng = Random(secrets.randbits(64))
        self._member = Member(f"{own.id:064x}", own.address, beat, rng, proctree.now())
        if is_guest:
            self._member.come_without_server(proctree.now())
        self._queue: SimpleQueue[Optional[decide.Ask]] = SimpleQueue()
        self._tickets: dict[int, _Ticket] = {}
        self._numbers = itertools.count(1)
        self._is_closed = False
        self._threads = [threading.Thread(target=self._keep_time, name="leader-time", daemon=True)]
        self._threads += [
            threading.Thread(target=self._send_all, name=f"leader-send-{at}", daemon=True) for at in range(SENDERS)
        ]
        for thread in self._threads:
            thread.start()

    # --- from the loop
    def named(self, leadership: Leadership, beat: float) -> None:
        """The server says who leads."""
        with self._lock:
            self._member.set_beat(beat)
        self.handle(decide.Named(leadership))

    def found(self, sender: Contact, asked: Follow, lead: Lead) -> None:
        """A member that we asked says who leads."""
        self.handle(decide.Answered(f"{sender.id:064x}", asked, lead))

    @property
    def is_placed(self) -> bool:
        """True if we know who the members are."""
        return self._member.is_placed

    def granted(self, number: int, leases: list[Lease], gone: list[str]) -> None:
        """The server changes the window that we lead."""
        self.handle(decide.Granted(number, tuple(leases), tuple(gone)))

    def ended(self, ids: list[str]) -> None:
        """These members are none any more."""
        self.handle(decide.Ended(tuple(ids)))

    def contact(self, at: float) -> None:
        """The server answered what was sent then."""
        self.handle(decide.Contact(at))

    def state(self, free: Capacity, tags: dict[str, TagValue], leaving: bool) -> None:
        """What is free here now."""
        self.handle(decide.State(free, tags, leaving))

    def become_client(self) -> None:
        """Others do not reach us: we follow, and never lead."""
        with self._lock:
            self._member.address = ""

    def close(self) -> None:
        """End."""
        with self._lock:
            self._is_closed = True
            tickets = list(self._tickets.values())
            self._lock.notify_all()
        self._handlers.kept(-1, 0, 0)
        for ticket in tickets:
            ticket.done.set()
        for _ in range(SENDERS):
            self._queue.put(None)

    # --- from other members
    def answer(self, sender: Contact, message: Any) -> list[Any]:
        """What a member that asks us gets; blocks while there is no news for it."""
        if self._is_closed:
            return []
        # Without the lock, for which two hundred threads wait in a round: each of these steps is one for the interpreter.
        ticket, number = _Ticket(), next(self._numbers)
        self._tickets[number] = ticket
        longest = self._member.hold + ANSWER_WITHIN
        self.handle(decide.Asked(f"{sender.id:064x}", sender.address, message, number))
        ticket.done.wait(longest)
        self._tickets.pop(number, None)
        if ticket.reply is not None:
            return [ticket.reply]
        return [Lead(self._member.term, "")] if isinstance(message, Follow) else []

    # --- decisions, and what they cause
    def handle(self, event: decide.Event) -> None:
        """Take an event, and do what it causes."""
        with self._lock:
            if self._is_closed:
                return
            now = proctree.now()
            before = self._member.deadline(now)
            actions = self._member.handle(event, now)
            if self._member.deadline(now) != before:
                self._lock.notify_all()
            for action in actions:  # in order also where several threads have events
                self._perform(action)

    def _perform(self, action: decide.Action) -> None:
        if isinstance(action, decide.Say):
            ticket = self._tickets.get(action.ticket)
            if ticket is not None:
                ticket.reply = action.message
                ticket.done.set()
        elif isinstance(action, decide.Ask):
            if self._queue.qsize() < MOST_QUEUED:
                self._queue.put(action)
        elif isinstance(action, decide.Start):
            log.info("window begins=%d first=%s", len(action.leases), action.leases[0].attempt)
            self._handlers.begin(action.leases)
        elif isinstance(action, decide.Kept):
            self._handlers.kept(*action)
        else:
            log.info("leader %s", action.text)

    # --- threads
    def _keep_time(self) -> None:
        while True:
            with self._lock:
                if self._is_closed:
                    return
                now = proctree.now()
                due = self._member.deadline(now)
                if due is None or due > now:
                    self._lock.wait(None if due is None else due - now)
                    continue
            self.handle(decide.Tick())

    def _send_all(self) -> None:
        while True:
            ask = self._queue.get()
            if ask is None:
                return
            try:
                to = Contact(parse_key(ask.to), ask.address)
                reply = self._links.ask(to, ask.message, ask.hold + ANSWER_WITHIN)
                if not isinstance(reply, Vote if isinstance(ask.message, Elect) else Lead):
                    raise ValueError(f"it answers with {type(reply).__name__}")
            except (OSError, ValueError) as error:
                log.debug("peer=%s does not answer: %s", ask.address, error)
                self.handle(decide.Failed(ask.to, ask.message))
            except Exception:  # a thread that ends would slow down all others for ever
                log.exception("a message to a peer met a defect")
            else:
                self.handle(decide.Answered(ask.to, ask.message, reply))
