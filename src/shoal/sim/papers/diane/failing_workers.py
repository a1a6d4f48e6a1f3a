"""The thesis' overlay with workers that end and results that get lost [DIANE 4.5.6]: a task goes back to the queue when its
worker was missed or its output did not arrive, and a worker that ended is replaced by the next one of its place in the pool.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from shoal.sim.papers.diane.overlay import Master


class Life(NamedTuple):
    """From when to when a worker is up."""

    start: float
    end: float


class LateRun(NamedTuple):
    """A run with late binding."""

    end: float
    lives: list[Life]  # of the workers that were used, cut at the end of the run
    attempts: int


def process_with_losses(
    pool: Sequence[Iterator[Life]], durations: Sequence[float], master: Master, missed: float, is_lost: Callable[[], bool]
) -> LateRun:  # fmt: skip
    """Tasks in their order to workers that ask. `pool`: for each place the workers that have it, one after another; `missed`:
    seconds after which the master knows that a worker ended; `is_lost`: asked whether the output of a task does not arrive."""
    ready = deque(range(len(durations)))
    returns: list[tuple[float, int]] = []  # tasks that go back to the queue
    idle: deque[int] = deque()
    lives: list[Life] = []
    current: dict[int, Life] = {}
    requests: list[tuple[float, int]] = []

    def replace(place: int, now: float) -> None:
        following = next(pool[place], None)
        if following is not None:
            current[place] = following
            lives.append(following)
            heapq.heappush(requests, (max(now, following.start + 3.0 * master.latency), place))

    for place in range(len(pool)):
        replace(place, 0.0)
    free = end = 0.0
    done = attempts = 0
    while done < len(durations):
        if returns and (not requests or returns[0][0] <= requests[0][0]):
            at, task = heapq.heappop(returns)
            ready.append(task)
            if idle:
                heapq.heappush(requests, (at, idle.popleft()))
            continue
        at, place = heapq.heappop(requests)
        ends = current[place].end
        if at >= ends:
            replace(place, ends)
            continue
        if not ready:
            idle.append(place)
            continue
        task = ready.popleft()
        attempts += 1
        free = max(free, at) + master.service
        over = free + master.latency + durations[task]
        if over > ends:
            heapq.heappush(returns, (ends + missed, task))
            replace(place, ends)
            continue
        if is_lost():
            heapq.heappush(returns, (over + master.latency, task))
        else:
            done += 1
            end = max(end, over + master.latency)
        heapq.heappush(requests, (over + master.latency, place))
    return LateRun(end, [Life(one.start, min(one.end, end)) for one in lives if one.start < end], attempts)


def most_at_once(lives: Sequence[Life]) -> int:
    """How many workers are up together, at most."""
    changes = sorted([(one.start, 1) for one in lives] + [(one.end, -1) for one in lives])
    up = most = 0
    for _, change in changes:
        up += change
        most = max(most, up)
    return most
