"""When a figure agrees with a paper."""

from __future__ import annotations

import math

import pytest

from shoal.sim.papers.agreement import (
    AtLeast,
    AtMost,
    Between,
    NotJudged,
    Printed,
    Rule,
    is_not_worse,
    number,
    spread_text,
    verdict,
)


@pytest.mark.parametrize(
    ("rule", "value", "agrees"),
    [
        (Printed(10.0), 11.5, True),
        (Printed(10.0), 8.5, True),
        (Printed(10.0), 11.6, False),
        (Printed(-10.0), -11.4, True),
        (Printed(10.0, 0.5), 10.5, True),
        (Printed(10.0, 0.5), 10.6, False),
        (Printed(10.0, 4.0), 13.9, True),
        (AtMost(1.1), 1.1, True),
        (AtMost(1.1), 1.11, False),
        (AtLeast(2.0), 2.0, True),
        (AtLeast(2.0), 1.9, False),
        (Between(2.0, 3.0), 2.0, True),
        (Between(2.0, 3.0), 3.1, False),
        (NotJudged(), 5.0, None),
    ],
)
def test_a_rule_judges_the_mean_of_the_seeds(rule: Rule, value: float, agrees: bool | None) -> None:
    assert verdict(rule, [value]) is agrees
    assert verdict(rule, [value - 100.0, value + 100.0]) is agrees


def test_what_was_not_measured_is_not_judged() -> None:
    assert verdict(Printed(1.0), []) is None
    assert verdict(Printed(1.0), [math.inf]) is None


def test_a_rule_says_what_the_paper_prints_and_what_agrees() -> None:
    assert Printed(1_000.0).printed("x") == "1,000 x" and Printed(10.0, 2.0).printed("") == "10 ± 2"
    assert "15%" in Printed(1.0).words("") and "printed spread" in Printed(1.0, 0.1).words("")
    assert AtMost(10.0, "few").printed("%") == "few" and AtMost(10.0).printed("%") == "≤ 10 %"
    assert Between(2.0, 3.0).printed("%") == "2 % to 3 %" and "not judged" in NotJudged().words("")


def test_ours_may_be_worse_by_no_more_than_the_standard_error_of_the_difference() -> None:
    assert is_not_worse([10.0], [10.0]) and not is_not_worse([10.1], [10.0])
    assert is_not_worse([10.0, 12.0], [10.4, 11.9])  # 0.15 better on average
    assert is_not_worse([10.0, 12.5], [10.4, 12.0])  # 0.05 worse, with an error of 0.45
    assert not is_not_worse([10.3, 12.3, 14.3], [10.0, 12.1, 14.0])
    assert is_not_worse([0.9], [0.8], lower_is_better=False) and not is_not_worse([0.7], [0.8], lower_is_better=False)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (1234.5, "1,234"), (21.34, "21.3"), (1.06, "1.06"), (0.05921, "0.0592"), (2.0, "2")]
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


def test_the_spread_has_as_many_decimals_as_the_mean() -> None:
    assert spread_text([1.0, 1.1, 1.2], "x") == "1.10 ± 0.10 x"
    assert spread_text([5.0], "h") == "5 h" and spread_text([]) == "-"
