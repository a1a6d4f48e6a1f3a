"""The storage element of a simulated site."""

from __future__ import annotations

from random import Random

import pytest

from shoal.sim.clock import Clock
from shoal.sim.planning.description import Storage
from shoal.sim.planning.storage import StorageElement


def test_an_access_takes_its_time_and_the_bandwidth_is_divided() -> None:
    clock = Clock(0.0)
    storage = StorageElement(Storage(10.0, total=25.0), clock, Random(1))
    assert [round(storage.access(100.0).seconds, 2) for _ in range(4)] == [10.0, 10.0, 12.0, 16.0]
    while clock.step():
        pass
    assert storage.access(100.0).seconds == pytest.approx(10.0)


def test_delays_and_failures_come_as_often_as_asked() -> None:
    storage = StorageElement(Storage(10.0, delay=0.5, failure=0.1), Clock(0.0), Random(1))
    found = [storage.access(100.0) for _ in range(4_000)]
    assert sum(one.fails for one in found) == pytest.approx(400, rel=0.15)
    assert min(one.seconds for one in found) >= 10.0
    assert sum(one.seconds for one in found) / 4_000 == pytest.approx(10.0 * (1 + 0.5 * 0.798), rel=0.03)
