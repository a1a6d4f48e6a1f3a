"""Which ready tasks have inputs in the cache of a pilot's host: the task with the most of them wins [CMS IV.E].

Only few are compared, found by the files in the cache that something reads: what a request costs does not grow with what is
queued [ADR 0011].
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from shoal.engine.locality.index import SHARED, Cache, Candidate, File, Reader, Shortlist
from shoal.engine.matching.classes import Leasable, OwnerQueue, TaskClass, is_open
from shoal.engine.records import Array, Pilot
from shoal.model.limits import MAX_CANDIDATES, MAX_READERS

if TYPE_CHECKING:
    from shoal.engine.matching.eligibility import Eligibility
    from shoal.engine.state import State

ENOUGH = 16  # tasks with all of their inputs at hand: no more need be compared


class LocalData(NamedTuple):
    """What of a task's inputs is in a cache."""

    files: int = 0
    bytes: int = 0
    all_files: int = 0
    all_bytes: int = 0

    @property
    def fraction(self) -> float:
        """By bytes; 0 for a task without inputs that travel."""
        return self.bytes / self.all_bytes if self.all_bytes else float(self.files == self.all_files > 0)


def local_data(files: Iterable[File], cache: Cache | None) -> LocalData:
    """What of these files is in a cache."""
    here = here_bytes = count = all_bytes = 0
    for file in files:
        count, all_bytes = count + 1, all_bytes + file.bytes
        if cache is not None and cache in file.caches:
            here, here_bytes = here + 1, here_bytes + file.bytes
    return LocalData(here, here_bytes, count, all_bytes)


def data_of(state: State, pilot: Pilot, cls: TaskClass) -> LocalData:
    """What a pilot's host has of the inputs of the task that it would get of a class."""
    if not state.data.located:
        return LocalData()
    cache = state.data.cache_of(pilot)
    found = best(state, cache, cls) if cache is not None else None
    if found is not None:
        array, element = found.array, found.element
    else:
        head = cls.head()
        if head is None:
            return LocalData()
        array, element = head.array, head.element or head.array.first_plain()
    return local_data(array.inputs.of(element), cache) if array.inputs is not None else LocalData()


def best(state: State, cache: Cache, cls: TaskClass) -> Candidate | None:
    """The ready task of a class with the most inputs in a cache; None: none has any."""
    if not cache.wanted:
        return None
    while True:
        listed = _shortlist(state, cache)
        found = listed.by_class.get(cls.serial)
        if not found:
            return None
        while found:
            if _is_ready(found[0].array, found[0].element):
                return found[0]
            heapq.heappop(found)
        if listed.is_whole:
            return None
        cache.best = None  # those that were found were leased: there may be others


def _is_ready(array: Array, element: int) -> bool:
    return element in array.todo and element not in array.apart and is_open(array)


def _shortlist(state: State, cache: Cache) -> Shortlist:
    if cache.best is not None and cache.best.stamp == cache.stamp:
        return cache.best
    by_class: dict[int, list[Candidate]] = {}
    seen: set[tuple[int, int]] = set()
    is_whole, complete = len(cache.wanted) <= MAX_CANDIDATES, 0
    for file in islice(cache.wanted, MAX_CANDIDATES):
        is_whole = is_whole and len(file.readers) <= MAX_READERS
        for reader in islice(file.readers, MAX_READERS):
            array, element = reader.inputs.array, _ready_element(reader)
            if not element or (array.run.number, element) in seen:
                continue
            seen.add((array.run.number, element))
            has = local_data(reader.inputs.of(element), cache)
            listed = by_class.setdefault(state.queue.listed_class_of(array).serial, [])
            listed.append(Candidate(-has.files, -has.bytes, len(seen), array, element))
            complete += has.files == has.all_files
            is_whole = is_whole and reader.element != SHARED
        if len(seen) >= MAX_CANDIDATES or complete >= ENOUGH:
            is_whole = False
            break
    for listed in by_class.values():
        listed.sort()  # a heap
    cache.best = Shortlist(cache.stamp, is_whole, by_class)
    return cache.best


def _ready_element(reader: Reader) -> int:
    """The task of a reader, if it can be leased in its array's class; 0: it cannot."""
    array, element = reader.inputs.array, reader.element
    if element != SHARED:
        return element if _is_ready(array, element) else 0
    return array.first_plain() if Leasable(array, 0).has_ready() else 0


def local_first(
    state: State, pilot: Pilot, owned: OwnerQueue, eligibility: Eligibility, found: Iterator[TaskClass]
) -> Iterator[TaskClass]:
    """An owner's classes for a pilot, best first; those with a task whose inputs are at hand before others of their priority
    and rank, to which the part of the inputs that is there is added [ADR 0011]."""
    cache = state.data.cache_of(pilot)
    if cache is None or not cache.wanted:
        return found
    ahead: list[tuple[float, float, int]] = []
    for serial in _shortlist(state, cache).by_class:
        cls = owned.classes.get(serial)
        if cls is not None and cls.listed is not None and cls in eligibility:
            rank = eligibility.ranked.get(serial, 0.0) + data_of(state, pilot, cls).fraction
            ahead.append((cls.listed.order, -rank, serial))
    return _merged(owned, eligibility, sorted(ahead), found) if ahead else found


def _merged(
    owned: OwnerQueue, eligibility: Eligibility, ahead: list[tuple[float, float, int]], found: Iterator[TaskClass]
) -> Iterator[TaskClass]:
    at = 0
    for cls in found:
        where = cls.listed
        place = (where.order, -eligibility.ranked.get(cls.serial, 0.0)) if where is not None else None
        while place is not None and at < len(ahead) and ahead[at][:2] <= place:
            yield owned.classes[ahead[at][2]]
            at += 1
        yield cls
    for _, _, serial in ahead[at:]:
        yield owned.classes[serial]
