"""Answers in words: as many digits as are sure, and whose values they are."""

from __future__ import annotations

import pytest

from shoal.report.partial import answer_lines, answer_text, goal_text, number_text, short_text
from shoal.sched.partial.answers import describe
from shoal.sched.partial.contribution import Contribution


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [(5.0, None, "5"), (12_345.0, None, "12,345"), (3.14159265, None, "3.14159"), (5.02834, 0.0322, "5.028"),
     (0.0, 0.5, "0.00"), (118.4321, 5.8, "118.4"), (7.0, 0.0, "7"), (1e18, 3.0, "1e+18"), (76.8, 11.0, "77")],
)  # fmt: skip
def test_a_number_has_the_digits_that_its_error_leaves_sure(value: float, error: float | None, shown: str) -> None:
    assert number_text(value, error) == shown


def test_answers_are_told_with_their_reducers_and_tasks() -> None:
    merged = Contribution()
    for element, value in ((1, 4.0), (2, 6.0)):
        one = Contribution()
        reduce = {"b": "best(2)", "t": "append(1)", "h": "hist(0,10,2)", "n": "count"}
        one.add([("x", value), ("b", value), ("t", "hi"), ("h", value), ("n", value)], element, reduce)
        merged.merge(one)
    found = describe(3, merged, 2, 0, "mean(x) > 4 and n(y) > 2", "")
    texts = {answer["name"]: answer_text(answer) for answer in found["answers"]}
    assert texts == {"x": "5.0 +- 1.0", "b": "6 (r3.2), 4 (r3.1)", "t": "hi (r3.1), 1 more", "h": "mean 5", "n": "2"}
    assert short_text(found) == "b 6 (r3.2), 4 (r3.1)  h mean 5"
    assert answer_text({"reducer": "sum", "n": 0, "value": None}) == "nothing yet"
    lines = answer_lines(found)
    assert lines[0] == "  b: 6 (r3.2), 4 (r3.1) (best(2) of 2)"
    assert lines[-1] == "  goal: mean(x) > 4 and n(y) > 2 is not reached: mean(x) = 5, n(y) = 0"
    assert (
        goal_text({"until": "g", "reached": True, "values": {"mean(x)": None}})
        == "g is reached: mean(x) is not known yet"
    )


def test_a_sum_beyond_the_range_of_numbers_is_told_as_that() -> None:
    merged = Contribution()
    merged.add([("x", 1e308), ("x", 1e308)], 1, {"x": "sum"})
    found = describe(1, merged, 1, 0, "sum(x) > 1", "")
    assert found["answers"][0]["value"] is None
    assert answer_lines(found) == [
        "  x: beyond the range of numbers (sum of 2)", "  goal: sum(x) > 1 is not reached: sum(x) is not known yet",
    ]  # fmt: skip
    spread = Contribution()
    spread.add([("x", i * 1e200) for i in range(1, 4)], 1, {})
    (answer,) = describe(1, spread, 1, 0, "", "")["answers"]
    assert answer_text(answer) == "2e+200 +- 5.7735e+199"
