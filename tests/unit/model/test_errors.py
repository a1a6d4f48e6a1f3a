"""What a refusal looks like, and how a caller's own words are shown in it."""

from __future__ import annotations

import pytest

from shoal.model.errors import (
    BadInput,
    Conflict,
    IllegalTransition,
    NotFound,
    Refused,
    ShoalError,
    TooLarge,
    Unreachable,
    echo,
)
from shoal.model.limits import MAX_ECHO


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"), ("", ""), ("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("\0", "\\x00"), ("\u202e", "\\u202e"),
        ("\ud800", "\\ud800"), ("ä€😀", "ä€😀"), (5, "5"), (True, "True"), (None, "None"), (["a"], "['a']"),
    ],
)  # fmt: skip
def test_control_characters_are_escaped(value: object, shown: str) -> None:
    assert echo(value) == shown


@pytest.mark.parametrize("value", ["x" * 81, "x" * 100_000, "\0" * 100_000, list(range(10_000)), "\U0010ffff" * 79])
def test_an_echo_is_never_longer_than_eighty_characters(value: object) -> None:
    shown = echo(value)
    assert len(shown) <= MAX_ECHO == 80
    assert shown.endswith("…")
    assert shown.isprintable()


def test_eighty_characters_are_shown_whole() -> None:
    assert echo("x" * 80) == "x" * 80


def test_a_number_too_long_to_print_is_no_second_error() -> None:
    """Python refuses to print a whole number of more than 4,300 digits; whoever gave it gets a refusal, not that."""
    assert len(echo(10**5_000)) <= MAX_ECHO


def test_the_line_says_where_what_and_how_to_fix() -> None:
    error = BadInput("0 is out of range", code="range", field="cores", hint="from 1 to 65536")
    assert error.line == "cores: 0 is out of range (from 1 to 65536)" == str(error)


def test_the_line_does_not_name_the_field_twice() -> None:
    assert BadInput("command is one text", field="command").line == "command is one text"


def test_without_words_an_error_says_its_docstring() -> None:
    assert Unreachable().line == "The server does not answer."


@pytest.mark.parametrize("kind", [BadInput, NotFound, Conflict, TooLarge, Refused, Unreachable])
def test_every_error_has_a_stable_code_of_its_own(kind: type[ShoalError]) -> None:
    assert issubclass(kind, ShoalError)
    assert kind().code == kind.code != ShoalError.code
    assert kind(code="other").code == "other"


def test_only_silence_and_a_crowd_are_worth_another_try() -> None:
    assert [k.__name__ for k in ShoalError.__subclasses__() if k.transient] == ["TooBusy", "Unreachable"]


def test_a_defect_of_ours_is_told_with_its_story() -> None:
    assert "story: a; b" in str(IllegalTransition("task", "ready", "lost", ["a", "b"]))
