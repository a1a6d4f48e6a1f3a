"""Tasks that begin while their submission is on its way to the disk [ADR 0034]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.engine.commands import Accept, Add
from shoal.engine.tasks.runs import MAX_EARLY
from shoal.model.ids import parse_attempt
from shoal.wire.messages import Report
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import Stand, good


def waiting_pilot(stand: Stand) -> Any:
    pilot = stand.pilot(4)
    pilot.wait()
    stand.commit()
    return pilot


def call(text: str) -> dict[str, Any]:
    """A call whose argument is such a text."""
    return {"function": "Zg==", "calls": [text]}


def test_a_safe_task_is_leased_by_the_command_that_submits_it() -> None:
    stand = Stand()
    pilot = waiting_pilot(stand)
    stand.send_run({})
    (lease,) = pilot.took()
    (answer,) = stand.last.answers
    assert not answer.durable and not lease.proof, "a crash that forgets the lease forgets the submission, too"
    stand.commit()
    stand.do(Accept(1))
    assert pilot.took() == [] and stand.sound()
    assert pilot.verdict(good(lease.attempt)) == "recorded" and stand.state(1, 1) == "succeeded"


@pytest.mark.parametrize("fields", [{"rerun": "exclusive"}, {"rerun": "never"}])
def test_what_must_not_run_twice_waits_for_the_commit(fields: dict[str, Any]) -> None:
    stand = Stand()
    pilot = waiting_pilot(stand)
    stand.send_run(fields)
    assert pilot.took() == [] and stand.sound()
    stand.commit()
    stand.do(Accept(1))
    assert len(pilot.took()) == 1


def test_a_task_with_parents_waits_for_their_commit() -> None:
    stand = Stand()
    pilot = waiting_pilot(stand)
    stand.send_run({"name": "a"}, {"name": "b", "after": ["a"]})
    (lease,) = pilot.took()
    pilot.talk(good(lease.attempt))
    assert stand.last.answers and all(answer.durable for answer in stand.last.answers if answer.reply.leases)
    assert stand.sound()


def test_what_no_waiting_pilot_takes_is_offered_after_the_commit() -> None:
    stand = Stand()
    first = stand.pilot(1)
    first.wait()
    stand.send_run({"array": "1-3", "memory": "5G"})  # one at a time on each pilot
    assert len(first.took()) == 1
    second = stand.pilot(1)
    second.wait()
    assert stand.sound()
    stand.commit()
    stand.do(Accept(1))
    (lease,) = second.took()
    assert lease.proof, "from now on a crash may forget the lease alone"


def test_what_failed_before_the_commit_is_tried_again_after_it() -> None:
    stand = Stand()
    pilot, other = waiting_pilot(stand), stand.pilot(4)
    stand.send_run({"retries": 1, "memory": "1G"})
    (lease,) = pilot.took()
    pilot.talk(Report(lease.attempt, "failed", "out_of_memory", "killed", started=1.0))
    assert stand.sound()
    stand.commit()
    stand.do(Accept(1))
    (again,) = list(pilot.pull()) + list(other.pull())
    assert parse_attempt(again.attempt).number == 2 and stand.sound()


@pytest.mark.parametrize("other", [{"rerun": "exclusive", "priority": 9}, {"rerun": "never"}])
def test_nothing_of_a_submission_begins_before_what_goes_first_in_it(other: dict[str, Any]) -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    pilot.wait()
    stand.send_run({**other, "command": ["first"]}, {"command": ["second"]})
    assert pilot.took() == [] and stand.sound()
    stand.commit()
    stand.do(Accept(1))
    assert [lease.command for lease in pilot.took()] == [["first"]]


def test_an_addition_that_is_durable_does_not_open_the_next_one() -> None:
    stand = Stand()
    pilot = stand.pilot(4)
    run = stand.submit(open=True)
    stand.do(Add(run, 1, parse_submission({"tasks": [call("b25l")]})))
    stand.commit()
    stand.do(Add(run, 2, parse_submission({"tasks": [call("bG9zdA==")]})))
    stand.do(Accept(run, 1, 1))
    assert [parse_attempt(lease.attempt).element for lease in pilot.pull()] == [1] and stand.sound()
    stand.crash()
    stand.do(Add(run, 2, parse_submission({"tasks": [call("b3RoZXI=")]})))
    stand.commit()
    stand.do(Accept(run, 2, 1))
    pilot.talk()
    assert sorted(parse_attempt(name).element for name in pilot.held) == [1, 2] and stand.sound()


def test_without_a_waiting_pilot_or_with_many_arrays_nothing_is_offered_before_the_commit() -> None:
    stand = Stand()
    stand.send_run({})
    assert not stand.engine.state.queue.has_work()
    pilot = waiting_pilot(stand)
    stand.send_run(*[{} for _ in range(MAX_EARLY + 1)])
    assert pilot.took() == [] and stand.sound()


def test_what_began_of_an_undone_submission_is_stopped_and_counts_for_no_other_run() -> None:
    stand = Stand()
    pilot = waiting_pilot(stand)
    stand.send_run({"command": ["lost"]})
    (lease,) = pilot.took()
    pilot.held[lease.attempt] = "running"
    stand.crash()
    assert stand.submit({"command": ["another"]}) == 1, "the number is given again"
    orders = pilot.orders("cancel")
    assert [order.attempt for order in orders] == [lease.attempt]
    assert pilot.verdict(good(lease.attempt)) == "unknown"
    (again,) = [*pilot.pull(), *(one for one in pilot.held if one != lease.attempt)][:1]
    name = again if isinstance(again, str) else again.attempt
    assert parse_attempt(name).nonce != parse_attempt(lease.attempt).nonce
    assert pilot.verdict(good(name)) == "recorded" and stand.sound()


def test_what_began_of_an_undone_addition_is_not_taken_for_what_is_added_in_its_place() -> None:
    stand = Stand()
    run = stand.submit(open=True)
    pilot = waiting_pilot(stand)
    stand.do(Add(run, 1, parse_submission({"tasks": [call("bG9zdA==")]})))
    (lease,) = pilot.took()
    pilot.held[lease.attempt] = "running"
    stand.crash()
    stand.do(Add(run, 1, parse_submission({"tasks": [call("b3RoZXI=")]})))
    stand.commit()
    stand.do(Accept(run, 1))
    assert [order.attempt for order in pilot.orders("cancel")] == [lease.attempt]
    assert pilot.verdict(good(lease.attempt)) in ("stale", "unknown")
    assert stand.state(run, 1) in ("ready", "leased") and stand.sound()


@pytest.mark.parametrize(
    ("table", "leased", "is_underway"),
    [
        ({"function": "Zg==", "calls": ["YQ==", "Yg=="]}, 2, True),
        ({"command": ["true"]}, 1, False),  # its report takes its time
        ({"function": "Zg==", "calls": ["YQ=="], "memory": "100T"}, 0, False),  # nobody runs it
    ],
)
def test_only_calls_that_are_all_leased_may_wait_for_the_commit_of_their_reports(
    table: dict[str, Any], leased: int, is_underway: bool
) -> None:
    stand = Stand()
    run = stand.submit(open=True)
    pilot = waiting_pilot(stand)
    stand.do(Add(run, 1, parse_submission({"tasks": [table]})))
    assert stand.last.is_underway == is_underway
    assert sum(lease.count for lease in pilot.took()) == leased and stand.sound()
