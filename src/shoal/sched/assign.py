"""Who gets which: one task for each pilot, from a table of ranks [LBO D8]. Standard library, so that it travels.

Rows are those that choose (pilots), columns what is given out (tasks); [LBO III.C] has them the other way round.
Ranks come dense (a list of rows) or sparse (triples of row, column and rank; of a cell named twice the best rank counts).
A cell that is missing, or whose rank is not a finite number, may not be assigned. Ties go to the lowest row, then the
lowest column, so that every implementation gives the same pairs. The exact assignment of large tables is in
`vector/assign.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from math import inf, isfinite, nan
from typing import Callable

Pair = tuple[int, int]  # row, column
Triple = tuple[int, int, float]  # row, column, rank
Row = list[tuple[float, int]]  # what a row wants: -rank and column, best first


def one_by_one(rows: Sequence[Sequence[float]]) -> list[Pair]:
    """Each row in its turn takes the best column that is left: how a queue serves pilots as they ask [LBO III.C]."""
    taken: set[int] = set()
    pairs = []
    for row, ranks in enumerate(rows):
        column = _best(ranks, taken)
        if column >= 0:
            taken.add(column)
            pairs.append((row, column))
    return pairs


def one_by_one_sparse(triples: Iterable[Triple]) -> list[Pair]:
    """As `one_by_one`, from triples; rows in the order of their numbers."""
    taken: set[int] = set()
    pairs = []
    for row, wanted in sorted(_by_row(triples).items()):
        for _, column in wanted:
            if column not in taken:
                taken.add(column)
                pairs.append((row, column))
                break
    return pairs


def greedy(rows: Sequence[Sequence[float]]) -> list[Pair]:
    """Again and again the best cell of all, its row and column removed [LBO III.C]; pairs in the order of choice."""
    nobody: set[int] = set()
    heads = []
    for row, ranks in enumerate(rows):
        column = _best(ranks, nobody)
        if column >= 0:
            heads.append((-ranks[column], row, column))
    return _by_heads(heads, lambda row: _sorted_row(enumerate(rows[row])))


def greedy_sparse(triples: Iterable[Triple]) -> list[Pair]:
    """As `greedy`, from triples."""
    wanted = _by_row(triples)
    return _by_heads([(ranks[0][0], row, ranks[0][1]) for row, ranks in wanted.items()], wanted.__getitem__)


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
            line, base = costs[here - 1], of_row[here]
            for other in range(1, width + 1):
                if seen[other]:
                    continue
                reduced = line[other - 1] - base - of_column[other]
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


def _by_heads(heads: list[tuple[float, int, int]], row_of: Callable[[int], Row]) -> list[Pair]:
    """A heap of each row's best cell. A cell whose column is gone meanwhile gives way to the row's next best: what
    is on top and still free is the best of all, as no row gets better. Only rows that lose a column are sorted."""
    heapify(heads)
    taken: set[int] = set()
    pairs: list[Pair] = []
    sorted_rows: dict[int, Row] = {}
    places: dict[int, int] = {}
    while heads:
        _, row, column = heads[0]
        if column not in taken:
            taken.add(column)
            pairs.append((row, column))
            sorted_rows.pop(row, None)
            heappop(heads)
            continue
        if row not in sorted_rows:
            sorted_rows[row] = row_of(row)
        wanted, at = sorted_rows[row], places.get(row, 0)
        while at < len(wanted) and wanted[at][1] in taken:
            at += 1
        places[row] = at
        if at < len(wanted):
            heapreplace(heads, (wanted[at][0], row, wanted[at][1]))
        else:
            heappop(heads)
    return pairs


def _best(ranks: Sequence[float], taken: set[int]) -> int:
    """The lowest of the best columns that are free; -1 if there is none."""
    best = max(ranks, default=nan)
    if isfinite(best):  # a NaN that stands first comes out of `max` itself, one that stands later cannot win
        column = ranks.index(best)
        if column not in taken:
            return column
    best, found = -inf, -1
    for column, rank in enumerate(ranks):
        if best < rank < inf and column not in taken:
            best, found = rank, column
    return found


def _sorted_row(cells: Iterable[tuple[int, float]]) -> Row:
    return sorted((-rank, column) for column, rank in cells if isfinite(rank))


def _by_row(triples: Iterable[Triple]) -> dict[int, Row]:
    found: dict[int, Row] = {}
    for row, column, rank in triples:
        if isfinite(rank):
            found.setdefault(row, []).append((-rank, column))
    for wanted in found.values():
        wanted.sort()
    return found
