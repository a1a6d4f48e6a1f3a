"""Matching by interval and chunk, as the paper's scheduler does it [GWP 4.3], beside matching by event."""

from __future__ import annotations

import pytest

from shoal.sched import linear_assignment
from tests.unit.engine.stand import FakePilot, Stand, good


def interval(chunk: int = 3, **more: object) -> Stand:
    """A stand that matches every nine seconds."""
    stand = Stand()
    stand.policy(match={"mode": "interval", "interval": "9s", "chunk": chunk, **more})
    stand.pass_time(0.1)
    return stand


def beat(stand: Stand, pilots: list[FakePilot], seconds: float) -> int:
    """Let time pass with everybody waiting; how many tasks were handed out."""
    for pilot in pilots:
        assert pilot.pull() == [], "nothing is handed out in between"
    stand.pass_time(seconds)
    return sum(len(pilot.took()) for pilot in pilots)


def test_an_interval_hands_out_at_most_its_chunk() -> None:
    stand = interval(chunk=3)
    stand.submit({"array": "1-40"})
    pilots = [stand.pilot(4, host=f"n{n}") for n in range(3)]
    given = [beat(stand, pilots, 9) for _ in range(4)]
    assert given == [3, 3, 3, 3]
    assert beat(stand, pilots, 1) == 0
    assert stand.sound()


def test_a_larger_chunk_is_bounded_by_the_slots() -> None:
    stand = interval(chunk=100)
    stand.submit({"array": "1-40"})
    pilots = [stand.pilot(4, host=f"n{n}") for n in range(2)]
    for pilot in pilots:
        pilot.wait()
    stand.pass_time(9)
    assert sum(len(p.took()) for p in pilots) == 8


def test_what_ends_between_intervals_is_not_replaced_before_the_next() -> None:
    stand = interval(chunk=5)
    stand.submit({"array": "1-40"})
    pilot = stand.pilot()
    pilot.wait()
    stand.pass_time(9)
    (lease,) = pilot.took()
    assert pilot.talk(good(lease.attempt, duration=5.0)).leases == []
    pilot.wait()
    stand.pass_time(9)
    assert len(pilot.took()) == 1


def test_the_engine_says_when_the_next_round_is_due() -> None:
    stand = interval()
    stand.submit({"array": "1-40"})
    stand.pass_time(9)
    assert stand.engine.deadline() == stand.now + 9


def test_owners_take_turns_in_rounds_too() -> None:
    stand = interval(chunk=4)
    stand.group("g", "ann", "bob")
    for owner in ("ann", "bob"):
        stand.submit({"array": "1-40"}, owner=owner)
    pilots = [stand.pilot(1, host=f"n{n}", group="g") for n in range(8)]
    for _ in range(3):
        beat(stand, pilots, 9)
    assert stand.live("ann") + stand.live("bob") == 8
    assert abs(stand.live("ann") - stand.live("bob")) <= 4


def test_quotas_and_licences_hold_in_rounds() -> None:
    stand = interval(chunk=50)
    stand.policy(
        match={"mode": "interval", "interval": "9s", "chunk": 50}, quota=[{"who": "ann", "cores": 3}], licences={"k": 1}
    )
    stand.submit({"array": "1-9", "licences": ["k"]}, {"array": "1-9"})
    pilots = [stand.pilot(4, host=f"n{n}") for n in range(2)]
    for _ in range(3):
        beat(stand, pilots, 9)
    assert stand.live("ann") == 3
    assert stand.engine.state.accounting.licences == {"k": 1}
    assert stand.sound()


def test_back_to_events_everything_goes_on_at_once() -> None:
    stand = interval(chunk=1)
    stand.submit({"array": "1-40"})
    pilot = stand.pilot(4)
    pilot.wait()
    stand.policy()
    assert len(pilot.took()) == 4


def test_a_restart_keeps_the_policy() -> None:
    stand = interval(chunk=2)
    stand.submit({"array": "1-40"})
    pilot = stand.pilot(4)
    stand.restart()
    assert pilot.pull() == []
    assert beat(stand, [pilot], 9) == 2


def test_a_round_comes_before_exchanges_that_wait_are_answered_empty() -> None:
    stand = Stand()
    stand.policy(match={"mode": "interval", "interval": "10s"})  # as long as the beat
    stand.pass_time(0.1)
    stand.submit({"array": "1-9"})
    pilot = stand.pilot(4)
    pilot.wait()
    stand.pass_time(10)
    assert len(pilot.took()) == 4


# --- assignment [LBO D8]
def _crossed(stand: Stand) -> tuple[FakePilot, FakePilot]:
    """Two pilots and two tasks of which the best pair leaves the worst: 10 + 0, against 9 + 9 the other way round."""
    one, two = (
        stand.pilot(1, host=name, tags=tags) for name, tags in (("p", {"a": 10, "b": 9}), ("q", {"a": 9, "b": 0}))
    )
    for pilot in (one, two):
        pilot.wait()
    stand.submit({"command": ["a"], "rank": "a"}, {"command": ["b"], "rank": "b"})
    return one, two


def _commands(pilot: FakePilot) -> list[str]:
    return [lease.command[0] for lease in pilot.took()]


def test_two_tasks_on_two_pilots_are_assigned_with_the_best_total_rank() -> None:
    stand = Stand()
    one, two = _crossed(stand)
    assert (_commands(one), _commands(two)) == (["b"], ["a"]), "18 and not 10"


def test_the_same_holds_in_an_interval_and_why_says_how_it_was_assigned() -> None:
    stand = interval(chunk=100)
    one, two = _crossed(stand)
    stand.pass_time(9)
    assert (_commands(one), _commands(two)) == (["b"], ["a"])
    one.run()
    assert "assigned exactly: the best total rank of 2 kinds of tasks on 2 pilots" in stand.why(1, 2).text


def test_beyond_a_size_it_is_greedy_and_why_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_assignment, "EXACT_CELLS", 3)
    stand = Stand()
    one, two = _crossed(stand)
    assert (_commands(one), _commands(two)) == (["a"], ["b"])
    one.run()
    assert "assigned greedily" in stand.why(1, 1).text


def test_a_pilot_with_several_slots_takes_both_where_that_is_best() -> None:
    stand = Stand()
    one = stand.pilot(2, host="p", tags={"a": 10, "b": 9})
    two = stand.pilot(1, host="q", tags={"a": 8, "b": 0})
    for pilot in (one, two):
        pilot.wait()
    stand.submit({"command": ["a"], "rank": "a"}, {"command": ["b"], "rank": "b"})
    assert sorted(_commands(one)) == ["a", "b"]
    assert stand.sound()


def test_a_boolean_rank_prefers_where_it_is_true() -> None:
    stand = Stand()
    no, yes = (stand.pilot(1, host=name, tags={"ssd": ssd}) for name, ssd in (("p", False), ("q", True)))
    for pilot in (no, yes):
        pilot.wait()
    stand.submit({"command": ["a"], "rank": "ssd == true"})
    assert (_commands(no), _commands(yes)) == ([], ["a"])
