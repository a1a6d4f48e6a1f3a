"""Requests beside the stream, on a connection of their own: upload blobs, ask what runs, cancel calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shoal.client.connection.reconnect import Reconnecting, ServerConnection, Stopped, T
from shoal.model.errors import ShoalError

if TYPE_CHECKING:
    from shoal.client.client import Client

MAX_TARGETS = 10_000  # of one cancellation
HASTY = 2.0  # seconds that a small request waits for a lost server


class Control:
    """One connection for all threads, one request at a time."""

    def __init__(self, link: Reconnecting) -> None:
        self._connection = ServerConnection(link)
        self._lock = threading.RLock()

    def ask(self, do: Callable[[Client], T], patience: float | None = None) -> T:
        """Send one request."""
        with self._lock:
            return self._connection.ask(do, patience)

    def use(self, do: Callable[[ServerConnection], T]) -> T:
        """Send several requests with none of another thread between them."""
        with self._lock:
            return do(self._connection)

    def close(self) -> None:
        """Close the connection."""
        self._connection.drop()

    def put(self, parts: Sequence[Any]) -> str:
        """Upload a blob; returns its digest."""
        return str(self.ask(lambda client: client.put_blob(parts)))

    def is_running(self, run: str, element: int) -> bool:
        """True if this call is executed now."""
        try:
            return bool(self.ask(lambda client: client.task(f"{run}.{element}"), HASTY).get("state") == "running")
        except (ShoalError, Stopped):
            return False

    def cancel_one(self, run: str, element: int) -> bool:
        """Cancel a task unless it runs; False also if the server does not answer."""
        try:
            done = self.ask(lambda client: client.cancel([f"{run}.{element}"], unless_running=True), HASTY)
        except (ShoalError, Stopped):
            return False
        return bool(done.get("cancelled"))

    def cancel(self, run: str, elements: Sequence[int]) -> None:
        """Cancel those of the tasks that do not run."""
        targets = [f"{run}.{n}" for n in elements]
        for at in range(0, len(targets), MAX_TARGETS):
            some = targets[at : at + MAX_TARGETS]
            self.ask(lambda client, some=some: client.cancel(some, unless_running=True))  # type: ignore[misc]  # bound now
