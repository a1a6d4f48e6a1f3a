"""One round of assignment: tasks of several classes to slots of several pilots (D8).

A class stands for as many equal tasks as it has ready, a pilot for as many slots as it has free. A higher priority comes
before a better rank: level by level the round maximises the total rank of what it assigns, exactly where the table is
small enough for that to pay, and greedily beyond [LBO III.C]. Ties go to the earlier deadline and the older task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

from shoal.sched.assign import Pair, exact, greedy_sparse

EXACT_CELLS = 10_000  # slots x tasks of a level: some milliseconds
PLAIN_CELLS = 256  # up to so many the standard library's way is the faster one, as nothing has to be loaded for it
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
    """Assign by levels; `slots` are free in each row, `tasks` are ready in each column (1 where nothing is said)."""
    free, ready = dict(slots), dict(tasks)
    pairs: list[Pair] = []
    levels: dict[float, list[Cell]] = {}
    for cell in cells:
        levels.setdefault(cell.level, []).append(cell)
    for level in sorted(levels):
        left = [cell for cell in levels[level] if free.get(cell.row, 1) > 0 and ready.get(cell.column, 1) > 0]
        if not left:
            continue
        rows = _spread({cell.row for cell in left}, free)
        columns = _spread({cell.column for cell in left}, ready, most=len(rows))
        rows = _spread({cell.row for cell in left}, free, most=len(columns))
        if len(rows) * len(columns) > EXACT_CELLS:
            return Round(_greedily(cells), GREEDY)
        for row, column in _exactly(left, rows, columns):
            free[row], ready[column] = free.get(row, 1) - 1, ready.get(column, 1) - 1
            pairs.append((row, column))
    return Round(pairs, EXACT)


def _spread(numbers: set[int], counts: Mapping[int, int], most: int = EXACT_CELLS) -> list[int]:
    """Each number as often as it counts; there is no use for more than `most` of one."""
    return [number for number in sorted(numbers) for _ in range(min(most, counts.get(number, 1)))]


def _greedily(cells: Sequence[Cell]) -> list[Pair]:
    """The best cell of all, again and again: one task of each class, one slot of each pilot."""
    keys = {cell: (cell.level, -cell.rank, *cell.rest) for cell in cells}
    places = {key: -float(at) for at, key in enumerate(sorted(set(keys.values())))}
    return greedy_sparse((cell.row, cell.column, places[key]) for cell, key in keys.items())


def _exactly(cells: Sequence[Cell], rows: list[int], columns: list[int]) -> list[Pair]:
    """The largest total rank of one level, best pairs first."""
    worth = _worth(cells, min(len(rows), len(columns)))
    table = [[worth.get((row, column), -inf) for column in columns] for row in rows]
    if len(rows) * len(columns) <= PLAIN_CELLS:
        chosen = exact(table)
    else:
        from shoal.sched.vector import assign as vector  # scipy is loaded only where there is so much to do

        chosen = vector.exact(table)
    pairs = [(rows[row], columns[column]) for row, column in chosen]
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
