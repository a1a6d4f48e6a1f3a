"""Progress as text: one line on terminals, sparse plain lines elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from shoal.cli.output.progress_display import (
    LiveDisplay,
    PlainDisplay,
    QuietDisplay,
    Status,
    TimeLeft,
    bar_of,
    fitted,
    site_parts,
    status_text,
)
from tests.unit.cli.fake_client import Clock

LEFT = TimeLeft(10_690.0, 12_600.0)


def test_the_line_has_counts_rate_time_and_pilots() -> None:
    status = Status("r1", total=2000, succeeded=500, failed=12, running=8, elapsed=60.0, pilots=2, slots=8, left=LEFT)
    text = status_text(status)
    for part in ("512/2,000", "running 8", "failed 12", "8.5/s", "1m00s", "about 2h58m left", "2 pilots, 8 slots"):
        assert part in text
    assert "about 2h58m left  (9 in 10 within 3h30m)" in text


def test_the_line_names_sites_instead_of_pilots_where_there_are_any() -> None:
    rows = [
        {"site": "hpc", "cores": 4, "busy": 3, "waits": "1 allocation waits (Priority)"},
        {"site": "local", "cores": 2, "busy": 2, "waits": ""},
    ]
    assert site_parts(rows[1:]) == (), "this machine alone is no news"
    text = status_text(Status("r1", total=9, pilots=2, slots=6, sites=site_parts(rows)))
    assert text.endswith("hpc 3/4 (1 allocation waits (Priority))  local 2/2") and "pilots" not in text


def test_what_was_final_before_the_waiting_does_not_count_into_the_rate() -> None:
    assert Status("r1", total=100, succeeded=60, earlier=50, elapsed=10.0).rate == 1.0
    assert Status("r1", total=100, succeeded=60, earlier=60, elapsed=10.0).rate == 0.0


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (TimeLeft(125.0, 181.0), "about 2m05s left  (9 in 10 within 3m01s)"),
        (TimeLeft(12.4, 17.6), "about 12s left  (9 in 10 within 18s)"),
        (TimeLeft(12.1, 12.4), "about 12s left"),  # the second would say the same
        (TimeLeft(0.0, 0.3), "about 1s left"),
        (TimeLeft(), "time left not known yet"),
    ],
)
def test_the_time_left_is_told_with_how_sure_it_is(left: TimeLeft, text: str) -> None:
    assert status_text(Status("r1", total=9, succeeded=3, elapsed=30.0, left=left)).endswith(f"30.0s  {text}")


def test_the_rate_alone_tells_no_time_left() -> None:
    assert "left" not in status_text(Status("r1", total=9, succeeded=3, elapsed=30.0))


def test_what_is_done_has_no_time_left() -> None:
    assert "left" not in status_text(Status("r1", total=9, succeeded=9, elapsed=30.0, left=TimeLeft(3.0, 4.0)))


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


def test_quiet_says_once_that_there_is_no_pilot(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = QuietDisplay(sys.stderr, clock)
    display.update(Status("r1", total=1))
    for _ in range(3):
        clock.now += 1_000.0
        display.update(Status("r1", total=1, reason="no pilot is connected"))
    display.update(Status("r1", total=1, pilots=1, reason="the pilot is busy"))
    assert capsys.readouterr().err == "  nothing runs: no pilot is connected\n"


BUSY = Status(
    "r1234", "a name of some length", 20_000, 5_120, 12, 3, running=64, elapsed=3_700.0, pilots=32, slots=128,
    left=LEFT,
)  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (200, f"r1234 a name of some length  {bar_of(BUSY)}  {status_text(BUSY)}"),
        (
            125,
            "r1234 a name of some length  5,135/20,000  running 64  failed 12  cancelled 3  about 2h58m left"
            "  (9 in 10 within 3h30m)",
        ),
        (100, "r1234 a name of some length  5,135/20,000  running 64  failed 12  cancelled 3  about 2h58m left"),
        (80, "r1234  5,135/20,000  running 64  failed 12  cancelled 3  about 2h58m left"),
        (60, "r1234  5,135/20,000  failed 12  about 2h58m left"),
        (40, "r1234  5,135/20,000  failed 12  about 2h58m left"),
    ],
)
def test_on_a_narrow_terminal_the_time_that_is_left_stays(columns: int, line: str) -> None:
    assert "  ".join(fitted(BUSY, columns)) == line


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_an_ordinary_run_fits_with_its_time(columns: int) -> None:
    status = Status("r12", "scan", 100, 12, running=2, elapsed=12.3, pilots=1, slots=2, left=TimeLeft(90.0, 93.0))
    line = "  ".join(fitted(status, columns))
    assert len(line) <= columns
    assert "r12" in line and "12/100" in line and "about 1m30s left" in line


def test_divisible_work_is_shown_by_its_units() -> None:
    status = Status("r1", total=9, succeeded=8, units=1_000, units_done=250, running=1, elapsed=30.0)
    assert status_text(status) == "250/1,000 units  running 1  failed 0  30.0s"
    assert bar_of(status) == "####............"
