"""The rules of undefined, one by one, on one pilot."""

from __future__ import annotations

import math

import pytest

from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import NOTHING, evaluate, globber, holds, rank_of
from shoal.sched.expr.tree import UNDEFINED, Value

TAGS = {
    "n": 3, "f": 2.5, "t": "x86_64", "yes": True, "no": False, "ann.stage": 2, "bob.stage": 7,
    "nan": math.nan, "inf": math.inf, "endless": 10**400, "nothing": None, "list": [1],
}  # fmt: skip
TASK = {"owner": "ann", "memory_mb": 100, "time": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # values
        ("n", 3.0), ("t", "x86_64"), ("yes", True), ("gone", UNDEFINED), ("nan", UNDEFINED), ("inf", UNDEFINED),
        ("endless", UNDEFINED), ("nothing", UNDEFINED), ("list", UNDEFINED),
        ("task.memory_mb", 100.0), ("task.time", UNDEFINED), ("my.stage", 2.0), ("bob.stage", 7.0), ("my.n", UNDEFINED),
        # arithmetic
        ("n + f * 2 - 1", 7.0), ("n % 2", 1.0), ("-n % 2", 1.0), ("n / 0", UNDEFINED), ("n % 0", UNDEFINED),
        ("1e308 * 10", UNDEFINED), ("1e308 * 10 / 1e308", UNDEFINED), ("n + t", UNDEFINED), ("t + t", UNDEFINED),
        ("n + yes", UNDEFINED), ("-t", UNDEFINED), ("n + gone", UNDEFINED), ("min(n, f)", 2.5), ("max(n, f, 9)", 9.0),
        ("abs(-n)", 3.0), ("min(n, gone)", UNDEFINED), ("max(n, t)", UNDEFINED), ("abs(yes)", UNDEFINED),
        # comparisons
        ("n >= 3", True), ("n < 3", False), ("gone < 3", UNDEFINED), ('t == "x86_64"', True), ('t < "y"', True),
        ('n == "3"', UNDEFINED), ("n != t", UNDEFINED), ("yes == true", True), ("yes != no", True),
        ("yes < no", UNDEFINED), ("yes == 1", UNDEFINED), ("gone == gone", UNDEFINED), ("gone != 1", UNDEFINED),
        # lists
        ("n in [1, 3]", True), ('n in ["3", true]', False), ("yes in [1]", False), ("gone in [1]", UNDEFINED),
        ("gone not in [1]", UNDEFINED), ("n not in []", True), ("1 in [true]", False),
        # and, or, not
        ("gone and no", False), ("gone and yes", UNDEFINED), ("gone or yes", True), ("gone or no", UNDEFINED),
        ("not gone", UNDEFINED), ("not yes", False), ("n and no", False), ("n and yes", UNDEFINED), ("not t", UNDEFINED),
        ("t or yes", True), ("no or no", False), ("yes and yes", True),
        # functions of names and texts
        ("has(n)", True), ("has(gone)", False), ("has(nan)", False), ("has(task.time)", False), ("has(my.stage)", True),
        ('glob(t, "x86*")', True), ('glob(t, "arm*")', False), ('glob(n, "*")', UNDEFINED), ('glob(gone, "*")', UNDEFINED),
    ],
)  # fmt: skip
def test_an_expression_has_this_value(text: str, expected: Value) -> None:
    value = evaluate(parse(text), TAGS, TASK)
    assert type(value) is type(expected)
    assert value == expected


def test_a_requirement_holds_only_if_it_is_exactly_true() -> None:
    assert holds(parse("n > 1"), TAGS, TASK)
    assert not any(holds(parse(text), TAGS, TASK) for text in ("n", "1", "gone", "not gone", "t", "no"))


def test_a_rank_that_is_no_number_is_nothing() -> None:
    assert rank_of(parse("n * 2"), TAGS, TASK) == 6.0
    assert {rank_of(parse(text), TAGS, TASK) for text in ("gone", "t", "n / 0", "gone > 1")} == {NOTHING}


def test_a_boolean_rank_counts_as_one_and_zero() -> None:
    assert [rank_of(parse(text), TAGS, TASK) for text in ("yes", "not yes", "n > 1", "n > 9")] == [1.0, 0.0, 1.0, 0.0]


def test_tags_may_be_a_function() -> None:
    assert evaluate(parse("n + 1"), {"n": 1}.get, {}) == 2.0
    assert evaluate(parse("n + 1"), lambda name: UNDEFINED, {}) is UNDEFINED


def test_my_names_are_undefined_for_a_task_without_an_owner() -> None:
    assert evaluate(parse("my.stage"), TAGS, {}) is UNDEFINED


def test_large_whole_numbers_are_rounded_like_all_numbers() -> None:
    assert evaluate(parse("n == 9007199254740992"), {"n": 2**53 + 1}, {}) is True


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("", [""], ["a"]),
        ("*", ["", "a", "a\nb"], []),
        ("a*", ["a", "ab"], ["", "ba"]),
        ("*a", ["a", "ba", "aa"], ["ab"]),
        ("a*a", ["aa", "aba"], ["a"]),
        ("*a*b*", ["ab", "xaxbx"], ["ba", "a"]),
        ("?", ["a", "é"], ["", "ab"]),
        ("a?c*", ["abc", "abcd"], ["ac", "abd"]),
        ("[a].+", ["[a].+"], ["a.+", "[a]xx"]),
        ("*a?", ["aab", "ab"], ["a", "aba"]),
    ],
)
def test_a_pattern_matches_all_of_a_text(pattern: str, matching: list[str], other: list[str]) -> None:
    match = globber(pattern)
    assert [text for text in matching + other if match(text)] == matching
