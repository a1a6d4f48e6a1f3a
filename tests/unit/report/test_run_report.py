"""The figures of a report: what programs get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.report.history import RunRecord
from shoal.report.run_record import Found
from shoal.report.run_report import PARTS, SHOWN, document, make_report, wasted_attempts
from tests.unit.report.fake_source import run_info
from tests.unit.report.test_history import attempt, small_run


def found_of(record: RunRecord, **info: Any) -> Found:
    told: dict[str, Any] = {"created": record.start, "finished": record.end, "counts": {}, **info}
    return Found(run_info([{"command": ["x"], "array": "1-3"}], **told), record)


def test_the_document_of_a_small_run() -> None:
    told = document(make_report(found_of(small_run())))
    json.dumps(told)
    assert (told["makespan"], told["pilots"], told["slots"], told["most_slots"]) == (10.0, 2, 2, 2)
    assert told["utilisation"] == pytest.approx(12 / 18) and told["median_duration"] == 4.0
    assert [(p["phase"], p["from"], p["to"]) for p in told["phases"]] == [
        ("submission", 0.0, 2.0), ("main", 2.0, 5.0), ("tail", 5.0, 10.0),
    ]  # fmt: skip
    assert [p["lost_share"] for p in told["phases"]] == pytest.approx([0.1, 0.05, 0.25])
    assert told["phases"][2]["lost_shares"] == {"failed": 0.0, "overhead": 0.0, "idle": 0.25, "missing": 0.0}
    assert told["slot_seconds"]["total"] == 20.0 and told["slot_seconds"]["lost"] == 8.0
    assert len(told["history"]["pool"]) == PARTS and told["history"]["seconds"] == pytest.approx(10.0 / PARTS)
    assert [(one["task"], one["seconds"]) for one in told["longest"]] == [("r1.3", 6.0), ("r1.1", 4.0), ("r1.2", 2.0)]
    assert [one["task"] for one in told["last"]] == ["r1.3"], "only what ended in the tail"


def test_a_run_of_which_nothing_is_known_has_a_document() -> None:
    told = document(make_report(found_of(RunRecord(0.0, 0.0))))
    assert told["makespan"] == 0.0 and told["longest"] == told["last"] == told["history"]["pool"] == []
    assert told["median_duration"] is None and told["slot_seconds"]["lost_share"] == 0.0


def test_the_longest_are_few_and_attempts_for_nothing_are_counted() -> None:
    many = [attempt(i, "a", 0.0, float(i), "failed" if i % 2 else "succeeded") for i in range(1, 21)]
    made = make_report(found_of(RunRecord(0.0, 20.0, 20, many, [], [])))
    assert [one.task for one in made.longest] == [20, 19, 18, 17, 16] and len(made.longest) == SHOWN
    assert wasted_attempts(many) == {"failed": 10}
