"""Many waiting pilots: what each command costs, and that nobody waits for longer because others are not looked at."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from shoal.engine.matching import balance, choose_tasks, rounds
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.sched import batch_size
from shoal.wire.messages import Lease
from tests.unit.engine.stand import FakePilot, Stand, bad, good

CROWD = 20


def crowd(stand: Stand, **tags: Any) -> list[FakePilot]:
    """Pilots that wait for work, each on a host of its own."""
    pilots = [stand.pilot(host=f"n{at}", tags=tags) for at in range(CROWD)]
    for pilot in pilots:
        pilot.wait()
    return pilots


@pytest.mark.parametrize("rank", ["", "mhz"])
def test_an_exchange_does_not_look_at_all_who_cannot_run_what_waits(monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    stand = Stand()
    crowd(stand, mhz=1)
    worker = stand.pilot(host="fast", tags={"mhz": 9})
    stand.submit({"array": "1-20", "require": "mhz > 5", **({"rank": rank} if rank else {})})
    looks: list[str] = []

    def may_fill(state: State, pilot: Pilot) -> bool:
        looks.append(pilot.name)
        return choose_tasks.may_fill(state, pilot)

    def fill(state: State, pilot: Pilot, seq: int) -> tuple[list[Lease], bool]:
        looks.append(pilot.name)
        return choose_tasks.fill(state, pilot, seq)

    monkeypatch.setattr(rounds, "may_fill", may_fill)
    monkeypatch.setattr(rounds, "fill", fill)
    leases = worker.pull()
    for _ in range(8):
        (lease,) = leases
        leases = worker.talk(good(lease.attempt, duration=50.0)).leases
    assert len(looks) <= CROWD, "once after the news that there is work, not with each of eight exchanges"
    stand.pass_time(0.2)
    assert len(looks) >= CROWD, "what depends on time alone is seen with the next tick"
    assert stand.sound()


def test_who_waits_behind_a_quota_is_served_when_another_pilot_leaves() -> None:
    stand = Stand()
    stand.policy(quota=[{"who": "ann", "cores": 1}])
    worker = stand.pilot(host="first")
    stand.submit({"array": "1-2"})
    (lease,) = worker.pull()
    pilots = crowd(stand)
    worker.talk(good(lease.attempt, duration=50.0), leaving="its time is over")
    assert sum(len(pilot.took()) for pilot in pilots) == 1


def test_who_waits_gets_a_task_that_another_gave_up() -> None:
    stand = Stand()
    worker = stand.pilot(host="first", tags={"mhz": 9})
    stand.submit({"retries": 1, "rank": "mhz"})
    (lease,) = worker.pull()
    pilots = crowd(stand, mhz=1)
    worker.talk(bad(lease.attempt, duration=50.0), leaving="its time is over")
    assert sum(len(pilot.took()) for pilot in pilots) == 1


@pytest.mark.parametrize("seed", range(12))
def test_leases_are_the_same_as_if_everybody_were_looked_at(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(rounds, "CROWD", 0)
    found = _leases(seed)
    monkeypatch.setattr(rounds, "_to_look_at", _all)
    assert found == _leases(seed)
    assert len(found) > 10


def _all(state: State) -> list[Pilot]:
    return list(state.parked.values())


def _leases(seed: int) -> list[tuple[str | None, Any]]:
    """Who was leased what, in a queue of tasks with requirements and ranks, by a random course of things."""
    rng, stand = Random(seed), Stand()
    stand.group("phys", "ann", "bob")
    pilots = [
        stand.pilot(rng.randint(1, 3), group="phys", host=f"n{at % 5}", tags={"mhz": at, "kind": at % 3})
        for at in range(8)
    ]
    if seed % 3 == 0:
        stand.policy(quota=[{"who": "ann", "cores": 3}])
    for _ in range(120):
        pilot, action = rng.choice(pilots), rng.random()
        if action < 0.15:
            task: dict[str, Any] = {"array": f"1-{rng.randint(1, 6)}", "retries": rng.randint(0, 2)}
            task |= {"cores": rng.randint(1, 2)}
            task |= {"require": f"kind == {rng.randint(0, 2)}"} if rng.random() < 0.7 else {}
            task |= {"rank": rng.choice(("mhz", "-mhz"))} if rng.random() < 0.6 else {}
            stand.submit(task, owner=rng.choice(("ann", "bob")))
        elif action < 0.2:
            stand.pass_time(0.2)
        elif pilot.held:
            attempt = rng.choice(list(pilot.held))
            pilot.talk((bad if rng.random() < 0.2 else good)(attempt, duration=50.0))
        else:
            pilot.pull()
        for one in pilots:
            one.took()
    return [(event.pilot, event.data) for event in stand.events("tasks_leased")]


def test_idle_pilots_do_not_each_look_for_stragglers(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand()
    worker = stand.pilot(2, host="first")
    stand.submit({"array": "1-2"})
    worker.run(*[lease.attempt for lease in worker.pull()])
    crowd(stand)
    asked: list[float] = []

    def is_straggler(age: float, mean: float | None) -> bool:
        asked.append(age)
        return batch_size.is_straggler(age, mean)

    monkeypatch.setattr(balance, "is_straggler", is_straggler)
    stand.pass_time(0.2)
    assert len(asked) <= len(worker.held), "once for each running task, whoever is idle"


def test_pilots_that_end_while_nothing_is_ready_are_forgotten() -> None:
    stand = Stand()
    for pilot in crowd(stand):
        pilot.talk(leaving="idle")
    assert not stand.engine.state.pilots and not stand.engine.state.unlooked
