"""[LBO] Delgado Peris, Hernández, Huedo: pilots of one site that schedule among themselves; see docs/papers.md.

Each test names the section, a few words of the sentence, and runs what Shoal has of it today.
"""

from __future__ import annotations

from random import Random

import numpy as np

from bench.assignment import one_by_one
from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import holds, rank_of
from shoal.sched.leader.bids import Answer, Bid, Listed, assign_bids, best_bids
from shoal.sched.linear_assignment import Cell, exact
from shoal.sched.linear_assignment import greedy as greedy_cells
from shoal.sched.vector.expr import Batch, Table
from tests.unit.engine.stand import Stand, good


def _total(table: list[list[float]], pairs: list[tuple[int, int]]) -> float:
    return sum(table[row][column] for row, column in pairs)


def greedy(table: list[list[float]]) -> list[tuple[int, int]]:
    return greedy_cells(
        [Cell(0.0, rank, (), row, column) for row, ranks in enumerate(table) for column, rank in enumerate(ranks)]
    )


def _tables(count: int) -> list[list[list[float]]]:
    rng = Random(8)
    return [[[rng.randint(0, 99) + rng.random() for _ in range(6)] for _ in range(6)] for _ in range(count)]


def test_the_four_steps_of_the_papers_assignment() -> None:
    """III.C, "Look for the maximum value of the matrix": take it, strike out its row and column, until none is left."""
    for table in _tables(50):
        left, expected = {(r, c): table[r][c] for r in range(6) for c in range(6)}, []
        while left:
            best = max(left, key=lambda cell: left[cell])
            expected.append(best)
            left = {cell: value for cell, value in left.items() if cell[0] != best[0] and cell[1] != best[1]}
        assert sorted(greedy(table)) == sorted(expected)


def test_all_at_once_is_better_than_one_pilot_at_a_time_and_the_exact_answer_better_still() -> None:
    """III.C, "will in general be better than those got with the centralized one". The paper takes the exact problem for
    NP-complete; it is the linear assignment problem, and we solve it."""
    tables = _tables(200)
    single, together, best = (sum(_total(t, assign(t)) for t in tables) for assign in (one_by_one, greedy, exact))
    assert single < together < best
    assert all(_total(t, exact(t)) >= _total(t, greedy(t)) - 1e-9 for t in tables)


def test_workers_rank_and_the_master_assigns_as_from_the_whole_matrix() -> None:
    """III.B, "The workers filter and rank the tasks and send the results back to the master, which then assigns a task to each
    pilot". As many bids of each as there are pilots say as much as all of its ranks."""
    for table in _tables(50):
        wide = [ranks + [rank / 2 for rank in ranks] for ranks in table]
        listed = [Listed() for _ in wide[0]]
        answers = {
            str(row): Answer(1, best_bids((Bid(at, rank) for at, rank in enumerate(ranks)), listed, len(wide), row))
            for row, ranks in enumerate(wide)
        }
        given = assign_bids(listed, answers, is_exact=False)
        assert sorted((int(one.pilot), one.column) for one in given) == sorted(greedy(wide))
        best = sum(wide[int(one.pilot)][one.column] for one in assign_bids(listed, answers))
        assert abs(best - _total(wide, exact(wide))) < 1e-9


def test_a_pilot_and_the_queue_rank_tasks_alike() -> None:
    """III.C, "with exactly the same results": what pilots evaluate one by one and the server for all at once."""
    texts = ["cores >= 4 and site == 'north'", "not has(gpu)", "memory_mb > 1000 or cores * 2 > 7"]
    ranks = ["memory_mb / cores", "cores", "0 - memory_mb"]
    pilots = [
        {"cores": 4, "site": "north", "memory_mb": 500},
        {"cores": 8, "site": "south", "memory_mb": 4000, "gpu": "a100"},
        {"cores": 1, "site": "north"},
    ]
    fit, value = Batch([parse(t) for t in texts], [parse(r) for r in ranks], [{}] * 3).match(Table(pilots))
    for task in range(3):
        for at, tags in enumerate(pilots):
            assert bool(fit[task, at]) == holds(parse(texts[task]), tags, {})
            assert np.isclose(value[task, at], rank_of(parse(ranks[task]), tags, {}), equal_nan=True)


def test_a_round_searches_the_best_global_result() -> None:
    """III.C, "performs a collective assignment, searching the best global result", here in the engine: 9 + 9 instead of
    10 + 0, which one pilot after the other would get."""
    stand = Stand()
    one, two = (stand.pilot(1, host=h, tags=t) for h, t in (("p", {"a": 10, "b": 9}), ("q", {"a": 9, "b": 0})))
    for pilot in (one, two):
        pilot.wait()
    stand.submit({"command": ["a"], "rank": "a"}, {"command": ["b"], "rank": "b"})
    assert [[lease.command[0] for lease in pilot.took()] for pilot in (one, two)] == [["b"], ["a"]]


def test_a_pilot_registers_first_and_gets_an_identifier() -> None:
    """III.A, "it first contacts the TQ to register itself"; the queue names it, and no two have one name."""
    stand = Stand()
    names = {stand.pilot(host="one machine").name for _ in range(20)}
    assert len(names) == 20
    stand.submit({})
    pilot = stand.pilot(host="another")
    attempt = pilot.work()
    pilot.talk(good(attempt))
    assert [event.pilot for event in stand.events("task_finished")] == [pilot.name]
