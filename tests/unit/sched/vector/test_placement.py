"""The linear program over kinds of tasks and sites, and the heuristic that stands in for it [SPHINX S5]."""

from __future__ import annotations

import importlib.util
from random import Random

import pytest

from shoal.sched.placement.question import Kind, Limit, Place, Plan, Question, round_robin
from shoal.sched.vector.placement import (
    GREEDY,
    HIGHS,
    OBJECTIVE_FUNCTIONS,
    Objectives,
    balance,
    completion_time,
    plan,
    price,
    value_of,
)

BOTH = frozenset({"a", "b"})
HAS_SCIPY = importlib.util.find_spec("scipy") is not None  # it is an extra
SOLVERS = (HIGHS, GREEDY) if HAS_SCIPY else (GREEDY,)
needs_scipy = pytest.mark.skipif(not HAS_SCIPY, reason="scipy is not installed: the linear program was NOT tested")


def some_question(seed: int, kinds: int = 30, sites: int = 8) -> Question:
    rng = Random(seed)
    names = [f"s{at}" for at in range(sites)]
    places = [
        Place(
            name, rng.choice([4, 16, 64]), rng.uniform(0, 600), rng.choice([0, 64]), rng.uniform(60, 3600),
            rng.uniform(0.5, 2.0), rng.uniform(1e6, 1e8), 0.1, rng.uniform(0.0, 0.2), rng.uniform(0.5, 2.0),
        )
        for name in names
    ]  # fmt: skip
    some = [
        Kind(
            at, rng.randint(1, 500), rng.choice([1, 1, 4]), rng.lognormvariate(5.0, 1.0),
            {name: rng.choice([0.0, 1e8]) for name in names}, frozenset(rng.sample(names, rng.randint(2, sites))),
        )
        for at in range(kinds)
    ]  # fmt: skip
    return Question(some, places)


def totals(found: Plan) -> dict[int, float]:
    return {kind: sum(sites.values()) for kind, sites in found.directed.items()}


@pytest.mark.parametrize("solver", SOLVERS)
def test_sites_get_work_by_what_they_do_in_a_second(solver: str) -> None:
    places = [Place("a", 30), Place("b", 10)]
    found = plan(Question([Kind(1, 400, 1, 10.0, {}, BOTH)], places), solver=solver)
    assert found.directed[1] == pytest.approx({"a": 300.0, "b": 100.0}, abs=50.0 if solver == GREEDY else 1e-3)
    assert found.end == pytest.approx(100.0, rel=0.2 if solver == GREEDY else 1e-6) and found.how == solver


@pytest.mark.parametrize("solver", SOLVERS)
def test_tasks_go_where_their_data_are_while_that_ends_sooner(solver: str) -> None:
    places = [Place("a", 10, bandwidth=1e6), Place("b", 10, bandwidth=1e6)]
    reads = Kind(1, 100, 1, 10.0, {"a": 0.0, "b": 1e9}, BOTH)
    plain = Kind(2, 100, 1, 10.0, {}, BOTH)
    found = plan(Question([reads, plain], places), solver=solver)
    assert found.directed == {1: {"a": pytest.approx(100.0)}, 2: {"b": pytest.approx(100.0)}}


@pytest.mark.parametrize("solver", SOLVERS)
def test_cores_that_come_too_late_are_not_asked_for(solver: str) -> None:
    kind = Kind(1, 100, 1, 10.0, {}, BOTH)
    late = plan(Question([kind], [Place("a", 10), Place("b", 0, more=50, delay=500.0)]), solver=solver)
    assert late.wanted == {} and late.directed == {1: {"a": pytest.approx(100.0)}}
    soon = plan(Question([kind], [Place("a", 10), Place("b", 0, more=50, delay=20.0)]), solver=solver)
    assert soon.wanted["b"] > 20 and soon.end < 50.0


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_a_quota_leaves_no_place_for_waits(solver: str) -> None:
    kind, places = Kind(1, 100, 1, 10.0, {}, BOTH), [Place("a", 10), Place("b", 10)]
    hours = plan(Question([kind], places, [Limit((0,), (0, 1), core_seconds=400.0)]), solver=solver)
    assert totals(hours)[1] == pytest.approx(40.0, abs=13.0 if solver == GREEDY else 1e-3)
    none = plan(Question([kind], places, [Limit((0,), (1,), cores=0.0)]), solver=solver)
    assert none.directed == {1: {"a": pytest.approx(100.0)}}


@needs_scipy
def test_a_quota_of_cores_lets_the_work_take_longer() -> None:
    kind, places = Kind(1, 100, 1, 10.0, {}, BOTH), [Place("a", 10), Place("b", 10)]
    found = plan(Question([kind], places, [Limit((0,), (0,), cores=2.0)]), solver=HIGHS)
    assert found.directed[1]["a"] == pytest.approx(100.0 * 2 / 12, rel=1e-3)


@needs_scipy
def test_the_objective_is_exchangeable() -> None:
    kinds = [Kind(1, 100, 1, 10.0, {}, BOTH)]
    places = [Place("a", 30, price=3.0), Place("b", 10, price=1.0)]
    assert plan(Question(kinds, places), price).directed == {1: {"b": pytest.approx(100.0)}}
    late = [Place("a", 10, start=100.0), Place("b", 10)]
    assert plan(Question(kinds, late), balance).directed[1] == pytest.approx({"a": 50.0, "b": 50.0}, abs=0.1)
    assert plan(Question(kinds, late), completion_time).directed[1] == pytest.approx({"b": 100.0}, abs=0.1)


@needs_scipy
@pytest.mark.parametrize("objective", OBJECTIVE_FUNCTIONS.values(), ids=OBJECTIVE_FUNCTIONS)
def test_the_heuristic_is_near_the_program_and_both_beat_round_robin(objective: Objectives) -> None:
    for seed in range(6):
        question = some_question(seed)
        wanted = {kind.name: pytest.approx(kind.tasks, abs=1e-3) for kind in question.kinds}
        best, rough = plan(question, objective, HIGHS), plan(question, objective, GREEDY)
        assert totals(best) == wanted and totals(rough) == wanted
        least = value_of(question, objective, best)
        assert least <= value_of(question, objective, rough) * (1.0 + 1e-6) <= 1.15 * least * (1.0 + 1e-6)
        assert value_of(question, objective, rough) < value_of(question, objective, round_robin(question))
        assert all(set(sites) <= question.kinds[kind].sites for kind, sites in best.directed.items())


def test_without_a_question_there_is_no_plan() -> None:
    assert plan(Question([], [])).directed == {}
    nowhere = plan(Question([Kind(1, 5, 1, 1.0, {}, frozenset({"x"}))], [Place("a", 1), Place("b", 1)]))
    assert nowhere.directed == {}
