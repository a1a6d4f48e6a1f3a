"""What a pilot gets, in which order, how much of it, and what must be on disk before it is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.engine.changes import Answer
from shoal.model.limits import MAX_LEASES
from shoal.wire.messages import Capacity, Lease
from tests.unit.engine.stand import FakePilot, Stand, good


def answered(pilot: FakePilot) -> Answer:
    answer = pilot.send(pilot.make())
    assert answer is not None
    return replace(answer, reply=pilot.hear(answer.reply))


def elements(leases: list[Lease]) -> list[str]:
    return [lease.attempt.split("#")[0] for lease in leases]


# --- what waits for the commit [ADR 0002]
@pytest.mark.parametrize("rerun", ["exclusive", "never"])
def test_a_lease_that_is_the_start_waits_for_the_commit(rerun: str) -> None:
    stand = Stand()
    stand.submit({"rerun": rerun})
    assert answered(stand.pilot()).durable


def test_a_safe_lease_does_not_wait() -> None:
    stand = Stand()
    stand.submit({})
    assert not answered(stand.pilot()).durable


def test_a_childs_lease_waits_for_its_parents_results() -> None:
    stand = Stand()
    stand.submit({"name": "a"}, {"name": "b", "after": ["a"]})
    pilot, other = stand.pilot(), stand.pilot()
    attempt = pilot.work()
    other.talk()
    stand.commit()
    pilot.talk(good(attempt))
    (lease,) = [answer for answer in stand.last.answers if answer.reply.leases]
    assert elements(lease.reply.leases) == ["r1.2"]
    assert lease.durable


def test_one_lease_that_must_wait_makes_the_whole_reply_wait() -> None:
    stand = Stand()
    stand.submit({}, {"rerun": "never"})
    answer = answered(stand.pilot(2))
    assert len(answer.reply.leases) == 2
    assert answer.durable


def test_verdicts_wait_for_the_commit() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    attempt = pilot.work()
    pilot.make([good(attempt)], held={})
    assert pilot.exchange is not None
    answer = pilot.send(pilot.exchange)
    assert answer is not None
    assert answer.durable


def test_nothing_is_handed_out_before_its_submission_is_durable() -> None:
    stand = Stand()
    pilot = stand.pilot()
    stand.send_run({})
    assert pilot.pull() == []
    assert "on its way to the disk" in stand.why(1).text
    assert stand.sound()


# --- how many
def test_a_pilot_gets_what_its_cores_take() -> None:
    stand = Stand()
    stand.submit({"array": "1-10"})
    assert len(stand.pilot(4).pull()) == 4


@pytest.mark.parametrize(
    ("needs", "fit"),
    [({"cores": 3}, 2), ({"memory": "3G"}, 2), ({"disk": "512G"}, 2), ({"gpus": 1}, 2), ({"cores": 8}, 1), ({}, 8)],
)
def test_every_need_is_counted(needs: dict[str, Any], fit: int) -> None:
    stand = Stand()
    stand.submit({"array": "1-20", **needs})
    pilot = stand.pilot(room=Capacity(8, 8 << 30, 1 << 40, 2))
    assert len(pilot.pull()) == fit
    assert stand.sound()


def test_a_small_task_passes_one_that_does_not_fit() -> None:
    stand = Stand()
    stand.submit({"cores": 16})
    stand.submit({})
    assert elements(stand.pilot(2).pull()) == ["r2.1"]


def test_a_higher_priority_goes_first_then_the_older_run() -> None:
    stand = Stand()
    stand.submit({"priority": 0}, {"priority": 5})
    stand.submit({"priority": 5})
    stand.submit({"priority": 9})
    assert elements(stand.pilot(4).pull()) == ["r3.1", "r1.2", "r2.1", "r1.1"]


def test_never_more_than_a_hundred_in_one_reply() -> None:
    stand = Stand()
    stand.submit({"array": "1-300"})
    assert len(stand.pilot(250).pull()) == MAX_LEASES


def test_an_array_never_runs_more_at_once_than_it_allows() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-10%3"})
    one, two = stand.pilot(2), stand.pilot(8)
    first = [lease.attempt for lease in one.pull()]
    assert len(first) == 2
    assert len(two.pull()) == 1
    assert "its limit is 3" in stand.why(run, 10).text
    leases = one.talk(good(first[0])).leases
    given = leases + [lease for a in stand.last.answers if a.pilot == two.name for lease in a.reply.leases]
    assert len(given) == 1
    assert stand.sound()


def test_another_owners_task_is_not_for_this_pilot() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    stand.engine.state.pilots[pilot.name].owner = "bob"
    assert pilot.pull() == []


# --- ahead of need
def taught(duration: float, **task: Any) -> tuple[Stand, FakePilot]:
    """A pilot of one core that has just shown how long such tasks take."""
    stand = Stand()
    stand.submit({"array": "1-1000", **task})
    pilot = stand.pilot()
    attempt = pilot.work()
    pilot.talk(good(attempt, duration=duration))
    return stand, pilot


def test_short_safe_tasks_are_fetched_ahead() -> None:
    stand, pilot = taught(0.01)
    assert len(pilot.held) == 51
    assert pilot.pull() == [], "and no more while it holds them"
    assert stand.sound()


@pytest.mark.parametrize(("duration", "task"), [(0.01, {"rerun": "exclusive"}), (0.01, {"rerun": "never"}), (5.0, {})])
def test_nothing_else_is_fetched_ahead(duration: float, task: dict[str, Any]) -> None:
    stand, pilot = taught(duration, **task)
    assert len(pilot.held) == 1
    assert stand.sound()


def test_nothing_is_fetched_ahead_before_a_duration_is_known() -> None:
    stand = Stand()
    stand.submit({"array": "1-1000"})
    assert len(stand.pilot().pull()) == 1


def test_at_the_tail_single_tasks_stay_for_whoever_is_free() -> None:
    stand = Stand()
    stand.submit({"array": "1-4"})
    pilot = stand.pilot()
    stand.pilot(3)
    attempt = pilot.work()
    assert len(pilot.talk(good(attempt, duration=0.01)).leases) == 1


# --- what a lease says
def test_a_lease_holds_everything_the_pilot_needs() -> None:
    stand = Stand()
    stand.submit(
        {
            "command": ["sim", "{x}", "{{x}}"], "params": {"x": "5..6"}, "cwd": "out/{x}", "env": {"A": "v{x}"}, "stdin": "in{x}",
            "inputs": ["i{x}"], "outputs": ["o{x}"], "time": "90s", "memory": "1G",
        },
        cwd="/data", seed=7,
    )  # fmt: skip
    first, second = stand.pilot(2).pull()
    assert first.command == ["sim", "5", "{x}"]
    assert second.command == ["sim", "6", "{x}"]
    assert (first.cwd, first.stdin, first.inputs, first.outputs) == ("/data/out/5", "/data/out/5/in5", ["i5"], ["o5"])
    assert (first.time, first.room, first.rerun, first.own) == (90.0, Capacity(1, 1 << 30), "safe", False)
    assert first.env["A"] == "v5"
    assert first.env["SHOAL_SEED"] != second.env["SHOAL_SEED"]
    assert first.env["SHOAL_INDEX"] == "1"


def test_leases_of_one_array_differ_in_their_own_only_and_follow_its_fields() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3", "memory": "1G", "time": "90s", "env": {"A": "x"}}, cwd="/data")
    pilot = stand.pilot()
    (first,) = pilot.pull()
    first.env["A"] = "another"
    stand.set(run, memory="2G", time="60s")
    (second,) = pilot.talk(good(first.attempt, duration=50.0)).leases
    (third,) = pilot.talk(good(second.attempt, duration=50.0)).leases
    assert (first.room.memory, first.time) == (1 << 30, 90.0)
    assert (second.room.memory, second.time) == (third.room.memory, third.time) == (2 << 30, 60.0)
    assert [lease.env["A"] for lease in (second, third)] == ["x", "x"]
    assert [lease.env["SHOAL_INDEX"] for lease in (first, second, third)] == ["1", "2", "3"]
    assert elements([first, second, third]) == [f"r{run}.{at}" for at in (1, 2, 3)]


def test_the_index_of_a_slurm_array_is_its_own_number() -> None:
    stand = Stand()
    stand.submit({"array": "7-9:2"})
    assert [lease.env["SHOAL_INDEX"] for lease in stand.pilot(2).pull()] == ["7", "9"]


def test_a_seed_is_the_same_for_the_same_master_seed() -> None:
    seeds = []
    for master in (7, 7, 8):
        stand = Stand()
        stand.submit({"array": "1-2"}, seed=master)
        seeds.append([lease.env["SHOAL_SEED"] for lease in stand.pilot(2).pull()])
    assert seeds[0] == seeds[1] != seeds[2]
    assert seeds[0][0] != seeds[0][1]


def test_a_plain_tasks_braces_stay() -> None:
    stand = Stand()
    stand.submit({"command": ["awk", "{print} {{"], "cwd": "own"})
    (lease,) = stand.pilot().pull()
    assert lease.command == ["awk", "{print} {{"]
    assert lease.own


def test_nothing_new_begins_while_the_servers_disk_is_full_and_why_says_so() -> None:
    stand = Stand()
    stand.engine.describe_server(disk_full="the disk is full, or nearly: 0B are free")
    run, pilot = stand.submit({"array": "1-2"}), stand.pilot(cores=2)
    assert pilot.pull() == []
    _, (reason, *_) = stand.engine.why(run, stand.now)
    assert reason.code == "disk_full" and "0B are free" in reason.text and "shoal prune" in reason.fix
    stand.engine.describe_server(disk_full="")
    assert len(pilot.pull()) == 2 and stand.sound()
