"""What a run's events add up to, in plain sentences."""

from __future__ import annotations

import time
from typing import Any

import pytest

from shoal.model.quantities import rate_text
from shoal.report.summary import (
    SAMPLE,
    Tally,
    alone_document,
    alone_lines,
    counts_text,
    read_alone,
    summary_lines,
    tally_run,
)
from tests.unit.report.fake_source import FakeSource, finished, run_info, task_row


def event(kind: str, **fields: Any) -> dict[str, Any]:
    data = fields.pop("data", {})
    return {"seq": 1, "kind": kind, "run": 1, "task": 1, "pilot": "p1", **fields, "data": data}


def test_failures_are_grouped_by_cause_with_one_example() -> None:
    tally = Tally("r1")
    for task in range(1, 4):
        tally.take(finished(task, "failed", cause="task_error", exit_code=1, stderr_tail=f"boom {task}"))
    tally.take(finished(4, "failed", cause="over_time", message="it ran longer than 10s"))
    info = run_info([{"command": ["x"], "array": "1-10"}], counts={"failed": 4, "succeeded": 6}, finished=110.0)
    lines = summary_lines(info, tally, 10.0)
    assert "10 tasks: 6 succeeded, 4 failed in 10.0s" in lines[0]
    assert "3 task_error (exit code 1), e.g. r1.1" in lines[1]
    assert "shoal logs r1.1 --stderr" in lines[1]
    assert "1 over_time, e.g. r1.4: it ran longer than 10s" in lines[2]
    assert tally.first is not None
    assert tally.first.tail == "boom 1"


def test_a_quiet_run_has_nothing_to_tell() -> None:
    tally = Tally("r1")
    tally.take(finished(1, duration=1.0, host="laptop"))
    assert tally.happened() == []
    assert tally.quantile(0.5) == 1.0


def test_retries_losses_rescues_and_cancels_are_told() -> None:
    tally = Tally("r1")
    tally.take(event("task_retried", data={"cause": "signal"}))
    tally.take(event("task_lost_pilot", pilot="p3f9c"))
    tally.take(event("task_adopted", data={"how": "late success"}))
    tally.take(event("report_refused"))
    tally.take(event("task_returned"))
    tally.take(event("tasks_reused", data={"count": 7, "origins": ["r3"]}))
    tally.take(event("tasks_closed", data={"count": 5, "state": "cancelled", "ranges": [[2, 6]]}))
    told = " ".join(tally.happened())
    for part in ("1 attempt failed and went again (signal 1)", "p3f9c", "kept", "did not count", "given back",
                 "7 tasks not run again", "from r3", "5 tasks cancelled"):  # fmt: skip
        assert part in told


def test_tasks_whose_parents_failed_count_as_failed_in_bulk() -> None:
    tally = Tally("r1")
    data = {
        "count": 20,
        "state": "failed",
        "cause": "dependency_failed",
        "why": "sim did not succeed",
        "ranges": [[5, 24]],
    }
    tally.take(event("tasks_closed", task=None, data=data))
    group = next(iter(tally.failures.values()))
    assert (group.count, group.example, group.cause) == (20, "r1.5", "dependency_failed")


def test_retry_by_a_person_forgets_the_failures() -> None:
    tally = Tally("r1")
    tally.take(finished(1, "failed", cause="task_error"))
    tally.take({"seq": 2, "kind": "run_finished", "run": 1, "data": {}})
    tally.take(event("run_reopened", data={"tasks": 1}))
    assert not tally.finished
    assert tally.failures == {}
    assert tally.states["failed"] == 0


def test_the_sample_of_durations_is_bounded_and_fair() -> None:
    tally = Tally("r1")
    for task in range(5 * SAMPLE):
        tally.take(finished(task, duration=float(task)))
    assert len(tally._sample) == SAMPLE
    median = tally.quantile(0.5)
    assert median is not None
    assert abs(median - 2.5 * SAMPLE) < 0.05 * 5 * SAMPLE


def test_a_finished_run_is_told_from_its_journal() -> None:
    info = run_info([{"command": ["x"]}], counts={"failed": 1}, finished=101.0)
    source = FakeSource(info, [task_row(1, state="failed")], [finished(1, "failed", cause="signal", signal=9)])
    tally = tally_run(source, "r1", info)
    assert next(iter(tally.failures.values())).what == "signal 9"


def test_a_run_whose_journal_is_pruned_is_told_from_its_rows() -> None:
    span = {"low": 3, "high": 5, "state": "failed", "cause": "dependency_failed", "message": "x failed", "ended": 1.0}
    info = run_info([{"command": ["x"], "array": "1-4"}], counts={"failed": 3, "succeeded": 1}, spans=[span])
    rows = [task_row(1, duration=2.0), task_row(2, state="failed", cause="task_error", exit_code=3)]
    tally = tally_run(FakeSource(info, rows), "r1", info)
    assert tally.states == {"succeeded": 1, "failed": 3, "cancelled": 0, "lost": 0}
    assert {(f.cause, f.count, f.example) for f in tally.failures.values()} == {
        ("task_error", 1, "r1.2"),
        ("dependency_failed", 2, "r1.3"),
    }
    assert tally.quantile(0.5) == 2.0


def test_a_run_reset_in_part_keeps_what_happened_and_counts_from_its_rows() -> None:
    info = run_info([{"command": ["x"], "array": "1-2"}], counts={"failed": 1, "succeeded": 1}, finished=101.0)
    rows = [task_row(1, duration=2.0), task_row(2, state="failed", cause="task_error", exit_code=3)]
    events = [
        event("task_retried", data={"cause": "signal"}),
        finished(1, "failed", cause="task_error", exit_code=1),
        finished(2, "failed", cause="task_error", exit_code=3),
        event("tasks_reset", data={"tasks": 1}),
        finished(1, duration=2.0),
    ]
    tally = tally_run(FakeSource(info, rows, events), "r1", info)
    assert [(f.what, f.count, f.example) for f in tally.failures.values()] == [("exit code 3", 1, "r1.2")]
    assert tally.adds_up(info)
    assert "1 attempt failed and went again (signal 1)." in tally.happened()


def test_rates_are_given_in_a_readable_unit() -> None:
    assert rate_text(12.34) == "12.3/s"
    assert rate_text(0.5) == "30.0/min"
    assert rate_text(0.001) == "3.6/h"


def test_units_of_divisible_work_are_told_beside_the_tasks() -> None:
    counts = {"succeeded": 2, "units": 1_000, "units_done": 300}
    info = run_info([{"command": ["x"], "units": 1_000}], counts=counts)
    assert counts_text({**info, "total": 3}) == "2 succeeded, 1 ready, 300 of 1,000 units done"
    assert "300 of 1,000 units done" in summary_lines({**info, "total": 3}, Tally(), None)[0]


def alone_events() -> list[dict[str, Any]]:
    """Two sites go on by themselves, one of them twice; of the last time the server has not heard everything."""

    def adopted(seq: int, task: int, site: str, ended: bool) -> dict[str, Any]:
        data = {"how": "begun by its site", "ended": ended}
        return event("task_adopted", seq=seq, task=task, attempt=1, site=site, data=data)

    def back(seq: int, site: str, begun: int, since: float | None, until: float | None) -> dict[str, Any]:
        data = {"begun": begun, "released": 5, "site": site, "since": since, "until": until}
        return event("site_back", seq=seq, run=None, task=None, attempt=None, data=data)

    return [
        event("task_adopted", seq=1, task=9, attempt=1, site="hpc", data={"how": "late success"}),
        adopted(2, 1, "hpc", True),
        event("task_finished", seq=3, task=1, attempt=1, data={"state": "succeeded"}),
        adopted(4, 2, "hpc", False),
        adopted(5, 3, "cloud", True),
        event("task_retried", seq=6, task=3, attempt=1, data={"cause": "task_error"}),
        back(7, "hpc", 2, 1_000_000.0, 1_007_200.0),
        back(8, "cloud", 1, None, 1_007_200.0),
        back(9, "hpc", 0, None, None),
        event("task_lost_pilot", seq=10, task=2, attempt=1, data={}),
        event("task_finished", seq=11, task=2, attempt=2, data={"state": "succeeded"}),
        adopted(12, 4, "hpc", False),
    ]


def test_what_sites_did_by_themselves_is_told_by_what_became_of_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    info = run_info([{"command": ["x"], "array": "1-10"}])
    found = read_alone(FakeSource(info, events=alone_events()), "r1")
    assert alone_lines(found) == [
        "site hpc worked on alone 1970-01-12 13:46 to 15:46: 2 tasks begun, 1 ended, 1 merged, 1 begun again",
        "site cloud worked on alone until 1970-01-12 15:46: 1 task begun, 1 ended, 1 merged, 0 begun again",
        "site hpc worked on alone: 1 task begun, 0 ended, 0 merged, 0 begun again",
    ]
    assert alone_document(found)["alone"][0] == {
        "site": "hpc", "since": "1970-01-12T13:46:40+00:00", "until": "1970-01-12T15:46:40+00:00",
        "begun": 2, "ended": 1, "merged": 1, "again": 1,
    }  # fmt: skip
    assert alone_document(found)["alone"][2]["until"] is None, "not all of its members have spoken"
    monkeypatch.undo()
    time.tzset()


def test_of_a_run_that_no_site_worked_on_alone_nothing_is_said() -> None:
    events = [event for event in alone_events() if event["kind"] != "task_adopted"]
    assert read_alone(FakeSource(run_info([{"command": ["x"]}]), events=events), "r1") == []
    assert alone_document([]) == {}
