"""What the pilot makes of calls, without any process: kinds of runners, telling in order, words for crashes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.pilot.functions import crash_report
from shoal.pilot.functions.call_batch import Entries, Piece
from shoal.pilot.functions.runner_process import find_kind, write_code
from shoal.pilot.guard.messages import Ended
from shoal.pilot.runner.main import CALLING, INITIALIZING, LOADING
from shoal.pilot.runner.messages import CallEnd
from shoal.wire.messages import Batch, Capacity, Lease, Report

LEASE = Lease("r1.5#1@2", Capacity(cores=1), "safe", function="f", calls=["a"] * 4, count=4, python=sys.executable)
ENDED = Ended("runner-1", None, None, "", 1.0, 0.5, 1 << 20)


class NoFiles:
    def __init__(self) -> None:
        self.moved: list[tuple[str, int, str]] = []

    def move(self, stream: str, number: int, size: int, path: str) -> tuple[int, int]:
        self.moved.append((stream, number, path))
        return min(size, 1000), max(0, size - 1000)


class Told:
    """A piece and what it said."""

    def __init__(self) -> None:
        self.said: list[tuple[int, list[str], bool]] = []  # size of the batch, outcomes of the reports, is it the last
        self.batches: list[Batch] = []
        self.reports: list[Report] = []
        self.stores: list[Callable[[str | None, str], None]] = []
        self.files = NoFiles()
        self.piece = Piece(LEASE, self._hear, lambda path, then: self.stores.append(then), lambda name: (name, name))

    def _hear(self, piece: Piece, batch: Batch | None, reports: tuple[Report, ...], over: bool) -> None:
        self.said.append((batch.count if batch else 0, [report.outcome for report in reports], over))
        self.batches += [batch] if batch else []
        self.reports += reports

    def take(self, *rows: CallEnd, over: bool = False) -> None:
        plain = [list(row[:4]) for row in rows if row == FINE]
        entries = Entries(plain=plain) if len(plain) == len(rows) else Entries(full=rows)
        self.piece.take(entries, 7, self.files.move, over)


FINE = CallEnd(1_000, 2_000, 3_000, "text")
FAILED = CallEnd(0, 1, 1, outcome="failed", cause="task_error", message="m")
LARGE = CallEnd(0, 1, 1, file="path")


def test_neighbours_that_succeeded_are_one_batch() -> None:
    told = Told()
    told.take(FINE, FINE)
    told.take(FINE, FINE, over=True)
    assert told.said == [(2, [], False), (2, [], True)]
    assert [batch.attempt for batch in told.batches] == ["r1.5#1@2", "r1.7#1@2"]
    batch = told.batches[0]
    assert (batch.duration, batch.cpu, batch.max_rss, batch.result) == ([2e-6] * 2, [3e-6] * 2, [7, 7], ["text"] * 2)
    assert (batch.last_line, batch.out, batch.err) == ([], [], [])


def test_failures_stand_between_batches_in_order() -> None:
    told = Told()
    told.take(FINE, FAILED, FINE, FAILED, over=True)
    assert told.said == [(1, ["failed"], False), (1, ["failed"], True)]
    assert [report.attempt for report in told.reports] == ["r1.6#1@2", "r1.8#1@2"]


def test_calls_wait_for_a_large_result_before_them() -> None:
    told = Told()
    told.take(FINE, LARGE)
    told.take(FINE)
    told.take(LARGE, over=True)
    assert told.said == [(1, [], False)]
    told.stores[1]("sha256:b", "")
    assert told.said == [(1, [], False)]
    told.stores[0](None, "full")
    assert told.said[1:] == [(0, ["failed"], False), (2, [], True)]
    assert told.batches[1].result == ["text", "sha256:b"]
    assert (told.reports[0].cause, told.reports[0].message) == (
        "stage_out", "its result could not be put away: full",
    )  # fmt: skip


def test_calls_that_never_began_are_not_told() -> None:
    told = Told()
    told.take(FINE)
    told.piece.finish()
    assert told.said == [(1, [], False), (0, [], True)]
    told.piece.finish()  # the last word is said once
    assert len(told.said) == 2


def test_a_skipped_call_says_why() -> None:
    told = Told()
    told.piece.stops[1] = "not needed"
    told.take(FINE, CallEnd(is_skipped=True), FINE)
    assert told.said == [(1, ["failed"], False), (1, [], False)]
    assert (told.reports[0].cause, told.reports[0].message) == ("cancelled", "not needed")


def test_what_calls_wrote_is_moved_to_their_files() -> None:
    told = Told()
    told.take(FINE, CallEnd(0, 1, 1, "r", out=[3, 10], err=[4, 20]))
    assert told.files.moved == [("out", 3, "r1.6#1@2"), ("err", 4, "r1.6#1@2")]
    assert (told.batches[0].out, told.batches[0].err, told.batches[0].last_line) == ([0, 10], [0, 20], ["", ""])


def test_a_call_whose_output_is_not_whole_says_so_in_a_report_of_its_own() -> None:
    told = Told()
    told.take(FINE, CallEnd(0, 1, 1, "r", out=[3, 1500]))
    assert told.batches[0].count == 1
    (report,) = told.reports
    assert (report.outcome, report.out) == ("succeeded", 1000)
    assert report.message.startswith("500 bytes of its stdout were left out")


def test_an_attempt_is_found_in_its_piece() -> None:
    piece = Told().piece
    first = piece.first
    assert piece.index(first) == 0
    assert piece.index(first._replace(element=8)) == 3
    others = [first._replace(element=9), first._replace(element=4), first._replace(run=2), first._replace(number=2)]
    for other in [*others, first._replace(incarnation=1), first._replace(nonce="f" * 16)]:
        assert piece.index(other) is None


def test_what_makes_runners_differ() -> None:
    kind = find_kind(LEASE, {"PATH": "/bin", "SHOAL_TASK": "r1.5"}, "/")
    assert kind == find_kind(replace(LEASE, attempt="r1.6#1@2", function="g"), {"PATH": "/bin"}, "/")
    for change in (
        {"initializer": "i"},
        {"room": Capacity(cores=1, memory=5)},
        {"env": {"SHOAL_PYTHONPATH": "/x"}},
        {"rerun": "exclusive"},
        {"session": "another"},
        {"modules": "others"},
        {"attempt": "r2.5#1@2"},  # without a session, each run is one
    ):
        assert kind != find_kind(replace(LEASE, **change), {"PATH": "/bin"}, "/")
    assert kind != find_kind(LEASE, {"PATH": "/bin", "OMP_NUM_THREADS": "2"}, "/")
    assert kind != find_kind(LEASE, {"PATH": "/bin"}, "/tmp")


def test_the_interpreter_is_the_submitters_or_the_first_on_the_path(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.symlink_to(sys.executable)
    env = {"PATH": str(tmp_path)}
    mine = find_kind(LEASE, dict(env), "/")
    assert mine is not None and (mine.python, mine.is_theirs) == (sys.executable, True)
    for wanted in ("/no/such/python", "", "python9"):
        found = find_kind(replace(LEASE, python=wanted), dict(env), "/")
        assert found is not None and (found.python, found.is_theirs) == (str(other), False)
    assert find_kind(replace(LEASE, python="/no/such/python"), {"PATH": "/no/such"}, "/") is None


def test_the_code_of_a_runner_is_written_out_whole(tmp_path: Path) -> None:
    write_code(str(tmp_path))
    assert (tmp_path / "shoal" / "pilot" / "runner" / "main.py").stat().st_size > 1000
    assert (tmp_path / "shoal" / "wire" / "__init__.py").read_bytes() == b""


@pytest.mark.parametrize(
    ("news", "stage", "cause", "words"),
    [
        ({"exit_code": 3}, CALLING, "task_error", "the function ended its interpreter (exit code 3)"),
        ({"exit_code": 0}, CALLING, "task_error", "the function ended its interpreter (exit code 0)"),
        ({"exit_code": 4}, INITIALIZING, "initializer", "initializer failed: it ended its interpreter (exit code 4)"),
        ({"signal": 11}, INITIALIZING, "initializer", "initializer failed: killed by signal 11 (SIGSEGV)"),
        ({"signal": 11}, LOADING, "signal", "killed by signal 11 (SIGSEGV) while loading the function sha256:"),
        ({"signal": 9, "why": "memory"}, CALLING, "out_of_memory", "killed at 1 MiB"),
        ({"signal": 15, "why": "time"}, CALLING, "over_time", "stopped at its time limit of 2 s"),
    ],
)
def test_how_a_call_ended_that_took_its_runner_along(news: dict[str, Any], stage: int, cause: str, words: str) -> None:
    report = crash_report.judge(replace(LEASE, time=2.0), "r1.6#1@2", replace(ENDED, **news), stage, 5.0)
    assert (report.attempt, report.outcome, report.cause) == ("r1.6#1@2", "failed", cause)
    assert report.message.startswith(words)


def test_the_call_stands_before_the_guess() -> None:
    report = crash_report.judge(LEASE, "r1.6#1@2", replace(ENDED, signal=9), CALLING, 5.0)
    words = "killed by signal 9 (SIGKILL) while calling f(3); perhaps the system ran out of memory"
    assert crash_report.name_call(report, LEASE, 1, "f(3)").message == words


def test_lost_contact_gives_the_call_back() -> None:
    report = crash_report.judge(LEASE, "r1.6#1@2", replace(ENDED, signal=9, why="contact"), CALLING, 5.0)
    assert (report.outcome, report.cause) == ("returned", "pilot_lost")


@pytest.mark.parametrize(
    ("news", "is_late", "words"),
    [
        ({"exit_code": 1}, False, "/p on this host ended with exit code 1 as it began: last line"),
        ({"signal": 6}, False, "/p on this host was killed by SIGABRT as it began: last line"),
        ({"signal": 15}, True, "/p on this host did not begin within 30 s: last line"),
        ({"signal": 9, "why": "memory"}, False, "/p needs more memory than the task's limit before it calls anything"),
    ],
)
def test_an_interpreter_that_never_began(news: dict[str, Any], is_late: bool, words: str) -> None:
    report = crash_report.never_ready("/p", replace(ENDED, **news), is_late, 30.0, "first\nlast line\n")
    assert report.message == words
    assert report.outcome == ("failed" if news.get("why") else "returned")
