"""c.tier0, on a small chain."""

from __future__ import annotations

from shoal.sim.papers.cms.tier0 import EXPERIMENT, measure
from shoal.sim.papers.experiment import Inputs

SMALL = {**EXPERIMENT.settings, "raw_files": 5, "machines": 2, "repeats": 1}


def test_a_small_run_gives_every_row_and_is_repeatable() -> None:
    found = measure(Inputs(1, SMALL))
    keys = {claim.key for claim in EXPERIMENT.claims} | set(EXPERIMENT.watched)
    assert keys | {one.key for one in EXPERIMENT.ablations} <= set(found.values)
    assert {len(row) for row in found.data} == {len(EXPERIMENT.columns)}
    assert measure(Inputs(1, SMALL)).values == found.values


def test_without_caches_both_ways_are_one() -> None:
    found = measure(Inputs(1, {**SMALL, "caches": False})).values
    assert found["less.cache.d3f3"] == found["sooner.cache.d3f3"] == 0.0
