"""Charts of text: heights, plain ASCII where blocks cannot be shown, widths."""

from __future__ import annotations

import io
import sys

import pytest

from shoal.cli.output.charts import MAX_COLUMNS, MIN_COLUMNS, chart, columns, shows_blocks


def test_blocks_fill_the_height_in_eighths() -> None:
    assert chart([0.0, 1.0, 4.0, 8.0, 12.0, 16.0], 2, 16.0, True) == ["    ▄█", " ▁▄███"]


def test_ascii_has_thirds() -> None:
    assert chart([0.0, 1.0, 2.0, 3.0, 6.0], 2, 6.0, False) == ["    #", " .:##"]


def test_what_is_there_at_all_is_seen() -> None:
    assert chart([0.0, 0.001, 100.0], 1, 100.0, False) == [" .#"]


def test_a_chart_of_nothing_is_empty() -> None:
    assert chart([], 3, 0.0, True) == ["", "", ""] and chart([0.0, 0.0], 1, 0.0, True) == [""]


def test_columns_are_those_of_the_environment_within_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, found in (("70", 70), ("1000", MAX_COLUMNS), ("5", MIN_COLUMNS)):
        monkeypatch.setenv("COLUMNS", said)
        assert columns() == found


class Screen(io.TextIOWrapper):
    """A terminal with an encoding."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("encoding", "term", "shows"),
    [("utf-8", "xterm", True), ("ascii", "xterm", False), ("latin-1", "xterm", False), ("utf-8", "dumb", False)],
)
def test_blocks_are_for_terminals_that_can_show_them(
    monkeypatch: pytest.MonkeyPatch, encoding: str, term: str, shows: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stdout", Screen(io.BytesIO(), encoding=encoding))
    assert shows_blocks() is shows


def test_a_pipe_gets_plain_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert not shows_blocks()
