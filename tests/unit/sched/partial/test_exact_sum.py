"""Sums at both ends of the range of floats: each has an answer, and the right one where a float holds it."""

from __future__ import annotations

import math

import pytest

from shoal.sched.partial.exact_sum import ExactSum, divided, error_of_mean, sums_of


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1.0, 1e-308, 2e307])
def test_the_error_of_a_mean_is_known_where_the_variance_is_beyond_all_floats(scale: float) -> None:
    values = [scale, 2 * scale, 3 * scale]
    assert error_of_mean(3, *sums_of(values)) == pytest.approx(scale / math.sqrt(3), rel=1e-15)


def test_a_sum_beyond_all_floats_is_infinite_and_its_mean_is_not() -> None:
    for sign in (1, -1):
        total, _ = sums_of([sign * 1e308] * 2)
        assert divided(total, 1) == sign * math.inf and divided(total, 2) == sign * 1e308


def test_what_no_floats_have_as_their_sums_has_an_error_too() -> None:
    """Any pilot may send such sums."""
    huge, big = ExactSum(2**4_399 + 1, 4_400), ExactSum(3, 1_000)
    for total, squares in ((huge, huge), (ExactSum(), huge), (huge, ExactSum()), (big, ExactSum(-3, -4_400))):
        assert error_of_mean(2, total, squares) >= 0
