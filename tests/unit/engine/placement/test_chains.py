"""Short calls leased together with those that wait for nothing but them, and what becomes of both [ADR 0064]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.engine.commands import Accept, Submit
from shoal.engine.matching.classes import Sample
from shoal.engine.matching.prefetch import unbegun
from shoal.engine.placement import chains
from shoal.engine.placement.chains import VAIN_LOOKS, divide, gather, parents_of
from shoal.engine.records import Array
from shoal.model.ids import TaskId, parse_attempt
from shoal.model.limits import MAX_LEASES
from shoal.sched.batch_size import CHAIN
from shoal.wire.chunk import names, part
from shoal.wire.messages import PROTOCOL, Batch, Held, Lease, Reply, Verdict
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import FakePilot, Stand, back, bad, good

CALL: dict[str, Any] = {"function": "gAU=", "calls": ["gAU="]}


def tables(width: int, length: int, by_level: bool = True, **more: Any) -> list[dict[str, Any]]:
    """So many chains, written level by level or one after another."""
    places = [(chain, at) for at in range(length) for chain in range(width)]
    return [
        {**CALL, **more, "name": f"c{chain}.{at}", "after": [f"c{chain}.{at - 1}"] if at else []}
        for chain, at in (places if by_level else sorted(places))
    ]


def submit(stand: Stand, found: list[dict[str, Any]], mean: float = 1e-5, **more: Any) -> int:
    """A run of calls that are known to take so long."""
    run = int(stand.do(Submit(parse_submission({"tasks": found, **more}), "ann", "d")).result["run"][1:])
    stand.commit()
    for array in stand.engine.state.runs[run].arrays:
        cls = stand.engine.state.queue.class_of(array)
        if cls.base.mean is None:
            cls.learn(Sample(mean), 10)
    stand.do(Accept(run))
    return run


def proven(stand: Stand, cores: int = 2, **more: Any) -> FakePilot:
    pilot = stand.pilot(cores, **more)
    stand.engine.state.pilots[pilot.name].proven = True
    return pilot


def ask(pilot: FakePilot, *leases: Lease, **more: Any) -> Reply:
    """An exchange in which the pilot holds these leases; its answer as it came."""
    held = [Held(lease.attempt, "leased", lease.count) for lease in leases]
    exchange = pilot.make(held={}, **more)
    answer = pilot.send(type(exchange)(**{**vars(exchange), "held": held}))
    if answer is None:
        return Reply(exchange.seq, 0)
    pilot.ack = answer.reply.seq
    return answer.reply


def batch_of(lease: Lease) -> Batch:
    count = lease.count
    return Batch(lease.attempt, count, [5.0] * count, [1e-5] * count, [0.0] * count, result=["gAVLAS4="] * count)


def elements(lease: Lease) -> list[int]:
    return [parse_attempt(name).element for name in names(lease)]


@pytest.mark.parametrize("by_level", [True, False])
def test_calls_go_along_with_what_waits_for_nothing_but_them(by_level: bool) -> None:
    stand = Stand()
    run = submit(stand, tables(3, 4, by_level))
    pilot = proven(stand)
    leases = ask(pilot).leases
    assert sorted(e for lease in leases for e in elements(lease)) == list(range(1, 13))
    assert {lease.lane for lease in leases} != {""} and len({lease.lane for lease in leases}) == 1, (
        "they are over at once"
    )
    parent = {e: e - 3 for e in range(4, 13)} if by_level else {e: e - 1 for e in range(1, 13) if e % 4 != 1}
    (lease,) = leases
    assert lease.parents == [[parent[e], parent[e] + 1] if e in parent else [] for e in elements(lease)]
    assert stand.why(run, 12).code == "leased" and stand.sound()
    reply = ask(pilot, batches=[batch_of(lease)])
    assert reply.verdicts == [Verdict(lease.attempt, "recorded", 12)]
    assert [stand.state(run, e) for e in range(1, 13)] == ["succeeded"] * 12 and stand.events("run_finished")
    assert len(stand.events("task_finished")) == 12 and stand.row(run, 12).state == "succeeded" and stand.sound()


def test_longer_calls_are_divided_into_lanes_that_hold_whatever_is_tied_together() -> None:
    stand = Stand()
    submit(stand, tables(4, 3), mean=0.004)
    leases = ask(proven(stand)).leases
    lanes: dict[str, list[int]] = {}
    for lease in leases:
        lanes.setdefault(lease.lane, []).extend(elements(lease))
    assert sorted(lanes.values()) == [[1, 2, 5, 6, 9, 10], [3, 4, 7, 8, 11, 12]]
    assert [lease.parents for lease in leases][:2] == [[], []] and all(lease.parents for lease in leases[2:])
    assert stand.sound()


def test_a_chain_takes_a_tenth_of_a_second_for_each_slot() -> None:
    """For so long nobody else gets what becomes ready in it."""
    stand = Stand()
    submit(stand, tables(2, 50), mean=0.01)
    leases = ask(proven(stand)).leases
    assert sum(lease.count for lease in leases) == 20


def test_other_pilots_get_their_share_of_independent_chains() -> None:
    stand = Stand()
    submit(stand, tables(40, 5), mean=0.001)
    one, other = proven(stand, host="a"), proven(stand, host="b")
    first = {e for lease in ask(one).leases for e in elements(lease) if e <= 40}
    second = {e for lease in ask(other).leases for e in elements(lease) if e <= 40}
    assert 2 <= len(first) <= 20 and 2 <= len(second) <= 20 and not first & second and stand.sound()


APART: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "it must not run twice": (tables(1, 2, rerun="exclusive"), {}),
    "only so many of the run may run at once": (tables(1, 2), {"max_running": 3}),
    "a limit of a category": (tables(1, 2, category="io%2"), {}),
    "another function": ([tables(1, 2)[0], {**tables(1, 2)[1], "function": "gAV="}], {}),
    "other needs": ([tables(1, 2)[0], {**tables(1, 2)[1], "cores": 2}], {}),
    "it need only end": ([{**CALL, "name": "a"}, {**CALL, "after_any": ["a"]}], {}),
    "it waits for something else, too": (
        [*tables(1, 2, require="nothing")[:1], {**CALL, "name": "b"}, {**CALL, "after": ["b", "c0.0"]}],
        {},
    ),
}


@pytest.mark.parametrize("why", APART)
def test_what_is_leased_only_when_its_parents_have_succeeded(why: str) -> None:
    stand = Stand()
    found, more = APART[why]
    run = submit(stand, found, **more)
    ask(proven(stand))
    assert stand.state(run, len(found)) == "waiting" and stand.sound()


def test_a_pilot_of_which_nothing_is_known_gets_single_calls() -> None:
    stand = Stand()
    submit(stand, tables(3, 4))
    assert [lease.count for lease in ask(stand.pilot(2)).leases] == [1, 1]


def test_a_chain_that_shows_no_results_of_others_is_sent_before_its_commit() -> None:
    stand = Stand()
    submit(stand, tables(1, 6), mean=0.05)
    pilot = proven(stand)
    (lease,) = ask(pilot).leases
    assert lease.count == 2 and not stand.last.answers[0].durable
    ask(pilot, batches=[batch_of(lease)])
    assert stand.last.answers[-1].reply.leases and stand.last.answers[-1].durable


def test_what_goes_first_is_sent_before_what_a_pilot_holds_of_a_chain() -> None:
    stand = Stand()
    submit(stand, tables(4, 20), mean=0.001)
    pilot = proven(stand)
    leases = ask(pilot).leases
    assert sum(lease.count for lease in leases) == 80
    urgent = submit(stand, [{**CALL, "priority": 5.0, "function": "gAV="}], mean=1.0)
    (lease,) = ask(pilot, *leases).leases
    assert parse_attempt(lease.attempt).run == urgent and lease.precedence > 0 and stand.sound()


def test_what_is_not_begun_of_a_chain_is_taken_back_from_its_end() -> None:
    stand = Stand()
    run = submit(stand, tables(1, 20), mean=0.001)
    pilot, state = proven(stand), stand.engine.state
    (lease,) = ask(pilot).leases
    stand.pass_time(2.0)
    found = unbegun(state, state.pilots[pilot.name])
    assert [one.part.tasks for one in found] == [20]
    reports = [back(name) for name in names(lease)[15:]]
    ask(pilot, part(lease, 0, 15), reports=reports)
    assert [stand.state(run, e) for e in (15, 16, 20)] == ["leased", "waiting", "waiting"] and stand.sound()
    ask(pilot, batches=[batch_of(part(lease, 0, 15))])
    assert stand.state(run, 16) == "leased" and stand.sound()


def test_a_pilot_of_the_last_protocol_gets_single_calls() -> None:
    stand = Stand()
    submit(stand, tables(3, 4))
    assert {lease.count for lease in ask(proven(stand, protocol=PROTOCOL - 1)).leases} == {1}


# --- what fails
def held_chain(retries: int = 0) -> tuple[Stand, int, FakePilot, Lease]:
    stand = Stand()
    run = submit(stand, tables(2, 3, retries=retries))
    pilot = proven(stand)
    stand.commit()
    (lease,) = ask(pilot).leases
    return stand, run, pilot, lease


def test_what_a_pilot_holds_behind_a_failed_call_fails_with_it() -> None:
    stand, run, pilot, lease = held_chain()
    first, *rest = names(lease)
    reply = ask(pilot, part(lease, 1, 6), reports=[bad(first)])
    assert {order.attempt for order in reply.orders} == {rest[1], rest[3]}
    assert [stand.state(run, e) for e in (1, 3, 5)] == ["failed"] * 3
    assert stand.row(run, 3).cause == "dependency_failed" or stand.reader.spans(run)
    assert [stand.state(run, e) for e in (2, 4, 6)] == ["leased"] * 3 and stand.sound()


def test_what_comes_back_from_behind_a_call_that_is_tried_again_waits_for_it() -> None:
    stand, run, pilot, lease = held_chain(retries=1)
    attempts = names(lease)
    reports = [back(attempts[4]), back(attempts[2]), bad(attempts[0])]
    assert {v.verdict for v in ask(pilot, lease, reports=reports).verdicts} == {"recorded"}
    assert [stand.state(run, e) for e in (3, 5)] == ["waiting"] * 2 and stand.row(run, 3).state == "waiting"
    assert stand.why(run, 3).code != "leased" and stand.sound()
    stand.crash()
    assert [stand.state(run, e) for e in (3, 5)] == ["waiting"] * 2 and stand.sound()


def test_a_success_without_that_of_its_parents_does_not_count() -> None:
    stand, run, pilot, lease = held_chain()
    attempts = names(lease)
    (verdict,) = ask(pilot, lease, reports=[good(attempts[2], exit_code=None, result="gAVLAS4=")]).verdicts
    assert verdict.verdict == "stale" and stand.state(run, 3) == "waiting" and stand.sound()
    one = Batch(attempts[5], 1, [5.0], [1e-5], [0.0], result=["gAVLAS4="])
    (verdict,) = ask(pilot, lease, batches=[one]).verdicts
    assert verdict.verdict == "stale" and stand.state(run, 6) == "waiting" and stand.sound()


def test_reports_count_in_the_order_of_the_chain_whatever_the_order_in_which_they_come() -> None:
    stand, run, pilot, lease = held_chain()
    attempts = names(lease)
    reports = [good(attempts[at], exit_code=None, result="gAVLAS4=") for at in (2, 4, 0)]
    one = Batch(attempts[1], 1, [5.0], [1e-5], [0.0], result=["gAVLAS4="])
    verdicts = ask(pilot, reports=reports, batches=[one]).verdicts
    assert {v.verdict for v in verdicts} == {"recorded"}
    assert [stand.state(run, e) for e in (1, 2, 3, 5)] == ["succeeded"] * 4 and stand.sound()


def test_of_a_chain_that_never_came_only_the_first_calls_are_sent_again() -> None:
    stand, run, pilot, _ = held_chain()
    again = ask(pilot).leases
    assert [e for one in again for e in elements(one)] == [1, 2] and not any(one.parents for one in again)
    assert [stand.state(run, e) for e in (3, 4, 5, 6)] == ["waiting"] * 4 and stand.sound()


@pytest.mark.parametrize("end", ["lost", "restart", "crash", "cancelled", "one cancelled", "changed", "back again"])
def test_everything_adds_up_whatever_becomes_of_a_chain(end: str) -> None:
    stand, run, pilot, lease = held_chain()
    attempts = names(lease)
    if end == "lost":
        stand.bury(pilot)
        assert [stand.state(run, e) for e in (1, 3)] == ["ready", "waiting"]
    elif end == "restart":
        stand.restart()
        assert [stand.state(run, e) for e in (1, 3)] == ["leased"] * 2
        ask(pilot, lease)
        ask(pilot, batches=[batch_of(lease)])
        assert stand.events("run_finished")
    elif end == "crash":
        stand.crash()
        pilot.proofs.take(lease)
        ask(pilot, lease, proofs=pilot.proofs.to_send())
        ask(pilot, lease, proofs=pilot.proofs.to_send())
        assert [stand.state(run, e) for e in (1, 3)] == ["leased", "waiting"]
    elif end == "cancelled":
        stand.cancel(run)
        assert stand.state(run, 6) == "cancelled"
    elif end == "one cancelled":
        stand.cancel(TaskId(run, 3))
        assert [stand.state(run, e) for e in (1, 3, 5)] == ["leased", "cancelled", "failed"]
    elif end == "changed":
        stand.set(run, cores=2)
    else:
        stand.pilot(2, former=pilot)
        assert [stand.state(run, e) for e in (1, 3)] == ["leased"] * 2
    assert stand.sound() and attempts


def test_ties_and_neighbours_decide_which_lane_a_call_goes_to() -> None:
    stand = Stand()
    run = submit(stand, [*tables(4, 2), {**CALL, "name": "join", "after": ["c0.1", "c1.1"]}])
    found = gather(stand.engine.state.runs[run].arrays[0], 100, 100, 100)
    assert [array.first for array in found] == list(range(1, 10))
    parts = [(lane, [array.first for array in arrays]) for lane, arrays in divide(found, 2)]
    assert parts == [(0, [1, 2]), (1, [3, 4]), (0, [5, 6]), (1, [7, 8]), (0, [9])]
    assert parents_of(found[-1:]) == [[5, 6, 6, 7]] and parents_of(found[:4]) == []


def fan_out(children: int) -> list[dict[str, Any]]:
    return [{**CALL, "name": "root"}, *({**CALL, "name": f"c{at}", "after": ["root"]} for at in range(children))]


@pytest.mark.parametrize(("cores", "mean"), [(4, 0.001), (32, 0.003), (64, 0.005)])
def test_what_is_tied_together_takes_no_longer_than_a_lane_of_a_chain_may(cores: int, mean: float) -> None:
    """A fan-out runs in one lane, while the other slots have nothing to do."""
    stand = Stand()
    pilot = proven(stand, cores)
    submit(stand, fan_out(1_000), mean)
    lanes: dict[str, float] = {}
    for lease in ask(pilot).leases:
        lanes[lease.lane] = lanes.get(lease.lane, 0.0) + lease.count * mean
    assert lanes and max(lanes.values()) <= CHAIN + mean


def test_tasks_that_are_all_waited_for_by_one_are_looked_at_in_vain_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Array] = []

    def look(head: Array, *args: Any) -> list[Array]:
        looked.append(head)
        return gather(head, *args)

    monkeypatch.setattr(chains, "gather", look)
    stand = Stand()
    roots = [{**CALL, "name": f"r{at}"} for at in range(1_500)]
    submit(stand, [*roots, {**CALL, "name": "sum", "after": [root["name"] for root in roots]}])
    assert sum(lease.count for lease in ask(proven(stand, 64)).leases) > VAIN_LOOKS
    assert len(looked) == VAIN_LOOKS


def test_a_reply_has_so_many_leases_of_a_chain_at_most() -> None:
    stand = Stand()
    submit(stand, tables(2, 400), 1e-4)
    leases = ask(proven(stand, 2)).leases
    assert len(leases) <= MAX_LEASES and stand.sound()
