"""u.factory, for some days."""

from __future__ import annotations

from shoal.sim.papers.diane.factory import EXPERIMENT, HEURISTIC, WorkerPool, measure
from shoal.sim.papers.experiment import Inputs

SMALL = {**EXPERIMENT.settings, "pool": 100, "max_pending": 10, "days": 6.0}


def test_the_heuristic_factory_sends_fewer_workers_where_they_fail() -> None:
    found = measure(Inputs(1, SMALL)).values
    assert found["invalid.heuristic"] < found["invalid.manual"]
    blind = measure(Inputs(1, {**SMALL, "uses_fitness": False})).values
    assert blind["invalid.heuristic"] > found["invalid.heuristic"] + 10.0


def test_the_pool_is_never_larger_than_it_was_asked_for() -> None:
    sizes = [size for _, size in WorkerPool(Inputs(3, SMALL), HEURISTIC).run(4.0).size]
    assert 0 < max(sizes) <= 100


def test_same_seed_same_values() -> None:
    assert measure(Inputs(2, SMALL)) == measure(Inputs(2, SMALL))
