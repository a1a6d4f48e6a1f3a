"""Submitting, dependencies, cancelling and retrying [promise I4, I5, I19, I20]."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from shoal.engine.changes import RunRow, SpanDrop, SpanRow, TaskRow
from shoal.engine.commands import Cancel, Submit
from shoal.model.errors import BadInput, Conflict, NotFound, ShoalError
from shoal.model.event import Event
from shoal.model.ids import TaskId
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import OWNER, Stand, bad, brief, good, tables

MILLION = {"array": "1-1000000"}


# --- size does not matter
def test_submitting_a_million_elements_is_a_handful_of_changes() -> None:
    stand = Stand()
    body = {"tasks": [{"command": ["x", "{i}"], **MILLION}]}
    start = time.process_time()
    outcome = stand.do(Submit(parse_submission(body), OWNER, "d"))
    assert time.process_time() - start < 1.0
    assert outcome.result["tasks"] == 1_000_000
    assert sorted(type(change).__name__ for change in outcome.changes) == ["ArrayRow", "Event", "RunRow"]
    assert stand.sound()


def test_cancelling_a_million_elements_is_one_span() -> None:
    stand = Stand()
    run = stand.submit(MILLION)
    assert stand.cancel(run) == {"cancelled": 1_000_000, "already_final": 0}
    changes = [change for change in stand.last.changes if not isinstance(change, (Event, RunRow))]
    assert [(c.low, c.high, c.state) for c in changes if isinstance(c, SpanRow)] == [(1, 1_000_001, "cancelled")]
    assert len(changes) == 1
    assert len([c for c in stand.last.changes if isinstance(c, Event)]) == 2
    assert stand.sound()


def test_a_failed_parent_closes_a_million_descendants_in_one_span_each() -> None:
    stand = Stand()
    run = stand.submit(
        {"name": "a"}, {"name": "b", "after": ["a"], **MILLION}, {"name": "c", "after": ["b"], **MILLION}, {"name": "d"}
    )
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()))
    spans = [c for c in stand.last.changes if isinstance(c, SpanRow)]
    assert [(s.low, s.high, s.state, s.cause) for s in spans] == [
        (2, 1_000_002, "failed", "dependency_failed"), (1_000_002, 2_000_002, "failed", "dependency_failed"),
    ]  # fmt: skip
    assert "a did not succeed" in spans[0].message
    assert len([c for c in stand.last.changes if isinstance(c, TaskRow) and c.state == "failed"]) == 1
    assert stand.state(run, 2_000_002) in ("ready", "leased")
    assert stand.sound()


# --- idempotency
def test_the_same_key_and_body_is_the_same_run() -> None:
    stand = Stand()
    first = stand.send_run({}, key="k")
    again = stand.send_run({}, key="k")
    assert (first["run"], first["again"]) == ("r1", False)
    assert (again["run"], again["tasks"], again["again"]) == ("r1", 1, True)
    assert len(stand.events("run_submitted")) == 1


def test_the_same_key_with_another_body_is_refused() -> None:
    stand = Stand()
    stand.send_run({}, key="k")
    with pytest.raises(BadInput) as caught:
        stand.send_run({"cores": 2}, key="k")
    assert caught.value.code == "key_reused"
    assert "r1" in caught.value.message
    assert list(stand.engine.state.runs) == [1]


def test_a_key_is_known_after_a_restart() -> None:
    stand = Stand()
    stand.send_run({}, key="k")
    stand.restart()
    assert stand.send_run({}, key="k")["again"]


def test_without_a_key_every_submission_is_new() -> None:
    stand = Stand()
    assert [stand.send_run({})["run"] for _ in range(2)] == ["r1", "r2"]


# --- dependencies
def test_a_child_starts_only_when_every_parent_has_succeeded() -> None:
    stand = Stand()
    run = stand.submit({"name": "a", "array": "1-2"}, {"name": "b"}, {"name": "c", "after": ["a", "b"]})
    pilot = stand.pilot(3)
    attempts = [lease.attempt for lease in pilot.pull()]
    assert len(attempts) == 3
    for attempt in attempts[:2]:
        assert pilot.talk(good(attempt)).leases == []
        assert stand.state(run, 4) == "waiting"
    (lease,) = pilot.talk(good(attempts[2])).leases
    assert brief(lease.attempt) == "r1.4#1@1"
    assert len(stand.events("tasks_released")) == 1
    assert stand.sound()


def test_a_lost_parent_fails_its_children() -> None:
    stand = Stand()
    run = stand.submit({"name": "a", "rerun": "never"}, {"name": "b", "after": ["a"]})
    pilot = stand.pilot()
    pilot.work()
    stand.bury(pilot)
    stand.pass_time(stand.timing.hold + stand.timing.margin)
    assert [stand.state(run, e) for e in (1, 2)] == ["lost", "failed"]
    assert stand.engine.state.runs[run].finished is not None


def test_cancelling_one_parent_fails_its_children() -> None:
    stand = Stand()
    run = stand.submit({"name": "a"}, {"name": "b", "after": ["a"]}, {"name": "c", "after": ["b"]})
    stand.cancel(TaskId(run, 1))
    assert [stand.state(run, e) for e in (1, 2, 3)] == ["cancelled", "failed", "failed"]
    assert len(stand.events("run_finished")) == 1
    assert stand.sound()


def test_a_parent_that_is_retried_keeps_its_child_waiting() -> None:
    stand = Stand()
    run = stand.submit({"name": "a", "retries": 1}, {"name": "b", "after": ["a"]})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()))
    assert stand.state(run, 2) == "waiting"


def test_a_chain_of_thousands_fails_without_recursion() -> None:
    stand = Stand()
    chain: list[dict[str, Any]] = [
        {"name": "t0"},
        *({"name": f"t{n}", "after": [f"t{n - 1}"]} for n in range(1, 3_000)),
    ]
    run = stand.submit(*chain)
    stand.cancel(TaskId(run, 1))
    assert stand.engine.state.runs[run].finals == {"cancelled": 1, "failed": 2_999}


# --- max_fail
def test_after_so_many_failures_the_rest_is_cancelled() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-100"}, max_fail=2)
    pilot = stand.pilot(3)
    attempts = [lease.attempt for lease in pilot.pull()]
    pilot.run()
    pilot.talk(bad(attempts[0]))
    assert stand.engine.state.runs[run].finished is None
    reply = pilot.talk(bad(attempts[1]))
    assert stand.engine.state.runs[run].finals == {"failed": 2, "cancelled": 98}
    assert stand.engine.state.runs[run].finished == stand.now
    assert attempts[2] in [o.attempt for o in reply.orders if o.kind == "cancel"]
    assert "limit of this run" in stand.row(run, 3).message
    assert stand.sound()


# --- cancel
def test_cancel_is_final_and_a_racing_success_changes_nothing() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.cancel(run)
    assert pilot.verdict(good(attempt)) == "final"
    assert stand.state(run) == "cancelled"
    assert len(stand.events("task_finished")) == 1
    assert stand.sound()


def test_a_success_before_the_cancel_stands() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    pilot.talk(good(pilot.work()))
    assert stand.cancel(run) == {"cancelled": 0, "already_final": 1}
    assert stand.cancel(TaskId(run, 1)) == {"cancelled": 0, "already_final": 1}
    assert stand.state(run) == "succeeded"


def test_cancelling_again_is_one_change_and_the_same_answer() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    stand.cancel(TaskId(run, 2))
    for _ in range(3):
        assert stand.cancel(TaskId(run, 2)) == {"cancelled": 0, "already_final": 1}
    assert len(stand.events("task_finished")) == 1
    assert [stand.state(run, e) for e in (1, 2, 3)] == ["ready", "cancelled", "ready"]


def test_a_cancelled_task_is_never_leased() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    stand.cancel(TaskId(run, 2))
    assert [brief(lease.attempt) for lease in stand.pilot(5).pull()] == ["r1.1#1@1", "r1.3#1@1"]


def test_cancelling_what_does_not_exist_is_refused() -> None:
    stand = Stand()
    run = stand.submit({})
    with pytest.raises(NotFound):
        stand.cancel(TaskId(run, 2))


def test_a_cancel_that_is_refused_has_cancelled_nothing() -> None:
    """What is refused raises and has changed nothing (Engine.handle): else memory and database go apart."""
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    before = stand.engine.state.next_seq
    with pytest.raises(ShoalError):
        stand.do(Cancel((TaskId(run, 1), TaskId(run, 9))))
    assert stand.state(run, 1) == "ready"
    assert stand.engine.state.next_seq == before, "a number of the journal was lost with it"


# --- retry
def test_retry_runs_what_failed_under_new_numbers() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    pilot = stand.pilot(3)
    attempts = [lease.attempt for lease in pilot.pull()]
    pilot.talk(good(attempts[0]), bad(attempts[1]), bad(attempts[2]))
    assert stand.engine.state.runs[run].finished is not None
    assert stand.retry(run) == 2
    assert stand.engine.state.runs[run].finished is None
    again = [lease for a in stand.last.answers for lease in a.reply.leases] or pilot.pull()
    assert [brief(lease.attempt) for lease in again] == ["r1.2#2@1", "r1.3#2@1"]
    assert len(stand.events("run_reopened")) == 1
    assert stand.sound()


def test_retry_brings_back_spans_and_drops_them() -> None:
    stand = Stand()
    run = stand.submit(MILLION)
    stand.cancel(run)
    assert stand.retry(run) == 1_000_000
    assert [c for c in stand.last.changes if isinstance(c, SpanDrop)] == [SpanDrop(run, 1, 1_000_001)]
    assert stand.state(run, 500_000) == "ready"
    assert stand.sound()


def test_retry_of_one_element_leaves_the_others() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-9"})
    stand.cancel(run)
    assert stand.retry(run, 5) == 1
    assert [stand.state(run, e) for e in (4, 5, 6)] == ["cancelled", "ready", "cancelled"]
    assert stand.sound()


def test_retry_of_a_finished_and_forgotten_run_loads_it() -> None:
    stand = Stand()
    run = stand.submit({"name": "a"}, {"name": "b", "after": ["a"]})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()))
    stand.pass_time(61)
    assert run not in stand.engine.state.runs
    assert stand.retry(run) == 2
    assert [stand.state(run, e) for e in (1, 2)] == ["ready", "waiting"]
    assert stand.sound()


def test_retry_of_a_run_that_was_cancelled_before_it_began_and_forgotten() -> None:
    """The old run's array may still stand in its class when the same run is loaded anew."""
    stand = Stand()
    run = stand.submit({"array": "1-3"}, {})
    stand.cancel(run)
    stand.pass_time(61)
    assert run not in stand.engine.state.runs
    assert stand.retry(run) == 4
    assert [lease.attempt.split("#")[0] for lease in stand.pilot(5).pull()] == ["r1.1", "r1.2", "r1.3", "r1.4"]
    assert stand.sound()


def test_a_retried_task_has_its_retries_again() -> None:
    stand = Stand()
    run = stand.submit({"retries": 1})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()))
    (attempt,) = stand.task(run).live
    pilot.talk(bad(str(attempt)))
    assert stand.row(run).retries == 1
    stand.retry(run)
    assert (stand.task(run).retries, stand.task(run).losses) == (0, 0)


def test_a_second_retry_finds_nothing_left() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.cancel(run)
    assert stand.retry(run) == 1
    assert stand.retry(run) == 0


@pytest.mark.parametrize("rerun", ["exclusive", "never"])
def test_retry_of_a_task_that_is_still_being_stopped_is_refused(rerun: str) -> None:
    stand = Stand()
    run = stand.submit({"rerun": rerun})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.cancel(run)
    assert [live[2] for live in tables(stand.row(run))] == [pilot.name]
    with pytest.raises(Conflict) as caught:
        stand.retry(run)
    assert caught.value.code == "still_stopping"
    pilot.talk(bad(attempt, cause="cancelled"))
    assert stand.retry(run) == 1
    assert stand.sound()


def test_retry_is_allowed_when_the_hold_of_a_dying_copy_has_ended() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    pilot = stand.pilot()
    pilot.work()
    stand.cancel(run)
    stand.bury(pilot)
    stand.pass_time(stand.timing.hold + stand.timing.margin - 1)
    with pytest.raises(Conflict):
        stand.retry(run)
    stand.pass_time(1)
    assert stand.retry(run) == 1


def test_a_dying_copy_that_is_no_longer_held_is_dead() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    pilot = stand.pilot()
    pilot.work()
    stand.cancel(run)
    pilot.talk(held={})
    assert stand.retry(run) == 1


def test_a_safe_task_may_be_retried_at_once() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.pilot().work()
    stand.cancel(run)
    assert stand.retry(run) == 1


def test_retry_of_a_child_alone_does_not_wait_for_ever_for_a_parent_that_failed() -> None:
    """Nothing may wait for what can never happen [promise I8]. Refused or failed at once, but not waiting."""
    stand = Stand()
    run = stand.submit({"name": "a"}, {"name": "b", "after": ["a"]})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()))
    with contextlib.suppress(ShoalError):
        stand.retry(run, 2)
    assert stand.state(run, 2) == "failed"


# --- the end of a run
def test_a_finished_run_leaves_memory_after_a_while() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    pilot.talk(good(pilot.work()))
    stand.pass_time(29)
    assert run in stand.engine.state.runs
    stand.pass_time(31)
    assert run not in stand.engine.state.runs
    assert not stand.engine.busy


def test_a_runs_end_is_told_with_its_counts() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    pilot = stand.pilot(2)
    one, two = (lease.attempt for lease in pilot.pull())
    pilot.talk(good(one), bad(two))
    stand.cancel(run)
    (event,) = stand.events("run_finished")
    assert event.data["counts"] == {"succeeded": 1, "failed": 1, "cancelled": 1}
    assert len(stand.events("run_finished")) == 1


def test_nothing_finished_stays_in_memory() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-200"})
    pilot = stand.pilot(50)
    pilot.pull()
    while pilot.held:
        pilot.talk(*(good(attempt, duration=9.0) for attempt in list(pilot.held)))
    (array,) = stand.engine.state.runs[run].arrays
    assert array.tasks == {}
    assert array.done.ranges() == [(1, 201)]
