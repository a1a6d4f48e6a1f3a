"""How much a pilot fetches ahead stays within its bounds [ADR 0009]."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.sched.batch_size import (
    AHEAD,
    FIRST_PIECE,
    LEAST_PIECE,
    MOST_AHEAD,
    PIECE,
    SHORT,
    ahead,
    give_up_share,
    is_straggler,
    piece,
)

_MEAN = st.none() | st.floats(0, 10)
_COUNT = st.integers(0, 10_000)


@given(_MEAN, _COUNT, _COUNT, _COUNT)
def test_never_below_zero_nor_above_a_few_replies_worth(
    mean: float | None, slots: int, ready: int, all_slots: int
) -> None:
    assert 0 <= ahead(mean, slots, ready, all_slots) <= MOST_AHEAD


@given(st.floats(0, SHORT), st.integers(1, 1_000), _COUNT, _COUNT)
def test_beside_others_never_more_than_half_of_a_pilots_share(
    mean: float, slots: int, ready: int, all_slots: int
) -> None:
    if all_slots > slots:
        assert ahead(mean, slots, ready, all_slots) * 2 * all_slots <= ready * slots
    else:
        assert ahead(mean, slots, ready, all_slots) <= ready


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
    assert ahead(0.0001, 4, 10_000, 4) == MOST_AHEAD
    assert ahead(0.01, 4, 10_000, 4) == 200
    assert ahead(0.1, 4, 10_000, 40) == 20
    assert ahead(0.1, 4, 10, 40) == 0


# --- pieces of a chunk
@given(_MEAN, st.integers(1, 1_000), st.integers(0, 64))
def test_a_piece_is_some_of_the_calls_and_leaves_some_for_other_idle_slots(
    mean: float | None, calls: int, slots: int
) -> None:
    size = piece(mean, calls, slots)
    assert 1 <= size <= calls
    if mean is None or size * mean > LEAST_PIECE + mean:
        assert (size - 1) * max(1, slots) < calls, "every idle slot can have as many"


@given(st.floats(0.000001, 10), st.integers(1, 1_000), st.integers(0, 64))
def test_a_piece_of_more_than_one_is_short(mean: float, calls: int, slots: int) -> None:
    size = piece(mean, calls, slots)
    assert size == 1 or size * mean <= PIECE + mean


def test_of_calls_nobody_knows_a_piece_is_small() -> None:
    assert piece(None, 100, 1) == FIRST_PIECE


# --- at the tail
@given(st.integers(0, 10_000), st.integers(1, 100))
def test_a_pilot_keeps_what_its_slots_run_and_half_of_the_rest(held: int, slots: int) -> None:
    share = give_up_share(held, slots)
    assert share >= 0 and held - share >= min(held, slots)


def test_a_task_is_slow_only_against_what_is_known_of_its_kind() -> None:
    assert not is_straggler(1e9, None)
    assert not is_straggler(1.0, 0.001), "not worth a copy"
    assert not is_straggler(25.0, 10.0) and is_straggler(31.0, 10.0)
