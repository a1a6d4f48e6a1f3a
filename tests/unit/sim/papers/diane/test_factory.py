"""u.factory, for some days."""

from __future__ import annotations

from shoal.sched.provisioning.view import HEURISTIC, SHOAL, SIMPLE
from shoal.sim.papers.diane.factory import EXPERIMENT, WorkerPool, measure
from shoal.sim.papers.diane.factory_world import run_policy
from shoal.sim.papers.experiment import Inputs

SMALL = {**EXPERIMENT.settings, "pool": 100, "max_pending": 10, "days": 9.0}


def model(seed: int, **changes: float) -> Inputs:
    """Without the product's engine."""
    return Inputs(seed, {**SMALL, **changes}, engine=False)


def test_the_heuristic_factory_sends_fewer_workers_where_they_fail() -> None:
    found = measure(model(1)).values
    assert found["invalid.heuristic"] < found["invalid.manual"]
    simple = WorkerPool(model(1), SIMPLE, (100,)).run(9.0)
    assert found["invalid.heuristic"] < 100.0 * simple.invalid / (simple.invalid + simple.active)
    blind = measure(model(1, uses_fitness=False)).values
    assert blind["invalid.heuristic"] > found["invalid.heuristic"] + 10.0


def test_the_pool_is_never_larger_than_it_was_asked_for() -> None:
    sizes = WorkerPool(Inputs(3, SMALL), HEURISTIC, (100,)).run(4.0).sizes
    assert 0 < max(sizes) <= 100


def test_the_pool_follows_the_size_that_is_wanted() -> None:
    sizes = WorkerPool(Inputs(3, SMALL), HEURISTIC, (50, 100)).run(8.0).sizes
    assert 30 < max(sizes[:96]) <= 50 < max(sizes[150:]) <= 100


def test_the_histogram_counts_every_hour_and_every_added_worker_once() -> None:
    found = WorkerPool(Inputs(3, SMALL), HEURISTIC, (100,)).run(4.0)
    assert len(found.sizes) == len(found.added) and 0 <= found.active - sum(found.added) < 20
    bars = [row for row in measure(model(3)).data if row[0] == HEURISTIC]
    assert sum(int(row[2]) for row in bars) == sum(int(row[3]) for row in bars) > 200


def test_a_policy_of_the_product_gets_all_results_on_few_elements() -> None:
    found = run_policy(Inputs(1, {**SMALL, "elements": 4, "part_pilots": 2, "part_tasks": 1}), SHOAL)
    assert 6.0 < found.hours < 200.0 and 0.0 < found.waste < 100.0


def test_same_seed_same_values() -> None:
    assert measure(model(2)) == measure(model(2))
