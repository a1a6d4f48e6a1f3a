"""Assignment of tasks of several classes to slots of several pilots, in rounds [LBO D8].

A class stands for as many equal tasks as it has ready, a pilot for as many slots as it has free. A higher priority comes
before a better rank: level by level the round maximises the total rank of what it assigns, exactly where the table is
small enough for that to pay, and greedily beyond [LBO III.C]. Ties go to the earlier deadline and the older task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from types import MappingProxyType
from typing import NamedTuple

EXACT_CELLS = 4_096  # slots x tasks of a level: up to some 15 ms
EXACT_WORK = 50_000  # cells that all repetitions of a round may look at before greedy pays
AT_ONCE = (64, 8, 1)  # slots of a pilot and tasks of a class that one round looks at, at most: fewer if it is too large
TIE = 1e-9  # of the range of ranks: what deadline and age may weigh against them, all together

ONE_EACH: Mapping[int, int] = MappingProxyType({})  # slots of rows, tasks of columns

EXACT, GREEDY = "exact", "greedy"

Pair = tuple[int, int]  # row, column


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
    """Assign by levels; `slots` are free in each row, `tasks` are ready in each column (1 by default). Where all of
    them are too many for one table, fewer of each are assigned, and the caller repeats the round for the rest; where
    that would have to be done often, it is greedy."""
    if len({cell.column for cell in cells}) <= 1:
        return Round(greedy(cells, slots, tasks), EXACT)  # of one class the best pilots are the largest total
    wanted = _most_pairs(cells, slots, tasks)
    levels: dict[float, list[Cell]] = {}
    for cell in cells:
        levels.setdefault(cell.level, []).append(cell)
    for most in AT_ONCE if len(cells) <= EXACT_CELLS else ():
        free = {cell.row: min(most, slots.get(cell.row, 1)) for cell in cells}
        ready = {cell.column: min(most, tasks.get(cell.column, 1)) for cell in cells}
        rounds = wanted / max(1, _most_pairs(cells, free, ready))
        if rounds * len(cells) <= EXACT_WORK and all(
            _size(level, free, ready) <= EXACT_CELLS for level in levels.values()
        ):
            return Round(_by_levels(levels, free, ready), EXACT)
    return Round(greedy(cells, slots, tasks), GREEDY)


def _most_pairs(cells: Sequence[Cell], slots: Mapping[int, int], tasks: Mapping[int, int]) -> int:
    """How many pairs there can be at most."""
    rows, columns = {cell.row for cell in cells}, {cell.column for cell in cells}
    return min(sum(slots.get(row, 1) for row in rows), sum(tasks.get(column, 1) for column in columns))


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


def greedy(
    cells: Sequence[Cell], slots: Mapping[int, int] = ONE_EACH, tasks: Mapping[int, int] = ONE_EACH
) -> list[Pair]:
    """The best cell of all again and again, a slot of its row and a task of its column removed [LBO III.C], in the order of
    choice. Ties go to the lowest row, then the lowest column."""
    free: dict[int, int] = {}
    ready: dict[int, int] = {}
    pairs: list[Pair] = []
    for cell in sorted(cells, key=lambda cell: (cell.level, -cell.rank, cell.rest, cell.row, cell.column)):
        row, column = cell.row, cell.column
        left, waits = free.get(row, slots.get(row, 1)), ready.get(column, tasks.get(column, 1))
        count = min(left, waits)
        if count > 0:
            free[row], ready[column] = left - count, waits - count
            pairs += [(row, column)] * count
    return pairs


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


def exact(rows: Sequence[Sequence[float]]) -> list[Pair]:
    """As many pairs as may be, with the largest total rank; in the order of rows. For small tables: O(n^3) steps."""
    if not rows or not rows[0]:
        return []
    if len(rows) > len(rows[0]):
        turned = exact([list(column) for column in zip(*rows)])
        return sorted((row, column) for column, row in turned)
    known = [rank for ranks in rows for rank in ranks if isfinite(rank)]
    if not known:
        return []
    low, high = min(known), max(known)
    # Scaled to 0..1; a forbidden cell costs more than all allowed ones can differ by together, so that none is chosen
    # where it can be helped. Halves: the largest numbers there are would differ by more than that.
    span, never = (high / 2 - low / 2) or 1.0, len(rows) + 1.0
    costs = [[(high / 2 - rank / 2) / span if isfinite(rank) else never for rank in ranks] for ranks in rows]
    return [(row, column) for row, column in _cheapest(costs) if isfinite(rows[row][column])]


def _cheapest(costs: list[list[float]]) -> list[Pair]:
    """The assignment of least cost, of a table with no more rows than columns: the Hungarian method with potentials,
    one shortest augmenting path for each row [Kuhn 1955; Jonker and Volgenant 1987]."""
    count, width = len(costs), len(costs[0])
    of_row, of_column = [0.0] * (count + 1), [0.0] * (width + 1)  # potentials; row and column 0 are a start
    owner = [0] * (width + 1)  # the row that has a column
    for row in range(1, count + 1):
        owner[0], column = row, 0
        least, before, seen = [inf] * (width + 1), [0] * (width + 1), [False] * (width + 1)
        while owner[column]:
            seen[column] = True
            here, delta, following = owner[column], inf, 0
            cost, base = costs[here - 1], of_row[here]
            for other in range(1, width + 1):
                if seen[other]:
                    continue
                reduced = cost[other - 1] - base - of_column[other]
                if reduced < least[other]:
                    least[other], before[other] = reduced, column
                if least[other] < delta:
                    delta, following = least[other], other
            for other in range(width + 1):
                if seen[other]:
                    of_row[owner[other]] += delta
                    of_column[other] -= delta
                else:
                    least[other] -= delta
            column = following
        while column:
            owner[column] = owner[before[column]]
            column = before[column]
    return sorted((owner[column] - 1, column - 1) for column in range(1, width + 1) if owner[column])
