"""The history of a run as step functions of time: slots of the pool, busy slots and tasks that are left [DIANE U9].

Pure: attempts and pilots come in, lists of numbers go out. A slot is a core that a pilot offers. A pilot is never busier
than it is large, whatever its tasks say of themselves: tasks that wait lend their cores, and clocks differ a little.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from operator import add
from typing import NamedTuple

from shoal.model.lazy_dataclass import dataclass

# What became of an attempt. Work that counts, or may still count; everything else was for nothing.
COUNTS = frozenset({"succeeded", "checkpointed", "running"})


class Attempt(NamedTuple):
    """One attempt at a task that began: where, when and how it ended."""

    task: int
    number: int
    pilot: str
    start: float
    end: float
    slots: int
    outcome: str  # succeeded, failed, cancelled, lost, returned, duplicate, checkpointed, running


class PilotLife(NamedTuple):
    """A pilot: its slots, and from when to when it was there."""

    pilot: str
    host: str
    slots: int
    joined: float
    ended: float  # infinite: it is still there


class Ending(NamedTuple):
    """Tasks that became final at one moment: how many of them had run, and how many slots all of them needed."""

    time: float
    tasks: int
    slots: int


@dataclass
class RunRecord:
    """What is known of a run, with times in seconds since 1970."""

    start: float
    end: float  # when it finished; of one that goes on, the last moment that is known
    demand: int = 0  # slots that all its tasks need, were they to run at once
    attempts: list[Attempt] = field(default_factory=list)
    pilots: list[PilotLife] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)


class Timeline(NamedTuple):
    """Step functions over common steps: value `i` holds from `times[i]` to `times[i + 1]`."""

    times: list[float]
    pool: list[int]  # slots of the pilots
    useful: list[int]  # slots with attempts that counted
    wasted: list[int]  # slots with attempts that did not
    left: list[int]  # slots that the tasks which are not final need


class Samples(NamedTuple):
    """A history in equal parts of time: mean slots of the pool, mean busy slots, tasks that ended for each minute."""

    start: float
    width: float  # seconds
    pool: list[float]
    busy: list[float]
    rate: list[float]


def timeline(record: RunRecord) -> Timeline:
    """The step functions of a run."""
    steps: list[tuple[float, int, int, int, int]] = []
    of_pilot: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in record.attempts:
        if attempt.end > attempt.start:
            of_pilot[attempt.pilot].append(attempt)
    for life in known_pilots(record.pilots, record.attempts):
        steps += [(life.joined, life.slots, 0, 0, 0), (life.ended, -life.slots, 0, 0, 0)]
        steps += _busy_steps(of_pilot[life.pilot], life.slots)
    steps += [(ending.time, 0, 0, 0, -ending.slots) for ending in record.endings]
    return _add_up(steps, record)


def known_pilots(pilots: Iterable[PilotLife], attempts: Iterable[Attempt]) -> list[PilotLife]:
    """Each pilot once, there for as long as its attempts ran; one that is not listed is as large as what it ran at once."""
    listed = {life.pilot: life for life in pilots}
    spans: dict[str, tuple[float, float]] = {}
    unlisted: defaultdict[str, list[Attempt]] = defaultdict(list)
    for one in attempts:
        low, high = spans.get(one.pilot, (one.start, one.end))
        spans[one.pilot] = min(low, one.start), max(high, one.end)
        if one.pilot not in listed:
            unlisted[one.pilot].append(one)
    for pilot, theirs in unlisted.items():
        listed[pilot] = PilotLife(pilot, "", _most_at_once(theirs), math.inf, -math.inf)
    found = []
    for life in listed.values():
        low, high = spans.get(life.pilot, (life.joined, life.ended))
        found.append(life._replace(joined=min(low, life.joined), ended=max(high, life.ended)))
    return sorted(found, key=lambda life: (life.joined, life.pilot))


def _most_at_once(attempts: Iterable[Attempt]) -> int:
    steps = sorted(step for one in attempts for step in ((one.start, one.slots), (one.end, -one.slots)))
    most = now = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most


def _busy_steps(attempts: Sequence[Attempt], slots: int) -> Iterator[tuple[float, int, int, int, int]]:
    """How the busy slots of one pilot change; attempts that count come first if there are too few slots for all."""
    steps = []
    for one in attempts:
        kind = one.outcome in COUNTS
        steps += [(one.start, kind, one.slots), (one.end, kind, -one.slots)]
    steps.sort()
    wanted, shown = [0, 0], (0, 0)  # slots of attempts that did not count, and of those that did
    for time, kind, change in steps:
        wanted[kind] += change
        useful = min(slots, wanted[1])
        wasted = min(slots - useful, wanted[0])
        if (useful, wasted) != shown:
            yield time, 0, useful - shown[0], wasted - shown[1], 0
            shown = useful, wasted


def _add_up(steps: list[tuple[float, int, int, int, int]], record: RunRecord) -> Timeline:
    """Changes in any order as step functions from the start of a run to its end."""
    steps.sort(key=lambda step: step[0])
    found = Timeline([], [], [], [], [])
    at, pool, useful, wasted, left = record.start, 0, 0, 0, record.demand

    def hold() -> None:
        found.times.append(at)
        for values, value in zip(found[1:], (pool, useful, wasted, max(0, left)), strict=True):
            values.append(value)

    for time, to_pool, to_useful, to_wasted, to_left in steps:
        if time >= record.end:
            break
        if time > at:
            hold()
            at = time
        pool, useful, wasted, left = pool + to_pool, useful + to_useful, wasted + to_wasted, left + to_left
    if record.end > at:
        hold()
    found.times.append(max(at, record.end))
    return found


def sample(found: Timeline, endings: Iterable[Ending], parts: int) -> Samples:
    """A history in so many parts, for charts."""
    start, end = found.times[0], found.times[-1]
    width = (end - start) / parts if parts > 0 else 0.0
    if width <= 0.0:
        return Samples(start, 0.0, [], [], [])
    rate = [0.0] * parts
    pool = _means(found.times, found.pool, parts, width)
    busy = _means(found.times, [*map(add, found.useful, found.wasted)], parts, width)
    for ending in endings:
        if start <= ending.time <= end:
            rate[min(parts - 1, int((ending.time - start) / width))] += ending.tasks * 60.0 / width
    return Samples(start, width, pool, busy, rate)


def _means(times: Sequence[float], values: Sequence[int], parts: int, width: float) -> list[float]:
    """The means of a step function over equal parts of its time."""
    start, found, part = times[0], [0.0] * parts, 0
    edge = width  # where the part ends
    for value, low, high in zip(values, times, times[1:], strict=False):
        low, high = low - start, high - start
        while high > edge and part < parts - 1:
            found[part] += value * max(0.0, edge - low)
            low, part = edge, part + 1
            edge = (part + 1) * width
        found[part] += value * (high - low)
    return [area / width for area in found]
