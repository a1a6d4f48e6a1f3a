"""Arguments and environments of submit descriptions, in both syntaxes."""

from __future__ import annotations

import pytest

from shoal.flow.formats.dagman.words import split_arguments, split_environment
from shoal.model.errors import BadInput


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        (r'say \"hi\"', ["say", '"hi"']),
        ("it's", ["it's"]),
        ('"one \'two three\' four"', ["one", "two three", "four"]),
        ('"\'it\'\'s\' ""quoted"""', ["it's", '"quoted"']),
        ('"a\'b c\'d \'\'"', ["ab cd", ""]),
        ('""', []),
        ("", []),
    ],
)  # fmt: skip
def test_arguments(text: str, words: list[str]) -> None:
    assert split_arguments(text, "a.sub") == words


@pytest.mark.parametrize("text", ['a "b" c', '"open', '"\'open"', '"a " b"'])
def test_quotes_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^a\.sub: .*quote"):
        split_arguments(text, "a.sub")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1;B=two words; C=", {"A": "1", "B": "two words", "C": ""}),
        ("\"A=1 B='two words' C=''\"", {"A": "1", "B": "two words", "C": ""}),
        ('"A=""x"""', {"A": '"x"'}),
    ],
)
def test_environments(text: str, found: dict[str, str]) -> None:
    assert split_environment(text, "a.sub") == found


@pytest.mark.parametrize("text", ["A", "=1", '"A B=1"', "A-B=1"])
def test_what_is_no_variable_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="no variable"):
        split_environment(text, "a.sub")
