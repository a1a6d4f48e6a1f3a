"""Text for terminals: nothing a user wrote can move the cursor, colour the screen or hide [input E20-E22]."""

from __future__ import annotations

import re

import pytest

from shoal.cli.output.tables import PEEK, cell, clean, clean_block, pairs, shorten, table, width

HOSTILE = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "a\nb",
    "a\rb",
    "x\u202egnp.exe",
    "zero\u200bwidth",
    "\x00",
    "\x7f",
    "\x9b31m",
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_escaped(text: str) -> None:
    shown = clean(text)
    assert shown.isprintable()
    assert "\\" in shown


@pytest.mark.parametrize("text", ["plain", "naïve", "日本語", "🐟 fish", "[bold]markup[/bold]", "<script>"])
def test_printable_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


def test_a_log_keeps_lines_and_tabs_and_loses_other_controls() -> None:
    assert clean_block("a\tb\r\n\x1b[2Jc\x07\ufffd\n") == "a\tb\n[2Jc\ufffd\n"


def test_columns_are_aligned_also_for_wide_characters() -> None:
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in table(("name", "n"), [("日本", 1), ("abc", 22)])]
    assert lines == ["name   n", "日本   1", "abc   22"]
    assert {width(line) for line in lines} == {8}


def test_a_cell_never_spans_lines() -> None:
    lines = list(table(("name", "state"), [("a\nb", "failed")]))
    assert len(lines) == 2
    assert "a\\nb" in lines[1]


def test_a_table_streams_behind_the_rows_that_decide_its_widths() -> None:
    asked: list[int] = []

    def rows() -> object:
        for n in range(10 * PEEK):
            asked.append(n)
            yield (n,)

    stream = table(("n",), rows())  # type: ignore[arg-type]  # a generator of rows
    next(stream)
    assert len(asked) == PEEK
    assert sum(1 for _ in stream) == 10 * PEEK


def test_an_empty_table_has_only_its_head() -> None:
    assert len(list(table(("a", "b"), []))) == 1


def test_long_cells_are_cut_with_a_mark() -> None:
    assert shorten("x" * 100, 10) == "x" * 9 + "…"
    assert width(shorten("日" * 100, 10)) <= 10


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (True, "true"), (0.1 + 0.2, "0.3"), (7, "7"), ({"a": 1}, '{"a": 1}'), ("a\tb", "a\\tb")],
)
def test_values_are_shown_as_people_write_them(value: object, shown: str) -> None:
    assert cell(value) == shown


def test_pairs_align_their_names() -> None:
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in pairs([("a", 1), ("long", "x")])]
    assert lines == ["a     1", "long  x"]
