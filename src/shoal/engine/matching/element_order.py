"""The order that a person gave to an array's elements by one of its parameters: for example what is near
the sensitive region first [DIANE U10]. Positions are laid out once; an element that becomes ready again goes back to
its place."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Container

from shoal.model.rangeset import RangeSet
from shoal.model.task.spec import Spec
from shoal.model.task.sweep import Value


class ElementOrder:
    """Elements in the order they shall be leased."""

    __slots__ = ("_again", "_at", "_elements", "_places")

    def __init__(self, spec: Spec, first: int) -> None:
        assert spec.sweep is not None
        sweep, descending = spec.sweep, spec.order.startswith("-")
        name = spec.order.lstrip("-")
        values = [_sortable(sweep.at(offset)[name]) for offset in range(spec.count)]
        order = sorted(range(spec.count), key=values.__getitem__, reverse=descending)  # equals stay as written
        self._elements = array("q", (first + at for at in order))
        self._places: dict[int, int] | None = None
        self._at = 0
        self._again: list[tuple[int, int]] = []  # place and element of those that came back

    def next(self, ready: RangeSet, apart: Container[int]) -> int:
        """The first element that is ready and in its array's class; there must be one."""
        while self._again and (self._again[0][1] not in ready or self._again[0][1] in apart):
            heapq.heappop(self._again)
        while self._at < len(self._elements):
            element = self._elements[self._at]
            if element in ready and element not in apart:
                break
            self._at += 1
        if self._again and (self._at >= len(self._elements) or self._again[0][0] < self._at):
            return self._again[0][1]
        return self._elements[self._at]

    def back(self, element: int) -> None:
        """An element is ready again."""
        if self._places is None:
            self._places = {element: at for at, element in enumerate(self._elements)}
        if self._places[element] < self._at:
            heapq.heappush(self._again, (self._places[element], element))


def _sortable(value: Value) -> tuple[int, float, str]:
    """Numbers before texts, so that any mixture has an order."""
    return (1, 0.0, value) if isinstance(value, str) else (0, float(value), "")
