"""A server that may go away and come back: which one, connections to it, and the patience to wait for it.

The embedded server has another address after each start, so a lost connection is made anew from the beginning.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from shoal.client.client import Client
from shoal.client.config import find_target, find_trust
from shoal.client.connection import embedded_server
from shoal.client.unpickle.trust import Pair, Trust, parse_trust
from shoal.model.errors import ShoalError

PATIENCE = 600.0  # seconds without an answer until the server counts as gone
TELL_AFTER = 5.0  # seconds without an answer until the person hears of it
LONGEST_PAUSE = 5.0

T = TypeVar("T")


def say(text: str) -> None:
    """A note to the person, on standard error so that output can be piped."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    with contextlib.suppress(OSError, ValueError):  # nobody listens, which is no reason to lose results
        print(f"shoal: {clean}", file=sys.stderr, flush=True)


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

    @property
    def is_far(self) -> bool:
        """Is it reached over the network, so that tasks run on hosts unlike this one?"""
        return self.target.url is not None and self.target.url.startswith("https:")

    def connect(self) -> Client:
        """A new connection."""
        if self.target.url is not None:
            return Client(self.target.url, self.target.token, self.target.ca)
        return embedded_server.connect(say)


class ServerConnection:
    """One kept connection of a link. One thread at a time asks; any thread may cut it."""

    def __init__(self, link: Reconnecting) -> None:
        self._link = link
        self._client: Client | None = None
        self._stop = threading.Event()

    @property
    def trust(self) -> Trust:
        """What may be loaded of results that others' pilots made."""
        return self._link.trust

    @property
    def client(self) -> Client:
        """The connection now; made if there is none."""
        if self._client is None:
            self._client = self._link.connect()
            if self._stop.is_set():  # asked after the client is there to be seen by who cuts
                raise Stopped
        return self._client

    def ask(self, do: Callable[[Client], T], patience: float | None = None) -> T:
        """What `do` gets from the server, asked again while it is away: so `do` must be harmless to repeat.

        Unreachable is raised when the patience (seconds; None: the link's) is over; Stopped if the line was cut.
        """
        patience = self._link.patience if patience is None else patience
        began, pause, told = 0.0, 0.05, False
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
                if now - began > TELL_AFTER and not told:
                    told = True
                    say(f"{error.message}; waiting for it, up to {patience:.0f} s")
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            except (ValueError, AttributeError):
                self.drop()
                if self._stop.is_set():  # a TLS socket closed under the reader answers in many ways
                    raise Stopped from None
                raise
            if told:
                say("the server answers again")
            return answer

    def drop(self) -> None:
        """Let the connection go; the next question makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def cut(self) -> None:
        """End whatever waits on this line, from any thread, for good."""
        self._stop.set()
        client = self._client
        if client is not None:
            client.interrupt()
