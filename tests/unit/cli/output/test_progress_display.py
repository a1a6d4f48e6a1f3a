"""Progress as text: one line on terminals, sparse plain lines elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from shoal.cli.output.progress_display import LiveDisplay, PlainDisplay, QuietDisplay, Status, bar_of, status_text
from tests.unit.cli.fake_client import Clock


def test_the_line_has_counts_rate_time_and_pilots() -> None:
    status = Status("r1", total=2000, succeeded=500, failed=12, running=8, elapsed=60.0, pilots=2, slots=8)
    text = status_text(status)
    for part in ("512/2,000", "running 8", "failed 12", "8.5/s", "1m00s", "about 2m54s left", "2 pilots, 8 slots"):
        assert part in text


def test_results_taken_over_do_not_count_into_the_rate() -> None:
    assert Status("r1", total=100, succeeded=60, reused=50, elapsed=10.0).rate == 1.0


def test_the_bar_fills_with_what_is_done() -> None:
    assert bar_of(Status("r1", total=4, succeeded=1)) == "####............"
    assert bar_of(Status("r1")) == "................"


def test_plain_lines_come_at_most_every_five_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    display = PlainDisplay(stream, clock)
    for second in range(12):
        clock.now = float(second)
        display.update(Status("r1", total=10, elapsed=clock.now))
    assert len(stream.getvalue().splitlines()) == 3  # at 1, 6 and 11


def test_a_reason_for_waiting_is_printed_when_it_appears_and_not_again() -> None:
    clock, stream = Clock(), io.StringIO()
    display = PlainDisplay(stream, clock)
    for second in range(12):
        clock.now = float(second)
        display.update(Status("r1", total=10, elapsed=clock.now, reason="no pilot" if second > 2 else ""))
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if "nothing runs" in line] == ["  nothing runs: no pilot"]
    assert "nothing runs" in lines[2]  # the lines of seconds 1 and 3, then the reason


def test_a_hostile_name_is_shown_escaped() -> None:
    stream, clock = io.StringIO(), Clock()
    display = PlainDisplay(stream, clock)
    clock.now = 6.0
    display.update(Status("r1", name="\x1b[2J[red]x", total=1, elapsed=6.0))
    assert "\x1b" not in stream.getvalue()
    assert "\\x1b[2J[red]x" in stream.getvalue()


def test_the_live_line_takes_no_markup_and_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    display = LiveDisplay()
    display.update(Status("r1", total=2, elapsed=0.1))
    assert capsys.readouterr().err == ""  # too early to draw
    display.update(Status("r1", name="[red]x[/red]", total=2, elapsed=1.0, reason="[b]none"))
    display.note("a note with [markup]")
    display.close()
    display.close()
    said = capsys.readouterr().err
    assert "[red]x[/red]" in said
    assert "a note with [markup]" in said


def test_quiet_says_only_what_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    display = QuietDisplay(sys.stderr)
    display.update(Status("r1", total=1, elapsed=100.0))
    display.note("careful")
    display.close()
    assert capsys.readouterr().err == "careful\n"
