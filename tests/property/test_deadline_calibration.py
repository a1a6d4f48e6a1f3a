"""Statements on deadlines, made before false runs start, against what then happens: of those that were told 80 %, 70 to 90 %
make it [SPHINX S6; ADR 0054]."""

from __future__ import annotations

import os

import numpy as np
import pytest

from shoal.sched.vector.deadline import Fresh, chance_of, fresh_ends
from tests.property.test_forecast_calibration import KINDS, list_scheduling

RUNS = 200
SKEWED = [name for name in KINDS if name != "equal"]


@pytest.mark.parametrize("told", [0.5, 0.8, 0.95] if os.environ.get("SHOAL_PROVE") == "1" else [0.8])
def test_of_runs_that_are_told_a_chance_about_so_many_make_it(told: float) -> None:
    rng, made = np.random.default_rng(5), 0
    for number in range(RUNS):
        draw = KINDS[SKEWED[number % len(SKEWED)]]
        tasks, slots, known = int(rng.integers(20, 200)), int(rng.integers(2, 17)), int(rng.integers(10, 80))
        run = Fresh(tasks, tuple(draw(rng, known)), slots)
        ends = fresh_ends(run, draws=200)
        left = float(np.quantile(ends, told))  # the deadline for which this is the statement
        assert chance_of(ends, left) == pytest.approx(told, abs=0.02)
        _, end, _ = list_scheduling(draw(rng, tasks), np.ones(slots))
        made += float(end.max()) <= left
    assert abs(made / RUNS - told) <= 0.1, f"{made} of {RUNS} that were told {told:.0%}"
