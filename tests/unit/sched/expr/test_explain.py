"""Why no pilot matches: counts, words, and a change that helps."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.sched.expr.explain import clauses, explain
from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import holds

PILOTS: list[dict[str, Any]] = [
    {"memory_mb": 3_200, "arch": "x86_64", "site": "a", "load": 0.5, "gpu": "A100", "flag": False},
    {"memory_mb": 3_200, "arch": "x86_64", "site": "b", "load": 1.5},
    {"memory_mb": 64_000, "arch": "aarch64", "site": "a", "load": 0.1, "slots": "many"},
    {"memory_mb": 1_000, "arch": "ppc64le", "site": "c"},
]


def test_clauses_are_the_parts_of_all_outer_ands() -> None:
    found = clauses(parse("a > 1 and (b or c) and (d and not e)"))
    assert [clause.text for clause in found] == ["a > 1", "b or c", "d", "not e"]


def test_each_clause_tells_who_passes_and_who_would_without_it() -> None:
    said = explain(parse('memory_mb >= 4000 and arch == "x86_64"'), PILOTS, {})
    assert [(clause.passing, clause.without) for clause in said.clauses] == [(1, 2), (2, 1)]
    assert said.matching == 0
    assert said.pilots == 4


def test_the_nearest_relaxation_is_the_weakest_bound_with_the_other_clauses_kept() -> None:
    said = explain(parse('memory_mb >= 4000 and arch == "x86_64"'), PILOTS, {})
    assert said.nearest is not None
    assert said.nearest.text == "memory_mb >= 3200 would let 2 pilots match"
    assert sum(holds(parse(said.nearest.require), tags, {}) for tags in PILOTS) == 2


@pytest.mark.parametrize(
    ("text", "relaxed"),
    [("a >= 9", "a >= 3"), ("a > 9", "a >= 3"), ("a <= 0", "a <= 1"), ("0 > a", "a <= 1"), ("a == 9", "a in [9, 2]")],
)
def test_a_bound_is_moved_no_further_than_needed(text: str, relaxed: str) -> None:
    (clause,) = explain(parse(text), [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 2}], {}).clauses
    assert clause.relaxed is not None
    assert clause.relaxed.text == relaxed


def test_an_or_keeps_its_place_in_the_relaxed_requirement() -> None:
    said = explain(parse("(a > 9 or b > 9) and c"), [{"a": 1, "b": 2, "c": True}, {"a": 5, "b": 1, "c": False}], {})
    assert said.nearest is not None
    assert said.nearest.require == "(a >= 1 or b > 9) and c"
    assert said.nearest.pilots == 1


def test_a_text_is_relaxed_to_one_that_there_is() -> None:
    said = explain(parse('memory_mb > 4000 and arch in ["x86_64"]'), PILOTS, {})
    assert [clause.relaxed and clause.relaxed.text for clause in said.clauses] == [
        "memory_mb >= 3200",
        'arch in ["x86_64", "aarch64"]',
    ]


def test_clauses_that_fail_together_are_relaxed_together() -> None:
    said = explain(parse('memory_mb >= 90000 and arch == "sparc" and not has(arch)'), PILOTS, {})
    assert said.nearest is not None
    assert "together" in said.nearest.text
    assert "leaving out not has(arch)" in said.nearest.text
    assert sum(holds(parse(said.nearest.require), tags, {}) for tags in PILOTS) == said.nearest.pilots > 0


def test_leaving_out_the_only_clause_leaves_no_requirement() -> None:
    said = explain(parse("flag"), PILOTS, {})
    assert said.nearest is not None
    assert (said.nearest.require, said.nearest.pilots) == ("", 4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("memory_mb >= 90000", "memory_mb is at most 64000"),
        ("90000 < memory_mb", "memory_mb is at most 64000"),
        ("load < 0.1", "load is at least 0.1, 1 pilot without load"),
        ("not load >= 0.1", "load is at least 0.1, 1 pilot without load"),
        ("memroy_mb > 1", "no pilot has the tag memroy_mb, did you mean memory_mb"),
        ("my.stge > 1", "no pilot has the tag my.stge, did you mean my.stage"),
        ("has(gpus)", "no pilot has the tag gpus, did you mean gpu"),
        ("has(gpu)", "the others do not have it"),
        ("memory_mb >= task.time", "task.time is not stated"),
        ('memory_mb >= "4000"', "memory_mb is a number, compared with text"),
        ("slots > 2", "slots is text, compared with a number, 3 pilots without slots"),
        ("memory_mb > arch", "memory_mb is a number, arch is text"),
        ('arch == "sparc"', 'arch is "x86_64" (2), "aarch64" (1), "ppc64le" (1)'),
        ('glob(site, "z*")', 'site is "a" (2), "b" (1), "c" (1)'),
        ("memory_mb", "memory_mb is a number, not true or false"),
        ("flag", "3 pilots without flag"),
        ("memory_mb < load or memory_mb < 0", "1 pilot without load"),
    ],
)
def test_a_clause_says_why_it_fails(text: str, reason: str) -> None:
    (clause,) = explain(parse(text), PILOTS, {"owner": "ann"}, ["memory_mb", "gpu", "ann.stage"]).clauses
    assert clause.reason == reason


def test_nothing_is_said_where_all_match_and_nothing_helps_where_there_are_no_pilots() -> None:
    said = explain(parse("memory_mb > 1"), PILOTS, {})
    assert (said.matching, said.nearest, said.clauses[0].reason) == (4, None, "")
    said = explain(parse("memory_mb > 1"), [], {})
    assert (said.matching, said.nearest, said.clauses[0].passing) == (0, None, 0)


def test_clauses_that_fail_are_counted_and_what_would_help_is_named() -> None:
    said = explain(parse('memory_mb >= 4000 and arch == "x86_64" and memory_mb > 1'), PILOTS, {})
    assert [(clause.text, clause.passing, clause.without, clause.reason) for clause in said.clauses] == [
        ("memory_mb >= 4000", 1, 2, "memory_mb is at most 64000"),
        ('arch == "x86_64"', 2, 1, 'arch is "x86_64" (2), "aarch64" (1), "ppc64le" (1)'),
        ("memory_mb > 1", 4, 0, ""),
    ]
    assert said.nearest is not None and said.nearest.text == "memory_mb >= 3200 would let 2 pilots match"


def test_a_bound_is_shown_exactly() -> None:
    some = [{"x": 0.1 + 0.2}]
    said = explain(parse("x >= 1"), some, {})
    assert said.nearest is not None
    assert holds(parse(said.nearest.require), some[0], {})
