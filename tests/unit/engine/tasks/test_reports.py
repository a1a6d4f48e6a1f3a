"""Reports and their verdicts: the attempt number is the fence [protocol 10; promise I2]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.model.ids import parse_attempt
from shoal.wire.messages import Report
from tests.unit.engine.stand import Stand, back, bad, brief, good


def lost_and_leased_again() -> tuple[Stand, int, str, str]:
    """A safe task whose first pilot fell silent, now with a second; the first is back under a new name, unheard."""
    stand = Stand()
    run = stand.submit({})
    first = stand.pilot()
    old = first.work()
    stand.pass_time(75.1)
    second = stand.pilot()
    new = second.work()
    return stand, run, old, new


def test_a_success_is_recorded_with_its_numbers() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot(host="n17")
    attempt = pilot.work()
    stand.now += 5
    report = good(attempt, duration=4.5, cpu=4.0, max_rss=1 << 20, last_line='{"y": 1}', new_files=["a"])
    assert pilot.verdict(report) == "recorded"
    row = stand.row(run)
    assert (row.state, row.winner, row.exit_code, row.duration, row.cpu, row.max_rss) == (
        "succeeded", stand.full("r1.1#1").partition("#")[2].partition("~")[0], 0, 4.5, 4.0, 1 << 20,
    )  # fmt: skip
    assert (row.host, row.pilot, row.last_line, row.new_files) == ("n17", pilot.name, '{"y": 1}', '["a"]')
    assert row.ended == stand.now
    assert run in stand.engine.state.runs
    assert stand.engine.state.runs[run].finished == stand.now
    assert stand.sound()


def test_a_report_told_twice_is_recorded_once_and_gets_the_same_word() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    assert pilot.verdict(good(attempt)) == "recorded"
    assert pilot.verdict(good(attempt)) == "recorded"
    assert len(stand.events("task_finished")) == 1


def test_a_failure_after_the_success_is_not_heard() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    pilot.verdict(good(attempt))
    pilot.verdict(bad(attempt))
    assert stand.state(run) == "succeeded"
    assert len(stand.events("task_finished")) == 1


def test_a_late_success_of_a_safe_task_is_adopted_once_and_the_other_copy_is_stopped() -> None:
    stand, run, old, new = lost_and_leased_again()
    second = next(p for p in stand.engine.state.pilots.values())
    back_again = stand.pilot()
    stand.engine.state.pilots[back_again.name].former = [stand.task(run).past[parse_attempt(old)]]
    assert back_again.verdict(good(old)) == "adopted"
    assert stand.state(run) == "succeeded"
    assert brief(stand.row(run).winner) == "1@1"
    assert [o.attempt for o in second.orders] + [
        o.attempt for a in stand.last.answers if a.pilot == second.name for o in a.reply.orders
    ] == [new]
    assert back_again.verdict(good(old)) == "recorded"
    assert len(stand.events("task_finished")) == 1
    assert stand.sound()


def test_the_copy_that_came_second_is_told_that_the_task_is_final() -> None:
    stand, run, old, new = lost_and_leased_again()
    (name,) = stand.engine.state.pilots
    winner = stand.task(run).past[parse_attempt(old)]
    first = stand.pilot()
    stand.engine.state.pilots[first.name].former = [winner]
    first.verdict(good(old))
    stand.engine.state.pilots[first.name].former.append(name)
    assert first.verdict(good(new)) == "final"
    assert brief(stand.row(run).winner) == "1@1"


def test_a_late_success_is_adopted_by_a_task_that_is_ready_again() -> None:
    stand = Stand()
    run = stand.submit({})
    first = stand.pilot()
    old = first.work()
    stand.pass_time(75.1)
    assert stand.state(run) == "ready"
    again = stand.pilot(former=first)
    assert again.verdict(good(old)) == "adopted"
    assert stand.state(run) == "succeeded"
    assert stand.sound()


def test_a_late_failure_is_only_counted() -> None:
    stand = Stand()
    run = stand.submit({"retries": 0})
    first = stand.pilot()
    old = first.work()
    stand.pass_time(75.1)
    again = stand.pilot(former=first)
    assert again.verdict(bad(old)) == "stale"
    assert "late failure" in stand.events("report_refused")[0].data["why"]
    assert stand.task(run).retries == 0
    assert stand.state(run) in ("ready", "leased")
    assert stand.sound()


@pytest.mark.parametrize("rerun", ["exclusive", "never"])
def test_a_late_success_of_another_class_does_not_count(rerun: str) -> None:
    stand = Stand()
    run = stand.submit({"rerun": rerun})
    first = stand.pilot()
    old = first.work()
    stand.bury(first)
    stand.pass_time(stand.timing.hold + stand.timing.margin)
    again = stand.pilot(former=first)
    verdict = again.verdict(good(old))
    assert verdict == ("stale" if rerun == "exclusive" else "final")
    assert stand.state(run) != "succeeded"
    assert stand.sound()


@pytest.mark.parametrize("attempt", ["r1.1#2@1", "r1.1#1@2", "r1.1#99@1"])
def test_a_success_of_an_attempt_never_handed_out_does_not_count(attempt: str) -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    pilot.work()
    assert pilot.verdict(good(stand.full(attempt))) == "stale"
    assert pilot.verdict(good(attempt)) == "unknown", "without the nonce of its run"
    assert stand.state(run) == "running"
    assert stand.sound()


@pytest.mark.parametrize("attempt", ["r9.1#1@1", "r1.9#1@1"])
def test_a_report_about_no_task_is_unknown(attempt: str) -> None:
    stand = Stand()
    stand.submit({})
    assert stand.pilot().verdict(good(attempt)) == "unknown"


def test_nobody_reports_for_another() -> None:
    stand = Stand()
    run = stand.submit({})
    owner, other = stand.pilot(), stand.pilot()
    attempt = owner.work()
    assert other.verdict(good(attempt)) == "stale"
    assert stand.state(run) == "running"
    assert owner.verdict(good(attempt)) == "recorded"


def test_a_success_reported_for_a_task_that_waits_for_its_parents_does_not_count() -> None:
    """A child waits for its parents [promise I19], and the table has no way from waiting to succeeded: a confused pilot
    must not break the engine."""
    stand = Stand()
    run = stand.submit({"name": "a"}, {"name": "b", "after": ["a"]})
    stand.restart()
    pilot = stand.pilot()
    assert pilot.verdict(good(stand.full(f"r{run}.2#1"))) == "stale"
    assert stand.state(run, 2) == "waiting"
    assert stand.sound()


# --- retries
def test_a_failure_burns_a_retry_and_then_the_task_has_failed() -> None:
    stand = Stand()
    run = stand.submit({"retries": 2})
    pilot = stand.pilot()
    pilot.pull()
    for burnt in (1, 2):
        (attempt,) = pilot.held
        assert pilot.verdict(bad(attempt)) == "recorded"
        assert stand.task(run).retries == burnt
    assert [event.data["left"] for event in stand.events("task_retried")] == [1, 0]
    assert [event.data["seconds"] for event in stand.events("task_retried")] == [5.0, 5.0], "how long each ran"
    (attempt,) = pilot.held
    assert brief(attempt) == "r1.1#3@1"
    pilot.talk(bad(attempt, message="exit code 1", cause="task_error"))
    row = stand.row(run)
    assert (row.state, row.cause, row.message, row.retries, row.attempt) == (
        "failed",
        "task_error",
        "exit code 1",
        2,
        3,
    )
    assert stand.sound()


def test_only_failures_burn_retries() -> None:
    stand = Stand()
    run = stand.submit({"retries": 1})
    for end in ("lost", "returned", "cancelled"):
        pilot = stand.pilot()
        attempt = pilot.work()
        if end == "lost":
            stand.bury(pilot)
        else:
            pilot.talk(Report(attempt, end, started=1.0), leaving="bye")
        assert (stand.state(run), stand.task(run).retries) == ("ready", 0)
    assert stand.task(run).number == 3


def test_a_failure_beside_a_living_copy_decides_nothing() -> None:
    stand, run, old, _ = lost_and_leased_again()
    first = stand.pilot()
    stand.engine.state.pilots[first.name].former = [stand.task(run).past[parse_attempt(old)]]
    first.held = {old: "running"}
    first.talk()
    assert len(stand.task(run).live) == 2
    assert first.verdict(bad(old)) == "recorded"
    assert (stand.state(run), stand.task(run).retries, len(stand.task(run).live)) == ("running", 0, 1)
    assert stand.sound()


def test_the_events_of_a_failure_carry_its_tail() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work(), stderr_tail="Segmentation fault", cause="signal", signal=11))
    (event,) = stand.events("task_finished")
    assert (event.data["stderr_tail"], event.data["cause"], event.data["signal"]) == (
        "Segmentation fault",
        "signal",
        11,
    )


def test_a_returned_task_is_ready_with_its_reason() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    pilot.talk(back(attempt, message="the host is full", started=1.0, duration=4.0), leaving="bye")
    assert (stand.state(run), stand.task(run).note) == ("ready", "the host is full")
    data = stand.events("task_returned")[0].data
    assert (data["why"], data["started"], data["seconds"]) == ("the host is full", True, 4.0)


def test_an_attempt_whose_pilot_cannot_say_how_long_it_ran_took_the_time_since_its_start() -> None:
    """The guard was killed, and the pilot gives back what it had: the history of the run shows the time it took."""
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.now += 30.0
    pilot.talk(back(attempt, message="the guard ended", started=0.0), leaving="bye")
    assert stand.events("task_returned")[0].data["seconds"] == pytest.approx(30.0, abs=1.0)


@pytest.mark.parametrize("field", ["max_rss", "signal"])
@pytest.mark.parametrize("value", [2**63, -(2**70)])
def test_a_number_the_database_cannot_write_is_refused_not_fatal(field: str, value: int) -> None:
    """A row that cannot be written ends the server (writer._die); the pilot would tell it again after each start."""
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    try:
        pilot.talk(good(attempt, **{field: value}))
    except BadInput:
        return
    stand.commit()


def test_text_that_is_not_utf8_in_a_report_is_written_all_the_same() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work(), message="\udcff", last_line="\udcff", stderr_tail="\udcff", new_files=["\udcff"]))
    assert stand.state(run) == "failed"


def full_disk(attempt: str, **more: Any) -> Report:
    """It ran until the disk of its host was full, and is given back."""
    return back(attempt, **{"cause": "host_unfit", "evidence": "no_space", "started": 1.0, "duration": 5.0, **more})


def test_a_task_that_fills_disk_after_disk_does_not_run_for_ever() -> None:
    stand = Stand()
    run = stand.submit({})
    for host in range(3):
        pilot = stand.pilot(host=f"h{host}")
        pilot.talk(full_disk(pilot.work(), message="disk full"), leaving="its disk is full")
    task = stand.task(run)
    assert stand.state(run) == "ready" and task.special is not None and task.special.refunds == 3
    assert task.retries == 0, "it may have been the host's fault"
    pilot = stand.pilot(host="h3")
    assert pilot.verdict(full_disk(pilot.work(), message="disk full")) == "recorded"
    assert stand.state(run) == "failed"
    assert stand.row(run).cause == "host_unfit" and stand.row(run).message == "disk full: it has no retries"
    assert stand.sound()


def test_an_attempt_that_a_full_disk_kept_from_running_is_free() -> None:
    stand = Stand()
    run = stand.submit({})
    for host in range(6):
        pilot = stand.pilot(host=f"h{host}")
        (lease,) = pilot.pull()
        pilot.talk(full_disk(lease.attempt, started=None, duration=0.0), leaving="its disk is full")
    assert stand.state(run) == "ready" and stand.task(run).special is None
    assert stand.sound()


def test_files_that_never_fit_on_a_disk_do_not_go_round_for_ever() -> None:
    """Its inputs filled the disk while they were brought in: that is the task's own doing, though nothing ran."""
    stand = Stand()
    run = stand.submit({})
    for host in range(4):
        pilot = stand.pilot(host=f"h{host}")
        (lease,) = pilot.pull()
        report = full_disk(lease.attempt, started=None, duration=0.0, staging=0.5, message="no space left")
        pilot.talk(report, leaving="its disk is full")
    assert stand.state(run) == "failed" and stand.row(run).message == "no space left: it has no retries"
    assert stand.sound()


def test_a_success_whose_output_is_not_whole_says_so_in_its_row() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    pilot.talk(Report(pilot.work(), "succeeded", message="7 bytes of its stdout were left out", exit_code=0))
    assert stand.state(run) == "succeeded" and stand.row(run).message == "7 bytes of its stdout were left out"
    assert stand.sound()


def test_a_pilot_that_gives_back_what_it_prepared_and_never_ran_is_set_aside() -> None:
    stand = Stand()
    stand.submit({"array": "1-50"})
    pilot, leased = stand.pilot(host="lazy"), 0
    for _ in range(10):
        stand.now += 1
        leased += len(pilot.talk(*(back(attempt, started=1.0) for attempt in list(pilot.held))).leases)
    assert leased < 6, "a start without any run time is no sign of life"
