"""Random quantities of worlds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.sim.distributions import (
    Choice,
    Constant,
    Exponential,
    LogNormal,
    Normal,
    Quantiles,
    Uniform,
    measured,
)

MANY = 20_000


def mean(of: object, count: int = MANY) -> float:
    """The mean of many draws."""
    rng = Random(1)
    return sum(of.draw(rng) for _ in range(count)) / count  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (Constant(3.0), 3.0),
        (Uniform(1.0, 3.0), 2.0),
        (Normal(5.0, 1.0), 5.0),
        (LogNormal(1.0, 0.5), 1.133),
        (Exponential(4.0), 4.0),
        (Choice((1.0, 2.0, 6.0)), 3.0),
    ],
)
def test_the_mean_of_many_draws(of: object, expected: float) -> None:
    assert mean(of) == pytest.approx(expected, rel=0.03)


def test_quantiles_are_kept() -> None:
    of = Quantiles((0.0, 0.05, 0.5, 0.95, 1.0), (10.0, 50.0, 1300.0, 15_000.0, 160_000.0))
    rng = Random(2)
    drawn = sorted(of.draw(rng) for _ in range(MANY))
    for part, value in ((0.05, 50.0), (0.5, 1300.0), (0.95, 15_000.0)):
        assert drawn[int(part * MANY)] == pytest.approx(value, rel=0.1)
    assert of.at(0.0) == pytest.approx(10.0)
    assert of.at(1.0) == pytest.approx(160_000.0)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50), st.floats(0.0, 1.0))
def test_a_measured_distribution_stays_within_what_was_measured(values: list[float], part: float) -> None:
    assert min(values) * 0.999 <= measured(values).at(part) <= max(values) * 1.001


def test_a_constant_uses_no_random_number_up() -> None:
    rng = Random(3)
    Constant(1.0).draw(rng)
    assert rng.random() == Random(3).random()
