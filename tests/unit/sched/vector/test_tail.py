"""Durations longer than all that were seen [ADR 0039]."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.sched.vector.slots import Floats
from shoal.sched.vector.tail import Tail, fit_log_normal, fit_weibull, log_normal_fits, weibull_fits

NONE = np.empty(0)


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def cut(durations: Floats, at: float) -> tuple[Floats, Floats]:
    """Those that have ended at an age, and the ages of the others."""
    return durations[durations <= at], np.full(int((durations > at).sum()), at)


@pytest.mark.parametrize("at", [math.inf, 12.0])
def test_a_log_normal_distribution_is_found_also_where_the_longest_have_not_ended(at: float) -> None:
    ended, ages = cut(rng().lognormal(2.0, 0.7, 4_000), at)
    centre, spread = fit_log_normal(ended, ages)
    assert centre == pytest.approx(2.0, abs=0.05)
    assert spread == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("at", [math.inf, 12.0])
def test_a_weibull_distribution_is_found_also_where_the_longest_have_not_ended(at: float) -> None:
    ended, ages = cut(10.0 * rng().weibull(1.5, 4_000), at)
    centre, spread = fit_weibull(ended, ages)
    assert math.exp(centre) == pytest.approx(10.0, rel=0.05)
    assert 1.0 / spread == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize(
    ("durations", "is_weibull"), [(rng().lognormal(0.0, 0.8, 300), False), (rng().exponential(1.0, 300), True)]
)
def test_what_was_seen_tells_the_families_apart(durations: Floats, is_weibull: bool) -> None:
    normal = log_normal_fits(durations, NONE, *fit_log_normal(durations, NONE))
    weibull = weibull_fits(durations, NONE, *fit_weibull(durations, NONE))
    assert (weibull > normal + 3.0) is is_weibull


def test_what_is_longer_than_a_bound_is_as_much_longer_as_its_distribution_says() -> None:
    """Exponential durations have no memory; log-normal ones that are long are likely to be far longer."""
    draws, bound = 400, 30.0
    for durations, mean in ((rng().exponential(10.0, 2_000), 10.0), (rng().lognormal(2.3, 0.8, 2_000), 16.4)):
        tail = Tail(durations, NONE, rng(), draws)
        longer = tail.longer(np.full((draws, 50), bound), rng().standard_exponential((draws, 50)))
        assert longer.min() >= bound
        assert float((longer - bound).mean()) == pytest.approx(mean, rel=0.15)


def test_few_equal_durations_have_a_short_tail() -> None:
    tail = Tail(np.full(3, 10.0), np.array([2.0]), rng(), 200)
    longer = tail.longer(np.full((200, 20), 10.0), rng().standard_exponential((200, 20)))
    assert np.isfinite(longer).all()
    assert 10.0 <= float(np.median(longer)) < 15.0
