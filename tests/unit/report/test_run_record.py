"""The record of a run from its rows and events: last attempts, earlier ones, copies, running ones, pilots."""

from __future__ import annotations

import math
from typing import Any

from shoal.report.history import Attempt, Ending, PilotLife
from shoal.report.run_record import Found, read_record
from tests.unit.report.fake_source import FakeSource, Json, run_info, task_row

LIVES: Json = {"pilot": "p1", "host": "laptop", "cores": 2, "joined": 90.0, "ended": None}


def row(element: int, started: float | None, duration: float, **more: Any) -> Json:
    ended = 100.0 if started is None else started + duration + 0.01
    return task_row(element, **{"pilot": "p1", "started": started, "duration": duration, "ended": ended, **more})


def event(seq: int, kind: str, time: float, task: int | None = None, attempt: int = 1, **data: Any) -> Json:
    return {
        "seq": seq,
        "time": time,
        "kind": kind,
        "run": 1,
        "task": task,
        "attempt": attempt,
        "pilot": "p1",
        "data": data,
    }


def read(
    rows: list[Json], events: list[Json] | None = None, tasks: list[Json] | None = None, now: float | None = None,
    pilots: list[Json] | None = None, **info: Any,
) -> Found:  # fmt: skip
    """Read a run of three tasks from 100 to 200."""
    found = run_info(tasks or [{"command": ["x"], "array": "1-3"}], **{"created": 100.0, "finished": 200.0, **info})
    return read_record(FakeSource(found, rows, events or [], pilots=pilots or [LIVES]), "r1", now)


def test_rows_give_last_attempts_and_ends() -> None:
    found = read([row(1, 101.0, 4.0), row(2, 105.0, 5.0, state="failed")])
    assert found.record.attempts == [
        Attempt(1, 1, "p1", 101.0, 105.0, 1, "succeeded"),
        Attempt(2, 1, "p1", 105.0, 110.0, 1, "failed"),
    ]
    assert found.record.endings == [Ending(105.0, 1, 1), Ending(110.0, 1, 1)]
    assert (found.record.start, found.record.end, found.record.demand) == (100.0, 200.0, 3)
    assert found.record.pilots == [PilotLife("p1", "laptop", 2, 90.0, math.inf)]
    assert found.states == {"succeeded": 1, "failed": 1}


def test_a_wrong_clock_of_a_host_is_not_believed() -> None:
    found = read([row(1, 9_000.0, 4.0, ended=150.0)])
    assert found.record.attempts == [Attempt(1, 1, "p1", 146.0, 150.0, 1, "succeeded")]


def test_tasks_that_never_ran_end_without_an_attempt() -> None:
    spans = [{"low": 2, "high": 4, "state": "cancelled", "ended": 150.0}]
    found = read([row(1, None, 0.0, state="cancelled", ended=120.0, pilot="")], spans=spans)
    assert found.record.attempts == []
    assert found.record.endings == [Ending(120.0, 0, 1), Ending(150.0, 0, 2)]
    assert found.states == {"cancelled": 3}


def test_results_of_an_earlier_run_are_no_work_of_this_one() -> None:
    found = read([row(1, 1.0, 50.0, reused="r0.1"), row(2, 101.0, 1.0)])
    assert found.reused == {1} and found.record.demand == 2 and [a.task for a in found.record.attempts] == [2]


def test_cores_of_a_task_are_its_slots_also_if_they_were_changed() -> None:
    tasks: list[Json] = [{"command": ["x"], "cores": 2}, {"command": ["x"], "array": "1-2"}]
    changed = row(3, 103.0, 1.0, special={"changed": {"cores": 4}})
    found = read([row(1, 101.0, 1.0), row(2, 102.0, 1.0), changed], tasks=tasks)
    assert [a.slots for a in found.record.attempts] == [2, 1, 4] and found.record.demand == 7


def test_earlier_attempts_come_from_events_that_say_how_long_they_ran() -> None:
    events = [
        event(1, "task_retried", 110.0, 1, seconds=4.0),
        event(2, "task_returned", 120.0, 1, 2, seconds=0.0),
        event(3, "task_lost_pilot", 130.0, 1, 3, seconds=5.0, next="waits for its hold to end"),
        event(4, "task_lost_pilot", 140.0, 1, 3, next="ready again"),
        event(5, "task_checkpointed", 150.0, 1, 4, seconds=2.0),
        event(6, "task_retried", 151.0, 2),
    ]
    found = read([row(1, 160.0, 1.0, attempt=5, winner="5@1")], events)
    assert found.record.attempts[1:] == [
        Attempt(1, 1, "p1", 106.0, 110.0, 1, "failed"),
        Attempt(1, 3, "p1", 125.0, 130.0, 1, "lost"),
        Attempt(1, 4, "p1", 148.0, 150.0, 1, "checkpointed"),
    ]


def test_of_two_copies_the_one_that_did_not_decide_is_a_duplicate() -> None:
    copied = event(1, "task_backed_up", 120.0, 1, 2, beside="p0", since=101.0)
    (_, other) = read([row(1, 121.0, 3.0, attempt=2, winner="2@1")], [copied]).record.attempts
    assert other == Attempt(1, 1, "p0", 101.0, 124.0, 1, "duplicate")
    (_, other) = read([row(1, 101.0, 29.0, attempt=2, winner="1@1", pilot="p0")], [copied]).record.attempts
    assert other == Attempt(1, 2, "p1", 120.0, 130.0, 1, "duplicate")


def test_an_end_before_somebody_retried_the_task_is_in_the_events() -> None:
    events = [
        event(1, "task_finished", 111.0, 1, 1, state="failed", started=108.0, duration=3.0),
        event(2, "run_reopened", 150.0, tasks=1),
        event(3, "task_finished", 171.0, 1, 2, state="succeeded", started=170.0, duration=1.0),
    ]
    found = read([row(1, 170.0, 1.0, attempt=2, winner="2@1")], events)
    assert found.record.attempts[1:] == [Attempt(1, 1, "p1", 108.0, 111.0, 1, "failed")]


def test_what_runs_now_is_in_the_events_of_starts() -> None:
    started = {**event(4, "tasks_started", 120.0), "run": None}
    started["data"] = {"attempts": ["r1.1#1@7", "r1.2#1@7", "r1.3#1@7", "r11.1#1@7"]}
    events = [event(1, "run_submitted", 100.0), started, event(5, "task_retried", 125.0, 2, seconds=5.0)]
    found = read([row(1, 101.0, 4.0)], events, finished=None, now=130.0)
    assert found.record.end == 130.0
    assert found.record.attempts[-1] == Attempt(3, 1, "p1", 120.0, 130.0, 1, "running")
    assert [a.task for a in found.record.attempts] == [1, 2, 3]


def test_what_was_cancelled_while_it_ran_was_busy_until_then() -> None:
    started = {**event(4, "tasks_started", 120.0), "run": None}
    started["data"] = {"attempts": ["r1.1#1@7", "r1.2#1@7"]}
    rows = [row(1, None, 0.0, state="cancelled", ended=125.0), row(2, 121.0, 4.0)]
    found = read(rows, [event(1, "run_submitted", 100.0), started])
    assert found.record.attempts == [
        Attempt(2, 1, "p1", 121.0, 125.0, 1, "succeeded"),
        Attempt(1, 1, "p1", 120.0, 125.0, 1, "cancelled"),
    ]


def test_without_a_server_an_open_run_is_known_up_to_its_last_event() -> None:
    assert read([row(1, 101.0, 4.0)], finished=None).record.end == 105.0
    assert read([], finished=None).record.end == 100.0


def test_pilots_of_other_times_are_not_in_the_pool() -> None:
    pilots = [{**LIVES, "pilot": "old", "ended": 99.0}, {**LIVES, "pilot": "new", "joined": 201.0}, LIVES]
    assert [life.pilot for life in read([], pilots=pilots).record.pilots] == ["p1"]


def test_other_runs_that_were_open_meanwhile_are_counted() -> None:
    source = FakeSource(run_info([{"command": ["x"]}], created=100.0, finished=200.0))
    others = [
        {"run": "r9", "created": 210.0, "finished": None},
        {"run": "r3", "created": 150.0, "finished": None},
        {"run": "r2", "created": 50.0, "finished": 101.0},
        {"run": "r1", "created": 100.0, "finished": 200.0},
        {"run": "r0", "created": 50.0, "finished": 60.0},
    ]
    source.runs = lambda **_: {"runs": others, "next": None}  # type: ignore[method-assign]
    assert read_record(source, "r1", None).other_runs == 2


def test_tasks_that_were_added_later_are_told_of() -> None:
    assert not read([row(1, 101.0, 4.0)]).added
    assert read([row(1, 101.0, 4.0)], [event(1, "tasks_added", 102.0, first=2, tasks=2)]).added
