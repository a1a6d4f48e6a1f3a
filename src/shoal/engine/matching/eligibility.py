"""Eligibility: which classes a pilot can ever run, evaluated once for each class and pilot, not with each request
[ADR 0011].

An eligibility is kept for one pilot and one owner. It is made anew when tags of the pilot changed that some expression
reads, and extended by the classes that were created since. What depends on the moment (free capacity, time left) is
evaluated when something is about to be leased.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from shoal.engine.matching.classes import CONTAINER, OwnerQueue, Position, PreparedClasses, TaskClass
from shoal.engine.matching.pilot_attributes import all_facts, attributes, lookup
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.sched.expr.scalar import holds, rank_of
from shoal.sched.match import misfit
from shoal.wire.messages import Capacity

FEW = 64  # eligible classes that are looked at one by one, rather than along the owner's queue
MANY = 200  # classes with expressions that are evaluated with numpy
BLOCK = 64  # positions of an owner's queue that are read at once
GROWN = 1.25  # growth of an owner's classes after which they are prepared for numpy anew
SKIPPED = 64  # classes without work met by an iteration that are then left out
TIGHT = 10.0  # seconds for which it is remembered that nothing fitted: some may prove short enough to be fetched ahead
FRESH = 1.0  # seconds that a rank which depends on the moment stays valid


class Eligibility:
    """The classes of one owner that a pilot can run."""

    __slots__ = (
        "arrivals_epoch", "arrivals_seen", "by_rank", "epoch", "fits", "is_volatile", "left_out", "log_seen", "made",
        "passed", "ranked", "skipped", "stamp", "tight",
    )  # fmt: skip

    def __init__(self, stamp: int, epoch: int, now: float) -> None:
        self.stamp, self.epoch, self.made = stamp, epoch, now
        self.log_seen = 0  # classes of the owner's log that were evaluated
        self.fits: set[int] = set()  # serials of those without a rank
        self.ranked: dict[int, float] = {}  # serial -> rank
        self.by_rank: list[tuple[float, float, int]] | None = None  # the same in order: -priority, -rank, serial
        self.is_volatile = False
        self.left_out: set[int] = set()  # serials of classes without work, taken out of `by_rank` until they get some
        self.arrivals_seen = self.arrivals_epoch = 0  # how much of the owner's `ranked_arrivals` is known here
        self.passed = self.skipped = 0  # entries of `by_rank` that the last iteration met, and how many had no work
        self.tight: NothingFits | None = None

    def __contains__(self, cls: TaskClass) -> bool:
        return cls.serial in self.fits or cls.serial in self.ranked


class NothingFits(NamedTuple):
    """No class fitted into this free capacity: nothing smaller has to be tried before some class gets work that had
    none. (What may be fetched ahead is found again when something larger was free.)"""

    free: Capacity
    arrivals: int
    at: float

    def holds(self, free: Capacity, arrivals: int, now: float) -> bool:
        """True if no more is free now, and no class got work since."""
        was = self.free
        return (
            arrivals == self.arrivals
            and free.cores <= was.cores
            and free.memory <= was.memory
            and free.disk <= was.disk
            and free.gpus <= was.gpus
            and now < self.at + TIGHT
        )


def _prepare(state: State, owned: OwnerQueue) -> PreparedClasses:
    """All classes of an owner made ready for numpy, and one of each kind by what does not depend on expressions."""
    from shoal.sched.vector.filter_classes import ClassFilter, ClassNeeds  # numpy is loaded only where it pays

    kinds: dict[object, int] = {}
    alike: list[TaskClass] = []
    asked = []
    for cls in owned.log:
        key = cls.key
        kind = kinds.setdefault((cls.needs, key.surroundings, key.avoid, key.avoid_sites), len(kinds))
        if kind == len(alike):
            alike.append(cls)
        task = attributes(state, cls.key)
        asked.append(ClassNeeds(cls.serial, cls.key.priority, cls.require, cls.rank, task, cls.is_volatile, kind))
    return PreparedClasses(ClassFilter(asked), alike)


def _fill(state: State, pilot: Pilot, eligibility: Eligibility, owned: OwnerQueue) -> None:
    """Evaluate many classes at once for a new eligibility."""
    prepared = owned.class_filter
    if prepared is None or len(owned.log) > GROWN * prepared.filter.count:
        prepared = owned.class_filter = _prepare(state, owned)
    able = [static_misfit(pilot, cls) is None for cls in prepared.alike]
    found = prepared.filter.pass_through(all_facts(state, pilot), able)
    eligibility.fits, eligibility.ranked, eligibility.by_rank, eligibility.is_volatile = found
    eligibility.log_seen = prepared.filter.count


def eligibility_of(state: State, pilot: Pilot, owner: str) -> Eligibility:
    """Which classes of an owner the pilot can run, up to date."""
    owned = state.queue.owners[owner]
    eligibility = pilot.eligibilities.get(owner)
    stale = eligibility is None or eligibility.stamp != pilot.stamp or eligibility.epoch != owned.epoch
    if eligibility is None or stale or (eligibility.is_volatile and state.now >= eligibility.made + FRESH):
        eligibility = pilot.eligibilities[owner] = Eligibility(pilot.stamp, owned.epoch, state.now)
        eligibility.arrivals_seen, eligibility.arrivals_epoch = len(owned.ranked_arrivals), owned.arrivals_epoch
        if owned.with_expressions >= MANY:
            _fill(state, pilot, eligibility, owned)
    if eligibility.log_seen < len(owned.log):
        _extend(state, pilot, eligibility, owned.log[eligibility.log_seen :])
        eligibility.log_seen = len(owned.log)
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
    return [
        other
        for other in state.pilots.values()
        if (other.host != pilot.host or other.site != pilot.site)
        and not other.draining
        and state.serves(other, cls.key.owner)
        and cls in eligibility_of(state, other, cls.key.owner)
    ]


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
        if fits or cls.is_volatile:  # what depends on the moment is evaluated again when something is leased
            if cls.rank is None:
                eligibility.fits.add(cls.serial)
            else:
                eligibility.ranked[cls.serial] = rank
                if eligibility.by_rank is not None:
                    insort(eligibility.by_rank, (-cls.key.priority, -rank, cls.serial))


def _ask_many(state: State, pilot: Pilot, asked: list[TaskClass]) -> list[tuple[bool, float]]:
    """Whether classes fit and their ranks, for many at once; numpy is loaded only where it pays."""
    from shoal.sched.vector.expr import Table, match

    tasks = [attributes(state, cls.key) for cls in asked]
    fits, ranks = match([c.require for c in asked], [c.rank for c in asked], tasks, Table([all_facts(state, pilot)]))
    return list(zip(fits[:, 0].tolist(), ranks[:, 0].tolist(), strict=True))


def candidates(eligibility: Eligibility, owned: OwnerQueue, is_strict: bool) -> Iterator[TaskClass]:
    """An owner's classes that a pilot can run and that have work, best first: by priority, by rank for this pilot, by
    deadline, by age. Leasing from one while iterating is fine: it is met again where it stands then."""
    if not eligibility.fits:
        for entry in _ranked(eligibility, owned, is_strict):
            yield owned.classes[int(entry[-1])]
    elif eligibility.ranked:
        plain = ((where.order, 0.0, *where[1:]) for where in _plain(eligibility, owned))
        for entry in heapq.merge(plain, _ranked(eligibility, owned, is_strict)):
            yield owned.classes[int(entry[-1])]
    else:
        for where in _plain(eligibility, owned):
            yield owned.classes[where.serial]


def _plain(eligibility: Eligibility, owned: OwnerQueue) -> Iterator[Position]:
    """Positions of classes without a rank: one by one where they are few, else along the owner's queue."""
    fits, order = eligibility.fits, owned.order
    if len(fits) <= FEW < len(order):
        classes = owned.classes
        yield from sorted(where for serial in fits if (where := classes[serial].listed) is not None)
        return
    block = order[:BLOCK]
    while block:
        for where in block:
            if where.serial in fits:
                yield where
        at = bisect_right(order, block[-1])
        block = order[at : at + BLOCK]


def _ranked(eligibility: Eligibility, owned: OwnerQueue, is_strict: bool) -> Iterator[tuple[float, ...]]:
    """Positions of classes with a rank, the rank inserted after the priority."""
    if not is_strict:  # weighted positions change with time: ranks decide between those that are alike
        ranked = eligibility.ranked
        for _, alike in groupby(list(owned.order), itemgetter(0)):
            yield from sorted(
                (where.order, -ranked[where.serial], *where[1:]) for where in alike if where.serial in ranked
            )
        return
    classes = owned.classes
    for at, (_, negative, serial) in enumerate(_in_order(eligibility, owned)):
        where = classes[serial].listed
        if where is None:
            eligibility.skipped += 1
        else:
            eligibility.passed = at
            yield (where.order, negative, *where[1:])


def _in_order(eligibility: Eligibility, owned: OwnerQueue) -> list[tuple[float, float, int]]:
    """Classes with a rank, best first, mostly such as have work."""
    classes = owned.classes
    if eligibility.by_rank is None or eligibility.arrivals_epoch != owned.arrivals_epoch:
        eligibility.by_rank = sorted(
            (-classes[serial].key.priority, -rank, serial) for serial, rank in eligibility.ranked.items()
        )
        eligibility.left_out.clear()
        eligibility.arrivals_seen, eligibility.arrivals_epoch = len(owned.ranked_arrivals), owned.arrivals_epoch
    elif eligibility.skipped > SKIPPED:
        seen = eligibility.by_rank[: eligibility.passed]
        eligibility.by_rank[: eligibility.passed] = [entry for entry in seen if classes[entry[2]].listed is not None]
        eligibility.left_out.update(serial for _, _, serial in seen if classes[serial].listed is None)
    eligibility.passed = eligibility.skipped = 0
    for cls in owned.ranked_arrivals[eligibility.arrivals_seen :]:
        if cls.serial in eligibility.left_out:
            eligibility.left_out.discard(cls.serial)
            insort(eligibility.by_rank, (-cls.key.priority, -eligibility.ranked[cls.serial], cls.serial))
    eligibility.arrivals_seen = len(owned.ranked_arrivals)
    return eligibility.by_rank
