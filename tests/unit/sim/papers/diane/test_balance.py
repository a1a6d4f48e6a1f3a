"""Processors of a set heterogeneity."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.sim.papers.diane.balance import EXPERIMENT, LEVELS, RATIOS, phi, spread_to

DRAWN = np.random.default_rng(1).standard_normal(16)


@pytest.mark.parametrize("level", LEVELS)
def test_powers_have_mean_one_and_the_heterogeneity_that_is_set(level: float) -> None:
    powers = spread_to(DRAWN, level)
    assert powers.mean() == pytest.approx(1.0) and (powers > 0).all()
    assert phi(powers, np.ones(16)) == pytest.approx(level, abs=1e-6)


def test_the_paper_has_six_ratios_and_what_it_does_not_say_is_marked_as_chosen() -> None:
    assert sum(f"gain_{ratio}" in {claim.key for claim in EXPERIMENT.claims} for ratio in RATIOS) == 6
    assert EXPERIMENT.settings["processors"] == 16
    assert {one.name for one in EXPERIMENT.parameters if one.is_varied} == {"tasks", "mixed", "ratio", "start_s"}
