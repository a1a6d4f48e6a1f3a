"""A RangeSet is a set: whatever is done to it is done to a plain set beside it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.rangeset import RangeSet

_AT = st.integers(-5, 60)
_STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "add_range", "remove_range", "clear"]), _AT, st.integers(-2, 20)),
    max_size=40,
)


@given(_STEPS)
def test_it_holds_what_a_plain_set_holds(steps: list[tuple[str, int, int]]) -> None:
    ours, plain = RangeSet(), set[int]()
    for verb, low, width in steps:
        if verb == "clear" and width == 0:
            ours.clear()
            plain.clear()
        elif verb == "add":
            ours.add(low)
            plain.add(low)
        elif verb == "remove":
            ours.remove(low)
            plain.discard(low)
        elif verb == "add_range":
            ours.add_range(low, low + width)
            plain |= set(range(low, low + width))
        elif verb == "remove_range":
            ours.remove_range(low, low + width)
            plain -= set(range(low, low + width))
        assert list(ours) == sorted(plain)
        assert len(ours) == len(plain)
        assert bool(ours) == bool(plain)
        assert all((value in ours) == (value in plain) for value in range(-8, 84))
        if plain:
            assert ours.first() == min(plain)
        ranges = ours.ranges()
        assert all(low < high for low, high in ranges)
        assert all(before[1] < after[0] for before, after in pairwise(ranges))


@given(st.lists(st.tuples(_AT, _AT)))
def test_the_order_of_adding_does_not_matter(ranges: list[tuple[int, int]]) -> None:
    assert RangeSet(ranges) == RangeSet(reversed(ranges)) == RangeSet(RangeSet(ranges).ranges())
