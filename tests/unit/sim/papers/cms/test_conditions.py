"""c.hit-ratio, c.stagein and c.turnaround, on small workflows."""

from __future__ import annotations

import pytest

from shoal.sim.papers.cms.conditions import C1, HIGH, LOW, NONE, W1, figures
from shoal.sim.papers.experiment import Inputs
from shoal.sim.papers.registry import EXPERIMENTS

SMALL = {"pilots": 12, "w1_first": 8, "w2_first": 4, "w3_first": 8, "repeats": 2}


@pytest.mark.parametrize("name", ["c.hit-ratio", "c.stagein", "c.turnaround"])
def test_a_small_run_gives_every_row_and_is_repeatable(name: str) -> None:
    experiment = EXPERIMENTS[name]
    inputs = Inputs(1, {**experiment.settings, **SMALL})
    values, data = experiment.measure(inputs)
    assert {claim.key for claim in experiment.claims} | set(experiment.watched) <= set(values)
    assert {one.key for one in experiment.ablations} <= set(values)
    assert {len(row) for row in data} == {len(experiment.columns)}
    assert experiment.measure(inputs).values == values


def test_a_loaded_storage_element_costs_time_and_a_cache_saves_some() -> None:
    settings = {**EXPERIMENTS["c.stagein"].settings, **SMALL}
    low, high = figures(settings, W1, NONE, LOW, 1), figures(settings, W1, NONE, HIGH, 1)
    cached = figures(settings, W1, C1, HIGH, 1)
    assert low.stage_in < cached.stage_in < high.stage_in
    assert low.turnaround < cached.turnaround < high.turnaround
