"""The batch queue of a site: jobs of pilots and of other people, first come first served, on hosts that are free."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from random import Random

from shoal.sim.clock import Clock
from shoal.sim.planning.description import Site

Start = Callable[[], None]
WARM_UP = 86_400.0  # seconds of other people's jobs before the start


class BatchQueue:
    """Starts jobs when their wait is over and a host is free."""

    def __init__(self, site: Site, clock: Clock, seed: int) -> None:
        self._site, self._clock = site, clock
        self._waits = Random(f"{seed}/{site.name}/wait")
        self._others = Random(f"{seed}/{site.name}/background")
        self._busy = 0
        self._is_serving = False
        self._queue: deque[Start] = deque()
        self._down_until = clock.now
        for downtime in site.downtimes:
            clock.after(downtime.start, lambda end=clock.now + downtime.end: self._go_down(end))  # type: ignore[misc]  # bound now
        if site.background is not None:
            self._warm_up()
            self._next_other()

    @property
    def is_down(self) -> bool:
        """True during a downtime."""
        return self._clock.now < self._down_until

    @property
    def waiting(self) -> int:
        """Jobs in the queue, of everybody."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Jobs on hosts, of everybody."""
        return self._busy

    def submit(self, start: Start) -> None:
        """Queue a job; `start` is called when it has a host, which `release` gives back."""
        self._clock.after(self._site.wait.draw(self._waits), lambda: self._enter(start))

    def release(self) -> None:
        """A job ended: its host is free."""
        self._busy -= 1
        self._serve()

    def _enter(self, start: Start) -> None:
        self._queue.append(start)
        self._serve()

    def _serve(self) -> None:
        if self.is_down or self._is_serving:
            return
        self._is_serving = True  # a job that was cancelled gives its host back at once: the loop below goes on with it
        try:
            while self._queue and (not self._site.hosts or self._busy < self._site.hosts):
                self._busy += 1
                self._queue.popleft()()
        finally:
            self._is_serving = False

    def _go_down(self, end: float) -> None:
        self._down_until = max(self._down_until, end)
        self._clock.at(end, self._serve)

    def _warm_up(self) -> None:
        """Begin as if other people had been there for a day: with their jobs on hosts, and in the queue."""
        background, hosts = self._site.background, self._site.hosts
        assert background is not None
        free = [-WARM_UP] * hosts
        at = -WARM_UP
        while (at := at + self._others.expovariate(background.per_hour / 3600.0)) < 0.0:
            seconds = background.seconds.draw(self._others)
            start = max(at, heapq.heappop(free)) if hosts else at
            if hosts:
                heapq.heappush(free, start + seconds)
            if start > 0.0:
                self._enter(lambda s=seconds: self._clock.after(s, self.release))  # type: ignore[misc]  # bound now
            elif start + seconds > 0.0:
                self._busy += 1
                self._clock.after(start + seconds, self.release)

    def _next_other(self) -> None:
        background = self._site.background
        assert background is not None
        self._clock.after(self._others.expovariate(background.per_hour / 3600.0), self._other_arrives)

    def _other_arrives(self) -> None:
        assert self._site.background is not None
        seconds = self._site.background.seconds.draw(self._others)
        self._enter(lambda: self._clock.after(seconds, self.release))
        self._next_other()
