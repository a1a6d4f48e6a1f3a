"""Virtual time: a heap of actions. Actions at equal times keep the order in which they were scheduled, so that a seed
always gives the same trace."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Action = Callable[[], None]
NEVER = 1e9  # seconds: what is further away than this does not happen in any world, and would only fill the heap


class Clock:
    """The virtual time, and the actions that are scheduled on it."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self.now = start
        self._heap: list[tuple[float, int, Action]] = []
        self._ids = itertools.count()

    def at(self, time: float, do: Action) -> None:
        """Schedule an action at a time, never before now."""
        heapq.heappush(self._heap, (max(time, self.now), next(self._ids), do))

    def after(self, delay: float, do: Action) -> None:
        """Schedule an action after a delay."""
        self.at(self.now + delay, do)

    def step(self) -> bool:
        """Advance to the next action and run it; False if there is none."""
        if not self._heap:
            return False
        time, _, do = heapq.heappop(self._heap)
        self.now = time
        do()
        return True


class Alarm:
    """One wake-up at the next deadline of an engine or agent. An earlier deadline replaces a later one."""

    def __init__(self, clock: Clock, do: Action, run: Callable[[Action], None] = lambda ring: ring()) -> None:
        self._clock, self._do, self._run = clock, do, run  # `run` may put the wake-up off, as a frozen process does
        self._due: float | None = None

    def set(self, due: float | None) -> None:
        """Wake up at a deadline, unless an earlier one is still to come; None: there is no deadline."""
        now = self._clock.now
        if due is None or due > now + NEVER or (self._due is not None and now < self._due <= due):
            return
        self._due = due
        self._clock.at(due, lambda: self._run(lambda: self._ring(due)))

    def clear(self) -> None:
        """Forget the deadline."""
        self._due = None

    def _ring(self, due: float) -> None:
        if self._due == due:
            self._due = None
            self._do()
