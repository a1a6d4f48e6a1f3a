"""Accounts computed from sums: hours, idle time, means, efficiency, totals."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.report.acct import COLUMNS, account, computed
from tests.unit.report.fake_source import FakeSource, Json, run_info

HOUR = 3_600.0


def line(**more: Any) -> Json:
    sums = {"useful": 0.0, "failed": 0.0, "lost": 0.0, "duplicated": 0.0, "tasks": 0, "queued": 0.0, "staging": 0.0}
    return {**sums, **more}


def answer(by: list[str], lines: list[Json], places: list[Json] | None = None) -> Json:
    return {"by": by, "since": 0.0, "until": 9.0, "lines": lines, "places": places}


def test_core_hours_mean_queue_and_efficiency_of_an_owner() -> None:
    told = line(
        owner="ann", useful=6 * HOUR, failed=HOUR, lost=HOUR, duplicated=2 * HOUR, tasks=4, queued=8.0, staging=3.0
    )
    (row,) = computed(answer(["owner"], [told]))["rows"]
    assert row == {
        "owner": "ann", "useful": 6.0, "failed": 1.0, "lost": 1.0, "duplicated": 2.0, "idle": None, "tasks": 4,
        "queue": 2.0, "transfer": 3.0, "efficiency": 0.6,
    }  # fmt: skip
    assert tuple(row)[1:] == COLUMNS


def test_idle_is_what_was_offered_and_not_used_by_anybody() -> None:
    lines = [line(site="a", useful=3 * HOUR, tasks=1)]  # of one person; others used the rest
    places = [
        {"site": "a", "offered": 10 * HOUR, "used": 4 * HOUR},
        {"site": "b", "offered": 2 * HOUR, "used": 0.0},
    ]
    found = computed(answer(["site"], lines, places))
    busy, empty = found["rows"]
    assert (busy["idle"], busy["efficiency"]) == (6.0, 3 / 9)
    assert (empty["site"], empty["idle"], empty["tasks"], empty["queue"], empty["efficiency"]) == (
        "b",
        2.0,
        0,
        None,
        0.0,
    )
    assert (found["total"]["idle"], found["total"]["useful"]) == (8.0, 3.0)


def test_what_was_offered_before_the_time_asked_for_makes_no_negative_idleness() -> None:
    places = [{"day": "d1", "offered": HOUR, "used": 5 * HOUR}, {"day": "d2", "offered": 24 * HOUR, "used": 0.0}]
    found = computed(answer(["day"], [line(day="d1", useful=5 * HOUR, tasks=1)], places))
    assert [row["idle"] for row in found["rows"]] == [0.0, 24.0]
    assert found["total"]["idle"] == 20.0, "in the total, a night's work makes up for the day before"


def test_a_line_of_a_pilot_that_one_does_not_see_has_no_idle_time() -> None:
    found = computed(answer(["pilot"], [line(pilot="p9", useful=HOUR, tasks=1)], []))
    assert (found["rows"][0]["idle"], found["rows"][0]["efficiency"], found["total"]["idle"]) == (None, 1.0, None)


def test_rows_stand_in_the_order_of_their_words_and_add_up_to_the_total() -> None:
    lines = [line(run=10, site="b", lost=HOUR, tasks=3), line(run=9, site="c", useful=HOUR, tasks=1, queued=8.0)]
    found = computed(answer(["site", "run"], lines))
    assert [(row["site"], row["run"]) for row in found["rows"]] == [("b", "r10"), ("c", "r9")]
    total = found["total"]
    assert (total["tasks"], total["queue"], total["efficiency"], total["lost"]) == (4, 2.0, 0.5, 1.0)
    assert computed(answer(["run"], lines))["rows"][0]["run"] == "r9", "runs by their numbers"


@pytest.mark.parametrize("by", [["owner"], ["site"]])
def test_nothing_is_no_rows_and_a_total_of_nothing(by: list[str]) -> None:
    found = computed(answer(by, [], None if by == ["owner"] else []))
    assert found["rows"] == [] and found["total"]["useful"] == 0.0 and found["total"]["efficiency"] is None


def test_the_source_is_asked_for_what_was_asked() -> None:
    source = FakeSource(run_info([{"command": ["x"]}]))
    assert account(source, "site,day", 5.0, 9.0)["rows"] == []
    assert source.asked == [("acct", "site,day", 5.0, 9.0)]
