"""The three phases of a run and where its slot time went [DIANE U9].

- *Submission* lasts from the start of the run (t0) until the pool has its target size (t1), *main* until the tasks that
  are left need fewer slots than the pool has, for good (t2), *tail* until the end.
- The slot time of a run is the area under its target, and under the pool where that is larger. It is split into *useful*
  (attempts that counted), *failed* (attempts that did not: failed, lost, given back, copies), *overhead* (a slot was
  free, and a task was left that was in none: being handed out or started, or waiting for others), *idle* (fewer tasks
  were left than slots) and *missing* (slots of the target that the pool did not have).
- The target is the requested size of the pool in the thesis. Nobody has to request one here: unless it is given, it is the
  largest pool before the tail, and it counts as reached at 95 % of it, so that one late pilot of a hundred does not make
  most of a run its submission.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from shoal.report.history import Timeline

PHASES = ("submission", "main", "tail")
LOST = ("failed", "overhead", "idle", "missing")
REACHED = 0.95  # of the target


class Areas(NamedTuple):
    """Slot seconds by where they went."""

    useful: float = 0.0
    failed: float = 0.0
    overhead: float = 0.0
    idle: float = 0.0
    missing: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)

    @property
    def lost(self) -> float:
        """Those that brought nothing."""
        return self.total - self.useful


class Phase(NamedTuple):
    """One of the three parts of a run."""

    name: str
    start: float
    end: float
    areas: Areas


class Anatomy(NamedTuple):
    """The phases of a run, the target size of its pool in slots, and the areas of the whole run."""

    target: int
    phases: tuple[Phase, ...]
    areas: Areas

    def share(self, area: float) -> float:
        """An area as a fraction of the run's slot time."""
        return min(1.0, area / self.areas.total) if self.areas.total > 0.0 else 0.0

    @property
    def utilisation(self) -> float:
        """The busy part of the slot time that the pool had."""
        had = self.areas.total - self.areas.missing
        return min(1.0, (self.areas.useful + self.areas.failed) / had) if had > 0.0 else 0.0


def dissect(found: Timeline, target: int = 0) -> Anatomy:
    """The anatomy of a run; `target`: the size of the pool that was asked for, 0 if that is not known."""
    start, end = found.times[0], found.times[-1]
    tail = _tail_start(found)
    early = [slots for at, slots in zip(found.times, found.pool, strict=False) if at < tail]
    most = max(early or found.pool, default=0)
    target = target or most
    full = _first_time(found, REACHED * min(target, most)) if most else tail
    full = min(full, tail)
    bounds = (start, full, tail, end)
    areas = _areas_between(found, bounds, target)
    phases = tuple(
        Phase(name, low, high, part) for name, low, high, part in zip(PHASES, bounds, bounds[1:], areas, strict=False)
    )
    whole = Areas(*(sum(values) for values in zip(*areas, strict=True)))
    return Anatomy(target, phases, whole)


def _tail_start(found: Timeline) -> float:
    """From when on fewer slots are needed than there are, for good."""
    for i in range(len(found.pool) - 1, -1, -1):
        if found.left[i] >= found.pool[i]:
            return found.times[i + 1]
    return found.times[0]


def _first_time(found: Timeline, slots: float) -> float:
    """When the pool first has so many slots."""
    return next((at for at, pool in zip(found.times, found.pool, strict=False) if pool >= slots), found.times[-1])


def _areas_between(found: Timeline, bounds: tuple[float, ...], target: int) -> list[Areas]:
    """The areas of the parts that these moments bound."""
    times, sums = found.times, []
    at = 0  # the step that the part begins in
    for low, high in pairwise(bounds):
        useful = failed = overhead = idle = missing = 0.0
        while at < len(found.pool) and times[at] < high:
            width = min(high, times[at + 1]) - max(low, times[at])
            pool, good, bad = found.pool[at], found.useful[at], found.wasted[at]
            busy = good + bad
            wanted = max(busy, min(pool, found.left[at]))
            useful += good * width
            failed += bad * width
            overhead += (wanted - busy) * width
            idle += (pool - wanted) * width
            missing += max(0, target - pool) * width
            if times[at + 1] > high:
                break  # the rest of this step belongs to the next part
            at += 1
        sums.append(Areas(useful, failed, overhead, idle, missing))
    return sums
