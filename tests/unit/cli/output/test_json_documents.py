"""What `--json` prints: whole ids, states, times."""

from __future__ import annotations

from shoal.cli.output.json_documents import (
    event_document,
    iso_document,
    iso_time,
    run_document,
    task_document,
    task_history,
)
from tests.unit.report.fake_source import FakeSource, run_info, task_row

AT = 1_800_000_000.25
TEXT = "2027-01-15T08:00:00.250Z"


def test_times_are_iso_in_utc() -> None:
    assert iso_time(AT) == TEXT
    assert iso_document({"created": AT, "ended": None, "first": 1, "since": 0.0, "max_rss": AT}) == {
        "created": TEXT, "ended": None, "first": 1, "since": 0.0, "max_rss": AT,
    }  # fmt: skip
    assert iso_document({"pilots": [{"joined": AT, "tags": {"created": AT}}]}) == {
        "pilots": [{"joined": TEXT, "tags": {"created": AT}}]
    }


def test_a_run_has_its_state_and_its_tables_as_they_were_written() -> None:
    table = {"command": ["x", "{started}"], "params": {"started": [AT]}}
    found = run_document(run_info([table], created=AT, finished=AT, counts={"succeeded": 1}))
    assert (found["run"], found["state"], found["created"]) == ("r1", "succeeded", TEXT)
    assert found["arrays"][0]["task"] == table
    span = {"run": 1, "low": 1, "high": 2, "state": "cancelled", "cause": "cancelled", "message": "", "ended": AT}
    assert run_document(run_info([table], spans=[span]))["spans"] == [{**span, "run": "r1", "ended": TEXT}]


def test_a_task_has_whole_ids() -> None:
    found = task_document("r12", task_row(3, run=12, started=AT))
    assert (found["task"], found["run"], found["state"], found["started"]) == ("r12.3", "r12", "succeeded", TEXT)


def test_a_task_that_never_ran_has_an_id_and_a_state_too() -> None:
    source = FakeSource(run_info([{"command": ["x"], "array": "1-5"}]))
    found = task_history("r1.3", source.task("r1.3"))
    assert (found["id"], found["state"], found["run"]["run"]) == ("r1.3", "ready", "r1")
    assert found["task"] == {"task": "r1.3", "state": "ready", "element": 3, "run": "r1"}


def test_events_name_run_and_task() -> None:
    event = {"seq": 1, "time": AT, "kind": "task_finished", "run": 12, "task": 3, "data": {"started": AT}}
    assert event_document(event) == {**event, "time": TEXT, "run": "r12", "task": "r12.3"}
    assert event_document({"seq": 1, "run": None, "task": None})["run"] is None
    assert event_document({"seq": 1, "run": 12, "task": None})["task"] is None
