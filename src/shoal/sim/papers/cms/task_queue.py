"""The paper's task queue: which job a pilot that asks is given, by the files in its cache [CMS IV.E].

Which job waits for a pilot with its data is decided by the product's own `sched/hold.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shoal.data.catalogue import Catalogue
from shoal.model.policy import IDLE, DataRule
from shoal.sched.hold import Holder, Presence, hold

WAIT_FOR_DATA = DataRule(IDLE, longest=math.inf)  # the paper gives no bound


class Pilot:
    """A pilot, and the cache that it reads, which may be that of its host."""

    def __init__(self, number: int, cache: Catalogue) -> None:
        self.name, self.cache = str(number), cache
        self.is_idle = True


class QueuedJob(NamedTuple):
    """A job that waits for a pilot."""

    job: int
    inputs: Sequence[str]


class TaskQueue:
    """Jobs in the order in which they were created, and which caches have had which files."""

    def __init__(self, waits_for_data: bool, bytes_of: Callable[[str], int], most_files: bool = True) -> None:
        self._waits_for_data, self._bytes_of, self._most_files = waits_for_data, bytes_of, most_files
        self._jobs: list[QueuedJob] = []
        self._pilots: dict[int, list[Pilot]] = {}  # that read a cache, by its identity
        self._caches: dict[str, list[Catalogue]] = {}  # that a file was put into

    def __len__(self) -> int:
        return len(self._jobs)

    def join(self, pilot: Pilot) -> None:
        """A pilot began."""
        self._pilots.setdefault(id(pilot.cache), []).append(pilot)

    def leave(self, pilot: Pilot) -> bool:
        """A pilot ended; True if it was the last one that read its cache."""
        others = self._pilots[id(pilot.cache)]
        others.remove(pilot)
        return not others

    def add(self, job: int, inputs: Sequence[str]) -> None:
        """A job was created."""
        self._jobs.append(QueuedJob(job, inputs))

    def keep(self, file: str, cache: Catalogue, now: float) -> None:
        """A file was written by a pilot with this cache."""
        if cache.admit(file, self._bytes_of(file), now) is not None:
            self._caches.setdefault(file, []).append(cache)

    def take(self, pilot: Pilot) -> int | None:
        """The job of which the pilot has most files, the oldest of these, unless it has to wait for another pilot. It leaves
        the queue. Without `most_files` it is the oldest in any case."""
        best: tuple[int, int] | None = None
        for at, queued in enumerate(self._jobs):
            has = self._presence(pilot, queued.inputs)
            if (
                self._waits_for_data
                and has.missing
                and hold(WAIT_FOR_DATA, has, self._idle_holders(queued.inputs), 0.0)
            ):
                continue
            if best is None or (self._most_files and has.files > best[0]):
                best = (has.files, at)
        return None if best is None else self._jobs.pop(best[1]).job

    def _presence(self, pilot: Pilot, inputs: Sequence[str]) -> Presence:
        missing = [file for file in inputs if file not in pilot.cache]
        return Presence(len(inputs) - len(missing), len(missing), sum(map(self._bytes_of, missing)))

    def _idle_holders(self, inputs: Sequence[str]) -> list[Holder]:
        idle = {
            one.name: one
            for file in inputs
            for cache in self._caches.get(file, ())
            for one in self._pilots[id(cache)]
            if one.is_idle
        }
        total = sum(map(self._bytes_of, inputs))
        found = [(name, self._presence(one, inputs)) for name, one in sorted(idle.items())]
        return [Holder(name, has, total - has.missing_bytes, 0.0) for name, has in found if has.files]
