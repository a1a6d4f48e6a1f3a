"""How large the next piece of divisible work is: what is measured, and what follows from it."""

from __future__ import annotations

from math import inf

import pytest

from shoal.sched.size import (
    FIRST_EACH,
    FIRST_SHARE,
    FIXED_SHARE,
    GROWTH,
    MOST_SECONDS,
    Sizes,
    Slot,
    Speed,
    end_together,
    first_piece,
    next_piece,
)


def measured(*pieces: tuple[int, float, float], pilot: str = "p") -> Speed:
    """The speed of a pilot that did these pieces: units, seconds of computing, of moving."""
    sizes = Sizes()
    for units, computing, moving in pieces:
        sizes.learn(pilot, units, computing, moving)
    speed = sizes.speed(pilot)
    assert speed is not None
    return speed


def test_before_anything_is_measured_a_piece_is_small_whatever_the_pool() -> None:
    assert first_piece(1_000_000, 4) == 1_000_000 // FIRST_SHARE
    assert first_piece(1_000_000, 1_000) == 1_000_000 // (FIRST_EACH * 1_000)
    assert first_piece(3, 1_000) == 1
    assert next_piece(1_000_000, None, [], 4) == first_piece(1_000_000, 4)


def test_pieces_of_two_sizes_tell_what_is_fixed_from_what_grows() -> None:
    speed = measured(*[(10, 10.0, 2.0), *[(80, 45.0, 9.0)] * 5])
    assert speed.fixed == pytest.approx(6.0, rel=0.05)
    assert speed.power == pytest.approx(2.0, rel=0.05)
    assert speed.bandwidth == pytest.approx(10.0, rel=0.05)
    assert speed.ratio == pytest.approx(0.2, rel=0.1)
    assert speed.seconds(80) == pytest.approx(54.0, rel=0.05)


def test_a_single_size_counts_as_growing_with_the_units() -> None:
    speed = measured((10, 20.0, 0.0))
    assert (speed.fixed, speed.power, speed.bandwidth, speed.largest) == (0.0, 0.5, inf, 10)


def test_a_change_of_speed_is_followed_within_a_few_pieces() -> None:
    before = [(10, 1.0 + 10 * 0.1, 0.0), *[(100, 1.0 + 100 * 0.1, 0.0)] * 5]
    for pieces, cost in ((3, 0.3), (3, 0.03)):
        speed = measured(*before, *[(100, 1.0 + 100 * cost, 0.0)] * (pieces + 2))
        assert speed.power == pytest.approx(1.0 / cost, rel=0.3)


def test_a_pilot_of_which_nothing_is_known_counts_as_the_slowest() -> None:
    sizes = Sizes()
    assert sizes.speed("new") is None
    sizes.learn("fast", 100, 10.0)
    sizes.learn("slow", 100, 50.0)
    assert sizes.speed("new") == Speed(2.0, largest=0)
    sizes.forget(["fast"])
    assert len(sizes) == 1 and sizes.speed("slow") == Speed(10.0, largest=0)


def test_all_slots_end_together_and_one_that_is_free_too_late_has_no_piece() -> None:
    one, two = Speed(1.0), Speed(3.0, fixed=2.0)
    assert end_together(100, [Slot(one)]) == 100.0
    end = end_together(100, [Slot(one), Slot(two, busy=4.0)])
    assert end * 1.0 + (end - 6.0) * 3.0 == pytest.approx(100.0)
    assert end_together(5, [Slot(one), Slot(two, busy=50.0)]) == 5.0


def test_a_piece_is_half_of_what_its_slot_could_do_and_all_of_it_at_the_end() -> None:
    speed = Speed(2.0, largest=1_000)
    assert next_piece(400, speed, [Slot(speed)], 2) == 100
    assert next_piece(8, speed._replace(fixed=30.0), [Slot(speed._replace(fixed=30.0))], 2) == 4


def test_the_fixed_cost_stays_a_small_share_and_a_piece_is_not_endless() -> None:
    slow_start = Speed(1.0, fixed=20.0, largest=10_000)
    others = [Slot(slow_start)] * 15
    piece = next_piece(5_000, slow_start, others, 16)
    assert 20.0 / slow_start.seconds(piece) <= FIXED_SHARE * 1.01
    assert next_piece(10**9, Speed(1.0, largest=10**9), [], 1) == MOST_SECONDS


def test_a_piece_grows_by_steps_and_an_unknown_pilot_gets_little() -> None:
    assert next_piece(10**6, Speed(1_000.0, largest=5), [], 1) == 5 * GROWTH
    known, assumed = Speed(1_000.0, largest=10**6), Speed(1_000.0)
    assert next_piece(10**6, assumed, [], 1) * 4 == next_piece(10**6, known, [], 1)


@pytest.mark.parametrize("left", [0, 1])
def test_nothing_or_one_unit_left(left: int) -> None:
    assert next_piece(left, Speed(1.0, largest=5), [], 1) == left


def test_a_piece_is_bound_by_the_seconds_it_may_take() -> None:
    speed = Speed(power=10.0, fixed=1.0, largest=100_000)
    assert next_piece(1_000_000, speed, [], 1) == 5_990
    assert next_piece(1_000_000, speed, [], 1, within=31.0) == 300
    assert next_piece(1_000_000, speed, [], 1, within=0.5) == 1
