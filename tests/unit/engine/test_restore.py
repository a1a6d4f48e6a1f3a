"""After a restart: nothing running is forgotten, nothing is handed out twice, and nothing before all have spoken
[protocol 10; promise I7]."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.model.errors import Conflict
from tests.unit.engine.stand import Stand, bad, brief, good


def test_nothing_is_matched_until_every_pilot_has_spoken() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-4"})
    one, two = stand.pilot(), stand.pilot()
    stand.restart()
    assert one.pull() == []
    assert "waits up to 15 s" in stand.why(run).text
    assert "for 1 pilot" in stand.why(run).text
    two.say_hello()
    assert "for 1 pilot" in stand.why(run).text, "its first exchange may be older than the restart"
    answer = two.send(two.make())
    assert answer is not None, "the last to speak opens the gate"
    assert len(answer.reply.leases) == 1
    assert [a.pilot for a in stand.last.answers if a.reply.leases] == [two.name, one.name]
    assert stand.sound()


def test_a_nested_run_is_still_before_others_after_a_restart() -> None:
    """Its class depends on the task above it, which is known only once that run is there again."""
    stand = Stand()
    outer = stand.submit({})
    pilot = stand.pilot()
    assert len(pilot.pull()) == 1
    stand.submit({"priority": 5})
    inner = stand.submit({}, {"after": ["t"]}, {"name": "t"}, labels={"parent": f"r{outer}.1"})
    stand.restart()
    arrays = stand.engine.state.runs[inner].arrays
    assert [stand.engine.state.queue.class_of(array).key.depth for array in arrays] == [1, 1, 1]
    assert [array.queued for array in arrays] == [True, False, True]
    assert stand.sound()


def test_an_exchange_from_before_a_restart_does_not_tell_what_its_pilot_holds() -> None:
    """Sent before its lease came, delayed or repeated over a crash in the gap: the task must not be handed out again."""
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    stand.commit()
    older = pilot.make()
    assert len(pilot.pull()) == 1
    stand.crash()
    assert stand.state(run) == "ready", "the lease was lost in the gap"
    answer = pilot.send(replace(older, seq=pilot.seq + 1))
    assert answer is not None and not answer.reply.leases
    pilot.seq += 1
    pilot.hear(answer.reply)
    assert pilot.pull() == [] and stand.state(run) == "leased"
    assert [event.kind for event in stand.journal if event.kind == "task_adopted"] == ["task_adopted"]
    assert stand.sound()


def test_after_fifteen_seconds_those_who_spoke_go_on() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-4"})
    one = stand.pilot()
    stand.pilot()
    stand.restart()
    one.talk()
    stand.pass_time(9.9)
    one.talk()
    assert stand.pass_time(5.0).answers == []
    leases = [lease for a in stand.pass_time(0.1).answers for lease in a.reply.leases]
    assert len(leases) == 1
    assert stand.state(run) == "leased"
    assert stand.sound()


def test_a_pilot_that_has_not_said_what_it_holds_gets_nothing_even_later() -> None:
    stand = Stand()
    stand.submit({"array": "1-4"})
    silent = stand.pilot()
    stand.restart()
    stand.pass_time(20)
    assert not stand.engine.state.pilots[silent.name].is_reconciled
    assert stand.last.answers == []


def test_without_pilots_there_is_nothing_to_wait_for() -> None:
    stand = Stand()
    stand.submit({})
    stand.restart()
    assert len(stand.pilot().pull()) == 1


def test_a_pilot_given_up_or_gone_is_not_waited_for() -> None:
    stand = Stand()
    stand.submit({})
    one, two = stand.pilot(), stand.pilot()
    stand.bury(two)
    stand.restart()
    assert len(one.pull()) == 1


def test_a_living_pilot_keeps_its_attempts() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-2"})
    pilot = stand.pilot(2)
    leases = pilot.pull()
    pilot.run(leases[0].attempt)
    stand.restart()
    assert [stand.state(run, e) for e in (1, 2)] == ["running", "leased"]
    assert pilot.talk().leases == []
    assert pilot.verdict(good(leases[0].attempt)) == "recorded"
    assert [stand.state(run, e) for e in (1, 2)] == ["succeeded", "leased"]
    assert brief(stand.row(run).winner) == "1@1"
    assert stand.sound()


def test_a_living_pilot_has_a_fresh_full_lease() -> None:
    stand = Stand()
    pilot = stand.pilot()
    stand.now += 70
    stand.restart()
    stand.pass_time(74)
    assert pilot.name in stand.engine.state.pilots
    stand.pass_time(2)
    assert pilot.name not in stand.engine.state.pilots


def test_an_attempt_a_dead_pilot_had_comes_back_after_the_lease() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.pilot().work()
    stand.restart()
    stand.pass_time(75.1)
    assert (stand.state(run), stand.task(run).losses) == ("ready", 1)
    assert stand.sound()


def test_an_uncommitted_lease_that_a_pilot_holds_is_taken_back() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    pilot = stand.pilot()
    stand.commit()
    (lease,) = pilot.pull()  # a safe lease goes out before its commit
    stand.crash()
    assert stand.state(run) == "ready"
    pilot.held[lease.attempt] = "running"
    assert pilot.orders("cancel") == []
    assert stand.state(run) == "running"
    assert stand.events("task_adopted")[0].data["how"] == "living copy"
    assert pilot.verdict(good(lease.attempt)) == "recorded"
    assert stand.state(run) == "succeeded"
    assert stand.sound()


def test_the_success_of_an_uncommitted_lease_is_adopted() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    stand.commit()
    (lease,) = pilot.pull()
    stand.crash()
    assert pilot.verdict(good(lease.attempt)) == "adopted"
    assert brief(stand.row(run).winner) == "1@1"
    assert stand.sound()


def test_a_number_used_in_the_gap_is_not_used_again() -> None:
    stand = Stand()
    run = stand.submit({})
    one = stand.pilot()
    stand.commit()
    (old,) = one.pull()
    stand.crash()
    stand.pass_time(15)
    two = stand.pilot()
    (new,) = two.pull()
    assert (brief(old.attempt), brief(new.attempt)) == ("r1.1#1@1", "r1.1#2@2"), "no number is handed out twice"
    assert one.verdict(good(old.attempt)) == "adopted"
    assert two.verdict(good(new.attempt)) == "final"
    assert brief(stand.row(run).winner) == "1@1"
    assert stand.sound()


def test_a_report_told_again_after_a_restart_is_recorded_not_doubled() -> None:
    stand = Stand()
    stand.submit({"array": "1-2"})
    pilot = stand.pilot(2)
    one, two = (lease.attempt for lease in pilot.pull())
    pilot.talk(good(one))
    stand.restart()
    assert pilot.verdict(good(one)) == "recorded"
    assert pilot.verdict(bad(two)) == "recorded"
    assert len(stand.events("task_finished")) == 2


def test_a_report_whose_run_is_finished_is_still_recorded_after_a_restart() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    pilot.talk(good(attempt))
    stand.restart()
    assert run not in stand.engine.state.runs
    assert pilot.verdict(good(attempt)) == "recorded"


def test_a_report_lost_in_the_gap_counts_when_it_is_told_again() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.commit()
    pilot.talk(good(attempt))  # its reply waits for the commit, so the pilot never hears it
    stand.crash()
    assert pilot.verdict(good(attempt)) == "recorded"
    assert stand.state(run) == "succeeded"
    assert stand.sound()


@pytest.mark.parametrize("rerun", ["exclusive", "never"])
def test_an_uncommitted_lease_of_another_class_is_stopped(rerun: str) -> None:
    """Such a lease is sent only after its commit, so a pilot that holds one got it from nobody."""
    stand = Stand()
    run = stand.submit({"rerun": rerun})
    pilot = stand.pilot()
    stand.commit()
    (lease,) = pilot.pull()
    stand.crash()
    pilot.held[lease.attempt] = "running"
    assert [o.attempt for o in pilot.orders("cancel")] == [lease.attempt]
    assert pilot.name not in {a.pilot for t in stand.engine.state.runs[run].arrays[0].tasks.values() for a in
                              t.live.values() if str(a.id) == lease.attempt}  # fmt: skip
    assert stand.sound()


def test_an_exclusive_orphan_keeps_its_hold_over_a_restart() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    pilot = stand.pilot()
    pilot.work()
    stand.bury(pilot)
    stand.pass_time(800)
    stand.restart()
    stand.pass_time(stand.timing.hold)
    assert stand.state(run) == "running", "later is allowed, earlier is not"
    stand.pass_time(stand.timing.margin)
    assert stand.state(run) == "ready"
    assert stand.sound()


def test_a_safe_task_never_ends_lost_whatever_name_its_pilot_had() -> None:
    """`lost` is only for rerun=never [protocol 4]: a task inherited by a new name must survive restart and loss."""
    stand = Stand()
    run = stand.submit({})
    old = stand.pilot()
    old.work()
    new = stand.pilot(former=old)
    stand.restart()
    stand.bury(new)
    stand.pass_time(stand.timing.hold + stand.timing.margin)
    assert stand.state(run) == "ready"
    assert stand.sound()


def test_a_waiting_child_still_waits_after_a_restart() -> None:
    stand = Stand()
    run = stand.submit({"name": "a", "array": "1-2"}, {"name": "b", "after": ["a"]})
    pilot = stand.pilot(2)
    one, two = (lease.attempt for lease in pilot.pull())
    pilot.talk(good(one))
    stand.restart()
    assert stand.state(run, 3) == "waiting"
    (lease,) = pilot.talk(good(two)).leases
    assert brief(lease.attempt) == "r1.3#1@2"
    assert stand.sound()


def test_retries_and_history_survive() -> None:
    stand = Stand()
    run = stand.submit({"retries": 3})
    pilot = stand.pilot()
    pilot.talk(bad(pilot.work()), leaving="bye")
    stand.restart()
    task = stand.task(run)
    assert (task.retries, task.number, stand.state(run)) == (1, 1, "ready")
    assert brief(stand.pilot().pull()[0].attempt) == "r1.1#2@2"


def test_finished_spans_are_not_run_again() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-10"}, {"name": "x", "array": "1-10"})
    pilot = stand.pilot(10)
    pilot.pull()
    stand.cancel(run)
    stand.retry(run, 15)
    stand.restart()
    pilot.held = {}
    assert [lease.attempt.split("#")[0] for lease in pilot.pull()] == ["r1.15"]
    assert stand.sound()


def test_why_a_pilot_drains_survives() -> None:
    stand = Stand()
    pilot = stand.pilot()
    stand.drain(pilot, why="the rack is moved")
    stand.restart()
    (order,) = pilot.orders("drain")
    assert order.why == "the rack is moved"


def test_a_pilot_of_before_is_known_by_its_session_only() -> None:
    stand = Stand()
    pilot = stand.pilot()
    stand.restart()
    pilot.session = "0" * 64
    with pytest.raises(Conflict):
        pilot.talk()


def test_run_numbers_and_the_journal_go_on() -> None:
    stand = Stand()
    stand.submit({})
    stand.restart()
    assert stand.submit({}) == 2
    assert [event.seq for event in stand.journal] == list(range(1, len(stand.journal) + 1))


def test_an_exclusive_copy_still_being_stopped_blocks_a_retry_after_a_restart() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.cancel(run)
    stand.restart()
    with pytest.raises(Conflict):
        stand.retry(run)
    assert [o.attempt for o in pilot.orders("cancel")] == [attempt]


def test_after_a_restart_a_retry_of_a_stopped_exclusive_task_waits_for_its_hold() -> None:
    """The new server did not see the copy die [ADR 0004]: only time proves it."""
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    pilot = stand.pilot()
    attempt = pilot.work()
    stand.cancel(run)
    stand.restart()
    pilot.talk(bad(attempt, cause="cancelled"))
    with pytest.raises(Conflict):
        stand.retry(run)
    stand.pass_time(stand.timing.hold + stand.timing.margin)
    assert stand.retry(run) == 1
