"""The assignment algorithms of the benchmark: small tables of which the answer is known, and larger ones against the
plain greedy."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench import assignment
from bench.assignment import (
    TOP,
    exact,
    exact_sparse,
    greedy,
    greedy_plain,
    greedy_sparse,
    one_by_one,
    one_by_one_sparse,
)

# The first row takes what the second needs more: the example of why one looks at all at once.
TABLE = [[5.0, 4.0, 1.0], [9.0, 1.0, 2.0]]


def test_one_by_one_serves_rows_in_their_turn() -> None:
    assert one_by_one(TABLE) == [(0, 0), (1, 2)]


def test_the_plain_greedy_takes_the_best_cell_of_all_first() -> None:
    assert greedy_plain(TABLE) == [(1, 0), (0, 1)]


def test_ties_go_to_the_lowest_row_then_the_lowest_column() -> None:
    assert greedy_plain([[1.0] * 3] * 3) == [(0, 0), (1, 1), (2, 2)]
    assert one_by_one([[1.0] * 3] * 3) == [(0, 0), (1, 1), (2, 2)]
    assert greedy_plain([[1.0, 2.0, 2.0], [0.0, 2.0, 3.0]]) == [(1, 2), (0, 1)]


def test_a_table_with_more_rows_than_columns_leaves_the_worst_rows_out() -> None:
    assert greedy_plain([[1.0], [3.0], [2.0]]) == [(1, 0)]
    assert one_by_one([[1.0], [3.0], [2.0]]) == [(0, 0)]


@pytest.mark.parametrize("assign", [greedy_plain, one_by_one])
def test_a_forbidden_cell_is_never_assigned(assign: object) -> None:
    assert callable(assign)
    assert assign([[-inf, -inf], [-inf, -3.0]]) == [(1, 1)]
    assert assign([[nan, 2.0], [nan, nan]]) == [(0, 1)]
    assert assign([[1.0, nan, inf], [inf, 2.0, nan]]) in ([(0, 0), (1, 1)], [(1, 1), (0, 0)])
    assert assign([]) == assign([[], []]) == []


def test_a_rank_below_zero_is_a_rank() -> None:
    assert greedy_plain([[-5.0, -1.0]]) == one_by_one([[-5.0, -1.0]]) == [(0, 1)]


def test_a_row_that_loses_its_columns_again_and_again_gets_what_is_left() -> None:
    rows = [[9.0, 8.0, 7.0, 6.0], [9.5, 8.5, 7.5, -inf], [9.9, 8.9, -inf, -inf], [9.7, 8.7, 7.7, -inf]]
    assert greedy_plain(rows) == [(2, 0), (3, 1), (1, 2), (0, 3)]


def test_triples_may_come_in_any_order_and_far_apart() -> None:
    cells = [(900, 7, 2.0), (3, 7, 4.0), (3, 1_000_000, 1.0), (3, 5, -inf), (900, 8, nan)]
    assert one_by_one_sparse(cells) == [(3, 7)]
    assert one_by_one_sparse([(0, 0, 1.0), (0, 1, 2.0), (0, 0, 3.0)]) == [(0, 0)]
    assert one_by_one_sparse([]) == []


def test_the_exact_one_finds_what_greedy_misses() -> None:
    table = [[9.0, 8.0], [8.0, 1.0]]
    assert greedy(table) == [(0, 0), (1, 1)]
    assert exact(table) == [(0, 1), (1, 0)]


def test_the_exact_one_assigns_as_many_as_may_be_before_it_looks_at_ranks() -> None:
    table = [[100.0, 1.0], [1.0, -inf]]
    assert exact(table) == [(0, 1), (1, 0)]
    assert exact_sparse([0, 0, 1], [0, 1, 0], [100.0, 1.0, 1.0]) == [(0, 1), (1, 0)]


def test_ranks_below_zero_are_assigned_too() -> None:
    assert exact([[-5.0, -7.0]]) == greedy([[-5.0, -7.0]]) == [(0, 0)]
    assert exact_sparse([0, 0], [0, 1], [-5.0, -7.0]) == [(0, 0)]


def test_adding_the_same_to_every_rank_changes_nothing() -> None:
    table = np.random.default_rng(1).random((20, 30))
    table[table < 0.5] = -inf
    assert exact(table) == exact(table + 1_000) == exact(table * 1e-9)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_an_empty_table_gives_nothing(shape: tuple[int, int]) -> None:
    assert greedy(np.zeros(shape)) == exact(np.zeros(shape)) == []


def test_nothing_allowed_gives_nothing() -> None:
    table = [[-inf, nan], [inf, -inf]]
    assert greedy(table) == exact(table) == []
    assert greedy_sparse([0, 1], [0, 0], [nan, -inf]) == exact_sparse([0, 1], [0, 0], [nan, -inf]) == []
    assert greedy_sparse([], [], []) == exact_sparse([], [], []) == []
    assert greedy([]) == []


def test_a_row_without_any_allowed_cell_stops_nobody() -> None:
    table = [[-inf, -inf, -inf], [1.0, 2.0, nan], [3.0, -inf, -inf]]
    assert greedy(table) == [(2, 0), (1, 1)]
    assert exact(table) == [(1, 1), (2, 0)]
    assert exact_sparse([1, 1, 2], [0, 1, 0], [1.0, 2.0, 3.0]) == [(1, 1), (2, 0)]


def test_the_largest_numbers_there_are_do_no_harm() -> None:
    table = [[1.7e308, -inf], [-1.7e308, 1.0]]
    assert exact(table) == [(0, 0), (1, 1)]
    assert exact_sparse([0, 1, 1], [0, 0, 1], [1.7e308, -1.7e308, 1.0]) == [(0, 0), (1, 1)]


def test_whole_numbers_and_short_floats_are_ranks() -> None:
    assert greedy(np.array([[1, 2], [3, 4]])) == [(1, 1), (0, 0)]
    assert exact(np.array([[1, 2], [3, 5]], dtype=np.float32)) == [(0, 0), (1, 1)]


def test_of_a_cell_named_twice_the_best_rank_counts() -> None:
    cells = ([0, 0, 0], [0, 1, 0], [1.0, 2.0, 1.5])
    assert greedy_sparse(*cells) == exact_sparse(*cells) == [(0, 1)]


def contested(rng: np.random.Generator, rows: int, columns: int) -> NDArray[Any]:
    """Everybody wants the same columns, in nearly the same order."""
    return np.asarray(rng.random(columns)[None, :] * 100 + rng.random((rows, columns)))


@pytest.mark.parametrize("shape", [(150, 400), (400, 150), (300, 300)])
@pytest.mark.parametrize("kind", ["uniform", "levels", "contested", "equal", "holes"])
def test_large_tables_give_the_same_pairs_as_the_plain_greedy(kind: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    table: NDArray[Any] = np.ones(shape)
    if kind == "uniform":
        table = rng.random(shape)
    elif kind == "levels":
        table = rng.integers(0, 4, shape).astype(float)
    elif kind == "contested":
        table = contested(rng, *shape)
    elif kind == "holes":
        table = np.where(rng.random(shape) < 0.95, rng.choice([-inf, nan, inf], shape), rng.random(shape))
    assert min(shape) > 2 * TOP, "so that the sorted part of a row is used up"
    expected = greedy_plain(table.tolist())
    assert greedy(table) == expected
    r, c = np.indices(shape)
    assert greedy_sparse(r.ravel(), c.ravel(), table.ravel()) == expected


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 40),
    columns=st.integers(1, 60),
    steps=st.sampled_from([0, 3, 50]),
    holes=st.sampled_from([0.0, 0.1, 0.9]),
)
@settings(max_examples=300, deadline=None)
def test_contested_tables_give_the_same_pairs_as_the_plain_greedy(
    seed: int, rows: int, columns: int, steps: int, holes: float
) -> None:
    rng = np.random.default_rng(seed)
    table = contested(rng, rows, columns)
    if steps:  # so many different ranks, and so equal ones
        table = np.floor(table * steps / 100)
    table = np.where(rng.random(table.shape) < holes, rng.choice([-inf, nan, inf], table.shape), table)
    assert greedy(table) == greedy(table.astype(np.float64)) == greedy_plain(table.tolist())
    assert [(row, column) for column, row in greedy(table.T)] == [
        (row, column) for column, row in greedy_plain(table.T.tolist())
    ]


def test_where_all_want_the_same_the_columns_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def by_columns(*given: Any) -> list[Any]:
        asked.append(given)
        return []

    monkeypatch.setattr(assignment, "_by_columns", by_columns)
    rng = np.random.default_rng(3)
    assert greedy(contested(rng, 100, 400)) == []
    assert asked, "that is the way measured as contested"
    assert len(greedy(rng.random((100, 400)))) == len(greedy(np.ones((100, 400)))) == 100
    assert len(asked) == 1
