"""The index of files: which caches have one, and which ready tasks read it [CMS IV.E; ADR 0011].

Rules: (1) a task is in the index exactly while it is ready, which `Array.put_todo` and `Array.take_todo` see to; (2) pilots of
one host have one cache, which has a file as long as one of them tells so; (3) nothing of this is durable: pilots tell all of
it again after a restart. `consistency.check` derives everything anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

from shoal.engine.matching.lease_message import input_names, parameters
from shoal.engine.records import Array, Pilot
from shoal.engine.tasks.kept_outputs import content_of
from shoal.model.limits import MAX_CATALOGUE, MAX_CATALOGUED, MAX_HELD_BACK, MAX_INDEXED
from shoal.model.task.sweep import holes
from shoal.sched.hold import UNKNOWN_SIZE
from shoal.wire.messages import CachedFile

CacheKey = tuple[str, str, str, str]  # identity of the host, owner, group, site: nobody learns of others' files
SHARED = 0  # in place of an element: all of an array
Files = WeakValueDictionary[
    str, "File"
]  # by digest: a file is remembered while a pilot tells of it, or an array reads it
_MISSING = object()


class File:
    """One content: where it is, and what waits that reads it."""

    __slots__ = ("__weakref__", "caches", "digest", "readers", "size")

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.size: int | None = None  # until a pilot has told it
        self.caches: dict[Cache, int] = {}  # and how many pilots tell so
        self.readers: dict[Reader, None] = {}  # ready tasks, in the order in which they became ready

    @property
    def bytes(self) -> int:
        """Its size, or a guess."""
        return UNKNOWN_SIZE if self.size is None else self.size


class Reader(NamedTuple):
    """A ready task that reads a file, or all ready tasks of an array."""

    inputs: ArrayInputs
    element: int  # or SHARED


class Cache:
    """What the pilots of one host have."""

    __slots__ = ("best", "kept_since", "key", "pilots", "stamp", "wanted")

    def __init__(self, key: CacheKey) -> None:
        self.key = key
        self.pilots: dict[str, Pilot] = {}  # that told of it
        self.wanted: dict[File, None] = {}  # files that ready tasks read
        self.stamp = 0  # raised when there may be more to be chosen from
        self.best: Shortlist | None = None
        self.kept_since: float | None = None  # it alone has what waits, since then


class Candidate(NamedTuple):
    """A ready task with inputs in a cache."""

    files: int  # of its inputs that are there, below zero: the most come first
    bytes: int  # of them, likewise
    place: int  # among those that were found
    array: Array
    element: int


class Shortlist(NamedTuple):
    """Ready tasks with inputs in one cache, by class and best first, as they were at a stamp of the cache."""

    stamp: int
    is_whole: bool  # there were no others
    by_class: dict[int, list[Candidate]]


class ArrayInputs:
    """The inputs of an array's tasks, as files of the index."""

    __slots__ = ("_own", "array", "index", "located", "shared")

    def __init__(self, array: Array, index: DataIndex) -> None:
        spec, self.array, self.index = array.spec, array, index
        content = content_of(array)
        texts = input_names(spec, {})
        self.shared: tuple[File, ...] = ()  # those that all of its tasks read
        self._own: list[tuple[File, ...]] = []  # by the place of the element
        self.located = 0  # pairs of a ready task and a file of its own that some cache has
        varied = [text for text in texts if holes(text)] if spec.sweep is not None else []
        if array.count == 1:
            varied = texts  # all of it is its one task's own
        else:
            self.shared = index.files_of(content, [text for text in texts if text not in varied])
        if varied and array.count <= MAX_INDEXED:
            for at in range(array.count):
                self._own.append(index.files_of(content, input_names(spec, parameters(spec, at), varied)))

    @property
    def is_own(self) -> bool:
        """True if its tasks read different files."""
        return bool(self._own)

    def of(self, element: int) -> tuple[File, ...]:
        """The inputs of one task."""
        return self.own(element) + self.shared

    def own(self, element: int) -> tuple[File, ...]:
        """Those that are not every task's."""
        return self._own[element - self.array.first] if self._own else ()


class DataIndex:
    """Files, caches, and ready tasks with inputs."""

    def __init__(self) -> None:
        self.files: Files = WeakValueDictionary()
        self.caches: dict[CacheKey, Cache] = {}
        self.told: dict[str, dict[File, None]] = {}  # by pilot: what it told of, oldest first
        self.count = 0  # pairs of a pilot and a file that it told of
        self.located = 0  # pairs of a reader and a file that some cache has: with none, data plays no part
        self.held: OrderedDict[tuple[int, int], float] = OrderedDict()  # task -> since when it is kept for its data
        self.again: dict[str, float] = {}  # pilots that a task was kept from, and when to look at them again

    def files_of(self, content: Mapping[str, str], names: Iterable[str]) -> tuple[File, ...]:
        """The files of these names whose content travels, each once."""
        found: dict[File, None] = {}
        for name in names:
            text = content.get(name)
            if text is not None:
                digest = text.partition(" ")[0]
                file = self.files.get(digest)
                if file is None:
                    file = self.files[digest] = File(digest)
                found[file] = None
        return tuple(found)

    # --- ready tasks
    def enter(self, array: Array) -> None:
        """An array that has content is offered: its ready tasks are looked up by their files from now on."""
        if array.inputs is None:
            array.inputs = ArrayInputs(array, self)
            for low, high in array.todo.ranges():
                self.became_ready(array.inputs, low, high)

    def leave(self, array: Array) -> None:
        """What an array's tasks read is about to change."""
        if array.inputs is not None:
            for low, high in array.todo.ranges():
                self.was_taken(array.inputs, low, high, is_last=True)
            array.inputs = None

    def became_ready(self, inputs: ArrayInputs, low: int, high: int) -> None:
        """Tasks low .. high - 1 of an array are ready."""
        for file in inputs.shared:
            self._add_reader(file, Reader(inputs, SHARED))
        if inputs.is_own:
            for element in range(low, high):
                for file in inputs.own(element):
                    self._add_reader(file, Reader(inputs, element))

    def was_taken(self, inputs: ArrayInputs, low: int, high: int, is_last: bool) -> None:
        """They are not ready any more; `is_last`: nothing of the array is."""
        if is_last:
            for file in inputs.shared:
                self._drop_reader(file, Reader(inputs, SHARED))
        self._forget_held(inputs.array.run.number, low, high)
        if inputs.is_own:
            for element in range(low, high):
                for file in inputs.own(element):
                    self._drop_reader(file, Reader(inputs, element))

    def _add_reader(self, file: File, reader: Reader) -> None:
        if reader in file.readers:
            return
        file.readers[reader] = None
        if file.caches:
            self._count_located(reader, 1)
            for cache in file.caches:
                cache.wanted[file] = None
                cache.stamp += 1

    def _drop_reader(self, file: File, reader: Reader) -> None:
        if file.readers.pop(reader, _MISSING) is _MISSING:
            return
        if file.caches:
            self._count_located(reader, -1)
        if not file.readers:
            for cache in file.caches:
                cache.wanted.pop(file, None)

    def _count_located(self, reader: Reader, by: int) -> None:
        self.located += by
        if reader.element != SHARED:
            reader.inputs.located += by

    # --- caches
    def change(self, pilot: Pilot, added: Iterable[CachedFile], removed: Iterable[str]) -> None:
        """A pilot told what came into the cache of its host, and what left it. Idempotent."""
        told = self.told.setdefault(pilot.name, {})
        cache = self.caches.get(cache_key(pilot))
        if cache is None:
            cache = self.caches[cache_key(pilot)] = Cache(cache_key(pilot))
        cache.pilots[pilot.name] = pilot
        for one in added:
            file = self.files.get(one.digest)
            if file is not None and file in told:
                file.size = one.size
            elif len(told) < MAX_CATALOGUE and self.count < MAX_CATALOGUED:
                if file is None:
                    file = self.files[one.digest] = File(one.digest)
                file.size = one.size
                told[file] = None
                self.count += 1
                self._put(file, cache)
        for digest in removed:
            file = self.files.get(digest)
            if file is not None and told.pop(file, _MISSING) is not _MISSING:
                self.count -= 1
                self._take(file, cache)

    def forget_pilot(self, pilot: Pilot) -> None:
        """A pilot ended: what it told does not count any more, unless others of its host tell it, too."""
        cache = self.caches.get(cache_key(pilot))
        self.again.pop(pilot.name, None)
        told = self.told.pop(pilot.name, {})
        self.count -= len(told)
        for file in told:
            if cache is not None:
                self._take(file, cache)
        if cache is not None:
            cache.pilots.pop(pilot.name, None)
            if not cache.pilots:
                del self.caches[cache.key]

    def _put(self, file: File, cache: Cache) -> None:
        cache.stamp += 1
        is_first = not file.caches
        file.caches[cache] = file.caches.get(cache, 0) + 1
        if file.readers:
            cache.wanted[file] = None
            if is_first:
                for reader in file.readers:
                    self._count_located(reader, 1)

    def _take(self, file: File, cache: Cache) -> None:
        left = file.caches[cache] - 1
        if left:
            file.caches[cache] = left
            return
        del file.caches[cache]
        cache.wanted.pop(file, None)
        if not file.caches:
            for reader in file.readers:
                self._count_located(reader, -1)

    def cache_of(self, pilot: Pilot) -> Cache | None:
        """What a pilot's host has; None: nothing that it told of."""
        return self.caches.get(cache_key(pilot))

    def take_over(self, before: DataIndex, pilots: Mapping[str, Pilot]) -> None:
        """Know what another index knew of the caches of these pilots."""
        for name, told in before.told.items():
            if name in pilots:
                self.change(pilots[name], [CachedFile(file.digest, file.bytes) for file in told], ())

    # --- tasks that wait for their data
    def note_held(self, task: tuple[int, int], now: float) -> float:
        """A task is kept from a pilot; returns since when that happens."""
        since = self.held.setdefault(task, now)
        if len(self.held) > MAX_HELD_BACK:
            self.held.popitem(last=False)
        return since

    def _forget_held(self, run: int, low: int, high: int) -> None:
        if high - low <= len(self.held):
            for element in range(low, high):
                self.held.pop((run, element), None)
        elif self.held:
            for task in [task for task in self.held if task[0] == run and low <= task[1] < high]:
                del self.held[task]


def cache_key(pilot: Pilot) -> CacheKey:
    """By what the cache of a pilot is known."""
    return (pilot.identity, pilot.owner, pilot.group, pilot.site)


def names_of(array: Array, element: int) -> list[str]:
    """The names of the inputs of a task whose content travels."""
    names, content = input_names(array.spec, parameters(array.spec, element - array.first)), content_of(array)
    return [name for name in names if name in content]
