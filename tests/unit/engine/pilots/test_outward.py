"""A server for many: pilots bound to an owner or a group, sessions that cannot be shared, tokens that end, hosts, signals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.engine.commands import Enrol, Expel, Regroup, Signal, Talk, Watch
from shoal.model.credentials import SESSION, kind_of
from shoal.model.errors import BadInput, Conflict, Refused
from shoal.model.ids import TaskId
from shoal.wire.messages import PROTOCOL, Capacity, FormerPilot, Held, Register
from tests.unit.engine.stand import FakePilot, Stand, brief, good


def orders(pilot: FakePilot) -> list[str]:
    """Kinds of the orders in the answers to this pilot so far."""
    return [o.kind for a in pilot.stand.answers if a.pilot == pilot.name for o in a.reply.orders]


def test_a_pilot_runs_its_owners_tasks_only() -> None:
    stand = Stand()
    stand.submit({}, owner="bob")
    mine = stand.submit({})
    pilot = stand.pilot(4)
    assert [lease.attempt.partition(".")[0] for lease in pilot.pull()] == [f"r{mine}"]
    assert stand.sound()


def test_a_groups_pilot_runs_tasks_of_its_members() -> None:
    stand = Stand()
    stand.do(Regroup("ann", "phys"))
    stand.do(Regroup("bob", "phys"))
    stand.do(Regroup("eve", "chem"))
    runs = [stand.submit({}, owner=owner) for owner in ("ann", "bob", "eve")]
    pilot = stand.pilot(4, owner="", group="phys")
    assert {lease.attempt.partition(".")[0] for lease in pilot.pull()} == {f"r{runs[0]}", f"r{runs[1]}"}
    assert stand.why(runs[2]).text == "no pilot is connected"


def test_who_leaves_a_group_is_no_longer_served_and_what_runs_is_still_reported() -> None:
    stand = Stand()
    stand.do(Regroup("ann", "phys"))
    first = stand.submit({})
    pilot = stand.pilot(1, owner="", group="phys")
    (lease,) = pilot.pull()
    stand.do(Regroup("ann", ""))
    second = stand.submit({})
    pilot.talk(good(lease.attempt))
    assert stand.state(first) == "succeeded"
    assert pilot.pull() == []
    assert stand.state(second) == "ready"


def test_journal_lines_about_several_peoples_attempts_are_one_each() -> None:
    stand = Stand()
    for owner in ("ann", "bob"):
        stand.do(Regroup(owner, "phys"))
        stand.submit({}, owner=owner)
    pilot = stand.pilot(4, owner="", group="phys")
    pilot.pull()
    lines = stand.events("tasks_leased")
    assert [(line.owner, len(line.data["attempts"])) for line in lines] == [("ann", 1), ("bob", 1)]
    assert stand.events("pilot_joined")[0].owner == "@phys"
    assert [line.owner for line in stand.events("run_submitted")] == ["ann", "bob"]
    assert stand.events("server_started")[0].owner == ""


def test_another_owners_pilot_can_neither_report_nor_hold_nor_adopt() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-2"})
    mine, thief = stand.pilot(), stand.pilot(owner="eve")
    (lease,) = mine.pull()
    assert thief.verdict(good(lease.attempt)) == "unknown"
    assert stand.state(run, 1) == "leased"
    thief.held = {lease.attempt: "running"}
    thief.talk()
    assert "cancel" in orders(thief)
    stand.bury(mine)
    assert thief.verdict(good(lease.attempt)) == "unknown"
    assert stand.state(run, 1) == "ready"
    assert stand.sound()


def test_a_pilot_cannot_readopt_what_another_pilot_of_the_same_owner_lost() -> None:
    stand = Stand()
    run = stand.submit({})
    one, two = stand.pilot(), stand.pilot()
    (lease,) = one.pull()
    one.run(lease.attempt)
    stand.bury(one)
    two.held = {lease.attempt: "running"}
    two.talk()
    assert [event.data.get("how") for event in stand.events("task_adopted")] == []
    assert stand.task(run).live == {} or all(a.id.number == 2 for a in stand.task(run).live.values())


# --- enrolment
def test_a_token_lets_so_many_in_and_no_more() -> None:
    stand = Stand()
    pilots = [stand.pilot(token="t1", max_pilots=2) for _ in range(2)]
    with pytest.raises(Conflict, match="lets 2 pilots in") as refused:
        stand.pilot(token="t1", max_pilots=2)
    assert refused.value.code == "site_full"
    stand.pilot(token="t2", max_pilots=2)
    stand.bury(pilots[0])
    stand.pilot(token="t1", max_pilots=2)
    assert len(stand.engine.state.pilots) == 3
    assert stand.sound()


def test_a_pilot_that_enrols_again_takes_its_own_place() -> None:
    stand = Stand()
    pilot = stand.pilot(token="t1", max_pilots=1)
    again = stand.pilot(token="t1", max_pilots=1, former=pilot)
    assert list(stand.engine.state.pilots) == [again.name]


def test_a_registration_told_twice_is_one_pilot() -> None:
    stand = Stand()
    said = Register(PROTOCOL, "0", "host", "id", Capacity(1), nonce="n1")
    first = stand.do(Enrol(said, "ann", "local", token="t1", max_pilots=1)).result
    again = stand.do(Enrol(said, "ann", "local", token="t1", max_pilots=1)).result
    assert (first.pilot, first.session) == (again.pilot, again.session)
    other = stand.do(Enrol(replace(said, nonce="n2"), "ann", "local", token="t1")).result
    assert other.pilot != first.pilot


def test_a_session_is_a_secret_of_its_kind_and_only_its_digest_is_written() -> None:
    stand = Stand()
    pilot = stand.pilot()
    assert kind_of(pilot.session) == SESSION
    stand.commit()
    row = stand.reader.pilot(pilot.name)
    assert row is not None
    assert pilot.session not in str(row)


def test_who_comes_back_after_its_end_must_prove_who_it_was() -> None:
    stand = Stand()
    run = stand.submit({"rerun": "exclusive"})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    pilot.run(lease.attempt)
    stand.pass_time(80.0)
    liar = stand.do(
        Enrol(Register(PROTOCOL, "0", "h", "id", Capacity(1), former=FormerPilot(pilot.name, "guess")), "ann", "local")
    ).result
    assert stand.engine.state.pilots[liar.pilot].former == []
    true = stand.pilot(former=pilot)
    assert stand.engine.state.pilots[true.name].former == [pilot.name]
    true.talk()
    assert stand.task(run).live[next(iter(stand.task(run).live))].pilot == true.name


def test_who_was_gone_before_a_restart_can_still_prove_it() -> None:
    stand = Stand()
    pilot = stand.pilot()
    stand.bury(pilot)
    stand.restart()
    again = stand.pilot(former=pilot)
    assert stand.engine.state.pilots[again.name].former == [pilot.name]


# --- sessions
def test_one_session_used_by_two_pilots_ends_for_both() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    pilot.run(lease.attempt)
    exchange = pilot.make()
    assert stand.engine.state.pilots[pilot.name].seq < exchange.seq
    pilot.send(replace(exchange, nonce="one"))
    outcome = stand.do(Talk(replace(exchange, nonce="two")))
    assert isinstance(outcome.result, Conflict)
    assert outcome.result.code == "session_in_use"
    assert pilot.name not in stand.engine.state.pilots
    with pytest.raises(Conflict, match="register again"):
        stand.do(Talk(replace(exchange, seq=exchange.seq + 1, nonce="three")))
    first = stand.pilot(former=pilot)
    first.talk()
    second = stand.pilot(former=pilot)
    second.talk()
    assert [a.pilot for a in stand.task(run).live.values()] == [first.name], "adopted from whoever came first"
    assert "cancel" in orders(second)
    assert stand.sound()


def test_the_same_exchange_again_is_no_second_pilot() -> None:
    stand = Stand()
    pilot = stand.pilot()
    exchange = replace(pilot.make(), nonce="one")
    pilot.send(exchange)
    assert stand.do(Talk(exchange)).result is None
    assert pilot.name in stand.engine.state.pilots


def test_a_pilot_whose_token_was_revoked_is_sent_away_and_its_work_goes_on_elsewhere() -> None:
    stand = Stand()
    run = stand.submit({})
    bad, other = stand.pilot(token="t1"), stand.pilot(token="t2")
    (lease,) = bad.pull()
    bad.run(lease.attempt)
    assert stand.do(Expel(("t1",), "its enrolment token was revoked")).result == {"pilots": 1}
    with pytest.raises(Refused, match="sent away: its enrolment token was revoked") as refused:
        bad.send(bad.make())
    assert refused.value.code == "revoked"
    assert [brief(x.attempt) for x in other.pull()] == [f"r{run}.1#2@1"]
    stand.restart()
    with pytest.raises(Refused):
        bad.send(bad.make())


def test_a_pilot_cannot_claim_more_room_than_it_registered() -> None:
    stand = Stand()
    pilot = stand.pilot(2)
    for free in (Capacity(1_000_000), Capacity(-1), Capacity(1, -1), Capacity(0, 1 << 62)):
        with pytest.raises(BadInput, match="more is free than there is"):
            stand.do(Talk(replace(pilot.make(), free=free)))


# --- signals, reading along, renewal
def test_a_signal_goes_to_running_attempts_and_to_nobody_else() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    pilot = stand.pilot(2)
    leases = pilot.pull()
    pilot.run(leases[0].attempt)
    assert stand.do(Signal((run,), 10)).result == {"signalled": 1, "not_running": 1}
    sent = [o for a in stand.answers for o in a.reply.orders if o.kind == "signal"]
    assert [(o.attempt, o.signal) for o in sent] == [(leases[0].attempt, 10)]
    assert stand.events("task_signalled")[0].data == {"signal": 10}
    assert stand.do(Signal((TaskId(run, 3),), 10)).result == {"signalled": 0, "not_running": 1}


def test_who_reads_along_has_the_stream_sent_now_and_then() -> None:
    stand = Stand()
    run = stand.submit({})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    assert stand.do(Watch(TaskId(run, 1), "stdout")).result is True, "leased: it may begin"
    pilot.run(lease.attempt)
    for _ in range(5):
        assert stand.do(Watch(TaskId(run, 1), "stdout")).result is True
        pilot.talk()
    assert orders(pilot).count("tail") == 1
    stand.pass_time(11.0)
    stand.do(Watch(TaskId(run, 1), "stdout"))
    pilot.talk()
    assert orders(pilot).count("tail") == 2
    assert stand.do(Watch(TaskId(run, 7), "stdout")).result is False


def test_a_pilot_of_another_version_is_told_to_renew_itself_once() -> None:
    stand = Stand()
    stand.engine.state.pilot_zip = "new"
    old, new = stand.pilot(digest="old"), stand.pilot(digest="new")
    for _ in range(3):
        old.talk()
        new.talk()
    assert (orders(old).count("renew"), orders(new).count("renew")) == (1, 0)
    stand.restart()
    stand.engine.state.pilot_zip = "newer"
    new.talk()
    assert orders(new) == ["renew"]


# --- hosts
def test_a_host_that_comes_back_is_recognised_and_counts_on() -> None:
    stand = Stand()
    stand.submit({"array": "1-3"})
    first = stand.pilot(identity="box")
    (lease,) = first.pull()
    first.talk(good(lease.attempt))
    stand.bury(first)
    stand.restart()
    second = stand.pilot(identity="box")
    assert stand.events("pilot_joined")[-1].data["before"] == 1
    (lease,) = second.pull()
    second.run(lease.attempt)
    stand.bury(second)
    stand.commit()
    (host,) = stand.reader.hosts(holders=["ann"])
    assert (host["pilots"], host["succeeded"], host["lost"], host["busy"]) == (2, 1, 2, 5.0)
    assert stand.reader.hosts(holders=["bob"]) == []


def test_a_held_list_of_someone_elses_attempts_changes_nothing() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-2"})
    thief = stand.pilot(owner="eve")
    for element in (1, 2):
        thief.held = {stand.full(f"r{run}.{element}#1"): "running"}
        thief.talk()
    assert stand.state(run, 1) == stand.state(run, 2) == "ready"
    assert [Held(a, s) for a, s in thief.held.items()] != []
    assert stand.sound()


@pytest.mark.parametrize("rerun", ["safe", "exclusive"])
def test_pilots_whose_token_was_revoked_say_nothing_about_what_they_held(rerun: str) -> None:
    stand = Stand()
    run = stand.submit({"rerun": rerun})
    for number in range(4):
        pilot = stand.pilot(token=f"t{number}", host=f"h{number}")
        assert len(pilot.pull()) == 1
        stand.do(Expel((f"t{number}",), "its enrolment token was revoked"))
        stand.pass_time(stand.timing.hold + stand.timing.margin + 1)
    task = stand.task(run)
    assert (stand.state(run), task.losses, task.lost_on) == ("ready", 0, [])
    assert stand.sound()
