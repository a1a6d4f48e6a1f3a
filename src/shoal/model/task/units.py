"""Divisible work: a number of equal units, of which the server cuts a piece whenever a pilot can take one [ADR 0043].

A piece is a task like any other, with the parameters `first` (its first unit, counted from 0) and `count`. What is not cut
yet is one ready task, the rest: at any time the tasks of such a table have every unit exactly once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Union

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_WHOLE
from shoal.model.task.checks import whole
from shoal.model.task.sweep import Sweep

FIRST, COUNT = "first", "count"  # parameters of a piece


class Units(NamedTuple):
    """Units first .. first + size - 1 of a work."""

    first: int
    size: int
    is_cut: bool = False  # they are a piece: nothing more is cut from them

    @property
    def sweep(self) -> Sweep:
        """The parameters of the one task that has these units."""
        return _sweep(self.first, self.size)

    def take(self, count: int) -> tuple[Units, Units]:
        """The next piece with so many of them, and the rest."""
        return Units(self.first, count, True), Units(self.first + count, self.size - count)

    def table(self) -> Union[int, dict[str, Any]]:
        """As a table of task fields has it."""
        if not self.first and not self.is_cut:
            return self.size
        return {FIRST: self.first, COUNT: self.size, "cut": self.is_cut}


@lru_cache(maxsize=1_000)
def _sweep(first: int, count: int) -> Sweep:
    return Sweep(rows=({FIRST: first, COUNT: count},))


def read_units(value: Any, field: str) -> Units:
    """How many units there are; a table, as the server writes it for what it has cut, says which."""
    if not isinstance(value, dict):
        return Units(0, whole(1, MAX_WHOLE)(value, field))
    if set(value) - {FIRST, COUNT, "cut"}:
        raise BadInput(f"{echo(value)!r} is no number of units", code="wrong_type", field=field, hint="e.g. 100000")
    found = Units(
        whole(0, MAX_WHOLE - 1)(value.get(FIRST, 0), field),
        whole(1, MAX_WHOLE)(value.get(COUNT), field),
        value.get("cut", False) is True,
    )
    whole(1, MAX_WHOLE)(found.first + found.size, field)
    return found
