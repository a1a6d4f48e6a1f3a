"""Assignments: one for each row and column, every way of computing the same thing agrees, exact is exact [LBO D8]."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from math import inf, isfinite
from statistics import mean
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench import assignment
from shoal.sched import linear_assignment as product
from shoal.sched.linear_assignment import Cell, Pair, assign

Table = list[list[float]]


@st.composite
def tables(draw: st.DrawFn, most: int = 8) -> Table:
    """Rectangles with ties, forbidden cells and ranks below zero."""
    rows, columns = draw(st.integers(0, most)), draw(st.integers(0, most))
    rank = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6), st.just(-inf), st.just(-inf))
    return [[draw(rank) for _ in range(columns)] for _ in range(rows)]


def cells(table: Table) -> list[tuple[int, int, float]]:
    """The table as triples, forbidden cells left out, last ones first."""
    return [(r, c, v) for r, row in enumerate(table) for c, v in enumerate(row) if isfinite(v)][::-1]


def columns_of(table: Table) -> tuple[list[int], list[int], list[float]]:
    """The triples as three columns."""
    found = cells(table)
    return [r for r, _, _ in found], [c for _, c, _ in found], [v for _, _, v in found]


def total(table: Table, pairs: list[Pair]) -> float:
    """The sum of ranks."""
    return sum(table[r][c] for r, c in pairs)


def every_way(table: Table) -> dict[str, list[Pair]]:
    """All that we have."""
    return {
        "one by one": assignment.one_by_one(table),
        "one by one, sparse": assignment.one_by_one_sparse(cells(table)),
        "greedy": product.greedy([Cell(0.0, v, (), r, c) for r, c, v in cells(table)]),
        "greedy, plain": assignment.greedy_plain(table),
        "greedy, numpy": assignment.greedy(np.array(table)),
        "greedy, numpy, sparse": assignment.greedy_sparse(*columns_of(table)),
        "exact": product.exact(table),
        "exact, scipy": assignment.exact(np.array(table)),
        "exact, scipy, sparse": assignment.exact_sparse(*columns_of(table)),
    }


def naive_greedy(table: Table) -> list[Pair]:
    """The four steps of the paper, word for word."""
    left = {(r, c): v for r, c, v in cells(table)}
    pairs = []
    while left:
        best = min(left, key=lambda cell: (-left[cell], cell))
        pairs.append(best)
        left = {cell: v for cell, v in left.items() if cell[0] != best[0] and cell[1] != best[1]}
    return pairs


def brute_force(table: Table) -> tuple[int, float]:
    """The most pairs, and the largest total with so many, of all assignments there are."""
    if len(table) > (len(table[0]) if table else 0):
        table = [list(column) for column in zip(*table, strict=True)]
    best = (0, 0.0)
    for chosen in permutations(range(len(table[0]) if table else 0), len(table)):
        ranks = [table[r][c] for r, c in enumerate(chosen) if isfinite(table[r][c])]
        best = max(best, (len(ranks), sum(ranks)))
    return best


@given(tables())
def test_every_assignment_has_one_for_each_row_and_column_and_no_forbidden_cell(table: Table) -> None:
    for way, pairs in every_way(table).items():
        assert len({r for r, _ in pairs}) == len({c for _, c in pairs}) == len(pairs), way
        assert all(isfinite(table[r][c]) for r, c in pairs), way


@given(tables())
def test_no_row_is_left_without_while_a_column_it_may_have_is_free(table: Table) -> None:
    for way, pairs in every_way(table).items():
        rows, columns = {r for r, _ in pairs}, {c for _, c in pairs}
        assert not [1 for r, c, _ in cells(table) if r not in rows and c not in columns], way


@given(tables())
def test_every_greedy_gives_the_pairs_of_the_paper_in_its_order(table: Table) -> None:
    expected = naive_greedy(table)
    for way, pairs in every_way(table).items():
        if way.startswith("greedy"):
            assert pairs == expected, way


@given(tables())
def test_sparse_and_dense_agree(table: Table) -> None:
    ways = every_way(table)
    assert ways["one by one"] == ways["one by one, sparse"]
    one = ways["exact"]
    for way in ("exact, scipy", "exact, scipy, sparse"):
        assert len(one) == len(ways[way])
        assert abs(total(table, one) - total(table, ways[way])) <= 1e-6 * (1 + abs(total(table, one)))


@given(tables(most=5))
def test_exact_is_what_brute_force_finds(table: Table) -> None:
    count, most = brute_force(table)
    for pairs in (pairs for way, pairs in every_way(table).items() if way.startswith("exact")):
        assert len(pairs) == count
        assert abs(total(table, pairs) - most) <= 1e-6 * (1 + abs(most))


@given(tables())
def test_exact_is_never_below_greedy_in_number_and_then_in_total(table: Table) -> None:
    ways = every_way(table)
    exact = ways["exact"]
    for pairs in (ways["greedy"], ways["one by one"]):
        assert len(exact) >= len(pairs)
        if len(exact) == len(pairs):
            assert total(table, exact) >= total(table, pairs) - 1e-6 * (1 + abs(total(table, exact)))


def test_on_average_exact_beats_greedy_and_greedy_beats_one_by_one() -> None:
    def locality(rng: np.random.Generator) -> Table:
        """Megabytes of its inputs that each task has on each pilot: mostly none."""
        table: Table = rng.choice([0.0, 100.0, 200.0, 500.0], (40, 60), p=[0.9, 0.05, 0.03, 0.02]).tolist()
        return table

    def uniform(rng: np.random.Generator) -> Table:
        table: Table = rng.random((40, 60)).tolist()
        return table

    for kind in (uniform, locality):
        sums: dict[str, list[float]] = {"one by one": [], "greedy": [], "exact": []}
        for seed in range(30):
            table = kind(np.random.default_rng(seed))
            for way, pairs in every_way(table).items():
                if way in sums:
                    sums[way].append(total(table, pairs))
        assert mean(sums["exact"]) > mean(sums["greedy"]) > mean(sums["one by one"]), kind.__name__


# --- rounds: levels, classes of several tasks, pilots with several slots
@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[Cell], dict[int, int], dict[int, int]]:
    """A few pilots and classes, some of which may not meet."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    levels = [draw(st.sampled_from([0.0, 1.0])) for _ in range(columns)]
    rank = st.one_of(st.integers(-3, 9).map(float), st.just(-inf))
    cells = [
        Cell(levels[c], draw(rank), (float(c),), r, c)
        for r in range(rows)
        for c in range(columns)
        if draw(st.booleans())
    ]
    slots = {r: draw(st.integers(1, 3)) for r in range(rows)}
    return cells, slots, {c: draw(st.integers(1, 3)) for c in range(columns)}


@given(rounds())
def test_a_round_keeps_to_what_is_free_and_ready_and_is_never_below_greedy(
    drawn: tuple[list[Cell], dict[int, int], dict[int, int]],
) -> None:
    cells, slots, tasks = drawn
    found = assign(cells, slots, tasks)
    allowed = {(cell.row, cell.column): cell for cell in cells}
    assert found.how == "exact" and all(pair in allowed for pair in found.pairs)
    assert all(count <= slots[row] for row, count in Counter(row for row, _ in found.pairs).items())
    assert all(count <= tasks[column] for column, count in Counter(column for _, column in found.pairs).items())
    once = assign(cells, {}, {})
    assert len({r for r, _ in once.pairs}) == len({c for _, c in once.pairs}) == len(once.pairs)
    with patch.object(product, "EXACT_CELLS", 0):
        greedy = assign(cells, {}, {})
    assert len({cell.column for cell in cells}) <= 1 or greedy.how == "greedy"  # for one class both are the same

    def worth(pairs: list[Pair], level: float) -> tuple[int, int, float]:
        """How many of one level, how many of them with a rank, and their total."""
        mine = [allowed[pair].rank for pair in pairs if allowed[pair].level == level]
        return len(mine), sum(map(isfinite, mine)), sum(filter(isfinite, mine))

    first = min((cell.level for cell in cells), default=0.0)
    assert worth(once.pairs, first) >= worth(greedy.pairs, first)
