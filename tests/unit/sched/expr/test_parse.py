"""Reading expressions: what is refused, at which column, with which word that was meant."""

from __future__ import annotations

import pytest

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_EXPR_DEPTH, MAX_EXPR_TERMS, MAX_GLOB
from shoal.sched.expr.names import unknown_tags
from shoal.sched.expr.parse import parse
from shoal.sched.expr.tree import Attribute, Both, Chain, Compare, Constant, Not, Tag, show


def refuse(text: str, field: str = "require") -> BadInput:
    """The error of a text."""
    with pytest.raises(BadInput) as caught:
        parse(text, field)
    return caught.value


def test_names_and_attributes_are_listed_as_written() -> None:
    expr = parse("memory_mb >= task.memory_mb and my.stage == 2 and has(bob.done) and time_left() > 60")
    assert expr.tags == {"memory_mb", "my.stage", "bob.done", "time_left"}
    assert expr.attributes == {"memory_mb"}


def test_and_binds_more_than_or_and_not_less_than_comparisons() -> None:
    assert parse("a or b and c").root == parse("a or (b and c)").root
    assert parse("not a < b").root == Not(Compare("<", Tag("a"), Tag("b")))
    assert parse("a + b * c < d").root == parse("(a + (b * c)) < d").root
    assert parse("x not in [1]").root == parse("not (x in [1])").root


def test_a_difference_is_taken_from_the_left() -> None:
    expected = Chain(Tag("a"), (("-", Tag("b")), ("-", Tag("c"))))
    assert parse("a - b - c").root == expected
    assert parse("a - (b - c)").root != expected


def test_a_literal_is_negative_itself_and_quotes_may_be_escaped() -> None:
    assert parse("-5").root == Constant(-5.0)
    assert parse("'it\\'s'").root == Constant("it's")
    assert parse('"a\\\\b"').root == Constant("a\\b")


def test_one_and_true_are_different_literals() -> None:
    assert Constant(1.0) != Constant(True)
    assert parse("1").root != parse("true").root


def test_the_same_text_is_read_once() -> None:
    assert parse("a > 1") is parse("a > 1")


def test_context_names_need_no_parentheses() -> None:
    assert parse("data_local_mb() > 1").root == parse("data_local_mb > 1").root


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("__import__('os')", 1),
        ("().__class__", 2),
        ("a.__class__", 1),
        ("", 1),
        ("a >", 4),
        ("a > > b", 5),
        ("(a", 3),
        ("a)", 2),
        ("a < b < c", 7),
        ("x in y", 6),
        ("x in [y]", 7),
        ("x in [1 2]", 9),
        ('x in ["a"', 10),
        ("x not 3", 7),
        ("a = b", 3),
        ("a && b", 3),
        ('a == "b', 6),
        ("a == 'b\\n'", 8),
        ("4GB < memory_mb", 2),
        ("a > 1e999", 5),
        ("True", 1),
        ("a AND b", 3),
        ("task > 1", 1),
        ("min > 1", 1),
        ("abs(1, 2)", 1),
        ("has(1)", 5),
        ("has(true)", 5),
        ("glob(a, b)", 9),
        ("glob(a)", 7),
        ("min()", 5),
        ("time_left(3)", 11),
        ("lambda: 1", 7),
        ("[1, 2]", 1),
        ("a; b", 2),
        ("a\0", 2),
        ("\ud800", 1),
    ],
)
def test_what_is_no_expression_is_refused_with_its_column(text: str, column: int) -> None:
    error = refuse(text, "rank")
    assert (error.code, error.field) == ("bad_expression", "rank")
    assert f"at column {column}" in error.message


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "(" * 10_000 + ")" * 10_000,
        "(" * 1_500 + "a" + ")" * 1_500,
        "9**9**9",
        "not " * 900 + "a",
        "-" * 900 + "a",
        "abs(" * 500 + "1" + ")" * 500,
        " or ".join("a" for _ in range(MAX_EXPR_TERMS)),
        f"x in [{','.join('1' for _ in range(MAX_EXPR_TERMS))}]",
        f'glob(a, "{"*" * (MAX_GLOB + 1)}")',
        "é" * 3_000,
    ],
)
def test_what_is_too_much_is_refused_before_it_gets_deep(text: str) -> None:
    assert refuse(text).code == "expression_too_complex"


def test_what_is_within_the_bounds_is_read() -> None:
    inner = MAX_EXPR_DEPTH - 1
    assert parse("(" * inner + "a" + ")" * inner).root == Tag("a")
    assert parse("not " * inner + "a").tags == {"a"}
    assert isinstance(parse(" + ".join("1" for _ in range(MAX_EXPR_TERMS - 1))).root, Chain)


def test_a_tree_that_is_deep_without_parentheses_of_its_own_is_refused() -> None:
    text = "a"
    for _ in range(12):
        text = f"(a or a and not {text} < 1)"
    assert refuse(text).code == "expression_too_complex"


@pytest.mark.parametrize(
    ("text", "close"),
    [("a adn b", "and"), ("a orr b", "or"), ("x nto in [1]", "not")],
)
def test_a_word_that_is_nearly_one_of_the_language_is_named(text: str, close: str) -> None:
    assert f"did you mean {close}" in refuse(text).hint


@pytest.mark.parametrize(
    ("text", "close", "listed"),
    [
        ("mim(1, 2)", "min", "glob"),
        ("task.memory > 1", "task.memory_mb", "task.cores"),
        ("zzzzzzz(1)", "", "time_left"),
        ("task.zzz > 1", "", "task.rerun"),
    ],
)
def test_an_unknown_function_or_attribute_names_the_nearest_and_all(text: str, close: str, listed: str) -> None:
    error = refuse(text)
    assert error.code == "unknown_attribute"
    assert "at column 1" in error.message
    assert listed in error.hint
    assert ("did you mean" in error.hint) is bool(close)
    assert close in error.hint


def test_unknown_tags_are_accepted_and_listed_with_the_nearest_known_one() -> None:
    expr = parse('memroy_mb > 1 and arch == "x" and my.stge == 1 and zzz and time_left > 1')
    known = ["memory_mb", "arch", "ann.stage"]
    assert unknown_tags(expr, known) == [("memroy_mb", "memory_mb"), ("zzz", None)]
    assert ("my.stge", "my.stage") in unknown_tags(expr, known, "ann")
    assert unknown_tags(parse("my.stage > 1"), known, "ann") == []


def test_text_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadInput, match="expected text"):
        parse(3)  # type: ignore[arg-type]  # what a caller from outside may hand on


def test_a_tree_is_shown_with_as_few_parentheses_as_it_needs() -> None:
    text = 'a >= 4000 and (b or c == "x") and site not in ["a", 1.5, true] and -(x + 1) * 2 < min(a, b)'
    assert show(parse(text).root) == text
    assert isinstance(parse(text).root, Both)
    assert show(Attribute("time")) == "task.time"
