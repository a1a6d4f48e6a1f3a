"""What a pilot has fetched ahead gives way to what goes before it [protocol 5.3; ADR 0019]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from shoal.engine.commands import Tick
from shoal.engine.matching import choose_tasks
from shoal.engine.matching.prefetch import CLEAR_LATE, LATE, NOT_SHORT, OVERDUE, Holdings, holdings
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.engine.tasks import runs as submissions
from shoal.model.ids import TaskId, parse_attempt
from shoal.wire.messages import Capacity, Order
from tests.unit.engine.stand import FakePilot, Stand, back, good

SHORT = 0.02  # seconds
MANY = 2_000  # tasks in the queue


def busy(
    stand: Stand, cores: int = 2, length: float = SHORT, owner: str = "ann", priority: float = 0.0, **more: Any
) -> tuple[int, FakePilot]:
    """A pilot that is full of short tasks, and holds many more of them."""
    run = stand.submit({"array": f"1-{MANY}", "priority": priority}, owner=owner)
    pilot = stand.pilot(cores, **more)
    for _ in range(3):
        (first, *_) = pilot.held or [lease.attempt for lease in pilot.pull()]
        pilot.talk(good(first, duration=length))
    while pilot.pull():
        pass  # as much as it may have
    assert len(pilot.held) > 4 * cores
    return run, pilot


def leased(pilot: FakePilot, run: int) -> list[str]:
    """What of a run the pilot got with the last command."""
    return [lease.attempt for lease in pilot.took() if lease.attempt.startswith(f"r{run}.")]


def texts(attempts: Iterable[str]) -> list[str]:
    """Attempts as people read them."""
    return [parse_attempt(name).text for name in attempts]


def took_back(pilot: FakePilot) -> list[Order]:
    """Orders to give something back, of the last command."""
    found = [order for a in pilot.stand.last.answers if a.pilot == pilot.name for order in a.reply.orders]
    return [order for order in found if order.kind == "take_back"]


def run_all(stand: Stand, pilot: FakePilot, length: float = SHORT, at_most: int = 10_000) -> list[str]:
    """Work off what a pilot holds, without asking for more in between; what it did."""
    done: list[str] = []
    while pilot.held and len(done) < at_most:
        attempt = next(iter(pilot.held))
        done.append(attempt)
        pilot.talk(good(attempt, duration=length))
    return done


# --- going before
def test_a_higher_priority_is_leased_at_once_with_a_precedence() -> None:
    stand = Stand()
    _, pilot = busy(stand)
    run = stand.submit({"priority": 10})
    (answer,) = [a for a in stand.last.answers if a.pilot == pilot.name]
    (lease,) = answer.reply.leases
    assert (parse_attempt(lease.attempt).text, lease.precedence) == (f"r{run}.1#1", 1)
    assert stand.sound()


def test_another_owners_first_task_is_leased_at_once() -> None:
    stand = Stand()
    stand.group("lab", "ann", "bob")
    _, pilot = busy(stand, group="lab")
    run = stand.submit({"array": "1-9"}, owner="bob")
    assert texts(leased(pilot, run)) == [f"r{run}.1#1"], "one of bob's, then it is ann's turn again"
    assert stand.sound()


@pytest.mark.parametrize("later", [{}, {"priority": -1}])
def test_what_comes_later_and_is_not_better_waits(later: dict[str, Any]) -> None:
    stand = Stand()
    _, pilot = busy(stand)
    run = stand.submit({"command": ["other"], **later})
    assert leased(pilot, run) == [] and stand.state(run) == "ready"


def test_not_more_go_before_than_there_are_slots() -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=2)
    run = stand.submit({"array": "1-50", "priority": 10})
    assert len(leased(pilot, run)) == 2
    pilot.wait()
    more = stand.submit({"priority": 20})
    assert leased(pilot, more) == [], "both slots are promised, and nobody knows for how long"
    assert stand.sound()


def test_what_is_more_urgent_still_goes_before_that() -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=2)
    stand.submit({"array": f"1-{MANY}", "priority": 10, "command": ["quick"]})
    (first, _) = [lease.attempt for lease in pilot.took()]
    pilot.talk(good(first, duration=SHORT))
    pilot.wait()
    stand.submit({"priority": 20})
    (answer,) = [a for a in stand.last.answers if a.pilot == pilot.name]
    assert [lease.precedence for lease in answer.reply.leases] == [2], "those before it are known to be short, too"


def test_slots_with_longer_tasks_do_not_count() -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=3)
    long = stand.submit({"command": ["long"], "array": "1-2", "priority": 5})
    attempts = leased(pilot, long)
    assert len(attempts) == 2
    pilot.run(*attempts)
    pilot.wait()
    run = stand.submit({"array": "1-9", "priority": 10})
    assert len(leased(pilot, run)) == 1, "only one slot turns over"


def test_a_task_that_is_not_short_after_all_keeps_its_slot() -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=1)
    pilot.run(next(iter(pilot.held)))
    stand.now += NOT_SHORT + 0.1
    run = stand.submit({"priority": 10})
    assert leased(pilot, run) == []
    stand.now += CLEAR_LATE
    orders = pilot.orders("take_back")
    assert sum(order.count for order in orders) == len(pilot.held) - 1, "but what waits behind it is taken back"


def test_a_wide_task_goes_before_narrow_ones() -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=4)
    run = stand.submit({"cores": 4, "priority": 10})
    assert texts(leased(pilot, run)) == [f"r{run}.1#1"]
    assert stand.sound()


def test_a_free_slot_elsewhere_is_better_than_one_that_soon_will_be() -> None:
    stand = Stand()
    _, pilot = busy(stand)
    stand.cancel(1)  # nothing of it is left in the queue
    other = stand.pilot(1, host="other")
    run = stand.submit({"array": "1-2", "priority": -1}, {"array": "1-400", "priority": 0})
    other.pull()
    stand.sound()
    urgent = stand.submit({"priority": 10, "command": ["urgent"]})
    assert len(leased(pilot, urgent)) + len(leased(other, urgent)) <= 1 and run


def test_only_one_pilot_is_disturbed() -> None:
    stand = Stand()
    stand.submit({"array": f"1-{MANY * 5}"})
    pilots = [stand.pilot(1, host=f"h{at}") for at in range(5)]
    for pilot in pilots:
        for _ in range(3):
            (first, *_) = pilot.held or [lease.attempt for lease in pilot.pull()]
            pilot.talk(good(first, duration=SHORT))
        pilot.pull()
    run = stand.submit({"priority": 10})
    got = [attempt for pilot in pilots for attempt in leased(pilot, run)]
    assert texts(got) == [f"r{run}.1#1"]
    assert not any(took_back(pilot) for pilot in pilots)


def test_a_quota_is_not_passed_by_going_before() -> None:
    stand = Stand()
    stand.group("lab", "ann", "bob")
    stand.policy(quota=[{"who": "bob", "cores": 0}])
    _, pilot = busy(stand, group="lab")
    run = stand.submit({}, owner="bob")
    assert leased(pilot, run) == []


def test_two_owners_with_short_tasks_take_turns_and_neither_goes_before_the_other_for_ever() -> None:
    stand = Stand()
    stand.group("lab", "ann", "bob")
    first, pilot = busy(stand, group="lab")
    second = stand.submit({"array": f"1-{MANY}", "command": ["other"]}, owner="bob")
    done = {first: 0, second: 0}
    precedences = []
    pilot.took()
    for _ in range(300):
        attempt = next(iter(pilot.held))
        stand.now += SHORT
        done[int(attempt[1:].partition(".")[0])] += 1
        precedences += [lease.precedence for lease in pilot.talk(good(attempt, duration=SHORT)).leases]
    assert min(done.values()) > 60, done
    assert max(precedences) <= 1
    assert stand.sound()


def test_shorter_tasks_of_another_do_not_keep_an_owner_out() -> None:
    """Was: what a pilot may hold was counted in tasks, and whoever had the shortest ones had all of it."""
    stand = Stand()
    stand.group("lab", "ann", "bob")
    _, pilot = busy(stand, length=0.01, group="lab")
    second = stand.submit({"array": f"1-{MANY}", "command": ["other"]}, owner="bob")
    pilot.took()
    seconds = {"ann": 0.0, "bob": 0.0}
    for _ in range(1_000):
        attempt = next(iter(pilot.held))
        owner, took = ("bob", 0.2) if attempt.startswith(f"r{second}.") else ("ann", 0.01)
        stand.now += took / 2
        seconds[owner] += took
        pilot.talk(good(attempt, duration=took))
    assert seconds["bob"] > 0.4 * seconds["ann"], seconds


def test_a_pilot_with_more_long_tasks_than_slots_has_no_backlog_of_short_ones() -> None:
    """Was: a division by zero, found by the simulator: a pilot came back with more than it has room for."""
    assert Holdings(Capacity(-1), []).backlog == 0.0


# --- where a lease is the start
def test_for_an_exclusive_task_a_pilot_is_cleared() -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=1)
    run = stand.submit({"rerun": "exclusive", "priority": 10})
    assert leased(pilot, run) == [], "it is not sent before its slot is free"
    held = set(pilot.held)
    done = run_all(stand, pilot, at_most=len(held))
    assert set(done) == held and [parse_attempt(name).text for name in pilot.held] == [f"r{run}.1#1"], (
        "nothing was fetched ahead of it meanwhile"
    )
    assert stand.sound()


@pytest.mark.parametrize("more", [{"rerun": "never"}, {}])
def test_what_a_cleared_pilot_does_not_work_off_soon_is_taken_back_and_keeps_its_place(more: dict[str, str]) -> None:
    stand = Stand()
    first, pilot = busy(stand, cores=1, protocol=5 if more else 4)
    pilot.protocol = 5 if more else 4
    run = stand.submit({"priority": 10, **more})
    pilot.took()
    begun, *waiting = pilot.held
    stand.now += CLEAR_LATE
    reply = pilot.run(begun)
    orders = [order for order in reply.orders if order.kind == "take_back"]
    assert sum(order.count for order in orders) >= len(waiting)
    leases = pilot.talk(*[back(attempt) for attempt in waiting], good(begun, duration=SHORT)).leases
    assert parse_attempt(leases[0].attempt).task == TaskId(run, 1)
    pilot.talk(good(leases[0].attempt, duration=SHORT))
    lowest = min(int(attempt.split(".")[1].split("#")[0]) for attempt in waiting)
    assert any(attempt.startswith(f"r{first}.{lowest}#2") for attempt in pilot.held), "it goes first of its run again"
    assert stand.task(first, lowest).retries == 0
    assert stand.sound()


def test_as_many_pilots_are_cleared_as_tasks_wait() -> None:
    stand = Stand()
    stand.submit({"array": f"1-{MANY * 5}"})
    pilots = [stand.pilot(1, host=f"h{at}") for at in range(5)]
    for pilot in pilots:
        for _ in range(3):
            (first, *_) = pilot.held or [lease.attempt for lease in pilot.pull()]
            pilot.talk(good(first, duration=SHORT))
        pilot.pull()
    stand.submit({"rerun": "exclusive", "priority": 10, "array": "1-2"})
    for pilot in pilots:
        pilot.talk()
    assert len(stand.engine.state.working_off) == 2
    stand.cancel(2)
    for pilot in pilots:
        pilot.talk()
    assert not stand.engine.state.working_off


# --- what waits for too long
def test_what_was_to_begin_at_the_next_turnover_and_did_not_is_taken_back() -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=1)
    run = stand.submit({"priority": 10})
    (attempt,) = leased(pilot, run)
    pilot.wait()
    stand.pass_time(LATE + 0.01)
    assert attempt in [order.attempt for order in took_back(pilot)]
    pilot.talk(back(attempt))
    assert stand.task(run).retries == 0 and stand.sound()


def test_what_was_overtaken_by_long_tasks_is_taken_back() -> None:
    stand = Stand()
    first, pilot = busy(stand, cores=1)
    run = stand.submit({"priority": 10})
    (attempt,) = leased(pilot, run)
    begun, *waiting = [name for name in pilot.held if name != attempt]
    pilot.held[attempt] = "running"
    pilot.talk(good(begun, duration=SHORT))
    pilot.wait()
    stand.pass_time(LATE + 0.01)
    assert took_back(pilot) == []
    stand.pass_time(OVERDUE)
    orders = took_back(pilot)
    assert sum(order.count for order in orders) == len(waiting) and len(orders) == 1, "neighbours in one order"
    pilot.talk(*[back(name) for name in waiting])
    assert stand.state(first, MANY) == "ready" and not pilot.pull(), "its only slot does not turn over"
    stand.pass_time(LATE + 0.01)
    assert not stand.engine.state.overtaken and stand.sound()


def test_a_lease_that_got_lost_is_sent_again_with_its_precedence() -> None:
    stand = Stand()
    _, pilot = busy(stand)
    run = stand.submit({"priority": 10})
    pilot.talk()
    pilot.talk()
    reply = stand.last.answers[-1].reply
    assert [(parse_attempt(lease.attempt).text, lease.precedence) for lease in reply.leases] == [(f"r{run}.1#1", 1)]
    assert stand.task(run).live and TaskId(run, 1)


def test_no_more_is_taken_back_than_what_goes_first_needs() -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=4)
    begun, waiting = list(pilot.held)[:4], list(pilot.held)[4:]
    pilot.run(*begun)
    stand.submit({"rerun": "exclusive", "priority": 10})
    pilot.took()
    stand.now += CLEAR_LATE
    orders = [order for order in pilot.talk().orders if order.kind == "take_back"]
    asked = sum(order.count for order in orders)
    assert asked == len(waiting) - 3, "three of them and the task fit"


def test_what_goes_before_the_task_in_question_is_not_taken_back() -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=1, priority=20)
    later = stand.submit({"array": "1-400"})
    begun, *_ = pilot.held
    pilot.run(begun)
    stand.submit({"rerun": "exclusive", "priority": 10})
    for _ in range(3):
        stand.now += CLEAR_LATE
        orders = [order for order in pilot.talk().orders if order.kind == "take_back"]
        assert all(parse_attempt(order.attempt).run == later for order in orders)


def test_what_a_pilot_holds_is_looked_through_once_for_each_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand()
    _, pilot = busy(stand, cores=8)
    looked: list[Pilot] = []

    def look(state: State, pilot: Pilot) -> Holdings:
        looked.append(pilot)
        return holdings(state, pilot)

    monkeypatch.setattr(submissions, "MAX_EARLY", 0)  # they are leased below
    stand.send_run(*[{"priority": 11, "command": [f"other-{at}"]} for at in range(6)])
    state, known = stand.engine.state, stand.engine.state.pilots[pilot.name]
    for array in state.runs[2].arrays:
        array.accepted = True
        state.queue.offer(array)
    monkeypatch.setattr(choose_tasks, "holdings", look)
    filling = choose_tasks.LeaseRound(state, known, pilot.seq)
    filling.fill()
    assert len(filling.leases) == 6 and len(looked) == 1
    fresh = holdings(state, known)
    assert filling._held is not None
    assert filling._held.open == fresh.open and filling._held.backlog == pytest.approx(fresh.backlog)


def test_weighted_places_are_compared_for_one_moment() -> None:
    stand = Stand()
    stand.policy(order={"policy": "weighted", "waiting": 1.0, "priority": 1.0})
    older = stand.submit({"command": ["older"]})
    stand.now += 0.2
    newer = stand.submit({"command": ["newer"]})
    stand.now += 0.5  # less than the time after which places are laid out anew
    stand.do(Tick())
    queue, runs = stand.engine.state.queue, stand.engine.state.runs
    listed = queue.class_of(runs[older].arrays[0]).listed
    assert listed is not None and listed < queue.position_of(runs[newer].arrays[0], 0.0)
