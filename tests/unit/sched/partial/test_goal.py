"""Goals: what they may say, and that they are not reached by too little evidence."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.sched.partial.contribution import Contribution
from shoal.sched.partial.goal import MIN_EVIDENCE, check, goal_of, is_reached, shown_values


def merged(values: list[float], reduce: str = "mean") -> Contribution:
    found = Contribution()
    found.add([("x", value) for value in values], 1, {"x": reduce})
    return found


def test_an_error_is_not_known_before_there_is_enough_evidence() -> None:
    goal = goal_of("rel_err(x) < 0.5")
    assert not is_reached(goal, merged([]))
    assert not is_reached(goal, merged([5.0] * (MIN_EVIDENCE - 1))), "values that happen to be equal prove nothing"
    assert is_reached(goal, merged([5.0] * MIN_EVIDENCE))


def test_what_is_not_known_makes_no_comparison_true_nor_its_opposite() -> None:
    for text in ("rel_err(x) < 1", "rel_err(x) >= 1", "not rel_err(x) < 1", "mean(y) == mean(y)"):
        assert not is_reached(goal_of(text), merged([1.0, 2.0])), text
    assert not is_reached(goal_of("rel_err(x) < 1"), merged([-1.0, 1.0] * 10)), "a mean of 0 has no relative error"


def test_a_goal_on_values_at_the_end_of_the_range_of_floats_is_judged() -> None:
    large = merged([1e308, 1e308] * MIN_EVIDENCE)
    assert is_reached(goal_of("mean(x) == 1e308 and rel_err(x) < 0.1 and std_err(x) == 0"), large)
    assert not is_reached(goal_of("sum(x) > 1"), large) and not is_reached(goal_of("sum(x) <= 1"), large)
    assert shown_values(goal_of("sum(x) > 1"), large) == "sum(x) is not known"
    assert is_reached(goal_of("std_err(x) > 1e199"), merged([i * 1e200 for i in range(30)]))
    assert not is_reached(goal_of("rel_err(x) > 1"), merged([1e308, 1e-308 - 1e308, 1e-300] * MIN_EVIDENCE))


@pytest.mark.parametrize(
    ("text", "is_true"),
    [("n(x) >= 3", True), ("n(x) > 3", False), ("mean(x) == 2 and max(x) < 4", True), ("min(x) < 1", False),
     ("sum(x) > 5.5", True), ("max(mean(x), 9) > 8", True), ("abs(min(x) - 1) < 0.1 or n(y) > 0", True)],
)  # fmt: skip
def test_functions_of_what_was_emitted_are_compared(text: str, is_true: bool) -> None:
    assert is_reached(goal_of(text), merged([1.0, 2.0, 3.0])) is is_true


@pytest.mark.parametrize("text", ["1 < 2", "max(1, 2) > 1", "true"])
def test_a_goal_that_names_no_emitted_value_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"names no emitted value \(e\.g\. rel_err"):
        check({}, text)


@pytest.mark.parametrize("reducer", ["sum", "min", "hist(0,9,3)"])
def test_reducers_that_know_the_moments_serve_every_function(reducer: str) -> None:
    assert is_reached(goal_of("mean(x) == 2 and std_err(x) < 1"), merged([1.0, 2.0, 3.0] * 4, reducer))


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "empty"), ("x < 1", "x alone is no value"), ("rel_err(x", "expected"), ("error(x) < 1", "unknown function"),
     ("mean(x + 1) < 2", "one argument"), ("mean(x, y) < 2", "one argument"), ("mean(3) < 2", "one argument"),
     ("memory_mb > 3", "alone is no value"), ("mean(x) < 1 < 2", "or an operator")],
)  # fmt: skip
def test_a_wrong_goal_is_one_error_with_its_place(text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        goal_of(text)
    assert told in caught.value.message and caught.value.field == "until"


def test_a_goal_that_can_never_be_known_is_refused() -> None:
    check({"x": "best(3)"}, "n(x) > 5")
    check({"x": "sum"}, "rel_err(x) < 0.1 and mean(y) > 2")
    with pytest.raises(BadInput, match="reduced by best"):
        check({"x": "best(3)"}, "mean(x) > 5")
    with pytest.raises(BadInput, match="cannot be emitted"):
        check({"1x": "sum"}, "")


def test_the_values_of_a_goal_are_shown() -> None:
    assert (
        shown_values(goal_of("rel_err(x) < 0.1 and n(x) > 2"), merged([1.0, 2.0]))
        == "n(x) = 2, rel_err(x) is not known"
    )


def test_names_of_pilots_and_tasks_mean_nothing_in_a_goal_and_goals_nothing_in_requirements() -> None:
    from shoal.sched.expr.parse import parse

    with pytest.raises(BadInput, match="unknown function"):
        parse("mean(x) > 2", "require")
    assert goal_of("mean(owner) > 2").tags == {"mean(owner)"}
