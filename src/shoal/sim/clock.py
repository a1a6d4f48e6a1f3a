"""Virtual time: a heap of actions. Actions at equal times keep the order in which they were scheduled, so that a seed
always gives the same trace."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[[], None]
NEVER = 1e9  # seconds: what is further away than this does not happen in any world, and would only fill the heap


class Clock:
    """The virtual time, and the actions that are scheduled on it."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self.now = start
        self._heap: list[tuple[float, int, Action]] = []
        self._scheduled = 0  # actions so far

    def at(self, time: float, do: Action) -> None:
        """Schedule an action at a time, never before now."""
        self._scheduled += 1
        heapq.heappush(self._heap, (time if time > self.now else self.now, self._scheduled, do))

    def after(self, delay: float, do: Action) -> None:
        """Schedule an action after a delay."""
        self.at(self.now + delay, do)

    def step(self) -> bool:
        """Advance to the next action and run it; False if there is none."""
        if not self._heap:
            return False
        self.now, _, do = heapq.heappop(self._heap)
        do()
        return True


class Alarm:
    """One wake-up at the next deadline of an engine or agent. An earlier deadline replaces a later one.

    Deadlines move all the time, mostly away: an action that is on the clock already, before the deadline, is used to look
    again, instead of one more for each move."""

    def __init__(self, clock: Clock, do: Action, run: Callable[[Action], None] = lambda ring: ring()) -> None:
        self._clock, self._do, self._run = clock, do, run  # `run` may put the wake-up off, as a frozen process does
        self._due: float | None = None
        self._scheduled: list[float] = []  # when we look, soonest last

    def set(self, due: float | None) -> None:
        """Wake up at a deadline, unless an earlier one is still to come; None: there is no deadline."""
        now = self._clock.now
        if due is None or due > now + NEVER or (self._due is not None and now < self._due <= due):
            return
        self._due = due
        self._schedule(due)

    def clear(self) -> None:
        """Forget the deadline."""
        self._due = None

    def _schedule(self, due: float) -> None:
        if not self._scheduled or due < self._scheduled[-1]:
            self._scheduled.append(due)
            self._clock.at(due, self._look)

    def _look(self) -> None:
        at = self._scheduled.pop()
        if self._due == at:
            self._run(lambda: self._ring(at))
        elif self._due is not None and self._due > at:
            self._schedule(self._due)

    def _ring(self, due: float) -> None:
        if self._due == due:
            self._due = None
            self._do()
