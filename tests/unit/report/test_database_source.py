"""Reading a state directory without a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.db.sqlite import Database
from shoal.engine.changes import AcctAdd, ArrayRow, Change, PilotRow, RunRow, SpanRow, TaskRow
from shoal.model.errors import BadInput, NotFound
from shoal.model.event import Event
from shoal.model.file_names import DATABASE, LOGS, log_name
from shoal.report.acct import account
from shoal.report.data_source import OUTCOME, EmptySource, open_file
from shoal.report.database_source import FileSource
from shoal.report.results import iterate

SWEEP = {"name": "sim", "command": ["./sim", "{x}"], "params": {"x": "1..4"}}
CHILD = {"name": "merge", "command": ["merge"], "after": ["sim"]}


def task(element: int, run: int = 2, state: str = "succeeded", **fields: object) -> TaskRow:
    row = TaskRow(
        run, element, state, 1, "1@1", 0, 0, "", "", "", 0, None, 1.0, 1.0, 2.0, 0.5, 0.4, 1024, "p1", "vm", "local", "7", "", ""
    )  # fmt: skip
    return row._replace(**fields)  # type: ignore[arg-type]  # the fields are the row's own


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Run 1 is finished, run 2 open: one task done, one failed, the rest not begun."""
    changes: list[Change] = [
        RunRow(1, "me", "old", 1.0, 9.0, 3, '{"succeeded": 1, "cancelled": 2}', "/d", 1, None, "", "x", "", ""),
        ArrayRow(1, 1, 3, "", json.dumps({"command": ["echo"], "array": "1-3"})),
        task(1, run=1, reused="r2.1"),
        SpanRow(1, 2, 4, "cancelled", "cancelled", "cancelled by the user", 8.0),
        RunRow(2, "me", "new", 2.0, None, 5, '{"succeeded": 1, "failed": 1}', "/d", 1, None, "", "y", '{"k": "v"}', ""),
        ArrayRow(2, 1, 4, "sim", json.dumps(SWEEP)),
        ArrayRow(2, 5, 1, "merge", json.dumps(CHILD)),
        task(1),
        task(2, state="failed", cause="task_error", message="exit code 1", attempt=2),
        Event(1, 2.0, "run_submitted", 2, None, None, None, None, {"name": "new", "tasks": 5}),
        Event(2, 3.0, "task_finished", 2, 2, 2, "p1", "local", {"state": "failed"}),
        PilotRow("p1", "gone", "drained", "me", "local", "vm", "id", "secret", "[]", 4, 0, 0, 0, "0.1", "{}", 1.0, 3.0),
        PilotRow("p2aa", "idle", "", "me", "local", "vm", "id", "secret", "[]", 4, 0, 0, 0, "0.1", "{}", 1.0, None),
    ]
    with Database.open(tmp_path / DATABASE) as database:
        database.apply(changes)
    log = tmp_path / LOGS / log_name(2, 1, 1, "stdout")
    log.parent.mkdir(parents=True)
    log.write_bytes(b"hello\n")
    return tmp_path


@pytest.fixture
def source(state: Path) -> Iterator[FileSource]:
    with FileSource(state) as found:
        yield found


def test_runs_are_listed_newest_first_with_filters_and_pages(source: FileSource) -> None:
    assert [row["run"] for row in source.runs()["runs"]] == ["r2", "r1"]
    page = source.runs(limit=1)
    assert page["next"] == "r2"
    assert [row["run"] for row in source.runs(limit=1, before="r2")["runs"]] == ["r1"]
    assert [row["run"] for row in source.runs(state="finished")["runs"]] == ["r1"]
    assert [row["run"] for row in source.runs(name="n*")["runs"]] == ["r2"]


def test_a_run_has_arrays_spans_and_counts(source: FileSource) -> None:
    run = source.run("r2")
    assert (run["run"], run["counts"], run["labels"]) == ("r2", {"succeeded": 1, "failed": 1}, {"k": "v"})
    assert [array["count"] for array in run["arrays"]] == [4, 1]
    assert source.run("r1")["spans"][0]["message"] == "cancelled by the user"


def test_results_merge_what_the_file_has(source: FileSource) -> None:
    assert [row["state"] for row in iterate(source, "r2")] == ["succeeded", "failed", "ready", "ready", "waiting"]
    assert [row["state"] for row in iterate(source, "r1")] == ["succeeded", "cancelled", "cancelled"]


def test_a_task_has_its_state_row_span_and_events(source: FileSource) -> None:
    failed = source.task("r2.2")
    assert (failed["state"], failed["task"]["cause"]) == ("failed", "task_error")
    assert [event["seq"] for event in failed["events"]] == [2]
    assert source.task("r1.3")["state"] == "cancelled"
    assert (source.task("r2.4")["state"], source.task("r2.5")["state"]) == ("ready", "waiting")


def test_logs_are_read_from_their_files(source: FileSource) -> None:
    assert list(source.logs("r2.1")) == [b"hello\n"]
    assert list(source.logs("r1.1")) == [b"hello\n"]  # taken over from r2.1
    assert list(source.logs("r2.1", "stderr")) == []
    assert list(source.logs("r2.4")) == []  # as a server answers for what has not run
    with pytest.raises(NotFound, match="no task"):
        list(source.logs("r2.6"))


@pytest.mark.parametrize("target", ["r9", "r9.1", "r2.6"])
def test_what_is_not_there_is_not_found(source: FileSource, target: str) -> None:
    with pytest.raises(NotFound):
        source.why(target)


def test_why_tells_what_is_final_and_who_could_move_the_rest(source: FileSource) -> None:
    failed = source.why("r2.2")
    assert (failed["state"], failed["reasons"][0]["text"]) == ("failed", "exit code 1, after 2 attempts")
    assert "shoal retry r2.2" in failed["reasons"][0]["fix"]
    assert source.why("r1.2")["reasons"][0]["text"] == "cancelled by the user"
    assert source.why("r1")["state"] == "finished"
    asleep, engine = source.why("r2.3")["reasons"]
    assert "no server is running" in asleep["text"]
    assert "pilot" in engine["text"], "the engine restored from the file says it in its own words"


def test_pilots_are_listed_without_their_secrets(source: FileSource) -> None:
    found = source.pilots()["pilots"]
    assert {row["pilot"] for row in found} == {"p1", "p2aa"}
    assert "secret" not in json.dumps(found)
    assert [row["pilot"] for row in source.pilots("gone")["pilots"]] == ["p1"]


def test_accounts_are_summed_as_far_as_the_journal_goes(state: Path) -> None:
    with Database.open(state / DATABASE) as database:
        add = AcctAdd(0, "me", "local", "vm", "p2aa", 2, useful=7.0, tasks=3, queued=6.0)
        database.apply([add, add._replace(run=1), Event(3, 61.0, "task_finished", 2, 3, 1, "p2aa", "local", {})])
    with FileSource(state) as source:
        (row,) = account(source)["rows"]
        assert (row["owner"], row["tasks"], row["queue"], row["idle"]) == ("me", 6, 2.0, None)
        (row,) = account(source, "pilot")["rows"][1:]
        # Four cores from second 1 to the last line of the journal; nobody knows of later.
        assert row["pilot"] == "p2aa" and row["idle"] * 3600 == pytest.approx(4 * 60.0 - 14.0)
        assert account(source, "owner", since=7200.0)["rows"] == []
        with pytest.raises(BadInput, match="summed by 'ownr'"):
            account(source, "ownr")


def test_events_are_read_to_the_end(source: FileSource) -> None:
    assert [event["kind"] for event in source.events("r2")] == ["run_submitted", "task_finished"]
    assert [event["seq"] for event in source.events(after=1)] == [2]
    assert [event["seq"] for event in source.events(kinds=("run_submitted",))] == [1]


def test_where_nothing_was_submitted_there_is_nothing(tmp_path: Path) -> None:
    with open_file(tmp_path) as empty:
        assert isinstance(empty, EmptySource)
        assert empty.runs() == {"runs": [], "next": None}
        assert empty.pilots() == {"pilots": []}
        assert account(empty, "site")["rows"] == []
        with pytest.raises(BadInput):
            account(empty, "ownr")
        with pytest.raises(NotFound, match="nothing was submitted"):
            empty.run("r1")


def test_outcomes_are_the_rows_column_by_column(
    source: FileSource, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database.open(state / DATABASE) as database:
        database.apply([task(3, result="cafe"), task(4, state="lost", result="x" * 10_000, exit_code=None)])
    rows = source.tasks("r2")["tasks"]
    assert [row["element"] for row in rows] == [1, 2, 3, 4]
    expected = [tuple(row[name] for name in OUTCOME[:-1]) for row in rows]
    for at_once in (10_000, 2, 1):
        monkeypatch.setattr("shoal.db.reader.OUTCOMES", at_once)
        assert [found[:-1] for found in source.outcomes("r2")] == expected
        assert [found[-1] for found in source.outcomes("r2")] == [""] * 4
        assert [found[-1] for found in source.outcomes("r2", values=True)] == ["", "", "cafe", ""]
