"""From the end of a command to its report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.pilot.commands import checkpoint
from shoal.pilot.commands.ending import End
from shoal.pilot.commands.staging import Environment, PilotFacts, Prepared, Staging
from shoal.pilot.guard.start_progress import StartStage
from shoal.wire.messages import Capacity, Lease, Report

PLAIN = Report("r1.1#1@1", "failed", "task_error", "exit code 85", exit_code=85)
STOPPED = Report("r1.1#1@1", "failed", "cancelled", "stopped", exit_code=0)


class Shelf:
    """Blobs, without a server."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, float | None]] = []

    def store_file(self, fd: int, run: str = "", patience: float | None = None, use: str = "") -> str:
        assert use == "checkpoint"
        self.kept.append((run, patience))
        return f"sha256:{len(self.kept)}"


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder, self.shelf = folder, Shelf()
        self.stage = Staging(PilotFacts(str(folder / "work"), {}))

    def end(self, report: Report, declared: tuple[str, ...] = ("state",), **more: Any) -> Report:
        lease = Lease(report.attempt, Capacity(1), "safe", ["x"], cwd=str(self.folder), checkpoint=list(declared))
        made = Prepared(lease, ["x"], str(self.folder), Environment(1, {}), start_stage=more.pop("start_stage", None))
        made.before = more.pop("before", dict.fromkeys(declared))
        return End(made, report, str(self.folder / "err"), **more).finish(self.stage, self.shelf)  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "state").write_text("7")
    return Bench(tmp_path)


def test_a_task_that_says_so_goes_on_later(bench: Bench) -> None:
    report = bench.end(PLAIN)
    assert (report.outcome, report.cause, report.files) == ("checkpointed", "", {"state": "sha256:1"})
    assert bench.shelf.kept == [("r1", None)], "the server has all the time it needs"


@pytest.mark.parametrize(
    "report",
    [
        replace(PLAIN, exit_code=84),
        replace(PLAIN, exit_code=0, outcome="succeeded", cause=""),
        replace(PLAIN, cause="over_time"),
        replace(PLAIN, cause="out_of_memory"),
        STOPPED,
    ],
)
def test_any_other_end_of_its_own_keeps_nothing(bench: Bench, report: Report) -> None:
    assert bench.end(report) == report and bench.shelf.kept == []


def test_who_is_stopped_to_go_on_has_little_time(bench: Bench) -> None:
    report = bench.end(STOPPED, stop="the pilot leaves", keep=True)
    ((run, patience),) = bench.shelf.kept
    assert (report.outcome, run) == ("checkpointed", "r1")
    assert patience is not None and checkpoint.WINDOW - 1 < patience <= checkpoint.WINDOW
    assert report.message == "wrote its checkpoint when it was stopped: the pilot leaves"


@pytest.mark.parametrize("report", [STOPPED, PLAIN, replace(PLAIN, cause="cancelled")])
def test_who_is_cancelled_keeps_nothing(bench: Bench, report: Report) -> None:
    assert bench.end(report, stop="unwanted") == report and bench.shelf.kept == []


def test_who_failed_by_itself_just_before_the_stop_has_failed(bench: Bench) -> None:
    report = replace(PLAIN, exit_code=1)
    assert bench.end(report, stop="the pilot leaves", keep=True) == report


def test_a_stopped_task_that_wrote_nothing_new_is_given_back(bench: Bench) -> None:
    before = checkpoint.look(str(bench.folder), ["state"])
    assert bench.end(STOPPED, stop="leaves", keep=True, before=before) == STOPPED
    assert bench.end(STOPPED, ("state", "other"), stop="leaves", keep=True) == STOPPED
    said = bench.end(replace(STOPPED, exit_code=85), stop="leaves", keep=True, before=before)
    assert said.outcome == "checkpointed", "its word counts"
    missing = replace(STOPPED, exit_code=85)
    assert bench.end(missing, ("other",), stop="leaves", keep=True) == missing


def test_a_set_up_that_says_85_is_no_checkpoint(bench: Bench) -> None:
    (bench.folder / "mark").write_text("0\n")
    report = bench.end(PLAIN, start_stage=StartStage(str(bench.folder / "mark"), ("(exit 85)",)))
    assert (report.outcome, report.cause, bench.shelf.kept) == ("failed", "host_unfit", [])


def test_the_time_for_files_is_told_only_where_some_were_moved(bench: Bench) -> None:
    assert bench.end(replace(PLAIN, exit_code=1)).staging == 0.0
    assert bench.end(replace(PLAIN, exit_code=1), staged=2.0).staging >= 2.0


def test_an_attempt_has_an_end_whatever_goes_wrong_with_its_outputs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise BadInput("it is no digest")

    monkeypatch.setattr(bench.stage, "collect", fail)
    report = bench.end(replace(PLAIN, outcome="succeeded", cause="", exit_code=0), declared=())
    assert (report.outcome, report.cause) == ("failed", "stage_out") and "it is no digest" in report.message
