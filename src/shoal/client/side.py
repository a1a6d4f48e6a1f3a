"""Questions beside the stream, on a connection of their own: blobs, what runs, taking calls back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shoal.client.link import Line, Link, Stopped, T
from shoal.model.errors import ShoalError

if TYPE_CHECKING:
    from shoal.client.client import Client

MAX_TARGETS = 10_000  # of one cancellation
HASTY = 2.0  # seconds that a small question waits for a lost server
SEEN_FOR = 0.1  # seconds that the list of running tasks is good for, when many calls are cancelled one by one


class Side:
    """One connection for all threads, one question at a time."""

    def __init__(self, link: Link) -> None:
        self._line = Line(link)
        self._lock = threading.RLock()
        self._seen: tuple[float, frozenset[int]] = (-1.0, frozenset())

    def ask(self, do: Callable[[Client], T], patience: float | None = None) -> T:
        """What `do` gets from the server."""
        with self._lock:
            return self._line.ask(do, patience)

    def use(self, do: Callable[[Line], T]) -> T:
        """Several questions without another between them."""
        with self._lock:
            return do(self._line)

    def close(self) -> None:
        """Let the connection go."""
        self._line.drop()

    def put(self, parts: Sequence[Any]) -> str:
        """Upload a blob; its name."""
        return str(self.ask(lambda client: client.put_blob(parts)))

    def is_running(self, run: str, element: int) -> bool:
        """Is this call executed now?"""
        try:
            return bool(self.ask(lambda client: client.task(f"{run}.{element}"), HASTY).get("state") == "running")
        except (ShoalError, Stopped):
            return False

    def cancel_one(self, run: str, element: int) -> bool:
        """Cancel a task unless it runs; False also if the server does not answer."""
        try:
            if element in self._running(run, SEEN_FOR):
                return False
            return bool(self.ask(lambda client: client.cancel([f"{run}.{element}"]), HASTY).get("cancelled"))
        except (ShoalError, Stopped):
            return False

    def cancel(self, run: str, elements: Sequence[int]) -> None:
        """Cancel those of the tasks that do not run."""
        running = self._running(run, 0.0)
        targets = [f"{run}.{n}" for n in elements if n not in running]
        for at in range(0, len(targets), MAX_TARGETS):
            self.ask(lambda client, some=targets[at : at + MAX_TARGETS]: client.cancel(some))  # type: ignore[misc]

    def _running(self, run: str, good_for: float) -> frozenset[int]:
        """The elements that run now, or did so up to `good_for` seconds ago."""
        with self._lock:
            then, seen = self._seen
            if then >= 0 and time.monotonic() - then < good_for:
                return seen
            found: set[int] = set()
            after: int | None = 0
            while after is not None:
                page = self.ask(lambda client, after=after: client.tasks(run, after, states=["running"]), HASTY)  # type: ignore[misc]
                found.update(int(row["element"]) for row in page["tasks"])
                after = page.get("next")
            self._seen = time.monotonic(), frozenset(found)
            return self._seen[1]
