"""Neighbours leased as one, finished as one, and carved out when one of them differs [ADR 0009]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.engine.commands import Accept, Add, Close, PollRun, Submit
from shoal.engine.tasks.runs import ABANDONED
from shoal.model.errors import Conflict
from shoal.model.ids import TaskId
from shoal.model.limits import MAX_CHUNK, MAX_CHUNK_CALLS, MAX_LEASES
from shoal.wire import codec
from shoal.wire.messages import Batch, Held, Lease, Reply
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import FakePilot, Stand, bad, brief, good


def calls(count: int = 40, **more: Any) -> dict[str, Any]:
    return {"function": "gAU=", "calls": ["gAU="] * count, **more}


def submit_calls(stand: Stand, count: int = 40, **more: Any) -> int:
    """Calls of one function; the stand's own `submit` knows commands only."""
    run = int(stand.do(Submit(parse_submission({"tasks": [calls(count)], **more}), "ann", "d")).result["run"][1:])
    stand.commit()
    stand.do(Accept(run))
    return run


def raw(pilot: FakePilot, **more: Any) -> Reply:
    """An exchange whose leases stay as they came."""
    answer = pilot.send(pilot.make(**more))
    assert answer is not None
    pilot.ack = answer.reply.seq
    return answer.reply


def hold(lease: Lease, stage: str = "leased") -> list[Held]:
    return [Held(lease.attempt, stage, lease.count)]


def batch_of(lease: Lease, count: int = 0) -> Batch:
    count = count or lease.count
    results = ["gAVLAS4="] * count if lease.function else []
    return Batch(lease.attempt, count, [5.0] * count, [0.001] * count, [0.0] * count, result=results)


def test_neighbours_travel_as_one_lease_with_what_differs_between_them() -> None:
    stand = Stand()
    run = stand.submit({"command": ["echo", "{x}"], "params": {"x": ["a", "b", "c"]}}, seed=7)
    (lease,) = raw(stand.pilot(3)).leases
    assert (brief(lease.attempt), lease.count, lease.command) == (f"r{run}.1#1@1", 3, ["echo", "{x}"])
    assert lease.params == [{"x": "a"}, {"x": "b"}, {"x": "c"}] and lease.seed == 7
    (event,) = stand.events("tasks_leased")
    assert event.data == {"attempts": [], "chunks": [(stand.full(f"r{run}.1#1"), 3)]}
    assert stand.sound()


def test_a_chunk_is_one_row_and_its_ends_are_one_each() -> None:
    stand = Stand()
    run = submit_calls(stand, 10)
    pilot = stand.pilot(10)
    (lease,) = raw(pilot).leases
    stand.commit()
    count = stand.database.connection.execute
    assert count("SELECT count(*) FROM chunks").fetchone() == (1,)
    assert count("SELECT count(*) FROM tasks").fetchone() == (0,)
    reply = raw(pilot, held=None, batches=[batch_of(lease)])
    assert [(v.attempt, v.verdict, v.count) for v in reply.verdicts] == [(lease.attempt, "recorded", 10)]
    stand.commit()
    assert count("SELECT count(*) FROM chunks").fetchone() == (0,)
    assert count("SELECT count(*), min(result) FROM tasks WHERE state = 'succeeded'").fetchone() == (10, "gAVLAS4=")
    assert len(stand.events("task_finished")) == 10
    assert stand.events("run_finished")[0].data["counts"] == {"succeeded": 10}
    assert stand.sound() and run == 1


def test_a_batch_told_again_is_recorded_again_and_counted_once() -> None:
    stand = Stand()
    submit_calls(stand, 10)
    pilot = stand.pilot(10)
    (lease,) = raw(pilot).leases
    raw(pilot, batches=[batch_of(lease)])
    again = raw(pilot, batches=[batch_of(lease)])
    assert {v.verdict for v in again.verdicts} == {"recorded"}
    assert len(stand.events("task_finished")) == 10


def test_one_that_began_is_a_task_and_the_others_stay_together() -> None:
    stand = Stand()
    run = submit_calls(stand, 10)
    pilot = stand.pilot(10)
    (lease,) = raw(pilot).leases
    held = [Held(stand.full(f"r{run}.1#1"), "running"), Held(stand.full(f"r{run}.2#1"), "leased", 9)]
    pilot.send(replace(pilot.make(), held=held))
    array = stand.engine.state.runs[run].arrays[0]
    assert list(array.tasks) == [1] and len(array.chunks[0].left) == 9
    assert [stand.state(run, 1), stand.state(run, 2)] == ["running", "leased"]
    assert stand.sound()
    raw(pilot, batches=[batch_of(lease)])
    assert len(stand.events("task_finished")) == 10 and stand.sound()


def test_a_failure_in_the_middle_is_its_own() -> None:
    stand = Stand()
    run = submit_calls(stand, 10)
    pilot = stand.pilot(10)
    (lease,) = raw(pilot).leases
    raw(pilot, reports=[bad(stand.full(f"r{run}.5#1"))])
    assert stand.state(run, 5) == "failed"
    reply = raw(pilot, batches=[batch_of(lease)])
    assert [(v.verdict, v.count) for v in reply.verdicts] == [("recorded", 4), ("recorded", 1), ("recorded", 5)]
    assert stand.state(run, 5) == "failed", "that was recorded, and stays"
    assert stand.sound()


def test_what_never_arrived_is_sent_again_and_only_that() -> None:
    stand = Stand()
    run = submit_calls(stand, 10)
    pilot = stand.pilot(10)
    pilot.send(pilot.make())  # the reply is lost
    pilot.talk(), pilot.talk()
    exchange = pilot.make()
    some = [Held(stand.full(f"r{run}.3#1"), "leased", 4)]
    answer = pilot.send(replace(exchange, held=some))
    assert answer is not None
    assert [(lease.attempt, lease.count) for lease in answer.reply.leases] == [
        (stand.full(f"r{run}.1#1"), 2),
        (stand.full(f"r{run}.7#1"), 4),
    ]
    assert stand.sound()


def test_a_lost_pilots_chunk_is_ready_again_one_by_one() -> None:
    stand = Stand()
    run = submit_calls(stand, 6)
    pilot = stand.pilot(6)
    raw(pilot)
    stand.bury(pilot)
    assert [stand.state(run, element) for element in (1, 6)] == ["ready", "ready"]
    (lease, *_) = stand.pilot(1).pull()
    assert brief(lease.attempt) == f"r{run}.1#2@1", "under a new number"
    assert stand.sound()


def test_a_restart_knows_what_is_leased_and_a_crash_before_the_commit_does_not() -> None:
    stand = Stand()
    run = submit_calls(stand, 6)
    pilot = stand.pilot(6)
    (lease,) = raw(pilot).leases
    stand.restart()
    assert stand.state(run, 3) == "leased" and stand.sound()
    raw(pilot, batches=[batch_of(lease, 2)])
    stand.restart()
    assert [stand.state(run, 2), stand.state(run, 3)] == ["succeeded", "leased"] and stand.sound()


def test_a_pilot_that_holds_a_chunk_of_the_uncommitted_gap_keeps_it() -> None:
    stand = Stand()
    run = submit_calls(stand, 6)
    pilot = stand.pilot(6)
    stand.commit()
    (lease,) = raw(pilot).leases
    pilot.proofs.take(lease)
    stand.crash()
    assert stand.state(run, 3) == "ready"
    pilot.say_hello()
    pilot.send(replace(pilot.make(), held=hold(lease)))
    assert stand.state(run, 3) == "leased" and stand.sound()
    assert len(stand.events("task_adopted")) == 6


def test_cancelling_one_element_carves_it_out() -> None:
    stand = Stand()
    run = submit_calls(stand, 6)
    pilot = stand.pilot(6)
    raw(pilot)
    assert stand.cancel(TaskId(run, 4)) == {"cancelled": 1, "already_final": 0}
    assert [stand.state(run, 4), stand.state(run, 5)] == ["cancelled", "leased"]
    assert stand.sound()


def test_exclusive_tasks_and_those_with_a_history_are_leased_one_by_one() -> None:
    stand = Stand()
    stand.submit({"rerun": "exclusive", "array": "1-3"})
    assert [lease.count for lease in raw(stand.pilot(3)).leases] == [1, 1, 1]


# --- at the tail
def prefetching(stand: Stand, count: int) -> FakePilot:
    """A pilot that holds much more than it can run, of calls that take 0.1 s."""
    run = submit_calls(stand, count)
    pilot = stand.pilot(1)
    (lease,) = pilot.pull()
    pilot.talk(good(lease.attempt, duration=0.01, exit_code=None, result="gAU="))
    assert run and len(pilot.held) > 10
    return pilot


def test_what_has_not_begun_is_taken_back_for_pilots_that_stand_idle() -> None:
    stand = Stand()
    pilot = prefetching(stand, 60)
    held = len(pilot.held)
    stand.cancel(*[TaskId(1, e) for e in range(1, 61) if stand.full(f"r1.{e}#1") not in pilot.held])
    idle = stand.pilot(4)
    idle.talk()
    stand.pass_time(0.2)
    orders = [order for order in stand.engine.state.pilots[pilot.name].orders if order.kind == "take_back"]
    orders += [o for a in stand.answers for o in a.reply.orders if o.kind == "take_back"]
    assert 1 <= sum(order.count for order in orders) <= max(1, (held - 1) // 2)


def test_a_slow_call_gets_one_copy_on_an_idle_pilot_and_counts_once() -> None:
    stand = Stand()
    run = submit_calls(stand, 3)
    pilot = stand.pilot(3)
    attempts = [lease.attempt for lease in pilot.pull()]
    pilot.run()
    pilot.talk(*[good(a, duration=1.0, exit_code=None, result="gAU=") for a in attempts[:2]])
    other = stand.pilot(1)
    other.talk()
    stand.pass_time(1.0)
    assert stand.events("task_backed_up") == [], "not slow yet"
    stand.engine.describe_server(disk_full="the disk is full")
    stand.pass_time(5.0)
    assert stand.events("task_backed_up") == [], "a copy is something new, too"
    stand.engine.describe_server(disk_full="")
    stand.pass_time(0.2)
    (event,) = stand.events("task_backed_up")
    (copy,) = [a.reply.leases[0] for a in stand.answers if a.pilot == other.name and a.reply.leases]
    assert brief(copy.attempt) == f"r{run}.3#2@1" and event.attempt == 2
    assert event.data["beside"] == pilot.name and 6.0 < event.time - event.data["since"] < 7.0, "whom, and since when"
    stand.pass_time(0.2)
    assert len(stand.events("task_backed_up")) == 1, "one copy is enough"
    other.held = {copy.attempt: "running"}
    assert other.verdict(good(copy.attempt, duration=1.0, exit_code=None, result="gAU=")) == "recorded"
    assert {o.attempt for o in pilot.orders("cancel")} == {attempts[2]}
    assert len(stand.events("task_finished")) == 3 and stand.sound()


def test_a_command_in_the_submitters_directory_gets_no_copy() -> None:
    stand = Stand()
    stand.submit({"array": "1-2"}, {"cwd": "own", "array": "1-2"})
    pilot = stand.pilot(4)
    attempts = [lease.attempt for lease in pilot.pull()]
    pilot.run()
    pilot.talk(good(attempts[0], duration=1.0), good(attempts[2], duration=1.0))
    stand.pilot(4).talk()
    stand.pass_time(8.0)
    assert [event.task for event in stand.events("task_backed_up")] == [4]


# --- open runs
def test_an_open_run_takes_more_until_it_is_closed() -> None:
    stand = Stand()
    run = submit_calls(stand, 2, open=True)
    pilot = stand.pilot(4)
    (lease,) = raw(pilot).leases
    raw(pilot, batches=[batch_of(lease)])
    assert stand.events("run_finished") == []
    more = parse_submission({"tasks": [calls(3)]})
    assert stand.do(Add(run, 3, more)).result == {"run": "r1", "first": 3, "tasks": 3, "again": False}
    assert stand.do(Add(run, 3, more)).result["again"] is True, "told twice, added once"
    assert raw(pilot, batches=[batch_of(lease)]).leases == [], "not before it is durable"
    stand.commit()
    pilot.send(pilot.make())
    stand.do(Accept(run, 3))
    (got,) = [lease for a in stand.answers for lease in a.reply.leases if brief(lease.attempt) == "r1.3#1@1"]
    stand.do(Close(run))
    assert stand.events("run_finished") == []
    raw(pilot, batches=[batch_of(got)])
    assert stand.events("run_finished")[0].data["counts"] == {"succeeded": 5}
    with pytest.raises(Conflict, match="closed"):
        stand.do(Add(run, 6, more))
    assert stand.sound()


def test_an_addition_at_another_place_is_refused() -> None:
    stand = Stand()
    run = submit_calls(stand, 2, open=True)
    with pytest.raises(Conflict, match="cannot be next"):
        stand.do(Add(run, 4, parse_submission({"tasks": [calls(1)]})))
    with pytest.raises(Conflict, match="another task"):
        stand.do(Add(run, 1, parse_submission({"tasks": [calls(3)]})))


def test_an_open_run_nobody_asks_about_is_over_when_nothing_is_left_and_opens_again() -> None:
    stand = Stand()
    run = submit_calls(stand, 2, open=True)
    pilot = stand.pilot(4)
    stand.pass_time(ABANDONED / 2)
    (lease,) = raw(pilot).leases
    raw(pilot, batches=[batch_of(lease)])
    stand.do(PollRun(run))
    stand.pass_time(ABANDONED - 1)
    assert stand.events("run_finished") == []
    stand.pass_time(2)
    assert len(stand.events("run_finished")) == 1
    stand.do(Add(run, 3, parse_submission({"tasks": [calls(1)]})))
    assert stand.engine.state.runs[run].finished is None and stand.sound()


def test_who_follows_an_open_run_is_told_of_every_end() -> None:
    stand = Stand()
    run = submit_calls(stand, 6, open=True)
    pilot = stand.pilot(3)
    (lease,) = raw(pilot).leases
    raw(
        pilot,
        batches=[Batch(lease.attempt, 2, result=["gAVLAS4="] * 2)],
        reports=[bad(stand.full(f"r{run}.3#1"), result="gAU=")],
    )
    told = [entry.row for entry in stand.last.finals]
    assert [[*t[:3]] for t in told] == [
        [3, "failed", "gAU="], [1, "succeeded", "gAVLAS4="], [2, "succeeded", "gAVLAS4="],
    ]  # fmt: skip
    stand.cancel(run)
    kinds = [(type(entry).__name__, entry.row[:2]) for entry in stand.last.finals]
    assert ("Final", (4, "cancelled")) in kinds
    seqs = [entry.seq for entry in stand.last.finals]
    assert seqs == sorted(seqs)


# --- how many share one lease
@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"function": "gAU=", "calls": ["gAU="] * 900}, MAX_CHUNK),
        ({"function": "gAU=", "calls": ["A" * (MAX_CHUNK_CALLS // 200)] * 900}, MAX_LEASES),
        ({"command": ["sim", "{i}"], "array": "1-900"}, MAX_CHUNK),
        ({"command": ["sim", "{x}", "{y}"], "params": {"x": "1..30", "y": "0..2.9:0.1"}}, MAX_CHUNK),
        ({"command": ["sim", "{x}", "{y}"], "params": {"x": "1..90", "y": ["a", "b", "c" * 999] * 3}}, MAX_LEASES),
    ],
)
def test_more_than_a_hundred_share_a_lease_where_what_differs_between_them_is_short(
    fields: dict[str, Any], most: int
) -> None:
    stand = Stand()
    pilot = stand.pilot(600)
    stand.engine.state.pilots[pilot.name].proven = True
    run = int(stand.do(Submit(parse_submission({"tasks": [fields]}), "ann", "d")).result["run"][1:])
    stand.commit()
    stand.do(Accept(run))
    (lease,) = raw(pilot).leases
    assert lease.count == most and stand.sound()
    assert len(codec.encode(lease)) < 2 * MAX_CHUNK_CALLS


def test_a_chunk_behind_leases_of_single_tasks_keeps_to_the_bound_of_a_reply() -> None:
    stand = Stand()
    pilot = stand.pilot(600)
    stand.engine.state.pilots[pilot.name].proven = True
    stand.submit(*[{"priority": 1} for _ in range(60)], {"command": ["sim", "{i}"], "array": "1-900"})
    leases = raw(pilot).leases
    assert sum(lease.count for lease in leases) == MAX_CHUNK and len(leases) == 61 and stand.sound()
