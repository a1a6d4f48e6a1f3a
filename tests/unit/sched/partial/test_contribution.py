"""What tasks write, and how it becomes contributions: what is a value, what is left out, and what fits where."""

from __future__ import annotations

import json

import pytest

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_CONTRIBUTION, MAX_EMITTED_NAMES
from shoal.sched.partial.answers import describe
from shoal.sched.partial.contribution import Contribution, read, values_of
from shoal.sched.partial.reducers import reducer_of


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (b"x=1", [("x", 1.0)]), (b" E.total = -2.5e3 ", [("E.total", -2500.0)]), (b"ok=true", [("ok", 1.0)]),
        (b"note=a = b", [("note", "a = b")]), (b"n=1_000", [("n", "1_000")]),
        (b'{"x": 1, "y": [2, 3.5], "t": "hi", "b": false}',
         [("x", 1.0), ("y", 2.0), ("y", 3.5), ("t", "hi"), ("b", 0.0)]),
    ],
)  # fmt: skip
def test_a_line_is_a_name_with_a_value_or_an_object(line: bytes, values: list[tuple[str, object]]) -> None:
    assert values_of(line) == values


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"1x=2",
        b"a b=3",
        b"not=1",
        b"{",
        b"[1]",
        b'{"x": null}',
        b'{"x": {"y": 1}}',
        b'{"1": 2}',
        b"=",
        b"x" * 65 + b"=1",
    ],
)
def test_anything_else_is_no_value(line: bytes) -> None:
    assert values_of(line) is None


def test_a_number_has_a_mean_by_default_and_a_text_is_kept() -> None:
    found = Contribution()
    found.add([("x", 1.0), ("x", 4.0), ("t", "hi"), ("x", "odd")], 3, {})
    assert [(name, a["reducer"], a["n"]) for name, a in found.answers()] == [
        ("t", "append(100)", 1), ("x", "append(100)", 1), ("x", "mean", 2),
    ]  # fmt: skip


def test_what_a_reducer_cannot_use_is_counted_as_left_out() -> None:
    found = Contribution()
    found.add([("x", 1.0), ("x", "odd"), ("x", float("nan")), ("x", float("inf"))], 1, {"x": "sum"})
    ((_, answer),) = found.answers()
    assert (answer["value"], answer["n"], answer["left_out"]) == (1.0, 1, 3)


def test_names_that_are_too_many_are_left_out_and_counted() -> None:
    found = Contribution()
    found.add([(f"x{at}", 1.0) for at in range(MAX_EMITTED_NAMES + 2)], 1, {})
    assert (len(found.states), found.left_out) == (MAX_EMITTED_NAMES, 2)
    assert read(found.text()).left_out == 2


def test_what_travels_is_bounded_whatever_was_emitted() -> None:
    found = Contribution()
    found.add([(f"h{at}", 0.5) for at in range(20)], 1, {f"h{at}": "hist(0,1,1000)" for at in range(20)})
    text = found.travelling_text()
    assert len(text) <= MAX_CONTRIBUTION and 0 < len(read(text).states) < 20
    assert len(read(text).states) + read(text).left_out == 20


def test_the_best_are_kept_with_their_tasks_and_equal_ones_by_their_place() -> None:
    merged = Contribution()
    for element, value in ((7, 2.0), (3, 9.0), (5, 9.0), (1, 1.0)):
        one = Contribution()
        one.add([("x", value)], element, {"x": "best(2)"})
        merged.merge(one)
    found = describe(12, merged, 4, 0, "", "")
    assert found["answers"][0]["values"] == [{"value": 9.0, "task": "r12.3"}, {"value": 9.0, "task": "r12.5"}]
    json.dumps(found, allow_nan=False)


def test_a_histogram_counts_what_is_outside_of_it() -> None:
    reducer = reducer_of("hist(0, 10, 5)")
    state = reducer.new()
    reducer.take(state, [-1.0, 0.0, 1.9, 2.0, 9.999, 10.0, 11.0], 1)
    answer = reducer.answer(state)
    assert (reducer.text, answer["counts"], answer["below"], answer["above"]) == ("hist(0,10,5)", [2, 1, 0, 0, 1], 1, 2)


@pytest.mark.parametrize(
    "text",
    ["", "media", "mean(3)", "hist", "hist(0,10)", "hist(10,0,5)", "hist(0,1,0)", "hist(0,1,1001)", "hist(0,inf,5)", "best(0)",
     "best(5,mean)", "best(1001)", "append(x)", "append(3,min)", "mean()", "MEAN"],
)  # fmt: skip
def test_a_wrong_reducer_is_one_error_that_tells_how_to_write_it(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        reducer_of(text)
    assert caught.value.code == "bad_reducer" and caught.value.hint
