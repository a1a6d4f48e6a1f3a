"""A set of whole numbers stored as ranges, so that an array of a million elements costs next to nothing [ADR 0001]."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """Ordered, disjoint, non-adjacent ranges `[low, high)`."""

    __slots__ = ("_highs", "_lows", "size")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        self.size = 0
        for low, high in ranges:
            self.add_range(low, high)

    @classmethod
    def span(cls, low: int, high: int) -> RangeSet:
        """The numbers of `[low, high)`, which must be some."""
        made = cls.__new__(cls)
        made._lows, made._highs, made.size = [low], [high], high - low
        return made

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __contains__(self, value: int) -> bool:
        at = bisect_right(self._lows, value) - 1
        return at >= 0 and value < self._highs[at]

    def __iter__(self) -> Iterator[int]:
        for low, high in zip(self._lows, self._highs):
            yield from range(low, high)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._lows == other._lows and self._highs == other._highs

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable

    def __repr__(self) -> str:
        return f"RangeSet({self.ranges()!r})"

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges `[low, high)`, in order."""
        return list(zip(self._lows, self._highs))

    def first(self) -> int:
        """The least member; the set must not be empty."""
        return self._lows[0]

    def after(self, value: int) -> int:
        """The least member above a value; there must be one."""
        at = bisect_right(self._lows, value)
        if at and value + 1 < self._highs[at - 1]:
            return value + 1
        return self._lows[at]

    def reach(self, value: int) -> int:
        """The end of the range that a value is in; the value itself if it is in none."""
        at = bisect_right(self._lows, value) - 1
        return self._highs[at] if at >= 0 and value < self._highs[at] else value

    def add(self, value: int) -> None:
        """Add one number."""
        self.add_range(value, value + 1)

    def add_range(self, low: int, high: int) -> None:
        """Add `[low, high)`."""
        if low >= high:
            return
        left = bisect_right(self._lows, low)
        if left and self._highs[left - 1] >= low:
            left -= 1
        right = bisect_right(self._lows, high)
        if left < right:
            low = min(low, self._lows[left])
            high = max(high, self._highs[right - 1])
        gone = sum(self._highs[i] - self._lows[i] for i in range(left, right))
        self._lows[left:right] = [low]
        self._highs[left:right] = [high]
        self.size += high - low - gone

    def remove(self, value: int) -> None:
        """Remove one number; it need not be a member."""
        at = bisect_right(self._lows, value) - 1
        if at < 0 or value >= self._highs[at]:
            return
        low, high = self._lows[at], self._highs[at]
        self.size -= 1
        if low == value and high == value + 1:
            del self._lows[at], self._highs[at]
        elif low == value:
            self._lows[at] = value + 1
        elif high == value + 1:
            self._highs[at] = value
        else:
            self._highs[at] = value
            self._lows.insert(at + 1, value + 1)
            self._highs.insert(at + 1, high)

    def remove_range(self, low: int, high: int) -> None:
        """Remove `[low, high)`; nothing of it need be a member."""
        if low >= high:
            return
        left = bisect_right(self._lows, low)
        if left and self._highs[left - 1] > low:
            left -= 1
        right = bisect_left(self._lows, high)
        if left >= right:
            return
        self.size -= sum(self._highs[i] - self._lows[i] for i in range(left, right))
        kept = [(self._lows[left], low), (high, self._highs[right - 1])]
        kept = [(a, b) for a, b in kept if a < b]
        self._lows[left:right] = [a for a, _ in kept]
        self._highs[left:right] = [b for _, b in kept]
        self.size += sum(b - a for a, b in kept)

    def clear(self) -> None:
        """Remove everything."""
        self._lows.clear()
        self._highs.clear()
        self.size = 0
