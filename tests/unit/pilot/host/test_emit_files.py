"""Files into which attempts emit: who is told apart from whom, what counts at the end, and that no task can do harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.model.ids import parse_attempt
from shoal.model.limits import MAX_EMITTED
from shoal.pilot.host import emit_files
from shoal.pilot.host.emit_files import READ, EmitFiles, file_name
from shoal.sched.partial.contribution import read
from shoal.wire.messages import Batch, Capacity, Lease, Report

ONE, TWO = "r1.1#1@1~" + "a" * 16, "r1.2#1@1~" + "a" * 16


@pytest.fixture
def emits(tmp_path: Path) -> EmitFiles:
    return EmitFiles(str(tmp_path / "emit"))


def begin(emits: EmitFiles, attempt: str, **more: object) -> None:
    emits.begin(Lease(attempt, Capacity(1), "safe", **more))  # type: ignore[arg-type]


def path_of(emits: EmitFiles, attempt: str) -> Path:
    return Path(emits.folder, file_name(parse_attempt(attempt)))


def write(emits: EmitFiles, attempt: str, text: str) -> None:
    with path_of(emits, attempt).open("a") as file:
        file.write(text)


def counts(text: str) -> dict[str, int]:
    return {name: answer["n"] for name, answer in read(text).answers()}


def good(attempt: str) -> Report:
    return Report(attempt, "succeeded", exit_code=0)


def test_what_running_attempts_wrote_is_told_once_it_changed_and_in_all_at_the_end(emits: EmitFiles) -> None:
    begin(emits, ONE)
    begin(emits, TWO)
    assert emits.look(0.0) == []
    write(emits, ONE, "x=1\nx=2\ny")
    write(emits, TWO, "x=1\n")
    found = dict(emits.look(2.0))
    assert {attempt: counts(text) for attempt, text in found.items()} == {ONE: {"x": 2}, TWO: {"x": 1}}
    assert emits.look(4.0) == [], "nothing changed"
    write(emits, ONE, "=7\nx=3")
    assert counts(dict(emits.look(6.0))[ONE]) == {"x": 2, "y": 1}, "a line counts when its end is there"
    assert counts(emits.end(good(ONE)).emitted) == {"x": 3, "y": 1}, "or when the attempt is over"
    assert not path_of(emits, ONE).exists()


def test_an_attempt_that_emits_nothing_has_no_file_and_its_report_stays_as_it_is(emits: EmitFiles) -> None:
    begin(emits, ONE)
    report = good(ONE)
    assert emits.end(report) is report and os.listdir(emits.folder) == []


def test_what_failed_tells_nothing_and_is_forgotten(emits: EmitFiles) -> None:
    begin(emits, ONE)
    write(emits, ONE, "x=1\n")
    assert emits.end(Report(ONE, "failed", "task_error")).emitted == "" and not path_of(emits, ONE).exists()


def test_what_comes_after_the_end_of_an_attempt_is_deleted(emits: EmitFiles) -> None:
    begin(emits, ONE)
    begin(emits, TWO)
    emits.end(good(ONE))
    write(emits, ONE, "x=1\n")
    assert emits.look(2.0) == [] and not path_of(emits, ONE).exists()


def test_calls_of_a_piece_are_told_apart_by_their_elements(emits: EmitFiles) -> None:
    begin(emits, ONE, count=4)
    third = ONE.replace(".1#", ".3#")
    write(emits, ONE, "x=1\n")
    write(emits, third, "x=1\nx=2\n")
    assert {attempt for attempt, _ in emits.look(2.0)} == {ONE, third}
    batch = Batch(ONE, 2)
    assert emits.end_called(ONE, batch, (), False) == ()
    assert [counts(text) for text in batch.emitted] == [{"x": 1}, {}]
    (report,) = emits.end_called(ONE, None, (good(third),), True)
    assert counts(report.emitted) == {"x": 2}
    none = Batch(TWO, 1)
    emits.end_called(TWO, none, (), True)
    assert none.emitted == [], "an empty column costs nothing"


def test_an_attempt_adds_to_what_earlier_parts_of_its_task_emitted(emits: EmitFiles) -> None:
    begin(emits, ONE)
    write(emits, ONE, "x=1\nx=3\n")
    before = emits.so_far(ONE)
    begin(emits, TWO, emitted=before)
    assert emits.end(good(TWO)).emitted == before, "also if it emits nothing more"
    begin(emits, TWO, emitted=before)
    write(emits, TWO, "x=5")
    assert counts(emits.end(good(TWO)).emitted) == {"x": 3}


def test_lines_that_are_no_values_are_counted(emits: EmitFiles) -> None:
    begin(emits, ONE)
    write(emits, ONE, "hello\n\n{]\nx=1\n")
    assert read(emits.end(good(ONE)).emitted).left_out == 2


def test_a_flood_is_read_bit_by_bit_and_ends_at_a_limit(emits: EmitFiles) -> None:
    begin(emits, ONE)
    line = "x=0.125\n"
    write(emits, ONE, line * (2 * MAX_EMITTED // len(line)))
    ((_, text),) = emits.look(2.0)
    assert counts(text) == {"x": READ // len(line)}
    found = read(emits.end(good(ONE)).emitted)
    assert dict(found.answers())["x"]["n"] == MAX_EMITTED // len(line) and found.left_out == MAX_EMITTED // len(line)


def test_a_flood_that_becomes_a_pipe_stops_nobody(emits: EmitFiles, tmp_path: Path) -> None:
    begin(emits, ONE)
    write(emits, ONE, "x=0.125\n" * (2 * MAX_EMITTED // 8))
    for at in range(2 * MAX_EMITTED // READ):
        emits.look(2.0 + 2.0 * at)
    path_of(emits, ONE).unlink()
    os.mkfifo(tmp_path / "pipe")
    path_of(emits, ONE).symlink_to(tmp_path / "pipe")
    assert counts(emits.end(good(ONE)).emitted) == {"x": MAX_EMITTED // 8}


def test_a_file_that_is_no_file_harms_nobody(emits: EmitFiles) -> None:
    begin(emits, ONE)
    begin(emits, TWO)
    path_of(emits, ONE).mkdir()
    path_of(emits, TWO).symlink_to("/etc/passwd")
    assert emits.look(2.0) == []
    assert emits.end(good(ONE)).emitted == emits.end(good(TWO)).emitted == ""


def test_nothing_is_looked_at_while_nothing_runs(emits: EmitFiles) -> None:
    assert emits.deadline() is None
    begin(emits, ONE)
    assert emits.deadline() == 0.0 and emits.look(1.0) == [] and emits.deadline() == 1.0 + emit_files.LOOK_EVERY
    emits.end(good(ONE))
    assert emits.deadline() is None
