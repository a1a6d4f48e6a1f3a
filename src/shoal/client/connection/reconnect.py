"""Connections to a server that may end and be started again: requests are repeated until a time limit.

The embedded server has another address after each start, so its address is read again for each new connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from shoal.client.client import Client
from shoal.client.config import find_target, find_trust
from shoal.client.connection import embedded_server
from shoal.client.console import say
from shoal.client.unpickle.trust import Pair, Trust, parse_trust
from shoal.model.errors import ShoalError

PATIENCE = 600.0  # seconds without a response until the server counts as gone
TELL_AFTER = 5.0  # seconds without a response until the person is told
LONGEST_PAUSE = 5.0

T = TypeVar("T")


class Stopped(Exception):
    """The connection was cut from this side."""


class Reconnecting:
    """The server that the option, the environment or a file names; else the embedded one, started if need be."""

    def __init__(
        self,
        server: str | None = None,
        patience: float = PATIENCE,
        trust: str | Iterable[type | Pair | str] | None = None,
    ) -> None:
        self.target = find_target(server)
        self.patience = patience
        self.trust = parse_trust(trust if trust is not None else find_trust())

    def connect(self) -> Client:
        """A new connection; the embedded server is started if it does not run."""
        client = embedded_server.connect(self.target, say)
        client.lends = False  # results are polled for while the program computes; its futures know when it waits
        return client


class ServerConnection:
    """One persistent connection. Any thread may send requests, one at a time, and any thread may cut it."""

    def __init__(self, link: Reconnecting) -> None:
        self._link = link
        self._client: Client | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()  # held during a request

    @property
    def trust(self) -> Trust:
        """What may be loaded of results from other people's pilots."""
        return self._link.trust

    @property
    def client(self) -> Client:
        """The client; connected if it is not."""
        if self._client is None:
            self._client = self._link.connect()
            if self._stop.is_set():  # checked after the client is set, so that `cut` sees one or the other
                raise Stopped
        return self._client

    def ask(self, do: Callable[[Client], T], patience: float | None = None) -> T:
        """Send a request, and repeat it while the server does not answer: so `do` must be idempotent.

        Unreachable is raised when the patience (seconds; None: the link's) is over; Stopped if the connection was cut.
        """
        with self._lock:
            return self._ask(do, self._link.patience if patience is None else patience)

    def _ask(self, do: Callable[[Client], T], patience: float) -> T:
        began, pause, was_told = 0.0, 0.05, False
        while True:
            if self._stop.is_set():
                raise Stopped
            try:
                answer = do(self.client)
            except ShoalError as error:
                self.drop()
                if self._stop.is_set():
                    raise Stopped from None
                now = time.monotonic()
                began = began or now
                if not error.transient or now - began >= patience:
                    raise
                if now - began > TELL_AFTER and not was_told:
                    was_told = True
                    say(f"{error.message}; waiting for it, up to {patience:.0f} s")
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            except (ValueError, AttributeError):
                self.drop()
                if self._stop.is_set():  # a TLS socket closed under the reader raises many kinds of errors
                    raise Stopped from None
                raise
            if was_told:
                say("the server answers again")
            return answer

    def drop(self) -> None:
        """Close the connection; the next request makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def cut(self) -> None:
        """End a waiting request, from any thread, and refuse further ones."""
        self._stop.set()
        client = self._client
        if client is not None:
            client.interrupt()
