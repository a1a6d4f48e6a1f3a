"""u.docking, in small."""

from __future__ import annotations

import pytest

from shoal.sched.provisioning.view import SHOAL, SIMPLE
from shoal.sim.papers.diane.docking import EXPERIMENT, HOUR, YEAR, early, late, run_policy
from shoal.sim.papers.experiment import Inputs

SMALL = {
    **EXPERIMENT.settings, "late_dockings": 6_000, "late_years": 6_000 * 0.5 * HOUR / YEAR, "late_cpus": 12,
    "early_dockings": 8_000, "early_years": 8_000 * 0.5 * HOUR / YEAR, "early_cpus": 20,
}  # fmt: skip
GENTLE = {**SMALL, "job_failure": 0.0, "output_failure": 0.0, "manual_hours": 1 / 60}


def test_failures_cost_early_binding_whole_batches_and_late_binding_single_dockings() -> None:
    assert late(Inputs(1, SMALL)).efficiency > early(Inputs(1, SMALL)).efficiency + 10.0
    for way in (late, early):
        assert way(Inputs(1, GENTLE)).efficiency > way(Inputs(1, SMALL)).efficiency


def test_without_failures_every_batch_is_one_job() -> None:
    found = early(Inputs(1, GENTLE))
    assert len(found.lives) == 200
    assert sum(life.end - life.start for life in found.lives) == pytest.approx(found.work)


def test_both_policies_of_the_product_finish_the_part() -> None:
    settings = {**SMALL, "part_cpus": 4, "part_dockings": 120}
    for policy in (SIMPLE, SHOAL):
        assert 0.0 < run_policy(Inputs(1, settings), policy) <= 100.0
