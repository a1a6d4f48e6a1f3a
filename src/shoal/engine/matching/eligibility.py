"""Which classes a pilot can ever run, as it is now: asked once for each class and pilot, not with each request
[ADR 0011].

A menu is made for one pilot and one owner. It is made anew when the pilot's tags changed in a way that some expression
looks at, and grows by the classes that came since. What depends on the moment (free room, time left) is looked at when
something is about to be leased.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from shoal.engine.matching.classes import CONTAINER, OwnerQueue, Place, TaskClass
from shoal.engine.matching.pilot_attributes import all_facts, attributes, lookup
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.sched.expr.scalar import holds, rank_of
from shoal.sched.match import misfit
from shoal.wire.messages import Capacity

if TYPE_CHECKING:
    from shoal.sched.vector.filter_classes import ClassFilter

FEW = 64  # classes on a menu that are looked at one by one, rather than along the owner's line
MANY = 200  # classes with expressions that are worth being looked at with numpy
BLOCK = 64  # places of a line that are looked at at once
GROWN = 1.25  # times as long a line has to be for its classes to be made ready for numpy anew
SKIPPED = 64  # classes without work in the way of a walk that are then put aside
TIGHT = 10.0  # seconds for which it is remembered that nothing fitted: some may prove short enough to be fetched ahead
FRESH = 1.0  # seconds that a rank which depends on the moment is good for


class Eligibility:
    """The classes of one owner that a pilot can run."""

    __slots__ = (
        "aside", "by_rank", "epoch", "fits", "heard", "is_volatile", "made", "passed", "ranked", "skipped", "stamp", "tight",
        "turned", "upto",
    )  # fmt: skip

    def __init__(self, stamp: int, epoch: int, now: float) -> None:
        self.stamp, self.epoch, self.made = stamp, epoch, now
        self.upto = 0  # classes of the line's log that were looked at
        self.fits: set[int] = set()  # serials of those without a rank
        self.ranked: dict[int, float] = {}  # serial -> rank
        self.by_rank: list[tuple[float, float, int]] | None = None  # the same in order: -priority, -rank, serial
        self.is_volatile = False
        # Classes without work would be passed over with each request: those in the way are put aside until they come
        # again.
        self.aside: set[int] = set()  # serials
        self.heard = self.turned = 0  # how much of the line's comings is known here
        self.passed = self.skipped = 0  # places of `by_rank` that the last walk saw, and how many had no work
        self.tight: NothingFits | None = None

    def __contains__(self, cls: TaskClass) -> bool:
        return cls.serial in self.fits or cls.serial in self.ranked


class NothingFits(NamedTuple):
    """All classes were looked at, and none fitted into what was free: nothing less has to be tried before some class
    gets work that had none. (What may be fetched ahead is found again when something larger was free.)"""

    free: Capacity
    news: int
    at: float

    def holds(self, free: Capacity, news: int, now: float) -> bool:
        """Is there no more room now, and nothing new?"""
        was = self.free
        return (
            news == self.news
            and free.cores <= was.cores
            and free.memory <= was.memory
            and free.disk <= was.disk
            and free.gpus <= was.gpus
            and now < self.at + TIGHT
        )


def _sieve(state: State, line: OwnerQueue) -> tuple[ClassFilter, list[TaskClass]]:
    """All classes of a line made ready for numpy, and one of each kind by what does not depend on expressions."""
    from shoal.sched.vector.filter_classes import (  # numpy is loaded only where there is so much to do
        ClassFilter,
        ClassNeeds,
    )

    kinds: dict[object, int] = {}
    alike: list[TaskClass] = []
    asked = []
    for cls in line.log:
        key = cls.key
        kind = kinds.setdefault((cls.needs, key.surroundings, key.avoid, key.avoid_sites), len(kinds))
        if kind == len(alike):
            alike.append(cls)
        task = attributes(state, cls.key)
        asked.append(ClassNeeds(cls.serial, cls.key.priority, cls.require, cls.rank, task, cls.is_volatile, kind))
    return ClassFilter(asked), alike


def _fill(state: State, pilot: Pilot, eligibility: Eligibility, line: OwnerQueue) -> None:
    """Write an empty menu of many classes at once."""
    if line.sieve is None or len(line.log) > GROWN * line.sieve[0].count:
        line.sieve = _sieve(state, line)
    sieve, alike = line.sieve
    able = [static_misfit(pilot, cls) is None for cls in alike]
    passed = sieve.pass_through(all_facts(state, pilot), able)
    eligibility.fits, eligibility.ranked, eligibility.by_rank, eligibility.is_volatile = passed
    eligibility.upto = sieve.count


def menu_of(state: State, pilot: Pilot, line: OwnerQueue) -> Eligibility:
    """The pilot's menu of an owner's classes, up to date."""
    eligibility = pilot.eligibilities.get(line.owner)
    stale = eligibility is None or eligibility.stamp != pilot.stamp or eligibility.epoch != line.epoch
    if eligibility is None or stale or (eligibility.is_volatile and state.now >= eligibility.made + FRESH):
        eligibility = pilot.eligibilities[line.owner] = Eligibility(pilot.stamp, line.epoch, state.now)
        eligibility.heard, eligibility.turned = len(line.comings), line.turned
        if line.asking >= MANY:  # numpy is loaded only where there is so much to do
            _fill(state, pilot, eligibility, line)
    if eligibility.upto < len(line.log):
        _extend(state, pilot, eligibility, line.log[eligibility.upto :])
        eligibility.upto = len(line.log)
    return eligibility


def static_misfit(pilot: Pilot, cls: TaskClass) -> str | None:
    """Why a pilot can never run a class, whatever its expressions say."""
    key = cls.key
    if key.surroundings.startswith(CONTAINER) and not pilot.tags.get("containers"):
        return "the host has neither apptainer nor podman nor docker"
    if pilot.host in key.avoid:
        return "it failed on this host and is tried elsewhere"
    if pilot.site in key.avoid_sites:
        return "it failed at this site and is tried at another"
    return misfit(key.needs, pilot.room)


def other_pilots(state: State, pilot: Pilot, cls: TaskClass) -> list[Pilot]:
    """Pilots on other hosts that could run a class."""
    line = state.queue.lines[cls.key.owner]
    return [
        other
        for other in state.pilots.values()
        if (other.host != pilot.host or other.site != pilot.site)
        and not other.draining
        and state.serves(other, cls.key.owner)
        and cls in menu_of(state, other, line)
    ]


def other_hosts(state: State, pilot: Pilot, cls: TaskClass) -> set[str]:
    """Other hosts that could run a class."""
    return {other.host for other in other_pilots(state, pilot, cls)}


def other_sites(state: State, pilot: Pilot, others: list[Pilot]) -> set[str]:
    """Sites of these pilots other than a pilot's own, where one of them can be expected to take a task soon."""
    return {
        other.site for other in others if other.site != pilot.site and not other.suspect and state.ban_of(other) is None
    }


def _extend(state: State, pilot: Pilot, eligibility: Eligibility, new: list[TaskClass]) -> None:
    asked: list[TaskClass] = []
    for cls in new:
        if static_misfit(pilot, cls) is not None:
            continue
        if cls.require is None and cls.rank is None:
            eligibility.fits.add(cls.serial)
        else:
            asked.append(cls)
    if not asked:
        return
    eligibility.is_volatile = eligibility.is_volatile or any(cls.is_volatile for cls in asked)
    if len(asked) >= MANY:
        found = _ask_many(state, pilot, asked)
    else:
        found = []
        look = lookup(state, pilot, asked[0].key.owner)
        for cls in asked:
            task = attributes(state, cls.key)
            fits = cls.require is None or cls.is_volatile or holds(cls.require, look, task)
            found.append((fits, rank_of(cls.rank, look, task) if cls.rank is not None and fits else 0.0))
    for cls, (fits, rank) in zip(asked, found, strict=True):
        if fits or cls.is_volatile:  # what depends on the moment is asked again when something is leased
            if cls.rank is None:
                eligibility.fits.add(cls.serial)
            else:
                eligibility.ranked[cls.serial] = rank
                if eligibility.by_rank is not None:
                    insort(eligibility.by_rank, (-cls.key.priority, -rank, cls.serial))


def _ask_many(state: State, pilot: Pilot, asked: list[TaskClass]) -> list[tuple[bool, float]]:
    """The same for many classes at once; numpy is loaded only where there is so much to do."""
    from shoal.sched.vector.expr import Table, match

    tasks = [attributes(state, cls.key) for cls in asked]
    fits, ranks = match([c.require for c in asked], [c.rank for c in asked], tasks, Table([all_facts(state, pilot)]))
    return list(zip(fits[:, 0].tolist(), ranks[:, 0].tolist(), strict=True))


def candidates(eligibility: Eligibility, line: OwnerQueue, is_strict: bool) -> Iterator[TaskClass]:
    """An owner's classes that a pilot can run and that have work, best first: by priority, by rank for this pilot, by
    deadline, by age. Leasing from one while walking is fine: it is met again where it stands then."""
    if not eligibility.fits:
        for entry in _ranked(eligibility, line, is_strict):
            yield line.classes[int(entry[-1])]
    elif eligibility.ranked:
        plain = ((where[0], 0.0, *where[1:]) for where in _plain(eligibility, line))
        for entry in heapq.merge(plain, _ranked(eligibility, line, is_strict)):
            yield line.classes[int(entry[-1])]
    else:
        for where in _plain(eligibility, line):
            yield line.classes[where[4]]


def _plain(eligibility: Eligibility, line: OwnerQueue) -> Iterator[Place]:
    """Places of those without a rank: one by one where they are few, else along the owner's line."""
    fits, order = eligibility.fits, line.order
    if len(fits) <= FEW < len(order):
        classes = line.classes
        yield from sorted(where for serial in fits if (where := classes[serial].listed) is not None)
        return
    block = order[:BLOCK]
    while block:
        for where in block:
            if where[4] in fits:
                yield where
        at = bisect_right(order, block[-1])
        block = order[at : at + BLOCK]


def _ranked(eligibility: Eligibility, line: OwnerQueue, is_strict: bool) -> Iterator[tuple[float, ...]]:
    """Places of those with a rank, the rank put in after the priority."""
    if not is_strict:  # weighted places change with time: ranks decide between those that are alike
        ranked = eligibility.ranked
        for _, alike in groupby(list(line.order), itemgetter(0)):
            yield from sorted((where[0], -ranked[where[4]], *where[1:]) for where in alike if where[4] in ranked)
        return
    classes, by_rank = line.classes, _in_order(eligibility, line)
    for at, (_, negative, serial) in enumerate(by_rank):
        where = classes[serial].listed
        if where is None:
            eligibility.skipped += 1
        else:
            eligibility.passed = at
            yield (where[0], negative, *where[1:])


def _in_order(eligibility: Eligibility, line: OwnerQueue) -> list[tuple[float, float, int]]:
    """Those with a rank, best first, mostly such as have work."""
    classes = line.classes
    if eligibility.by_rank is None or eligibility.turned != line.turned:
        eligibility.by_rank = sorted(
            (-classes[serial].key.priority, -rank, serial) for serial, rank in eligibility.ranked.items()
        )
        eligibility.aside.clear()
        eligibility.heard, eligibility.turned = len(line.comings), line.turned
    elif eligibility.skipped > SKIPPED:
        seen = eligibility.by_rank[: eligibility.passed]
        eligibility.by_rank[: eligibility.passed] = [entry for entry in seen if classes[entry[2]].listed is not None]
        eligibility.aside.update(entry[2] for entry in seen if classes[entry[2]].listed is None)
    eligibility.passed = eligibility.skipped = 0
    for cls in line.comings[eligibility.heard :]:
        if cls.serial in eligibility.aside:
            eligibility.aside.discard(cls.serial)
            insort(eligibility.by_rank, (-cls.key.priority, -eligibility.ranked[cls.serial], cls.serial))
    eligibility.heard = len(line.comings)
    return eligibility.by_rank
