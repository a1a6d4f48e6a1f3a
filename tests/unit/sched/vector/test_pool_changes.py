"""What pilots that are lost, or come, do to the ends of draws."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.sched.vector.pool_changes import Pool, change_ends

DRAWS = 4_000


def changed(pool: Pool) -> tuple[float, float, float]:
    ends = change_ends(np.full(DRAWS, 100.0), pool, np.random.default_rng(5))
    low, middle, high = np.quantile(ends, (0.1, 0.5, 0.9))
    return float(low), float(middle), float(high)


def test_before_a_change_was_seen_one_is_possible_and_not_likely_and_matters_in_a_small_pool_only() -> None:
    small, large = (change_ends(np.full(DRAWS, 100.0), Pool(n, 0, 0, 0.25), np.random.default_rng(5)) for n in (3, 100))
    assert np.median(small) == pytest.approx(100.0) and np.median(large) == pytest.approx(100.0)
    assert 0.03 < (small > 105.0).mean() < 0.1 and 0.03 < (small < 95.0).mean() < 0.1
    assert (np.abs(large - 100.0) < 5.0).all()


def test_losses_that_were_seen_make_more_of_them_likely_and_pilots_that_came_more_of_those() -> None:
    quiet, losing, growing = (changed(Pool(4, *seen, 0.25)) for seen in ((0, 0), (2, 0), (0, 2)))
    assert losing[1] > 1.1 * quiet[1] and losing[2] > 1.3 * quiet[2]
    assert growing[1] < 0.95 * quiet[1] and growing[0] < quiet[0]


def test_near_the_end_little_can_change_any_more() -> None:
    low, _, high = changed(Pool(3, 0, 0, 0.98))
    assert low == pytest.approx(100.0) and high == pytest.approx(100.0)


def test_the_last_pilot_is_not_lost() -> None:
    ends = change_ends(np.full(DRAWS, 100.0), Pool(1, 5, 0, 0.5), np.random.default_rng(5))
    assert np.isfinite(ends).all() and float(ends.max()) == pytest.approx(100.0)


def test_one_pilot_of_two_that_is_lost_half_way_doubles_what_was_left_then() -> None:
    ends = change_ends(np.full(DRAWS, 100.0), Pool(2, 20, 0, 0.0), np.random.default_rng(5))
    assert 150.0 < float(np.quantile(ends, 0.5)) < 200.0 and float(ends.max()) <= 200.0
