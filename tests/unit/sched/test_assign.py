"""Who gets which, by the standard library: small tables of which the answer is known."""

from __future__ import annotations

from math import inf, nan

import pytest

from shoal.sched.assign import greedy, greedy_sparse, one_by_one, one_by_one_sparse

# The first row takes what the second needs more: the example of why one looks at all at once.
TABLE = [[5.0, 4.0, 1.0], [9.0, 1.0, 2.0]]


def test_one_by_one_serves_rows_in_their_turn() -> None:
    assert one_by_one(TABLE) == [(0, 0), (1, 2)]


def test_greedy_takes_the_best_cell_of_all_first() -> None:
    assert greedy(TABLE) == [(1, 0), (0, 1)]


def test_ties_go_to_the_lowest_row_then_the_lowest_column() -> None:
    assert greedy([[1.0] * 3] * 3) == [(0, 0), (1, 1), (2, 2)]
    assert one_by_one([[1.0] * 3] * 3) == [(0, 0), (1, 1), (2, 2)]
    assert greedy([[1.0, 2.0, 2.0], [0.0, 2.0, 3.0]]) == [(1, 2), (0, 1)]


def test_a_table_with_more_rows_than_columns_leaves_the_worst_rows_out() -> None:
    assert greedy([[1.0], [3.0], [2.0]]) == [(1, 0)]
    assert one_by_one([[1.0], [3.0], [2.0]]) == [(0, 0)]


@pytest.mark.parametrize("assign", [greedy, one_by_one])
def test_a_forbidden_cell_is_never_assigned(assign: object) -> None:
    assert callable(assign)
    assert assign([[-inf, -inf], [-inf, -3.0]]) == [(1, 1)]
    assert assign([[nan, 2.0], [nan, nan]]) == [(0, 1)]
    assert assign([[1.0, nan, inf], [inf, 2.0, nan]]) in ([(0, 0), (1, 1)], [(1, 1), (0, 0)])
    assert assign([]) == assign([[], []]) == []


def test_a_rank_below_zero_is_a_rank() -> None:
    assert greedy([[-5.0, -1.0]]) == one_by_one([[-5.0, -1.0]]) == [(0, 1)]


def test_a_row_that_loses_its_columns_again_and_again_gets_what_is_left() -> None:
    rows = [[9.0, 8.0, 7.0, 6.0], [9.5, 8.5, 7.5, -inf], [9.9, 8.9, -inf, -inf], [9.7, 8.7, 7.7, -inf]]
    assert greedy(rows) == [(2, 0), (3, 1), (1, 2), (0, 3)]


def test_triples_may_come_in_any_order_and_far_apart() -> None:
    cells = [(900, 7, 2.0), (3, 7, 4.0), (3, 1_000_000, 1.0), (3, 5, -inf), (900, 8, nan)]
    assert greedy_sparse(cells) == [(3, 7)]
    assert one_by_one_sparse(cells) == [(3, 7)]
    assert greedy_sparse([*cells, (900, 1_000_000, 0.5)]) == [(3, 7), (900, 1_000_000)]
    assert greedy_sparse([]) == one_by_one_sparse([]) == []


def test_of_a_cell_named_twice_the_best_rank_counts() -> None:
    assert greedy_sparse([(0, 0, 1.0), (0, 1, 2.0), (0, 0, 3.0)]) == [(0, 0)]
    assert one_by_one_sparse([(0, 0, 1.0), (0, 1, 2.0), (0, 0, 3.0)]) == [(0, 0)]
