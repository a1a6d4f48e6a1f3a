"""`shoal report` as it is typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.main import invoke
from shoal.cli.session import Session
from tests.unit.cli.conftest import Typed
from tests.unit.report.fake_source import FakeSource, Json, run_info, task_row

PILOT: Json = {"pilot": "p1", "host": "laptop", "cores": 1, "joined": 1_700_000_000.0, "ended": None}
START = 1_700_000_100.0


def row(element: int, start: float, seconds: float, **more: Any) -> Json:
    ended = START + start + seconds
    return task_row(
        element, pilot=more.pop("pilot", "p1"), started=START + start, duration=seconds, ended=ended, **more
    )


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    """Three tasks on two pilots of one slot, as in the test of the anatomy."""
    info = run_info([{"command": ["x"], "array": "1-3"}], created=START, finished=START + 10.0, name="fit\x1b[31m")
    found = FakeSource(
        info,
        [row(1, 0.0, 4.0), row(2, 3.0, 2.0, pilot="p2"), row(3, 4.0, 6.0)],
        pilots=[PILOT, {**PILOT, "pilot": "p2", "host": "desk", "joined": START + 2.0}],
    )
    monkeypatch.setattr(Session, "__init__", lambda self, server=None: None)
    monkeypatch.setattr(Session, "running", lambda self: None)
    monkeypatch.setattr(Session, "bulk_source", lambda self: found)
    monkeypatch.setenv("COLUMNS", "64")
    return found


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert invoke(["report", *words]) == 0
    return capsys.readouterr().out


def test_the_text_has_figures_phases_charts_and_tasks(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "r1")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == r"r1 fit\x1b[31m: 3 tasks: 3 succeeded"
    assert lines[1:4] == [
        "makespan 10.0s",
        "pool 2 pilots, 2 slots at most",
        "utilisation 66.7 %; of all slot time 40.0 % was lost",
    ]
    assert "phase length lost % missing idle overhead failed" in lines
    assert "submission 2.0s 10 10 0 0 0" in lines
    assert "main 3.0s 5 0 0 5 0" in lines
    assert "tail 5.0s 25 0 25 0 0" in lines
    assert "whole run 10.0s 40 10 25 5 0" in lines
    assert "r1.3 succeeded 6.0s 4.0s laptop" in lines
    assert any(line.startswith("ended last") for line in lines)
    assert out.isascii(), "a pipe gets plain ASCII"
    assert max(map(len, out.splitlines())) <= 64


def test_without_a_run_it_is_the_latest(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report"]) == 0
    seen = capsys.readouterr()
    assert "the latest run: r1" in seen.err and seen.out.startswith("r1 ")


def test_programs_get_the_same_figures(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "r1", "--json"))
    assert (found["run"], found["makespan"], found["slots"], found["finished"]) == ("r1", 10.0, 2, True)
    assert found["started"] == "2023-11-14T22:15:00.000Z"
    assert [phase["lost_share"] for phase in found["phases"]] == pytest.approx([0.1, 0.05, 0.25])
    assert json.loads(told(capsys, "r1", "--json", "--target", "4"))["slot_seconds"]["missing"] == 2 * 3 + 8 * 2


def test_a_run_that_goes_on_says_so(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    source.info["finished"] = None
    del source.all_rows[1:]
    out = told(capsys, "r1")
    assert "3 tasks: 1 succeeded, 2 not finished" in out and "4.0s so far" in out and "ended last" not in out


def test_a_run_in_which_nothing_began_is_told_in_a_line(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    source.all_rows.clear()
    assert "no task ran, so there is nothing to tell of phases" in told(capsys, "r1")
    source.info["finished"] = None
    assert "no task has begun" in told(capsys, "r1")


def test_other_runs_of_the_same_time_are_named(source: FakeSource, capsys: pytest.CaptureFixture[str]) -> None:
    other = {**source.info, "run": "r2", "name": "", "created": START + 1.0}
    source.runs = lambda *_, **__: {"runs": [other, source.info], "next": None}  # type: ignore[method-assign]
    assert "1 other run open meanwhile" in told(capsys, "r1")


def test_a_terminal_that_can_show_blocks_gets_them(
    source: FakeSource, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.cli.tasks.report.shows_blocks", lambda: True)
    assert "█" in told(capsys, "r1")


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_a_figure_is_written_and_named(
    source: FakeSource, capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"r1.{suffix}"
    assert invoke(["report", "r1", "-o", str(path)]) == 0
    assert f"figure: {path}" in capsys.readouterr().err and path.stat().st_size > 1_000


def test_a_figure_that_cannot_be_written_is_one_line(
    source: FakeSource, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    assert invoke(["report", "r1", "-o", str(tmp_path / "none" / "r1.svg")]) == 3
    err = capsys.readouterr().err
    assert "cannot write" in err and "No such file" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("r1.pdf", "-o: 'r1.pdf' is not the name of a figure (end it with .png, .svg or .html)"),
        ("r1.png", "-o: a figure needs matplotlib, which is not installed (pip install 'shoal[plot]')"),
    ],
)
def test_a_wrong_name_and_a_missing_matplotlib_are_one_line_before_anything_is_read(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, path: str, wrong: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert typed("report", "-o", path) == (2, "", f"shoal: {wrong}\n")


def test_nothing_was_submitted_and_a_task_is_no_run(typed: Typed) -> None:
    status, _, err = typed("report")
    assert status == 3 and "nothing was submitted" in err
    status, _, err = typed("report", "r1.2")
    assert status == 2 and "name its run: r1" in err
