"""Partial results: however values are split, ordered and merged, the answer is that of all of them at once; and the engine's
answer is that of the tasks that succeeded, whatever happened to their attempts [ADR 0053]."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.engine.changes import PartialRow
from shoal.engine.tasks.partial import restored
from shoal.model.ids import parse_attempt
from shoal.sched.partial.contribution import Contribution, read
from shoal.sched.partial.exact_sum import ExactSum, add, divided, sums_of
from shoal.sched.partial.reducers import reducer_of
from shoal.wire.messages import Emitted
from tests.unit.engine.stand import FakePilot, Stand, bad, good

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PARTS = st.lists(st.tuples(st.integers(1, 50), st.lists(FLOATS, max_size=5)), min_size=1, max_size=8)
LEAVES = st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=9)
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
)
REDUCERS = ["mean", "sum", "count", "min", "max", "hist(-10,10,7)", "best(3)", "best(2,min)", "append(4)"]


def exact(total: ExactSum) -> Fraction:
    return Fraction(total.mantissa) * Fraction(2) ** total.exponent


@given(st.lists(FLOATS, max_size=30))
def test_a_sum_and_that_of_squares_are_not_rounded(values: list[float]) -> None:
    total, squares = sums_of(values)
    assert exact(total) == sum((Fraction(value) for value in values), Fraction())
    assert exact(squares) == sum((Fraction(value) ** 2 for value in values), Fraction())
    assert total.is_sound and squares.is_sound


@given(FLOATS, FLOATS, FLOATS)
def test_adding_is_associative_and_commutative_to_the_bit(a: float, b: float, c: float) -> None:
    x, y, z = (sums_of([value])[0] for value in (a, b, c))
    assert add(add(x, y), z) == add(x, add(y, z)) == add(add(z, y), x)


@given(st.lists(FLOATS, min_size=1, max_size=30))
def test_a_mean_is_the_nearest_float(values: list[float]) -> None:
    true = sum((Fraction(value) for value in values), Fraction()) / len(values)
    assert divided(sums_of(values)[0], len(values)) == float(true)


@pytest.mark.parametrize("text", REDUCERS)
@given(parts=PARTS, seed=st.integers(0, 1_000))
def test_the_answer_does_not_depend_on_how_values_are_split_and_merged(
    text: str, parts: list[tuple[int, list[float]]], seed: int
) -> None:
    reducer, rng = reducer_of(text), random.Random(seed)
    parts = [(at, values) for at, (_, values) in enumerate(parts)]  # a task is one part
    states = []
    for element, values in parts:
        state = reducer.new()
        reducer.take(state, values, element)
        assert reducer.is_sound(json.loads(json.dumps(state)))
        states.append(state)
    together = reducer.new()
    for state in states:
        together = reducer.merge(together, state)
    pool = list(states)
    while len(pool) > 1:  # any tree, in any order
        one, other = pool.pop(rng.randrange(len(pool))), pool.pop(rng.randrange(len(pool)))
        pool.append(reducer.merge(one, other))
    assert pool[0] == together == reducer.merge(reducer.new(), pool[0])


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_the_standard_error_is_that_of_the_textbook(values: list[float]) -> None:
    reducer = reducer_of("mean")
    state = reducer.new()
    reducer.take(state, values, 1)
    whole = [Fraction(value) for value in values]
    mean = sum(whole) / len(whole)
    squared = sum((value - mean) ** 2 for value in whole) / (len(whole) - 1) / len(whole)
    assert reducer.answer(state)["error"] == pytest.approx(math.sqrt(squared), rel=1e-12)


@given(DOCUMENTS)
def test_what_any_pilot_sends_is_read_or_left_out(document: Any) -> None:
    for text in (json.dumps(document), json.dumps({"x": document}), json.dumps({"x": {"mean": document}})):
        merged = Contribution()
        merged.merge(read(text))
        assert read(merged.text()).states == merged.states
        json.dumps(list(merged.answers()), allow_nan=False)


# --- the engine
REDUCE = {"x": "mean", "b": "best(3)"}


class History:
    """Tasks whose attempts fail, are lost, come back late, and run twice; and what each attempt emitted so far."""

    def __init__(self, seed: int) -> None:
        self.rng, self.stand = random.Random(seed), Stand()
        self.run = self.stand.submit({"array": "1-12", "retries": 2}, reduce=REDUCE)
        self.pilots = [self.stand.pilot(cores=2, host=f"h{at}") for at in range(3)]
        self.stand.commit()
        self.emitted: dict[str, list[float]] = {}
        self.lost: list[tuple[int, str]] = []  # attempts of pilots that the server gave up, and which pilot
        self.true: dict[int, list[float]] = {}  # of the tasks that succeeded

    def text(self, attempt: str) -> str:
        element, values = parse_attempt(attempt).element, self.emitted.get(attempt, [])
        made = Contribution()
        made.add([("x", value) for value in values] + [("b", value) for value in values], element, REDUCE)
        return made.text()

    def step(self) -> None:
        pilot = self.rng.choice(self.pilots)
        held = list(pilot.held)
        what = self.rng.random()
        if what < 0.45 and held:
            attempt = self.rng.choice(held)
            self.emitted.setdefault(attempt, []).append(self.rng.gauss(5, 1))
            if self.rng.random() < 0.7:
                pilot.talk(emitted=[Emitted(attempt, self.text(attempt))])
        elif what < 0.60 and held:
            self.end(pilot, self.rng.choice(held))
        elif what < 0.67 and held:
            pilot.talk(replace(bad(self.rng.choice(held)), emitted=""))
        elif what < 0.72:
            self.lose(pilot)
        elif what < 0.77 and self.lost:
            at, attempt = self.lost.pop(self.rng.randrange(len(self.lost)))
            self.end(self.pilots[at], attempt)
        elif what < 0.82:
            self.stand.restart() if self.rng.random() < 0.5 else self.stand.crash()
            for one in self.pilots:
                one.talk()
        else:
            for lease in pilot.pull():
                pilot.run(lease.attempt)
        self.stand.pass_time(0.3)

    def end(self, pilot: FakePilot, attempt: str) -> None:
        """A success, said twice, and counted if the server says so the first time."""
        report = replace(good(attempt), emitted=self.text(attempt))
        reply = pilot.talk(report)
        self.stand.commit()
        if any(v.attempt == attempt and v.verdict in ("recorded", "adopted") for v in reply.verdicts):
            self.true[parse_attempt(attempt).element] = list(self.emitted.get(attempt, []))
        pilot.talk(report)

    def lose(self, pilot: FakePilot) -> None:
        """The server gives a pilot up; another one takes its place, which may bring its results."""
        self.stand.bury(pilot)
        heir = self.stand.pilot(cores=2, host=f"h{self.rng.randrange(9)}", former=pilot)
        self.stand.commit()
        at = self.pilots.index(pilot)
        self.pilots[at] = heir
        for attempt in list(heir.held):
            if self.rng.random() < 0.7:
                del heir.held[attempt]
                self.lost.append((at, attempt))

    def check(self) -> None:
        run = self.stand.engine.state.runs.get(self.run)  # a finished one leaves memory after a while
        found = run.partial if run is not None else restored(self.row())
        true = Contribution()
        for element, values in self.true.items():
            one = Contribution()
            one.add([("x", value) for value in values] + [("b", value) for value in values], element, REDUCE)
            true.merge(one)
        assert found is not None and found.merged.states == true.states
        assert found.tasks == sum(bool(values) for values in self.true.values())
        live = {attempt for pilot in self.stand.engine.state.pilots.values() for attempt in pilot.live}
        chunks = [chunk for pilot in self.stand.engine.state.pilots.values() for chunk in pilot.chunks.values()]
        live |= {chunk.attempt(element) for chunk in chunks for element in chunk.left}
        assert set(found.live) <= live, "nothing is kept of an attempt that is over"
        assert read(self.row().merged).states == true.states, "and it is durable"

    def row(self) -> PartialRow:
        self.stand.commit()
        row = self.stand.reader.partial_row(self.run)
        assert row is not None
        return row


@given(st.integers(0, 10**6))
def test_each_task_counts_once_whatever_becomes_of_its_attempts(seed: int) -> None:
    history = History(seed)
    for _ in range(60):
        history.step()
        history.check()
