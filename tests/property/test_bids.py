"""A leader's round: nobody gets more than they have or bid for, and bids are enough for the best assignment."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shoal.sched.leader.bids import Answer, Bid, Listed, assign_bids, best_bids
from shoal.sched.linear_assignment import Cell, exact, greedy

RANK = st.integers(-3, 3).map(float)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[Listed], dict[str, Answer]]:
    listed = draw(st.lists(st.builds(Listed, st.integers(1, 3), st.sampled_from([0.0, 1.0])), max_size=6))
    columns = st.sets(st.integers(0, len(listed) - 1)) if listed else st.just(set())
    answers = {}
    for row in range(draw(st.integers(0, 5))):
        bids = tuple(Bid(column, draw(RANK)) for column in sorted(draw(columns)))
        answers[f"p{row}"] = Answer(draw(st.integers(0, 3)), bids)
    return listed, answers


@given(rounds(), st.booleans())
def test_nobody_gets_more_than_their_slots_or_what_they_did_not_bid_for(
    drawn: tuple[list[Listed], dict[str, Answer]], is_exact: bool
) -> None:
    listed, answers = drawn
    given = assign_bids(listed, answers, is_exact)
    for pilot, count in Counter(one.pilot for one in given).items():
        assert count <= answers[pilot].slots
    for column, count in Counter(one.column for one in given).items():
        assert count <= listed[column].tasks
    for one in given:
        assert one.column in {bid.column for bid in answers[one.pilot].bids}


@given(rounds(), st.booleans())
def test_no_free_slot_is_left_beside_a_task_that_it_bade_for(
    drawn: tuple[list[Listed], dict[str, Answer]], is_exact: bool
) -> None:
    listed, answers = drawn
    given = assign_bids(listed, answers, is_exact)
    used, gone = Counter(one.pilot for one in given), Counter(one.column for one in given)
    for pilot, answer in answers.items():
        for bid in answer.bids:
            assert used[pilot] == answer.slots or gone[bid.column] == listed[bid.column].tasks


@given(st.lists(st.lists(RANK, min_size=7, max_size=7), min_size=1, max_size=4))
def test_as_many_bids_as_pilots_are_enough_for_the_best_assignment(ranks: list[list[float]]) -> None:
    """Where each of some pilots with a slot names as many tasks as there are pilots, no better one is missed."""
    listed = [Listed() for _ in ranks[0]]
    answers = {
        f"p{row}": Answer(1, best_bids((Bid(c, r) for c, r in enumerate(row_ranks)), listed, len(ranks), row))
        for row, row_ranks in enumerate(ranks)
    }
    given = assign_bids(listed, answers)
    best = sum(ranks[row][column] for row, column in exact(ranks))
    assert len(given) == len(ranks)
    assert abs(sum(ranks[int(one.pilot[1:])][one.column] for one in given) - best) < 1e-6


@given(rounds())
def test_not_exact_is_the_greedy_of_the_paper(drawn: tuple[list[Listed], dict[str, Answer]]) -> None:
    listed, answers = drawn
    pilots = sorted(answers)
    cells = [
        Cell(listed[bid.column].level, bid.rank, (float(bid.column),), row, bid.column)
        for row, pilot in enumerate(pilots)
        for bid in answers[pilot].bids
    ]
    slots = {row: answers[pilot].slots for row, pilot in enumerate(pilots)}
    expected = greedy(cells, slots, {at: one.tasks for at, one in enumerate(listed)})
    assert [(one.pilot, one.column) for one in assign_bids(listed, answers, is_exact=False)] == [
        (pilots[row], column) for row, column in expected
    ]


@given(rounds(), st.integers(0, 4), st.integers(0, 20))
def test_bids_are_the_best_by_level_and_rank(
    drawn: tuple[list[Listed], dict[str, Answer]], most: int, turn: int
) -> None:
    listed, answers = drawn
    for answer in answers.values():
        bids = best_bids(answer.bids, listed, most, turn)
        assert len(bids) == min(most, len(answer.bids)) and set(bids) <= set(answer.bids)
        worth = [(listed[bid.column].level, -bid.rank) for bid in bids]
        assert worth == sorted((listed[bid.column].level, -bid.rank) for bid in answer.bids)[: len(bids)]


@given(st.integers(1, 30), st.integers(1, 4))
def test_pilots_bid_for_different_tasks_where_all_are_as_good(pilots: int, most: int) -> None:
    listed = [Listed() for _ in range(pilots)]
    fits = [Bid(column, 0.0) for column in range(pilots)]
    answers = {f"p{turn:02}": Answer(1, best_bids(fits, listed, most, turn)) for turn in range(pilots)}
    assert len({answer.bids[0].column for answer in answers.values()}) == pilots
    if most == 1:
        assert len(assign_bids(listed, answers)) == pilots
