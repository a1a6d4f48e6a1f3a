"""A round in which the pilots of a site choose among the tasks of their leader [LBO III.B, III.C]: what each bids for, and what
the leader makes of all bids. Pure.

The leader spreads a list of classes of equal tasks. Each pilot filters and ranks it for itself, and answers with its best few
classes. The leader assigns from the answers: exactly where the table is small, greedily as in the paper where it is large.
Of classes that are as good, pilots bid for different ones: if all bade for the oldest, most of them would get none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from shoal.sched.linear_assignment import Cell, Pair, assign, greedy


class Listed(NamedTuple):
    """A class of equal tasks in the list that the leader spreads, which is in the order of age."""

    tasks: int = 1  # of it that wait
    level: float = 0.0  # of priority: smaller comes first, before any rank


class Bid(NamedTuple):
    """A pilot can run tasks of a class; `column` is its place in the list."""

    column: int
    rank: float  # greater is better


class Answer(NamedTuple):
    """What a pilot says to a list."""

    slots: int  # that are free
    bids: tuple[Bid, ...]  # best first


class Given(NamedTuple):
    """A task of a class goes to a pilot."""

    pilot: str
    column: int


def best_bids(fits: Iterable[Bid], listed: Sequence[Listed], most: int, turn: int) -> tuple[Bid, ...]:
    """The best bids of a pilot, at most so many: by level, then rank. Equal ones follow each other from the pilot's own place
    `turn` in the list on, such as its number at the site."""
    count = max(1, len(listed))
    ordered = sorted(fits, key=lambda bid: (listed[bid.column].level, -bid.rank, (bid.column - turn) % count))
    return tuple(ordered[:most])


def assign_bids(
    listed: Sequence[Listed], answers: Mapping[str, Answer], is_exact: bool = True
) -> list[Given]:  # fmt: skip
    """Who gets a task of which class, best first. Not exact: greedily, as in the paper. A pilot all of whose bids went to others
    gets nothing in this round."""
    pilots = sorted(answers)
    cells = [
        Cell(listed[bid.column].level, bid.rank, (float(bid.column),), row, bid.column)
        for row, pilot in enumerate(pilots)
        for bid in answers[pilot].bids
    ]
    slots = {row: answers[pilot].slots for row, pilot in enumerate(pilots)}
    tasks = {cell.column: listed[cell.column].tasks for cell in cells}
    pairs: list[Pair] = []
    while cells:
        found = assign(cells, slots, tasks).pairs if is_exact else greedy(cells, slots, tasks)
        pairs += found
        for row, column in found:
            slots[row] -= 1
            tasks[column] -= 1
        # A table that was too large is assigned in parts.
        cells = [cell for cell in cells if slots[cell.row] > 0 and tasks[cell.column] > 0] if found else []
    return [Given(pilots[row], column) for row, column in pairs]
