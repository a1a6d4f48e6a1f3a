"""The use of a plan in matching: a preference, never a pin [SPHINX S5; ADR 0057].

A pilot is offered first, among its owner's classes of one priority, what is directed to its site. A class that is directed
elsewhere is passed over only while a pilot there has a free slot that could have it at once, and for LONGEST in all: a site
that can start it sooner gets it. Without a plan this costs one comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from shoal.engine.commands import UsePlan
from shoal.engine.locality.holds import could_run
from shoal.engine.matching.classes import TaskClass
from shoal.engine.records import Pilot
from shoal.engine.state import Placed, State
from shoal.sched.fit import how_many

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 5.0  # seconds for which the tasks of a class are kept for another site, by one plan
LOOK_AGAIN = 1.0
IDLE_READ = 64  # waiting pilots that are looked at
ALIKE = 64  # classes of one priority that are put in order


def use_plan(state: State, command: UsePlan) -> None:
    """Direct tasks by another plan from now on; None: by none."""
    state.placed = None if command.plan is None else Placed(command.plan, state.now)
    state.news += 1


def note_lease(state: State, pilot: Pilot, cls: TaskClass, count: int) -> None:
    """So many tasks of a class went to a pilot: its site has as many less to get."""
    placed = state.placed
    if placed is not None and cls.serial in placed.plan.directed:
        key = (cls.serial, pilot.site)
        placed.given[key] = placed.given.get(key, 0) + count
        placed.kept.pop(cls.serial, None)


def left_for(state: State, cls: TaskClass, site: str) -> float:
    """Tasks of a class that the plan directs to a site, and that it did not get yet."""
    placed = state.placed
    if placed is None:
        return 0.0
    return placed.plan.directed.get(cls.serial, {}).get(site, 0.0) - placed.given.get((cls.serial, site), 0)


def directed_first(state: State, pilot: Pilot, found: Iterator[TaskClass]) -> Iterator[TaskClass]:
    """An owner's classes for a pilot, best first; of those of one priority first what is directed to its site."""
    alike: list[TaskClass] = []
    level = None
    for cls in found:
        own = cls.key.level
        if alike and (own != level or len(alike) >= ALIKE):
            yield from _ordered(state, pilot, alike)
            alike = []
        level = own
        alike.append(cls)
    yield from _ordered(state, pilot, alike)


def _ordered(state: State, pilot: Pilot, alike: Iterable[TaskClass]) -> list[TaskClass]:
    return sorted(alike, key=lambda cls: left_for(state, cls, pilot.site) < 0.5)  # stable


def is_kept(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """True if a class is not given to a pilot now, since the plan directs it to a site that has a free slot for it."""
    placed = state.placed
    if placed is None or left_for(state, cls, pilot.site) >= 0.5:
        return False
    since = placed.kept.get(cls.serial, state.now)
    if state.now - since >= LONGEST or awaited_site(state, pilot, cls) is None:
        return False
    placed.kept[cls.serial] = since
    state.data.again[pilot.name] = min(state.data.again.get(pilot.name, state.now + LOOK_AGAIN), state.now + LOOK_AGAIN)
    return True


def awaited_site(state: State, pilot: Pilot, cls: TaskClass) -> str | None:
    """The site to which a class is directed, and where a pilot waits that could start a task of it at once."""
    placed = state.placed
    directed = placed.plan.directed.get(cls.serial) if placed is not None else None
    if directed is None:
        return None
    for other in islice(state.parked.values(), IDLE_READ):
        is_directed = other.site != pilot.site and left_for(state, cls, other.site) >= 0.5
        if is_directed and how_many(cls.needs, other.free) > 0 and could_run(state, other, cls):
            return other.site
    return None


def plan_text(state: State, cls: TaskClass) -> str:
    """What the plan says of a class, as a part of a sentence; empty if it says nothing."""
    placed = state.placed
    directed = placed.plan.directed.get(cls.serial) if placed is not None else None
    if placed is None or not directed:
        return ""
    shares = sorted(directed.items(), key=lambda item: -item[1])[:4]
    where = ", ".join(f"{count:.0f} to {site}" for site, count in shares if count >= 0.5)
    return f"the plan directs of its like {where} ({placed.plan.how})" if where else ""
