"""Assignment algorithms that only the benchmark compares with the one of `sched/linear_assignment.py` [LBO D8]: in turn
and greedy by the standard library, greedy by numpy, exact by scipy.

Tables are dense (a list of rows) or sparse. A cell that is missing, or whose rank is not a finite number, may not be
assigned. Ties go to the lowest row, then the lowest column, so that every greedy gives the same pairs.

Exact means: as many pairs as the allowed cells permit, and among those assignments one with the largest total rank. The
number comes first because the zero of a rank is arbitrary: adding 1,000 to every rank must change nothing, and no pilot
stands idle because its best rank is below zero. Where every cell is allowed it is simply the largest total. [LBO III.C]
calls this NP-complete; one task per pilot is the linear assignment problem, solved in O(n^3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.sched.linear_assignment import Pair

Floats = NDArray[Any]  # of any floating kind
Ints = NDArray[np.int64]

LOOKS = 2  # times that a row which lost its column is looked through plainly, before its best columns are sorted
CONTESTED = 4  # rows that want the same column, on average, from which on columns choose rows
AT_ONCE = 256  # columns copied at once then
TOP = 64  # columns sorted then; twice as many each time they are used up
STRIDE = 8_192  # cells of a sparse table looked at between two removals of those that are gone

Triple = tuple[int, int, float]  # row, column, rank
Row = list[tuple[float, int]]  # the allowed cells of a row: -rank and column, best first


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


def greedy_plain(rows: Sequence[Sequence[float]]) -> list[Pair]:
    """Again and again the best cell of all, its row and column removed [LBO III.C]; pairs in the order of choice."""
    nobody: set[int] = set()
    heads = []
    for row, ranks in enumerate(rows):
        column = _best(ranks, nobody)
        if column >= 0:
            heads.append((-ranks[column], row, column))
    return _by_sorted_rows(heads, lambda row: _sorted_row(enumerate(rows[row])))


def greedy(ranks: ArrayLike) -> list[Pair]:
    """Again and again the best cell of all, its row and column removed; pairs in the order of choice."""
    table = _table(ranks)
    if 0 in table.shape:
        return []
    wide = table.shape[0] <= table.shape[1]
    # The heap holds one cell for each row, or for each column if those are fewer: what is left over costs nothing.
    return _by_heads(table) if wide else [(row, column) for column, row in _by_heads(table.T, turned=True)]


def greedy_sparse(rows: ArrayLike, columns: ArrayLike, ranks: ArrayLike) -> list[Pair]:
    """As `greedy`, from three columns of equal length: row, column and rank of each allowed cell."""
    r, c, v = _cells(rows, columns, ranks)
    order = np.lexsort((c, r, -v))
    r, c = r[order], c[order]
    free_row = np.ones(int(r.max(initial=-1)) + 1, dtype=bool)
    free_column = np.ones(int(c.max(initial=-1)) + 1, dtype=bool)
    pairs: list[Pair] = []
    for at in range(0, len(r), STRIDE):
        some_r, some_c = r[at : at + STRIDE], c[at : at + STRIDE]
        left = free_row[some_r] & free_column[some_c]
        for row, column in zip(some_r[left].tolist(), some_c[left].tolist(), strict=True):
            if free_row[row] and free_column[column]:
                free_row[row] = free_column[column] = False
                pairs.append((row, column))
    return pairs


def exact(ranks: ArrayLike) -> list[Pair]:
    """As many pairs as may be, with the largest total rank; in the order of rows."""
    # Not at the top: scipy takes long to load, and most servers never need it.
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    table = _table(ranks).astype(np.float64, copy=False)
    allowed = np.isfinite(table)
    if not allowed.any():
        return []
    few = min(table.shape)
    if allowed.all():
        worth = table
    else:
        # A forbidden cell costs more than all allowed ones can differ by together, so none is chosen where it can be
        # helped; and what was chosen of them is dropped. Scaled to 0..1 first: the sum keeps its last digits so.
        worth = np.where(allowed, _scaled(table, table[allowed]), -(few + 1.0))
    r, c = linear_sum_assignment(worth, maximize=True)
    kept = allowed[r, c]
    return list(zip(r[kept].tolist(), c[kept].tolist(), strict=True))


def exact_sparse(rows: ArrayLike, columns: ArrayLike, ranks: ArrayLike) -> list[Pair]:
    """As `exact`, from three columns of equal length: row, column and rank of each allowed cell."""
    from scipy.sparse import csr_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching  # type: ignore[import-untyped]

    r, c, v = _cells(rows, columns, ranks)
    if not len(r):
        return []
    order = np.lexsort((v, c, r))
    r, c, v = r[order], c[order], v[order]
    best = np.append((r[1:] != r[:-1]) | (c[1:] != c[:-1]), True)  # of a cell named twice: scipy would add them up
    row_names, r = np.unique(r[best], return_inverse=True)
    column_names, c = np.unique(c[best], return_inverse=True)
    if len(row_names) > len(column_names):
        r, c = c, r
    few, many = min(len(row_names), len(column_names)), max(len(row_names), len(column_names))
    # scipy refuses a table in which not every row finds a partner. So each row gets one of its own that nobody else
    # may have, dearer than all that the others can differ by together. Costs begin at 1: a zero would be no cell.
    own = np.arange(few)
    cost = np.concatenate((2.0 - _scaled(v[best], v[best]), np.full(few, few + 3.0)))
    table = csr_array(
        (cost, (np.concatenate((r, own)), np.concatenate((c, many + own)))), shape=(few, many + few), dtype=np.float64
    )
    r, c = min_weight_full_bipartite_matching(table)
    kept = c < many
    r, c = r[kept], c[kept]
    if len(row_names) > len(column_names):
        r, c = c, r
    return sorted(zip(row_names[r].tolist(), column_names[c].tolist(), strict=True))


def _by_sorted_rows(heads: list[tuple[float, int, int]], row_of: Callable[[int], Row]) -> list[Pair]:
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


def _by_heads(table: Floats, turned: bool = False) -> list[Pair]:
    """A heap of each row's best cell, of which the top is the best of all unless its column is gone: then the row's
    next best takes its place. In a `turned` table ties go to the lowest column before the lowest row."""
    free = np.ones(table.shape[1], dtype=bool)
    first = table.argmax(axis=1)
    if len(np.unique(first)) * CONTESTED < len(first):
        best = _best_of_columns(table)
        if 2 * len(np.unique(best)) > len(best):  # among equals every choice would change the best row of all others
            return _by_columns(table, best, turned)
    ranks = table[np.arange(len(table)), first].tolist()
    lines: dict[int, Iterator[tuple[float, int]]] = {}
    looks: dict[int, int] = {}
    heads = []
    for row, (rank, column) in enumerate(zip(ranks, first.tolist(), strict=True)):
        if not -np.inf < rank < np.inf:  # argmax takes NaN for the largest
            rank, column = _look(table[row], free)
        if column >= 0:
            heads.append((-rank, column, row) if turned else (-rank, row, column))
    heapify(heads)
    pairs: list[Pair] = []
    while heads:
        _, row, column = heads[0]
        if turned:
            row, column = column, row
        if free[column]:
            free[column] = False
            pairs.append((row, column))
            lines.pop(row, None)
            heappop(heads)
            continue
        looks[row] = looks.get(row, 0) + 1
        if looks[row] <= LOOKS:
            rank, column = _look(table[row], free)
        else:
            rank, column = next(lines.setdefault(row, _line(table[row], free)), (0.0, -1))
        if column >= 0:
            heapreplace(heads, (-rank, column, row) if turned else (-rank, row, column))
        else:
            heappop(heads)
    return pairs


def _best_of_columns(table: Floats) -> Floats:
    """The best rank of each column; -inf where there is none."""
    best: Floats = table.max(axis=0)
    for column in np.flatnonzero(np.isnan(best) | (best == np.inf)):  # some cells of it are forbidden
        best[column] = np.where(np.isfinite(table[:, column]), table[:, column], -np.inf).max()
    return best


def _by_columns(table: Floats, best: Floats, turned: bool) -> list[Pair]:
    """As `_by_heads` with a heap of each column's best cell: where all rows want the same columns, a row loses its best
    again and again, but a column rarely. Columns enter in order of their best cell, its row is looked for when it is on
    top, and only for those that come so far: nothing is known of the others but their best rank."""
    order = np.argsort(-best, kind="stable")[: int((best > -np.inf).sum())]
    bests = (-best[order]).tolist()
    wanted = order.tolist()
    copies: list[Floats] = []  # of some columns each, one after another: in the table a column is far apart
    free = np.ones(len(table), dtype=bool)
    heads: list[tuple[float, int, int, int]] = []  # -rank, row and column or the other way round, place in `order`
    pairs: list[Pair] = []
    entered = 0
    while len(pairs) < len(table):
        while entered < len(wanted) and (not heads or bests[entered] <= heads[0][0]):
            # No row yet, which sorts before any: it is looked for before others of the same rank are chosen.
            heappush(heads, (bests[entered], -1, -1, entered))
            entered += 1
        if not heads:
            break
        _, one, other, place = heads[0]
        row = other if turned else one
        if row >= 0 and free[row]:
            free[row] = False
            pairs.append((row, wanted[place]))
            heappop(heads)
            continue
        at, within = divmod(place, AT_ONCE)
        if at == len(copies):
            some = table[:, order[at * AT_ONCE : (at + 1) * AT_ONCE]]
            copies.append(np.ascontiguousarray(np.where(np.isfinite(some), some, -np.inf).T))
        left = np.where(free, copies[at][within], -np.inf)
        row = int(left.argmax())
        rank = float(left[row])
        if rank > -np.inf:
            column = wanted[place]
            heapreplace(heads, (-rank, column, row, place) if turned else (-rank, row, column, place))
        else:
            heappop(heads)
    return pairs


def _look(row: Floats, free: NDArray[np.bool_]) -> tuple[float, int]:
    """The best free cell of a row by looking through all of it: rank and column, which is -1 if there is none."""
    left = np.where(free & np.isfinite(row), row, -np.inf)
    column = int(left.argmax())
    rank = float(left[column])
    return rank, column if rank > -np.inf else -1


def _line(row: Floats, free: NDArray[np.bool_]) -> Iterator[tuple[float, int]]:
    """The free cells of a row, best first, sorted some at a time: a row that loses often must not be looked through
    each time."""
    count = TOP
    while True:
        columns = np.flatnonzero(free & np.isfinite(row))
        ranks = row[columns]
        if len(columns) > count:
            # All that are as good as the last of them, too: cutting between equals would lose the lowest column.
            least = np.partition(ranks, len(ranks) - count)[len(ranks) - count]
            kept = ranks >= least
            columns, ranks, whole = columns[kept], ranks[kept], bool(kept.all())
        else:
            whole = True
        order = np.argsort(-ranks, kind="stable")
        for rank, column in zip(ranks[order].tolist(), columns[order].tolist(), strict=True):
            if free[column]:
                yield rank, column
        if whole:
            return
        count *= 2


def _table(ranks: ArrayLike) -> Floats:
    table = np.asarray(ranks)
    if not np.issubdtype(table.dtype, np.floating):
        table = table.astype(np.float64)
    return table if table.ndim == 2 else table.reshape(len(table), 0)


def _cells(rows: ArrayLike, columns: ArrayLike, ranks: ArrayLike) -> tuple[Ints, Ints, Floats]:
    """The allowed cells."""
    r, c = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
    v = np.asarray(ranks, dtype=np.float64)
    allowed = np.isfinite(v)
    return r[allowed], c[allowed], v[allowed]


def _scaled(values: Floats, among: Floats) -> Floats:
    """Values moved so that the lowest among these is 0 and the highest 1."""
    low, high = float(among.min()), float(among.max())
    # Halves: the largest numbers there are would differ by more than that.
    return (values / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.zeros(values.shape)
