"""How much a pilot fetches ahead stays within its bounds (A8)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.limits import MAX_LEASES
from shoal.sched.size import AHEAD, SHORT, ahead

_MEAN = st.none() | st.floats(0, 10)
_COUNT = st.integers(0, 10_000)


@given(_MEAN, _COUNT, _COUNT, _COUNT)
def test_never_below_zero_nor_above_one_replys_worth(
    mean: float | None, slots: int, ready: int, all_slots: int
) -> None:
    assert 0 <= ahead(mean, slots, ready, all_slots) <= MAX_LEASES


@given(st.floats(0, SHORT), st.integers(1, 1_000), _COUNT, _COUNT)
def test_never_more_than_half_of_a_pilots_share(mean: float, slots: int, ready: int, all_slots: int) -> None:
    assert ahead(mean, slots, ready, all_slots) * 2 * max(all_slots, slots) <= ready * slots


@given(st.floats(0.001, SHORT), st.integers(1, 1_000), _COUNT, _COUNT)
def test_never_more_than_half_a_second_of_work(mean: float, slots: int, ready: int, all_slots: int) -> None:
    assert ahead(mean, slots, ready, all_slots) * mean <= slots * AHEAD + 1e-9


@given(st.none() | st.floats(SHORT, 1e9, exclude_min=True), _COUNT, _COUNT, _COUNT)
def test_nothing_is_fetched_ahead_of_long_or_unknown_tasks(
    mean: float | None, slots: int, ready: int, all_slots: int
) -> None:
    assert ahead(mean, slots, ready, all_slots) == 0


@given(st.floats(0, SHORT), st.integers(1, 100), _COUNT, _COUNT, st.integers(1, 100))
def test_more_that_is_ready_never_makes_less(mean: float, slots: int, ready: int, all_slots: int, more: int) -> None:
    assert ahead(mean, slots, ready, all_slots) <= ahead(mean, slots, ready + more, all_slots)


def test_short_tasks_with_plenty_ready_are_fetched_ahead() -> None:
    assert ahead(0.01, 4, 10_000, 4) == MAX_LEASES
    assert ahead(0.1, 4, 10_000, 40) == 20
    assert ahead(0.1, 4, 10, 40) == 0
