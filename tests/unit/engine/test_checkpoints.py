"""A task that goes on later: its files travel with its next lease; slow ones are asked to move [G10]."""

from __future__ import annotations

import pytest

from tests.unit.engine.stand import FakePilot, Stand, bad, good, later

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


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
