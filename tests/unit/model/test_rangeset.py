"""A set of whole numbers kept as ranges, by example; against a plain set it stands in tests/property."""

from __future__ import annotations

import pytest

from shoal.model.rangeset import RangeSet


def test_a_new_set_is_empty() -> None:
    empty = RangeSet()
    assert not empty
    assert len(empty) == 0
    assert list(empty) == []
    assert 0 not in empty


def test_a_million_numbers_are_one_range() -> None:
    assert RangeSet([(1, 1_000_001)]).ranges() == [(1, 1_000_001)]
    assert len(RangeSet([(1, 1_000_001)])) == 1_000_000


def test_touching_ranges_become_one() -> None:
    assert RangeSet([(1, 3), (5, 7), (3, 5)]).ranges() == [(1, 7)]


def test_a_range_over_others_swallows_them() -> None:
    some = RangeSet([(2, 4), (6, 8), (20, 22)])
    some.add_range(1, 10)
    assert some.ranges() == [(1, 10), (20, 22)]
    assert len(some) == 11


def test_adding_again_changes_nothing() -> None:
    some = RangeSet([(1, 5)])
    some.add(3)
    some.add_range(2, 4)
    assert some.ranges() == [(1, 5)]
    assert len(some) == 4


def test_an_empty_or_reversed_range_adds_nothing() -> None:
    assert not RangeSet([(3, 3), (5, 1)])


@pytest.mark.parametrize(
    ("value", "left"), [(1, [(2, 5)]), (4, [(1, 4)]), (2, [(1, 2), (3, 5)]), (0, [(1, 5)]), (5, [(1, 5)])]
)
def test_taking_one_out_splits_or_trims_its_range(value: int, left: list[tuple[int, int]]) -> None:
    some = RangeSet([(1, 5)])
    some.remove(value)
    assert some.ranges() == left
    assert len(some) == sum(b - a for a, b in left)


def test_taking_the_only_one_leaves_nothing() -> None:
    some = RangeSet([(7, 8)])
    some.remove(7)
    assert not some
    assert some.ranges() == []


def test_taking_a_range_out_of_the_middle_of_several() -> None:
    some = RangeSet([(1, 5), (7, 9), (10, 20)])
    some.remove_range(3, 12)
    assert some.ranges() == [(1, 3), (12, 20)]
    assert len(some) == 10


def test_taking_out_an_empty_or_reversed_range_takes_nothing() -> None:
    some = RangeSet([(1, 10)])
    some.remove_range(5, 5)
    some.remove_range(7, 3)
    assert some.ranges() == [(1, 10)]
    assert len(some) == 9


def test_the_first_is_the_least() -> None:
    assert RangeSet([(9, 10), (3, 4)]).first() == 3


def test_cleared_it_is_as_new() -> None:
    some = RangeSet([(1, 5)])
    some.clear()
    assert some == RangeSet()
    assert len(some) == 0


def test_equal_members_are_equal_sets_however_they_came() -> None:
    some = RangeSet([(1, 2), (3, 4)])
    some.add(2)
    assert some == RangeSet([(1, 4)])
    assert some != RangeSet([(1, 5)])
    assert some != [(1, 4)]


def test_it_can_change_and_so_is_no_key() -> None:
    with pytest.raises(TypeError):
        hash(RangeSet())
