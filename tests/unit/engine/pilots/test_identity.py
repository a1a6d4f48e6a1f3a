"""Who is who [ADR 0015]: runs of other histories, pilots that speak of what they never had, numbers after a crash."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.engine.pilots.lease_proofs import make_proof
from shoal.engine.pilots.old_protocol import complete
from shoal.model.ids import parse_attempt
from shoal.wire.messages import Exchange, Held, Proof, Report
from shoal.wire.old_protocol import for_protocol
from tests.unit.engine.stand import FakePilot, Stand, brief, good


def roll_back(stand: Stand, image: bytes) -> None:
    """The server dies and finds an older copy of its database."""
    stand.database.connection.deserialize(image)
    stand.crash()


def gap(stand: Stand) -> tuple[int, FakePilot, str]:
    """A lease that went out, and that the server forgot in a crash."""
    run = stand.submit({})
    pilot = stand.pilot()
    stand.commit()
    (lease,) = pilot.pull()
    stand.crash()
    return run, pilot, lease.attempt


# --- histories
def test_a_run_of_another_history_is_another_run_whatever_its_number() -> None:
    stand = Stand()
    pilot = stand.pilot()
    stand.commit()
    empty = stand.database.connection.serialize()
    old = stand.submit({"name": "old"})
    stand.commit()
    attempt = pilot.work()
    roll_back(stand, empty)
    new = stand.submit({"name": "new"})
    assert new == old
    assert [order.attempt for order in pilot.orders("cancel", held={attempt: "running"})] == [attempt]
    assert pilot.verdict(good(attempt)) == "unknown"
    assert stand.state(new) != "succeeded"
    assert stand.sound()


def test_two_lives_after_one_copy_share_no_name() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    stand.commit()
    copy = stand.database.connection.serialize()
    names = set()
    for _ in range(3):
        roll_back(stand, copy)
        pilot.held.clear()
        pilot.talk()
        names |= {str(attempt) for attempt in stand.engine.state.pilots[pilot.name].live}
    assert len(names) == 3 and {brief(name) for name in names} == {"r1.1#2@2"}


# --- who may report
@pytest.mark.parametrize("shown", ["nothing", "another's", "made up"])
def test_a_success_from_the_gap_is_believed_only_of_the_pilot_that_can_prove_it(shown: str) -> None:
    stand = Stand()
    run, pilot, attempt = gap(stand)
    liar = stand.pilot()
    proofs = {
        "nothing": [],
        "another's": list(pilot.proofs.to_send()),
        "made up": [Proof(attempt, 1, make_proof(b"guess", liar.name, attempt, 1))],
    }[shown]
    liar.talk(good(attempt), proofs=proofs)
    assert stand.state(run) != "succeeded"
    liar.talk(held={attempt: "running"}, proofs=proofs)
    assert stand.state(run) != "running"
    assert pilot.verdict(good(attempt)) == "adopted"
    assert stand.sound()


def test_a_proof_is_good_for_the_attempts_that_it_names() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    pilot = stand.pilot(1)
    stand.commit()
    (lease,) = pilot.pull()
    stand.crash()
    other = str(parse_attempt(lease.attempt)._replace(element=2))
    assert pilot.verdict(good(other)) == "stale"
    assert stand.state(run, 2) == "ready"


def test_what_settled_a_task_is_told_only_to_the_pilot_that_reported_it() -> None:
    stand = Stand()
    stand.submit({})
    pilot, other = stand.pilot(), stand.pilot()
    attempt = pilot.work()
    assert pilot.verdict(good(attempt)) == "recorded"
    assert (pilot.verdict(good(attempt)), other.verdict(good(attempt))) == ("recorded", "final")
    stand.restart()
    assert (pilot.verdict(good(attempt)), other.verdict(good(attempt))) == ("recorded", "unknown"), (
        "it is not in memory"
    )


def test_what_the_gap_forgot_and_is_done_is_not_begun_again_before_its_report_comes() -> None:
    stand = Stand()
    run, pilot, attempt = gap(stand)
    other = stand.pilot()
    pilot.talk(held={attempt: "done"})
    stand.pass_time(15)
    assert other.pull() == [] and stand.state(run) == "leased"
    assert pilot.verdict(good(attempt)) == "recorded"
    assert stand.sound()


# --- numbers
def test_no_attempt_number_is_handed_out_twice_whatever_a_crash_forgot() -> None:
    stand = Stand()
    _, _, old = gap(stand)
    stand.pass_time(15)
    (new,) = stand.pilot().pull()
    assert (brief(old), brief(new.attempt)) == ("r1.1#1@1", "r1.1#2@2")


def test_only_the_first_attempt_leaves_before_its_commit() -> None:
    stand = Stand()
    stand.submit({"retries": 1})
    pilot = stand.pilot()
    stand.commit()
    first = pilot.send(pilot.make())
    assert first is not None and not first.durable
    pilot.hear(first.reply)
    (lease,) = first.reply.leases
    pilot.held.clear()
    again = pilot.send(pilot.make([Report(lease.attempt, "returned", message="no")]))
    answers = [again, *stand.last.answers]
    assert any(a is not None and a.reply.leases for a in answers)
    assert all(a.durable for a in answers if a is not None and a.reply.leases)


# --- what a pilot does not have
def test_what_a_pilot_neither_holds_nor_returns_is_taken_back() -> None:
    """Pilots of protocol 4 let a lease fall silently that they have seen before [promise I8]."""
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    pilot.pull()
    for _ in range(12):
        if stand.events("task_returned"):
            break
        pilot.talk(held={})
    (event,) = stand.events("task_returned")
    assert "neither runs nor returns it" in event.data["why"]
    assert stand.task(run).number >= 1 and stand.sound()


# --- protocol 4
def short(exchange: Exchange, attempt: str) -> Exchange:
    """As a pilot of protocol 4 says it."""
    name = brief(attempt)
    return replace(
        exchange, protocol=4, held=[Held(name, "running")], reports=[Report(name, "succeeded", exit_code=0)], proofs=[]
    )


def test_a_pilot_of_protocol_4_is_understood_for_what_is_with_it_and_for_nothing_else() -> None:
    stand = Stand()
    stand.submit({})
    pilot, other = stand.pilot(), stand.pilot()
    attempt = pilot.work()
    state = stand.engine.state
    said = complete(state, state.pilots[pilot.name], short(pilot.make(), attempt))
    assert (said.reports[0].attempt, said.held[0].attempt) == (attempt, attempt)
    lie = complete(state, state.pilots[other.name], short(other.make(), attempt))
    assert (lie.reports[0].attempt, lie.held[0].attempt) == (brief(attempt), brief(attempt))
    assert other.verdict(lie.reports[0]) == "unknown"


def test_a_pilot_of_protocol_4_is_sent_names_that_it_can_read() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    answer = pilot.send(pilot.make())
    assert answer is not None
    (lease,) = for_protocol("Reply", answer.reply, 4)["leases"]
    assert lease["attempt"] == "r1.1#1@1" and "proof" not in lease
