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

from shoal.engine.matching.classes import (
    CONTAINER,
    DATA_LOCAL,
    FUNCTION,
    STREAM_FILES,
    OwnerQueue,
    Position,
    PreparedClasses,
    TaskClass,
)
from shoal.engine.matching.pilot_attributes import all_facts, attributes, local_values, lookup
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.states import Rerun
from shoal.sched.expr.scalar import holds, rank_of
from shoal.sched.fit import misfit
from shoal.wire.messages import BRIDGE, SINCE, Capacity

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


def _prepare(state: State, classes: list[TaskClass]) -> PreparedClasses:
    """Classes made ready for numpy, and one of each kind by what does not depend on expressions."""
    from shoal.sched.vector.expr import ClassFilter, ClassNeeds  # numpy is loaded only where it pays

    kinds: dict[object, int] = {}
    alike: list[TaskClass] = []
    asked = []
    for cls in classes:
        key = cls.key
        kind = kinds.setdefault((cls.needs, key.surroundings, key.avoid, key.avoid_sites, key.visible), len(kinds))
        if kind == len(alike):
            alike.append(cls)
        task = attributes(state, cls.key)
        asked.append(ClassNeeds(cls.serial, cls.key.level, cls.require, cls.rank, task, cls.is_volatile, kind))
    return PreparedClasses(ClassFilter(asked), alike, classes if any(cls.reads_data for cls in classes) else [])


def eligibility_of(state: State, pilot: Pilot, owner: str) -> Eligibility:
    """Which classes of an owner the pilot can run, up to date."""
    owned = state.queue.owners[owner]
    eligibility = pilot.eligibilities.get(owner)
    stale = eligibility is None or eligibility.stamp != pilot.stamp or eligibility.epoch != owned.epoch
    if eligibility is None or stale or (eligibility.is_volatile and state.now >= eligibility.made + FRESH):
        eligibility = pilot.eligibilities[owner] = Eligibility(pilot.stamp, owned.epoch, state.now)
        eligibility.arrivals_seen, eligibility.arrivals_epoch = len(owned.ranked_arrivals), owned.arrivals_epoch
        if owned.with_expressions >= MANY:
            prepared = owned.class_filter
            if prepared is None or len(owned.log) > GROWN * prepared.filter.count:
                prepared = owned.class_filter = _prepare(state, owned.log)
            _add_many(state, pilot, eligibility, prepared)
            eligibility.log_seen = prepared.filter.count
    if eligibility.log_seen == len(owned.log):
        return eligibility
    new = owned.log[eligibility.log_seen :]
    if sum(cls.has_expressions for cls in new) >= MANY:
        _add_many(state, pilot, eligibility, _prepare(state, new))
    else:
        _add_each(state, pilot, eligibility, new)
    eligibility.log_seen = len(owned.log)
    return eligibility


def _add_many(state: State, pilot: Pilot, eligibility: Eligibility, prepared: PreparedClasses) -> None:
    """Evaluate prepared classes at once."""
    able = [static_misfit(pilot, cls) is None for cls in prepared.alike]
    by_class: dict[str, list[float]] = {}
    if prepared.reads_data and state.data.located:
        local = [local_values(state, pilot, cls) if cls.reads_data else {} for cls in prepared.reads_data]
        by_class = {name: [values.get(name, 0.0) for values in local] for name in DATA_LOCAL}
    found = prepared.filter.pass_through(all_facts(state, pilot), able, by_class)
    eligibility.by_rank = found.by_rank if not eligibility.ranked else None  # else it is sorted when next needed
    eligibility.fits |= found.fits
    eligibility.ranked |= found.ranked
    eligibility.is_volatile = eligibility.is_volatile or found.is_volatile


def _add_each(state: State, pilot: Pilot, eligibility: Eligibility, classes: list[TaskClass]) -> None:
    """Evaluate classes one by one."""
    plain = lookup(state, pilot, classes[0].key.owner) if classes else None
    for cls in classes:
        if plain is None or static_misfit(pilot, cls) is not None:
            continue
        look = lookup(state, pilot, cls.key.owner, cls) if cls.reads_data else plain
        task = attributes(state, cls.key) if cls.has_expressions else {}
        eligibility.is_volatile = eligibility.is_volatile or cls.is_volatile
        # What depends on the moment is evaluated again when something is leased.
        if cls.require is not None and not cls.is_volatile and not holds(cls.require, look, task):
            continue
        if cls.rank is None:
            eligibility.fits.add(cls.serial)
        else:
            rank = eligibility.ranked[cls.serial] = rank_of(cls.rank, look, task)
            if eligibility.by_rank is not None:
                insort(eligibility.by_rank, (-cls.key.level, -rank, cls.serial))


def static_misfit(pilot: Pilot, cls: TaskClass) -> str | None:
    """Why a pilot can never run a class, whatever its expressions say."""
    key = cls.key
    if key.surroundings.startswith(CONTAINER) and not pilot.tags.get("containers"):
        return "the host has neither apptainer nor podman nor docker"
    if pilot.protocol < SINCE["Lease"]["stdout"] and key.surroundings.endswith(STREAM_FILES):
        return "the pilot is of an older version, which has no files for streams"
    if key.site and pilot.site not in key.site.split(","):
        return f"asks for site {key.site}, and the pilot is at {pilot.site}"
    if pilot.tags.get(BRIDGE) and (key.kind.startswith(FUNCTION) or key.rerun != Rerun.SAFE or key.site == ""):
        return "it would run on another server, where only commands that may run again go, and that name its site"
    if pilot.host in key.avoid:
        return "it failed on this host and is tried elsewhere"
    if pilot.site in key.avoid_sites:
        return "it failed at this site and is tried at another"
    if key.visible in pilot.blind:
        return f"it does not see {key.visible[0].path}"
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
            (-classes[serial].key.level, -rank, serial) for serial, rank in eligibility.ranked.items()
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
            insort(eligibility.by_rank, (-cls.key.level, -eligibility.ranked[cls.serial], cls.serial))
    eligibility.arrivals_seen = len(owned.ranked_arrivals)
    return eligibility.by_rank
