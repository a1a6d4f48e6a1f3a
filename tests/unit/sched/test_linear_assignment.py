"""Assignment of tasks to pilots: small tables of which the answer is known."""

from __future__ import annotations

from math import inf, nan

from shoal.sched.linear_assignment import EXACT, GREEDY, Cell, Pair, assign, exact, greedy

# The first row takes what the second needs more: the example of why one looks at all at once.
TABLE = [[5.0, 4.0, 1.0], [9.0, 1.0, 2.0]]


def greedy_of(table: list[list[float]]) -> list[Pair]:
    """The greedy assignment of a table; -inf stands for a cell that may not be assigned."""
    cells = [Cell(0.0, v, (), r, c) for r, row in enumerate(table) for c, v in enumerate(row) if v > -inf]
    return greedy(cells)


def test_greedy_takes_the_best_cell_of_all_first() -> None:
    assert greedy_of(TABLE) == [(1, 0), (0, 1)]


def test_ties_go_to_the_lowest_row_then_the_lowest_column() -> None:
    assert greedy_of([[1.0] * 3] * 3) == [(0, 0), (1, 1), (2, 2)]
    assert greedy_of([[1.0, 2.0, 2.0], [0.0, 2.0, 3.0]]) == [(1, 2), (0, 1)]


def test_a_table_with_more_rows_than_columns_leaves_the_worst_rows_out() -> None:
    assert greedy_of([[1.0], [3.0], [2.0]]) == [(1, 0)]


def test_a_rank_below_zero_is_a_rank() -> None:
    assert greedy_of([[-5.0, -1.0]]) == exact([[-5.0, -1.0]]) == [(0, 1)]


def test_a_row_that_loses_its_columns_again_and_again_gets_what_is_left() -> None:
    rows = [[9.0, 8.0, 7.0, 6.0], [9.5, 8.5, 7.5, -inf], [9.9, 8.9, -inf, -inf], [9.7, 8.7, 7.7, -inf]]
    assert greedy_of(rows) == [(2, 0), (3, 1), (1, 2), (0, 3)]


def test_cells_may_come_in_any_order_and_far_apart() -> None:
    cells = [
        Cell(0.0, rank, (), row, column) for row, column, rank in [(900, 7, 2.0), (3, 7, 4.0), (3, 1_000_000, 1.0)]
    ]
    assert greedy(cells) == [(3, 7)]
    assert greedy([*cells, Cell(0.0, 0.5, (), 900, 1_000_000)]) == [(3, 7), (900, 1_000_000)]
    assert greedy([]) == []


def test_of_a_cell_named_twice_the_best_rank_counts() -> None:
    assert greedy([Cell(0.0, rank, (), 0, column) for column, rank in [(0, 1.0), (1, 2.0), (0, 3.0)]]) == [(0, 0)]


def test_a_level_comes_before_a_rank_and_a_cell_without_a_rank_comes_last() -> None:
    cells = [Cell(1.0, 9.0, (), 0, 0), Cell(0.0, 1.0, (), 0, 1), Cell(0.0, -inf, (), 1, 1), Cell(0.0, -inf, (), 1, 2)]
    assert greedy(cells) == [(0, 1), (1, 2)]


def test_the_exact_one_never_assigns_a_forbidden_cell() -> None:
    assert exact([[-inf, -inf], [-inf, -3.0]]) == [(1, 1)]
    assert exact([[nan, 2.0], [nan, nan]]) == [(0, 1)]
    assert exact([[1.0, nan, inf], [inf, 2.0, nan]]) == [(0, 0), (1, 1)]
    assert exact([]) == exact([[], []]) == []


def test_greedy_fills_slots_with_tasks_of_the_best_cell_before_the_next() -> None:
    cells = [
        Cell(0.0, rank, (), row, column) for row, column, rank in [(0, 0, 9.0), (0, 1, 8.0), (1, 0, 7.0), (1, 1, 1.0)]
    ]
    assert greedy(cells, {0: 3, 1: 2}, {0: 2, 1: 9}) == [(0, 0), (0, 0), (0, 1), (1, 1), (1, 1)]


def test_of_one_class_any_number_of_tasks_goes_to_the_best_of_any_number_of_pilots_at_once() -> None:
    cells = [Cell(0.0, float(row % 500), (), row, 0) for row in range(1_000)]
    pairs, how = assign(cells, {}, {0: 600})
    assert how == EXACT and len(pairs) == 600
    assert sorted(row % 500 for row, _ in pairs) == sorted([*range(200, 500)] * 2)


def test_a_round_that_would_have_to_be_repeated_for_ever_is_greedy_and_whole() -> None:
    cells = [Cell(0.0, float(row + column), (), row, column) for row in range(900) for column in range(4)]
    pairs, how = assign(cells, {}, dict.fromkeys(range(4), 300))
    assert how == GREEDY and len(pairs) == 900
