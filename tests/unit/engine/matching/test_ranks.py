"""Which pilot gets a task and which task a pilot gets: priority, rank, deadline, age, and the weighted order
[GWP G5, G6]."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engine.stand import FakePilot, Stand, back, bad, good

LONG = {"duration": 50.0}


def waiting(stand: Stand, *tags: dict[str, Any], cores: int = 1) -> list[FakePilot]:
    """Pilots that wait for work, each on a host of its own."""
    pilots = [stand.pilot(cores, host=f"n{at}", tags=tag) for at, tag in enumerate(tags)]
    for pilot in pilots:
        pilot.wait()
    return pilots


def taken(pilot: FakePilot, count: int) -> list[str]:
    """The names of tasks, one after the other, as a pilot with one slot gets them."""
    names = []
    leases = pilot.pull()
    for _ in range(count):
        (lease,) = leases
        names.append(lease.command[-1])
        leases = pilot.talk(good(lease.attempt, **LONG)).leases
    return names


# --- ranks
def test_of_several_waiting_pilots_the_best_ranked_gets_the_task() -> None:
    stand = Stand()
    slow, fast, other = waiting(stand, {"cpu_mhz": 1000}, {"cpu_mhz": 3000}, {"cpu_mhz": 2000})
    stand.submit({"rank": "cpu_mhz"})
    assert [len(p.took()) for p in (slow, fast, other)] == [0, 1, 0]


def test_an_undefined_rank_is_last_but_not_never() -> None:
    stand = Stand()
    silent, slow = waiting(stand, {}, {"cpu_mhz": -5.0})
    stand.submit({"rank": "cpu_mhz"})
    assert [len(p.took()) for p in (silent, slow)] == [0, 1]
    stand.submit({"rank": "cpu_mhz"})
    assert len(silent.took()) == 1


def test_many_tasks_go_to_many_pilots_best_pair_first() -> None:
    stand = Stand()
    pilots = waiting(stand, *({"mhz": mhz} for mhz in (1, 4, 2, 3)))
    stand.submit({"array": "1-2", "rank": "mhz"})
    assert [len(p.took()) for p in pilots] == [0, 1, 0, 1]


def test_of_several_classes_a_pilot_gets_the_one_it_ranks_best() -> None:
    stand = Stand()
    stand.submit(
        {"command": ["a"], "rank": "0 - x"}, {"command": ["b"], "rank": "x"}, {"command": ["c"], "rank": "nothing"}
    )
    assert taken(stand.pilot(tags={"x": 7}), 3) == ["b", "a", "c"]


def test_a_class_without_a_rank_stands_at_zero() -> None:
    stand = Stand()
    stand.submit({"command": ["below"], "rank": "0 - x"}, {"command": ["plain"]}, {"command": ["above"], "rank": "x"})
    assert taken(stand.pilot(tags={"x": 1}), 3) == ["above", "plain", "below"]


def test_priority_comes_before_rank() -> None:
    stand = Stand()
    stand.submit({"command": ["well"], "rank": "x"}, {"command": ["first"], "rank": "0 - x", "priority": 1})
    assert taken(stand.pilot(tags={"x": 1000}), 2) == ["first", "well"]


@pytest.mark.parametrize("rank", ["0 - x", "nothing"])
def test_priority_comes_before_rank_also_where_several_pilots_wait(rank: str) -> None:
    stand = Stand()
    stand.policy(licences={"key": 1})
    first, second = waiting(stand, {"x": 10**9}, {"x": 10**9})
    run = stand.submit(
        {"rank": "x", "licences": ["key"]}, {"rank": rank, "priority": 1, "licences": ["key"]}
    )  # one of them only: the licence is for one
    assert [*first.took(), *second.took()][0].attempt.startswith(f"r{run}.2#")


def test_a_rank_over_free_room_spreads_tasks() -> None:
    stand = Stand()
    pilots = waiting(stand, {}, {}, cores=4)
    stand.submit({"array": "1-4", "rank": "free_cores"})
    assert [len(p.took()) for p in pilots] == [2, 2]


def test_requirement_and_rank_work_for_hundreds_of_classes_at_once() -> None:
    stand = Stand()
    stand.submit(*({"command": [f"{n}"], "require": f"x != {n}", "rank": f"x - {n} * 2 + {n % 7}"} for n in range(300)))
    found = taken(stand.pilot(tags={"x": 3}), 5)
    best = sorted((n for n in range(300) if n != 3), key=lambda n: (-(3 - n * 2 + n % 7), n))
    assert found == [str(n) for n in best[:5]]


# --- order
def test_inside_a_class_the_earlier_deadline_goes_first() -> None:
    stand = Stand()
    stand.submit({"command": ["x", "none"]})
    stand.submit({"command": ["x", "late"], "deadline": "2h"})
    stand.submit({"command": ["x", "soon"], "deadline": "1h"})
    assert taken(stand.pilot(), 3) == ["soon", "late", "none"]


def test_deadlines_count_between_classes_of_one_priority_and_not_above_it() -> None:
    stand = Stand()
    stand.submit(
        {"command": ["a"]},
        {"command": ["b"], "deadline": "1h"},
        {"command": ["c"], "priority": 5},
        {"command": ["d"], "deadline": "30m"},
    )
    assert taken(stand.pilot(), 4) == ["c", "d", "b", "a"]


def test_the_weighted_order_adds_priority_and_waiting_time() -> None:
    stand = Stand()
    stand.policy(order={"policy": "weighted", "priority": 1.0, "waiting": 2.0})
    stand.submit({"command": ["old"]})
    stand.now += 3600
    stand.submit({"command": ["high"], "priority": 1})
    stand.submit({"command": ["higher"], "priority": 3})
    assert taken(stand.pilot(), 3) == ["higher", "old", "high"]


def test_the_weighted_order_adds_the_deadline() -> None:
    stand = Stand()
    stand.policy(order={"policy": "weighted", "priority": 1.0, "deadline": 4.0})
    stand.submit(
        {"command": ["far"], "deadline": "100h"},
        {"command": ["near"], "deadline": "1h"},
        {"command": ["high"], "priority": 1},
    )
    assert taken(stand.pilot(), 3) == ["near", "high", "far"]


def test_in_the_weighted_order_places_move_with_time() -> None:
    stand = Stand()
    stand.policy(order={"policy": "weighted", "priority": 1.0, "waiting": 0.0, "deadline": 10.0})
    stand.submit({"command": ["due"], "deadline": "20h"}, {"command": ["high"], "priority": 2})
    assert stand.pilot(host="early").pull()[0].command == ["high"]
    stand.submit({"command": ["high"], "priority": 2})
    stand.now += 19.5 * 3600
    assert stand.pilot(host="late").pull()[0].command == ["due"]


def test_in_the_weighted_order_a_small_weight_of_share_lets_priority_decide_between_owners() -> None:
    stand = Stand()
    stand.group("g", "ann", "bob")
    stand.policy(order={"policy": "weighted", "priority": 1.0, "share": 0.0})
    stand.submit({"command": ["x", "ann"], "array": "1-3"})
    stand.submit({"command": ["x", "bob"], "array": "1-3", "priority": 1}, owner="bob")
    assert taken(stand.pilot(group="g"), 6) == ["bob"] * 3 + ["ann"] * 3


def test_in_the_weighted_order_a_large_weight_of_share_has_owners_take_turns() -> None:
    stand = Stand()
    stand.group("g", "ann", "bob")
    stand.policy(order={"policy": "weighted", "priority": 1.0, "share": 1000.0})
    stand.submit({"command": ["x", "ann"], "array": "1-8"})
    stand.submit({"command": ["x", "bob"], "array": "1-8", "priority": 1}, owner="bob")
    leases = stand.pilot(8, group="g").pull()
    assert sorted(lease.command[-1] for lease in leases) == ["ann"] * 4 + ["bob"] * 4


# --- the order a person gave to a sweep
@pytest.mark.parametrize(("order", "expected"), [("x", [-1, 2, 5, 9]), ("-x", [9, 5, 2, -1])])
def test_elements_go_in_the_order_of_a_parameter(order: str, expected: list[int]) -> None:
    stand = Stand()
    stand.submit({"command": ["x", "{x}"], "params": {"x": [5, -1, 9, 2]}, "order": order})
    assert taken(stand.pilot(), 4) == [str(x) for x in expected]


def test_an_element_that_is_tried_again_goes_back_to_its_place() -> None:
    stand = Stand()
    stand.submit({"command": ["x", "{x}"], "params": {"x": [5, 1, 9, 2]}, "order": "x", "retries": 3})
    pilot = stand.pilot()
    (first,) = pilot.pull()
    (second,) = pilot.talk(bad(first.attempt)).leases
    assert (first.command[-1], second.command[-1]) == ("1", "1")
    (third,) = pilot.talk(good(second.attempt, **LONG)).leases
    (again,) = pilot.talk(back(third.attempt)).leases
    assert (third.command[-1], again.command[-1]) == ("2", "2")
    assert taken_on(pilot, again.attempt) == ["5", "9"]


def test_a_persons_retry_keeps_the_order_and_so_does_a_restart() -> None:
    stand = Stand()
    run = stand.submit({"command": ["x", "{x}"], "params": {"x": [5, 1, 9]}, "order": "-x"})
    pilot = stand.pilot()
    leases = pilot.pull()
    for _ in range(3):
        leases = pilot.talk(bad(leases[0].attempt)).leases
    assert stand.retry(run) == 3
    stand.restart()
    assert [lease.command[-1] for lease in pilot.pull()] == ["9"]


def test_texts_come_after_numbers_in_the_order_of_a_parameter() -> None:
    stand = Stand()
    stand.submit({"command": ["x", "{x}"], "params": {"x": ["b", 3, "a", 1.5]}, "order": "x"})
    assert taken(stand.pilot(), 4) == ["1.5", "3", "a", "b"]


def taken_on(pilot: FakePilot, attempt: str) -> list[str]:
    """What comes after an attempt that a pilot with one slot runs."""
    names = []
    leases = pilot.talk(good(attempt, **LONG)).leases
    while leases:
        names.append(leases[0].command[-1])
        leases = pilot.talk(good(leases[0].attempt, **LONG)).leases
    return names


# --- time left
def test_a_task_goes_only_where_its_time_is_left() -> None:
    stand = Stand()
    run = stand.submit({"time": "1h"})
    assert stand.pilot(ends=3500.0, host="short").pull() == []
    long = stand.pilot(ends=3700.0, host="long")
    stand.now += 200
    assert long.pull() == [], "what is left gets less"
    assert len(stand.pilot(host="endless").pull()) == 1
    assert stand.state(run) == "leased"


def test_without_a_stated_time_what_its_like_took_counts() -> None:
    stand = Stand()
    stand.submit({"array": "1-30"})
    stand.pilot(ends=100.0, host="early").pull()
    pilot = stand.pilot(host="n0")
    leases = pilot.pull()
    for _ in range(10):
        leases = pilot.talk(good(leases[0].attempt, duration=300.0)).leases
    assert stand.pilot(ends=200.0, host="short").pull() == []
    assert len(stand.pilot(ends=400.0, host="long").pull()) == 1


def test_time_left_can_be_required_and_ranked() -> None:
    stand = Stand()
    stand.submit({"require": "time_left > 600"})
    assert stand.pilot(ends=500.0, host="short").pull() == []
    assert len(stand.pilot(host="endless").pull()) == 1


# --- waiting time as the only weight [GWP G6]
def _waiting_only(stand: Stand) -> None:
    stand.policy(order={"policy": "weighted", "priority": 0.0, "waiting": 1.0, "deadline": 0.0, "share": 0.0})


def test_with_waiting_time_as_the_only_weight_the_oldest_goes_first_also_inside_a_class() -> None:
    """A deadline and the number of its run say nothing about how long a task waits."""
    stand = Stand()
    _waiting_only(stand)
    stand.submit({"command": ["x", "old"]})
    stand.now += 10
    stand.submit({"command": ["x", "urgent"], "deadline": "1h"})
    stand.now += 10
    stand.submit({"command": ["y", "young"], "priority": 9})
    assert taken(stand.pilot(), 3) == ["old", "urgent", "young"]


def test_a_task_that_became_ready_later_waits_behind_those_that_were_ready_before() -> None:
    stand = Stand()
    _waiting_only(stand)
    run = stand.submit({"command": ["x", "again"]})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    stand.now += 10
    stand.submit({"command": ["x", "before"]})
    stand.now += 10
    pilot.talk(bad(lease.attempt), leaving="")
    for attempt in list(pilot.held):
        pilot.talk(good(attempt, **LONG))
    stand.submit({"command": ["x", "second"]})
    stand.now += 10
    assert stand.retry(run) == 1  # a lower number, but it is ready only since now
    pilot = stand.pilot(host="other")
    assert taken(pilot, 2) == ["second", "again"]


def test_what_comes_back_within_one_second_stands_by_its_age_as_well() -> None:
    """Places are laid out once a second; one that is made in between must not seem older than those laid out before."""
    stand = Stand()
    _waiting_only(stand)
    stand.submit({"command": ["old"], "cores": 2})
    stand.now += 0.4
    stand.submit({"command": ["young"]})
    small = stand.pilot(1, host="small")
    (lease,) = small.pull()
    assert lease.command == ["young"], "the other one does not fit"
    stand.now += 50
    stand.engine.state.queue.reorder(stand.now)
    stand.now += 0.9
    small.talk(back(lease.attempt), leaving="bye")
    (lease,) = stand.pilot(2, host="large").pull()
    assert lease.command == ["old"]


def test_another_rule_puts_what_waits_in_order_anew() -> None:
    stand = Stand()
    stand.submit({"command": ["x", "old"]})
    stand.now += 10
    stand.submit({"command": ["x", "urgent"], "deadline": "1h"})
    _waiting_only(stand)
    assert stand.sound()
    (lease,) = stand.pilot().pull()
    assert lease.command[-1] == "old"
    stand.policy()
    assert stand.sound()
