"""One round of assignment: tasks of several classes to slots of several pilots [LBO D8].

A class stands for as many equal tasks as it has ready, a pilot for as many slots as it has free. A higher priority comes
before a better rank: level by level the round maximises the total rank of what it assigns, exactly where the table is
small enough for that to pay, and greedily beyond [LBO III.C]. Ties go to the earlier deadline and the older task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

from shoal.sched.assign import Pair, exact, greedy_sparse

EXACT_CELLS = 4_096  # slots x tasks of a level: up to some 15 ms, while scipy would take longer than that to load
AT_ONCE = (64, 8, 1)  # slots of a pilot and tasks of a class that one round looks at, at most: fewer if it is too large
TIE = 1e-9  # of the range of ranks: what deadline and age may weigh against them, all together

EXACT, GREEDY = "exact", "greedy"


class Cell(NamedTuple):
    """A pilot (row) may run a task of a class (column)."""

    level: float  # smaller comes first
    rank: float  # -inf: it is no number; such a pilot may still be used, last of all
    rest: tuple[float, ...]  # deadline, age, ...: smaller comes first among equal ranks
    row: int
    column: int


class Round(NamedTuple):
    """What was assigned, best first, and how."""

    pairs: list[Pair]
    how: str  # EXACT or GREEDY


def assign(cells: Sequence[Cell], slots: Mapping[int, int], tasks: Mapping[int, int]) -> Round:
    """Assign by levels; `slots` are free in each row, `tasks` are ready in each column (1 where nothing is said). Where
    all of them are too many for one table, fewer of each are assigned: whoever asks comes again for the rest."""
    levels: dict[float, list[Cell]] = {}
    for cell in cells:
        levels.setdefault(cell.level, []).append(cell)
    for most in AT_ONCE if len(cells) <= EXACT_CELLS else ():
        free = {cell.row: min(most, slots.get(cell.row, 1)) for cell in cells}
        ready = {cell.column: min(most, tasks.get(cell.column, 1)) for cell in cells}
        if all(_size(level, free, ready) <= EXACT_CELLS for level in levels.values()):
            return Round(_by_levels(levels, free, ready), EXACT)
    return Round(_greedily(cells), GREEDY)


def _size(level: list[Cell], free: Mapping[int, int], ready: Mapping[int, int]) -> int:
    """Cells of the table of one level."""
    rows, columns = {cell.row for cell in level}, {cell.column for cell in level}
    return sum(free[row] for row in rows) * sum(ready[column] for column in columns)


def _by_levels(levels: dict[float, list[Cell]], free: dict[int, int], ready: dict[int, int]) -> list[Pair]:
    pairs: list[Pair] = []
    for level in sorted(levels):
        left = [cell for cell in levels[level] if free[cell.row] > 0 and ready[cell.column] > 0]
        rows = [row for row in sorted({cell.row for cell in left}) for _ in range(free[row])]
        columns = [column for column in sorted({cell.column for cell in left}) for _ in range(ready[column])]
        for row, column in _exactly(left, rows, columns) if left else ():
            free[row] -= 1
            ready[column] -= 1
            pairs.append((row, column))
    return pairs


def _greedily(cells: Sequence[Cell]) -> list[Pair]:
    """The best cell of all, again and again: one task of each class, one slot of each pilot."""
    keys = [(cell.level, -cell.rank, *cell.rest) for cell in cells]
    places = {key: -float(at) for at, key in enumerate(sorted(set(keys)))}
    return greedy_sparse((cell.row, cell.column, places[key]) for cell, key in zip(cells, keys))


def _exactly(cells: Sequence[Cell], rows: list[int], columns: list[int]) -> list[Pair]:
    """The largest total rank of one level, best pairs first."""
    worth = _worth(cells, min(len(rows), len(columns)))
    table = [[worth.get((row, column), -inf) for column in columns] for row in rows]
    pairs = [(rows[row], columns[column]) for row, column in exact(table)]
    return sorted(pairs, key=lambda pair: (-worth[pair], pair))


def _worth(cells: Sequence[Cell], few: int) -> dict[Pair, float]:
    """Ranks as numbers between 0 and 1, those that are none far below, and a little for what decides between equals."""
    known = [cell.rank for cell in cells if isfinite(cell.rank)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    order = {rest: at for at, rest in enumerate(sorted({cell.rest for cell in cells}))}
    tie = TIE / (max(1, few) * max(1, len(order)))
    found: dict[Pair, float] = {}
    for cell in cells:
        # Halves: the largest numbers there are would differ by more than that.
        scaled = (cell.rank / 2 - low / 2) / (high / 2 - low / 2) if high > low and isfinite(cell.rank) else 0.0
        none = 0.0 if isfinite(cell.rank) else few + 1.0
        found[cell.row, cell.column] = scaled - none - tie * order[cell.rest]
    return found
