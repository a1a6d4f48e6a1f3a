"""A set of whole numbers stored as ranges, so that an array of a million elements costs next to nothing [ADR 0001]."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """Ordered, disjoint, non-adjacent ranges `[low, high)`."""

    # low and high of each range, one after another: at an odd place in them begins what is not a member. One list, because
    # each of many thousand tasks has such a set.
    __slots__ = ("_ends", "size")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ends: list[int] = []
        self.size = 0
        for low, high in ranges:
            self.add_range(low, high)

    @classmethod
    def span(cls, low: int, high: int) -> RangeSet:
        """The numbers of `[low, high)`."""
        made = cls.__new__(cls)
        made._ends, made.size = ([low, high], high - low) if low < high else ([], 0)
        return made

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __contains__(self, value: int) -> bool:
        return bisect_right(self._ends, value) % 2 == 1

    def __iter__(self) -> Iterator[int]:
        for low, high in self.ranges():
            yield from range(low, high)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable

    def __repr__(self) -> str:
        return f"RangeSet({self.ranges()!r})"

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges `[low, high)`, in order."""
        return list(zip(self._ends[::2], self._ends[1::2]))

    def first(self) -> int:
        """The least member; the set must not be empty."""
        return self._ends[0]

    def after(self, value: int) -> int:
        """The least member above a value; there must be one."""
        at = bisect_right(self._ends, value + 1)
        return value + 1 if at % 2 else self._ends[at]

    def reach(self, value: int) -> int:
        """The end of the range that a value is in; the value itself if it is in none."""
        at = bisect_right(self._ends, value)
        return self._ends[at] if at % 2 else value

    def add(self, value: int) -> None:
        """Add one number."""
        self.add_range(value, value + 1)

    def add_range(self, low: int, high: int) -> None:
        """Add `[low, high)`."""
        if low >= high:
            return
        left, right = bisect_left(self._ends, low), bisect_right(self._ends, high)
        self.size += high - low - self._members(low, high, left, right)
        # An end inside of a range, or at its edge, is none any more.
        self._ends[left:right] = (
            [] if left % 2 and right % 2 else [high] if left % 2 else [low] if right % 2 else [low, high]
        )

    def remove(self, value: int) -> None:
        """Remove one number; it need not be a member."""
        self.remove_range(value, value + 1)

    def remove_range(self, low: int, high: int) -> None:
        """Remove `[low, high)`; nothing of it need be a member."""
        if low >= high:
            return
        left, right = bisect_left(self._ends, low), bisect_right(self._ends, high)
        if left == right and left % 2 == 0:
            return
        self.size -= self._members(low, high, left, right)
        self._ends[left:right] = (
            [low, high] if left % 2 and right % 2 else [low] if left % 2 else [high] if right % 2 else []
        )

    def _members(self, low: int, high: int, left: int, right: int) -> int:
        """How many of `[low, high)` are members; the ends from place `left` to `right` are in it."""
        found, is_in, at = 0, left % 2 == 1, low
        for end in self._ends[left:right]:
            if is_in:
                found += end - at
            is_in, at = not is_in, end
        return found + high - at if is_in else found

    def clear(self) -> None:
        """Remove everything."""
        self._ends.clear()
        self.size = 0
