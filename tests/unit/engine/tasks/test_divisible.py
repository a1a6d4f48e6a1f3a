"""Divisible work: pieces are cut as they are leased, and every unit is in exactly one task at any time [ADR 0043]."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from shoal.engine.commands import Accept
from shoal.engine.task_overrides import TaskOverrides
from shoal.model.ids import TaskId, parse_attempt
from shoal.wire.messages import Lease
from tests.unit.engine.stand import FakePilot, Stand, back, bad, good

WORK = {"command": ["sim", "{first}", "{count}"], "name": "sim"}


def units_of(lease: Lease) -> tuple[int, int]:
    """First unit and count of a piece, as its command and its environment have them."""
    first, count = lease.env["SHOAL_FIRST"], lease.env["SHOAL_COUNT"]
    assert lease.command[1:] == [first, count]
    return int(first), int(count)


def table(stand: Stand, run: int) -> list[Any]:
    """The units of the run's tasks, by what is committed."""
    stand.commit()
    found = stand.reader.run(run)
    assert found is not None
    return [array["task"].get("units") for array in found["arrays"]]


def work_off(stand: Stand, speeds: dict[FakePilot, float], run: int, *begun: Lease) -> dict[FakePilot, int]:
    """Have pilots do pieces, each at its own seconds per unit, until the run is over: how many units each did. `begun`: what
    the first one holds already."""
    done = dict.fromkeys(speeds, 0)
    busy: list[tuple[float, int, FakePilot, Lease]] = []

    def begin(pilot: FakePilot, leases: Sequence[Lease]) -> None:
        for lease in leases:
            number = parse_attempt(lease.attempt).element
            busy.append((stand.now + units_of(lease)[1] * speeds[pilot], number, pilot, lease))

    begin(next(iter(speeds)), begun)
    for pilot in speeds:
        begin(pilot, pilot.pull())
    while busy:
        busy.sort(key=lambda one: one[:2])
        end, _, pilot, lease = busy.pop(0)
        stand.now = max(stand.now, end)
        count = units_of(lease)[1]
        done[pilot] += count
        begin(pilot, pilot.talk(good(lease.attempt, duration=count * speeds[pilot])).leases)
        assert stand.sound()
    assert stand.engine.state.runs[run].finished is not None
    return done


def test_a_piece_is_cut_for_each_slot_and_the_rest_is_a_task_of_its_own() -> None:
    stand = Stand()
    pilot = stand.pilot(2)
    run = stand.submit({**WORK, "units": 5_000})
    leases = pilot.pull()
    assert [units_of(lease) for lease in leases] == [(0, 5), (5, 4)]
    assert table(stand, run) == [
        {"first": 0, "count": 5, "cut": True},
        {"first": 5, "count": 4, "cut": True},
        {"first": 9, "count": 4_991, "cut": False},
    ]
    found = stand.reader.run(run)
    assert found is not None and found["total"] == 3
    assert found["counts"]["units"] == 5_000 and found["counts"]["units_done"] == 0
    assert [event.data for event in stand.events("piece_cut")] == [{"first": 0, "units": 5}, {"first": 5, "units": 4}]
    assert stand.sound()


def test_no_piece_is_sent_before_it_is_durable_nor_can_a_pilot_prove_it() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    pilot.wait()
    stand.commit()
    stand.send_run({**WORK, "units": 50})
    assert pilot.took() == [], "its submission is not durable"
    stand.commit()
    stand.do(Accept(1))
    (answer,) = stand.last.answers
    assert answer.durable and [lease.proof for lease in answer.reply.leases] == [""]


def test_a_crash_forgets_a_piece_whole_or_keeps_it_whole() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 100})
    stand.commit()
    (lost,) = pilot.pull()
    stand.crash()  # before the commit: the lease was never sent
    pilot.held.clear()
    assert table(stand, run) == [100] and stand.sound()
    stand.pass_time(60.0)
    (kept,) = pilot.pull()
    assert units_of(kept) == units_of(lost)
    stand.commit()
    stand.crash()
    stand.pass_time(60.0)
    assert pilot.verdict(good(kept.attempt)) == "recorded"
    assert stand.engine.state.runs[run].works["sim"].done == 1 and stand.sound()


def test_what_was_not_committed_does_not_count_for_other_units() -> None:
    """A pilot that has a lease which a crash undid cannot have it counted for the whole rest."""
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 100})
    stand.commit()
    (lease,) = pilot.pull()
    stand.crash()
    assert pilot.talk(good(lease.attempt)).verdicts[0].verdict == "stale"
    assert stand.state(run, 1) in ("ready", "leased") and stand.sound()


@pytest.mark.parametrize("how", [bad, back])
def test_a_piece_that_failed_or_came_back_is_tried_again_with_the_same_units(how: Any) -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    stand.submit({**WORK, "units": 100, "retries": 2})
    (first,) = pilot.pull()
    reply = pilot.talk(how(first.attempt))
    (again,) = reply.leases or pilot.pull()
    assert units_of(again) == units_of(first) and parse_attempt(again.attempt).number == 2
    assert stand.sound()


def test_a_lost_pilots_piece_goes_to_another_with_the_same_units() -> None:
    stand = Stand()
    pilot, other = stand.pilot(1, host="a", identity="a"), stand.pilot(1, host="b", identity="b")
    stand.submit({**WORK, "units": 100})
    (lease,) = pilot.pull()
    pilot.run(lease.attempt)
    stand.bury(pilot)
    (again,) = other.pull()
    assert units_of(again) == units_of(lease) and stand.sound()


def test_faster_pilots_get_more_and_all_end_at_about_the_same_time() -> None:
    stand = Stand()
    fast, slow = stand.pilot(1, host="a", identity="a"), stand.pilot(1, host="b", identity="b")
    run = stand.submit({**WORK, "units": 3_000})
    done = work_off(stand, {fast: 0.1, slow: 0.5}, run)
    assert sum(done.values()) == 3_000 and done[fast] / done[slow] == pytest.approx(5.0, rel=0.1)
    assert stand.now - 1_000.0 <= 1.05 * 3_000 / (1 / 0.1 + 1 / 0.5)


def test_after_a_restart_the_work_goes_on_with_what_is_left() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 1_000})
    (lease,) = pilot.pull()
    begun = pilot.talk(good(lease.attempt, duration=1.0)).leases
    before = table(stand, run)
    stand.restart()
    stand.pass_time(60.0)
    assert stand.sound() and table(stand, run) == before
    assert work_off(stand, {pilot: 0.5}, run, *begun) == {pilot: 999}
    parts = sorted((one["first"], one["count"]) for one in table(stand, run))
    assert sum(count for _, count in parts) == 1_000 and all(a + b == c for (a, b), (c, _) in pairwise(parts))


def test_who_waits_for_divisible_work_waits_for_its_last_unit() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 3}, {"name": "merge", "after": ["sim"]})
    leases, reach = pilot.pull(), 0
    while reach < 3:
        (lease,) = leases
        first, count = units_of(lease)
        assert first == reach and stand.state(run, 2) == "waiting"
        reach += count
        leases = pilot.talk(good(lease.attempt)).leases
        assert stand.sound()
    assert [parse_attempt(lease.attempt).element for lease in leases] == [2]


def test_a_failed_piece_fails_who_waits_and_a_retry_brings_both_back() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 2}, {"name": "merge", "after": ["sim"]}, max_fail=1)
    (lease,) = pilot.pull()
    pilot.talk(bad(lease.attempt))
    assert [stand.state(run, n) for n in (1, 2, 3)] == ["failed", "failed", "cancelled"] and stand.sound()
    assert stand.retry(run) == 3 and stand.sound()
    assert [stand.state(run, n) for n in (2, 3)] == ["waiting", "ready"]
    (lease,) = pilot.pull() or pilot.took()
    assert units_of(lease) == (0, 1)
    (lease,) = pilot.talk(good(lease.attempt)).leases
    assert units_of(lease) == (1, 1) and stand.state(run, 2) == "waiting"
    assert [parse_attempt(one.attempt).element for one in pilot.talk(good(lease.attempt)).leases] == [2]


def test_cancelling_ends_what_is_not_cut_too() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 1_000})
    pilot.work()
    assert stand.cancel(run) == {"cancelled": 2, "already_final": 0}
    assert stand.engine.state.runs[run].finished is not None and stand.sound()
    stand.commit()
    found = stand.reader.run(run)
    assert found is not None and found["counts"] == {"cancelled": 2, "units": 1_000, "units_done": 0}


def test_fields_that_a_person_sets_are_those_of_later_pieces_also_if_one_was_cut_meanwhile() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 1_000})
    pilot.pull()
    stand.commit()
    stand.set(run, memory="1G")
    (lease, *_) = [*pilot.talk(good(next(iter(pilot.held)))).leases, *pilot.pull()]
    assert lease.room.memory == 1 << 30 and stand.sound()
    assert all(units["first"] >= 0 for units in table(stand, run))
    stand.restart()
    assert stand.sound()


def test_the_rest_can_be_cancelled_alone() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 1_000})
    (lease,) = pilot.pull()
    stand.cancel(TaskId(run, 2))
    pilot.talk(good(lease.attempt))
    assert stand.engine.state.runs[run].finals == {"cancelled": 1, "succeeded": 1} and stand.sound()


def test_pieces_are_not_fetched_ahead_however_short_they_are() -> None:
    stand = Stand()
    pilot = stand.pilot(2)
    run = stand.submit({**WORK, "units": 10**6})
    leases = pilot.pull()
    for _ in range(6):
        reply = pilot.talk(*[good(lease.attempt, duration=0.001) for lease in leases])
        leases = reply.leases or pilot.pull()
        assert len(leases) <= 2 and len(pilot.held) <= 2
    assert stand.engine.state.runs[run].live <= 2 and stand.sound()


def test_units_have_seeds_of_their_own_whichever_task_has_them() -> None:
    stand = Stand()
    pilot = stand.pilot(4)
    stand.submit({**WORK, "units": 64}, seed=5)
    seeds = {lease.env["SHOAL_SEED"] for lease in pilot.pull()}
    assert len(seeds) == 4


def test_the_seed_of_a_piece_is_made_from_its_first_unit_alone() -> None:
    seeds = []
    for others in (0, 3):
        stand = Stand()
        pilot = stand.pilot(4 + others)
        tables = [{"command": ["other"]}] * others
        stand.submit(*tables, {**WORK, "units": 64}, seed=5)
        leases = [lease for lease in pilot.pull() if "SHOAL_FIRST" in lease.env]
        seeds.append({lease.env["SHOAL_FIRST"]: lease.env["SHOAL_SEED"] for lease in leases})
    assert seeds[0]["0"] == seeds[1]["0"]


def test_a_piece_ends_within_its_time_limit() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 1_000_000, "time": 100})
    lease = pilot.pull()[0]
    for _ in range(12):
        count = units_of(lease)[1]
        assert count * 0.01 <= 50.0
        stand.now += count * 0.01
        lease = pilot.talk(good(lease.attempt, duration=count * 0.01)).leases[0]
    assert units_of(lease)[1] * 0.01 > 40.0  # and it uses what it may
    assert stand.engine.state.runs[run].finished is None


def test_a_piece_that_went_on_from_a_checkpoint_tells_nothing_of_its_pilot() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 1_000})
    lease = pilot.pull()[0]
    task = stand.engine.state.runs[run].array_of(1).tasks[1]  # type: ignore[union-attr]  # it is there
    task.special = TaskOverrides(files={"state": "0" * 64})
    pilot.talk(good(lease.attempt, duration=0.001))
    assert stand.engine.state.runs[run].works["sim"].sizes.speed(pilot.name) is None


def test_what_a_person_set_outlives_restarts_and_cuts() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({**WORK, "units": 10_000})
    lease = pilot.pull()[0]
    assert pilot.talk(good(lease.attempt, duration=1.0)).leases
    stand.set(run, priority=9)
    for _ in range(2):
        stand.restart()
        again = stand.pilot(1)
        stand.now += 100.0
        again.pull()
    (rest,) = stand.engine.state.runs[run].works["sim"].rests.values()
    assert rest.spec.priority == 9
    assert table(stand, run)[-1] is not None
    found = stand.reader.run(run)
    assert found is not None and found["arrays"][-1]["task"]["priority"] == 9
