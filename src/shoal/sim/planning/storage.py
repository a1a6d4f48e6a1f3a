"""The storage element of a site: each access takes its time, and may fail [CMS 4]."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from shoal.sim.clock import Clock
from shoal.sim.planning.description import Storage


class Access(NamedTuple):
    """How long an access takes, and whether it fails at its end."""

    seconds: float
    fails: bool


class StorageElement:
    """Counts the accesses that go on, among which its bandwidth is divided."""

    def __init__(self, storage: Storage, clock: Clock, rng: Random) -> None:
        self._storage, self._clock, self._rng = storage, clock, rng
        self._active = 0

    def access(self, megabytes: float, over: int = 0) -> Access:
        """Begin an access. Its rate stays what it is at its start, whoever comes and goes meanwhile; `over`: so many of those
        that go on will have ended when it really begins."""
        storage, rng = self._storage, self._rng
        self._active += 1
        together = self._active - over
        rate = min(storage.bandwidth, storage.total / together if storage.total else storage.bandwidth)
        seconds = megabytes / rate * (1.0 + abs(rng.gauss(0.0, storage.delay)))
        self._clock.after(seconds, self._end)
        return Access(seconds, rng.random() < storage.failure)

    def _end(self) -> None:
        self._active -= 1
