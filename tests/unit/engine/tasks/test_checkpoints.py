"""A task that goes on later: its files travel with its next lease; slow ones are asked to move [GWP G10]."""

from __future__ import annotations

import itertools

import pytest

from shoal.model.errors import BadInput
from shoal.sched.retry import MAX_IDLE_PARTS
from shoal.wire.messages import Checkpoint
from tests.unit.engine.stand import FakePilot, Stand, bad, good, later

A, B, C = ("sha256:" + letter * 64 for letter in "abc")


def test_the_next_lease_carries_the_files_and_the_part() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]})
    pilot = stand.pilot()
    (first,) = pilot.pull()
    assert (first.checkpoint, first.restored, first.part) == (["state"], {}, 0)
    (second,) = pilot.talk(later(first.attempt, A)).leases
    assert (second.restored, second.part) == ({"state": A}, 1)
    (third,) = pilot.talk(later(second.attempt, B)).leases
    assert (third.restored, third.part) == ({"state": B}, 2)
    assert stand.row(run).retries == 0
    pilot.talk(good(third.attempt))
    assert stand.state(run) == "succeeded"
    assert [event.data["part"] for event in stand.events("task_checkpointed")] == [1, 2]


def test_a_checkpoint_survives_a_restart_and_goes_to_another_host() -> None:
    stand = Stand()
    stand.submit({"checkpoint": ["state"], "retries": 1})
    pilot = stand.pilot(host="one")
    (first,) = pilot.pull()
    pilot.talk(later(first.attempt, A), leaving="the allocation ends")
    stand.restart()
    (second,) = stand.pilot(host="two").pull()
    assert (second.restored, second.part) == ({"state": A}, 1)
    assert stand.sound()


def test_after_a_failure_it_goes_on_from_its_last_checkpoint() -> None:
    stand = Stand()
    stand.submit({"checkpoint": ["state"], "retries": 1})
    pilot = stand.pilot()
    (first,) = pilot.pull()
    (second,) = pilot.talk(later(first.attempt, A)).leases
    (third,) = pilot.talk(bad(second.attempt)).leases
    assert (third.restored, third.part) == ({"state": A}, 1)


@pytest.mark.parametrize("task", [{}, {"checkpoint": ["other"]}])
def test_a_checkpoint_that_was_not_declared_is_no_checkpoint(task: dict[str, list[str]]) -> None:
    stand = Stand()
    stand.submit(task)
    pilot = stand.pilot()
    (first,) = pilot.pull()
    (second,) = pilot.talk(later(first.attempt, A)).leases
    assert (second.restored, second.part) == ({}, 0)
    assert stand.sound()


def test_undeclared_exit_code_85_is_a_plain_failure() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    (first,) = pilot.pull()
    pilot.talk(bad(first.attempt, exit_code=85))
    assert stand.state(run) == "failed"


def _slow(stand: Stand) -> tuple[FakePilot, str, FakePilot]:
    """A task that runs for much longer than others of its kind, and an idle pilot on another host."""
    stand.submit({"array": "1-4", "checkpoint": ["state"]})
    slow = stand.pilot(host="slow")
    leases = slow.pull()
    for _ in range(3):
        leases = slow.talk(good(leases[0].attempt, duration=5.0)).leases
    slow.run()
    idle = stand.pilot(host="idle")
    idle.wait()
    return slow, leases[0].attempt, idle


def test_a_much_slower_task_that_can_be_checkpointed_is_told_to_move_when_another_host_is_idle() -> None:
    stand = Stand()
    slow, attempt, idle = _slow(stand)
    stand.now += 8
    slow.talk()
    idle.pull()
    stand.pass_time(9)
    (order,) = [o for a in stand.last.answers if a.pilot == slow.name for o in a.reply.orders]
    assert (order.kind, order.attempt) == ("move", attempt)
    assert len(stand.events("task_moved")) == 1
    assert '"avoid": ["slow"]' in stand.row(1, 4).special, "after a restart, too, it goes on elsewhere"
    stand.pass_time(5)
    assert len(stand.events("task_moved")) == 1, "it is asked once"
    idle.pull()
    slow.talk(later(attempt, A), leaving="")
    (lease,) = [*idle.took(), *idle.pull()]
    assert (lease.restored, lease.part) == ({"state": A}, 1)
    assert stand.sound()


def test_nothing_is_moved_to_where_it_may_not_run_or_is_not_better() -> None:
    stand = Stand()
    slow, _, idle = _slow(stand)
    stand.policy(quota=[{"site": "local", "cores": 0}])
    stand.now += 8
    slow.talk()
    idle.pull()
    stand.pass_time(9)
    assert stand.events("task_moved") == []


def test_a_pilot_on_the_same_host_is_no_place_to_move_to() -> None:
    stand = Stand()
    slow, _, idle = _slow(stand)
    stand.bury(idle)
    beside = stand.pilot(host="slow")
    beside.wait()
    stand.now += 8
    slow.talk()
    beside.pull()
    stand.pass_time(9)
    assert stand.events("task_moved") == []


# --- checkpoints that arrive while the task runs


_NUMBERS = itertools.count(1)


def _said(attempt: str, digest: str) -> Checkpoint:
    return Checkpoint(attempt, {"state": digest}, next(_NUMBERS))


def test_an_old_checkpoint_that_comes_once_more_does_not_undo_a_newer_one() -> None:
    """A message that was doubled and overtaken on its way is heard again."""
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]})
    pilot = stand.pilot()
    attempt = pilot.work()
    old = _said(attempt, A)
    pilot.talk(checkpoints=[old])
    pilot.talk(checkpoints=[_said(attempt, B)])
    pilot.talk(checkpoints=[old])
    assert stand.task(run).differences.files == {"state": B}
    stand.restart()
    pilot.talk(checkpoints=[old])
    assert stand.task(run).differences.files == {"state": B}


def test_a_task_lost_with_its_pilot_goes_on_from_the_newest_checkpoint_that_arrived() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]})
    pilot = stand.pilot(host="one")
    attempt = pilot.work()
    for digest in (A, B):
        answer = pilot.send(pilot.make(checkpoints=[_said(attempt, digest)]))
        assert answer is not None and answer.durable, "it is told when it is safe, and not before"
    stand.bury(pilot)
    (lease,) = stand.pilot(host="two").pull()
    assert (lease.restored, lease.part) == ({"state": B}, 0)
    assert len(stand.events("checkpoint_saved")) == 1, "once for each attempt"
    assert stand.row(run).losses == 1 and stand.sound()


def test_a_checkpoint_that_arrived_survives_a_restart_and_one_that_was_not_committed_does_not() -> None:
    stand = Stand()
    stand.submit({"checkpoint": ["state"]})
    pilot = stand.pilot(host="one")
    attempt = pilot.work()
    pilot.talk(checkpoints=[_said(attempt, A)])
    stand.commit()
    pilot.talk(checkpoints=[_said(attempt, B)])
    stand.crash()
    stand.bury(pilot)
    (lease,) = stand.pilot(host="two").pull()
    assert lease.restored == {"state": A}


def test_only_the_pilot_that_holds_the_attempt_may_send_its_checkpoint() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]}, {"checkpoint": ["state"]})
    pilot, liar = stand.pilot(host="one"), stand.pilot(host="two")
    attempt, other = pilot.work(), liar.work()
    liar.talk(checkpoints=[_said(attempt, A), _said("r77.1#1@1", A), _said(attempt.replace("#1", "#2"), A)])
    assert stand.task(run, 1).special is None
    liar.talk(checkpoints=[Checkpoint(other, {"another": A}, 1)])
    liar.talk(checkpoints=[Checkpoint(other, {"state": A, "another": A}, 2)])
    assert stand.task(run, 2).special is None, "only what was declared"
    assert stand.sound()
    with pytest.raises(BadInput):
        liar.talk(checkpoints=[Checkpoint(other, {"state": "no digest"}, 3)])


def test_a_copy_that_was_given_up_does_not_overwrite_the_checkpoint_of_the_current_attempt() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]})
    old = stand.pilot(host="one")
    first = old.work()
    old.talk(checkpoints=[_said(first, A)])
    stand.bury(old)
    new = stand.pilot(host="two")
    second = new.work()
    new.talk(checkpoints=[_said(second, B)])
    back = stand.pilot(host="one", former=old)
    back.talk(checkpoints=[_said(first, C)])  # adopted as one more copy, but not the current attempt
    assert len(stand.task(run).live) == 2
    assert stand.task(run).differences.files == {"state": B}
    back.talk(later(first, C))
    assert stand.task(run).differences.files == {"state": B}, "nor what it ends with"
    assert stand.sound()


def test_a_copy_that_is_left_alone_is_the_current_attempt_again() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]})
    old = stand.pilot(host="one")
    first = old.work()
    stand.bury(old)
    new = stand.pilot(host="two")
    new.work()
    back = stand.pilot(host="one", former=old)
    back.talk()
    stand.bury(new)
    back.talk(checkpoints=[_said(first, C)])
    assert stand.task(run).differences.files == {"state": C}
    assert stand.sound()


def test_a_checkpoint_rides_with_the_word_that_its_pilot_came_back() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]})
    old = stand.pilot(host="one")
    attempt = old.work()
    stand.bury(old)
    back = stand.pilot(host="one", former=old)
    back.talk(checkpoints=[_said(attempt, A)])
    assert stand.task(run).differences.files == {"state": A}


def test_a_checkpoint_rides_with_the_word_that_brings_its_task_back_after_a_crash() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]})
    pilot = stand.pilot()
    stand.commit()
    (lease,) = pilot.pull()
    stand.crash()  # and the lease is forgotten
    exchange = pilot.make(held={lease.attempt: "running"}, checkpoints=[_said(lease.attempt, A)])
    answer = pilot.send(exchange)
    assert answer is not None and answer.durable
    assert stand.task(run).differences.files == {"state": A}, "it was acknowledged, so it is not sent again"


def test_a_failure_in_the_same_exchange_goes_on_from_the_checkpoint_before_it() -> None:
    stand = Stand()
    stand.submit({"checkpoint": ["state"], "retries": 1})
    pilot = stand.pilot()
    attempt = pilot.work()
    (lease,) = pilot.talk(bad(attempt), checkpoints=[_said(attempt, A)]).leases
    assert lease.restored == {"state": A}


# --- exit code 85


def _part(pilot: FakePilot, attempt: str, digest: str) -> str:
    leases = pilot.talk(later(attempt, digest, exit_code=85)).leases
    return leases[0].attempt if leases else ""


def test_exit_85_without_progress_ends_after_a_few_times_and_says_why() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"], "retries": 5})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    attempt = _part(pilot, lease.attempt, A)
    for _ in range(MAX_IDLE_PARTS - 1):
        attempt = _part(pilot, attempt, A)
        assert attempt
    assert _part(pilot, attempt, A) == ""
    assert stand.state(run) == "failed"
    row = stand.row(run)
    assert row.cause == "task_error" and "left its checkpoint as it was" in row.message
    assert stand.sound()


def test_progress_of_a_part_counts_against_what_it_began_with_not_what_it_sent_on_the_way() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    attempt = _part(pilot, lease.attempt, A)
    for n in range(2 * MAX_IDLE_PARTS):
        digest = (B, A)[n % 2]
        pilot.talk(checkpoints=[_said(attempt, digest)])
        attempt = _part(pilot, attempt, digest)
        assert attempt, "it came further, though its last file was here already"
    assert stand.task(run).differences.idle_parts == 0


# --- a slow task with a checkpoint


def test_a_slow_task_with_a_checkpoint_is_moved_and_not_copied() -> None:
    stand = Stand()
    stand.submit({"array": "1-4", "checkpoint": ["state"], "cwd": "own"})
    slow = stand.pilot(host="slow")
    leases = slow.pull()
    for _ in range(3):
        leases = slow.talk(good(leases[0].attempt, duration=5.0)).leases
    slow.run()
    idle = stand.pilot(host="idle")
    idle.wait()
    stand.now += 8
    slow.talk()
    idle.pull()
    stand.pass_time(9)
    assert stand.events("task_backed_up") == []
    assert len(stand.events("task_moved")) == 1
