"""The leader's part of bundles: the exchanges of followers go to the server in few requests, and their answers come back
[LBO D8; ADR 0062].

A follower's connection is served by a thread of its own (`pilot/mesh/listener`), which waits here. Two threads with a
connection each send to the server. The leader can read what it hands on, and can neither alter it nor make it up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Optional

from shoal.dht.peers import Forward, Forwarded
from shoal.model.errors import ShoalError
from shoal.model.limits import MAX_IN_FLIGHT, MAX_SEALED
from shoal.pilot.leader.bundle_queue import BundleQueue, Key
from shoal.pilot.uplink.server_address import ServerAddress
from shoal.pilot.uplink.tls import WrongServer, explain
from shoal.pilot.uplink.uplink import CONNECTION_ERRORS, READ_MARGIN, ServerConnection
from shoal.wire import codec
from shoal.wire.messages import Bundle, BundleReply, Registered, Sealed
from shoal.wire.seal import parse_answer

log = logging.getLogger(__name__)

STILL = 2.0  # seconds after which a follower is told that its exchange still waits
NOT_HANDED_ON = Forwarded()
WAITS = Forwarded(waits=True)


class _Waiter:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: Optional[Sealed] = None


class Bundler:
    """Hands on the exchanges of followers while this pilot leads its mesh."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._queue = BundleQueue()
        self._waiters: dict[Key, list[_Waiter]] = {}
        self._state = threading.Condition()
        self._registered: Optional[Registered] = None
        self._term: Optional[int] = None  # None: another one leads
        self._is_closed = False
        self._threads: list[threading.Thread] = []

    def lead(self, term: int, registered: Registered) -> None:
        """This pilot leads from now on."""
        with self._state:
            self._term, self._registered = term, registered
            if not self._threads and not self._is_closed:
                for number in range(MAX_IN_FLIGHT):
                    thread = threading.Thread(target=self._run, name=f"bundles-{number}", daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def rest(self) -> None:
        """Another one leads: followers have to ask it, or the server."""
        with self._state:
            self._term = None
            self._give_up(self._queue.clear())

    def close(self) -> None:
        """End."""
        with self._state:
            self._is_closed = True
            self._term = None
            self._give_up(self._queue.clear())
            self._state.notify_all()

    # --- from followers
    def forward(self, message: Forward) -> Iterator[Forwarded]:
        """Hand on an exchange: from time to time that it still waits, and at last the answer."""
        key, waiter = (message.sealed.pilot, message.seq), _Waiter()
        with self._state:
            is_taken = message.term == self._term and not self._queue.is_full and len(message.sealed.body) <= MAX_SEALED
            if is_taken:
                waiters = self._waiters.setdefault(key, [])
                waiters.append(waiter)
                if len(waiters) == 1:
                    self._queue.add(key, message.sealed, time.monotonic())
                self._state.notify_all()
        if not is_taken:
            yield NOT_HANDED_ON
            return
        try:
            while not waiter.done.wait(STILL):
                yield WAITS
        finally:
            self._forget(key, waiter)
        yield Forwarded(waiter.answer)

    def _forget(self, key: Key, waiter: _Waiter) -> None:
        """A follower has its answer, or has left."""
        with self._state:
            waiters = self._waiters.get(key, [])
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                self._waiters.pop(key, None)
                self._queue.drop(key)

    # --- to the server
    def _run(self) -> None:
        connection = ServerConnection(self._address)
        while True:
            with self._state:
                bundle = self._next()
                registered = self._registered
            if bundle is None or registered is None:
                connection.drop()
                return
            reply = self._send(connection, bundle, registered)
            with self._state:
                if reply is None:
                    self._give_up(self._queue.failed())
                else:
                    self._deliver(reply)
                self._state.notify_all()

    def _next(self) -> Optional[Bundle]:
        """The next request, as soon as it is due; None at the end."""
        while not self._is_closed:
            due = self._queue.due()
            wait = None if due is None else due - time.monotonic()
            if wait is not None and wait <= 0.0 and self._term is not None:
                return Bundle(self._term, self._queue.take(time.monotonic()))
            self._state.wait(wait if self._term is not None else None)
        return None

    def _send(self, connection: ServerConnection, bundle: Bundle, registered: Registered) -> Optional[BundleReply]:
        path = f"/v1/pilots/{registered.pilot}/bundle"
        try:
            answer = connection.ask(
                "POST", path, codec.encode(bundle), registered.session, registered.beat + READ_MARGIN
            )
            if answer.status == 200:
                return codec.decode(BundleReply, answer.body)
            log.info("bundle of %d refused: status=%d", len(bundle.items), answer.status)
        except (*CONNECTION_ERRORS, WrongServer) as error:
            log.info("no answer to a bundle of %d: %s", len(bundle.items), explain(error))
        except ShoalError as error:
            log.warning("malformed answer to a bundle: %s", error)
        return None

    def _deliver(self, reply: BundleReply) -> None:
        settled: list[Key] = []
        for item in reply.items:
            answer = parse_answer(item.body)
            if answer is None:
                continue
            # 0: the server could not open what came in the name of this pilot.
            keys = [(item.pilot, answer.seq)] if answer.seq else [key for key in self._waiters if key[0] == item.pilot]
            for key in keys:
                self._settle(key, item)
            settled += keys
        self._queue.answered(settled)

    def _give_up(self, keys: set[Key]) -> None:
        for key in keys:
            self._settle(key, None)

    def _settle(self, key: Key, answer: Optional[Sealed]) -> None:
        for waiter in self._waiters.get(key, ()):
            waiter.answer = answer
            waiter.done.set()
