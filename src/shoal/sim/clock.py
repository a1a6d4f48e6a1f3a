"""Virtual time: a heap of things to do. Equal times keep the order they were set in, so a seed is a story."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Now, and what comes next."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self.now = start
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._ids = itertools.count()

    def at(self, time: float, do: Callable[[], None]) -> None:
        """Do something at a time, never before now."""
        heapq.heappush(self._heap, (max(time, self.now), next(self._ids), do))

    def after(self, delay: float, do: Callable[[], None]) -> None:
        """Do something after a delay."""
        self.at(self.now + delay, do)

    def step(self) -> bool:
        """Go to the next thing and do it; False if there is none."""
        if not self._heap:
            return False
        time, _, do = heapq.heappop(self._heap)
        self.now = time
        do()
        return True
