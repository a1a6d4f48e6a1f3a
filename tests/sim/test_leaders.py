"""Leaders, elections and rounds with a server that is away and links that break [promise I17; LBO III.B; ADR 0056]."""

from __future__ import annotations

import pytest

from shoal.sim.leaders import World
from tests.integration.cluster import PROVE

SEEDS = range(2_000) if PROVE else range(8)


def test_while_the_server_answers_nothing_of_the_window_is_begun() -> None:
    world = World(1)
    world.start()
    world.begin_slots()
    world.run(200.0)
    assert world.begun == {}
    assert all(len(host.member.replica.tasks) == 40 for host in world.hosts), "every member keeps the window"
    assert sum(host.member.is_leader for host in world.hosts) == 1


def test_without_the_server_all_of_the_window_is_begun_once() -> None:
    world = World(2)
    world.start()
    world.begin_slots()
    world.is_up = False
    world.run(600.0)
    assert len(world.ended) == 40
    assert world.wrong() == []
    first = min(when for where in world.begun.values() for when, _ in where)
    assert first < 2.0 + 3.6 * world.beat + 1.0


@pytest.mark.parametrize("seed", range(200 if PROVE else 3))
def test_a_leader_that_is_killed_is_replaced_within_20_seconds(seed: int) -> None:
    world = World(seed, hosts=7, tasks=200)
    world.start()
    world.begin_slots()
    world.is_up = False
    world.run(100.0)
    for _ in range(3):
        leader = next(host for host in world.hosts if host.is_alive and host.member.is_leader)
        killed, before = world.now, len(world.leader_at)
        world.kill(leader)
        world.run(world.now + 60.0)
        assert len(world.leader_at) > before, world.notes[-20:]
        assert world.leader_at[before][0] - killed <= 20.0
    begun = sum(1 for where in world.begun.values() for when, _ in where if when > world.now - 30.0)
    assert begun, "the site goes on"
    assert world.wrong() == [], world.notes[-20:]


def test_without_a_majority_nothing_more_is_begun() -> None:
    world = World(4, hosts=5, tasks=200)
    world.start()
    world.begin_slots()
    world.is_up = False
    world.run(100.0)
    for host in world.hosts[:3]:
        world.kill(host)
    world.run(world.now + 20.0)
    before = len(world.begun)
    world.run(world.now + 300.0)
    assert len(world.begun) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_begun_twice_whatever_breaks(seed: int) -> None:
    """[promise I17]: partitions of all kinds, one-way links, lost messages, killed members, in any order."""
    world = World(seed, hosts=3 + seed % 5, tasks=120, slots=1 + seed % 2)
    world.seconds = 4.0
    rng = world.rng
    world.start()
    world.begin_slots()
    world.is_up = rng.random() < 0.1
    killed = 0
    for _ in range(8):
        world.run(world.now + rng.uniform(0.5, 30.0))
        what = rng.randrange(7)
        if what == 0:
            world.parts = [rng.randrange(2) for _ in world.hosts]
        elif what == 1:
            world.parts = [0] * len(world.hosts)
            world.one_way.clear()
        elif what == 2:
            count = len(world.hosts)
            world.one_way = {(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randrange(1, 2 * count))}
        elif what == 3:
            world.loss = rng.choice((0.0, 0.05, 0.3))
        elif what == 4 and killed < (len(world.hosts) - 1) // 2:
            killed += 1
            world.kill(rng.choice([host for host in world.hosts if host.is_alive]))
        elif what == 5:
            world.is_up = rng.random() < 0.2
        elif what == 6:  # only a part of the hosts reaches the server, if that is up
            for host in world.hosts:
                host.is_alone = rng.random() < 0.5
        assert world.wrong() == [], (seed, world.notes[-30:])
    world.parts, world.loss, world.is_up = [0] * len(world.hosts), 0.0, False
    world.one_way.clear()
    world.run(world.now + 1_500.0)
    assert world.wrong() == [], (seed, world.notes[-30:])
    leader = next(host for host in world.hosts if host.is_alive and host.member.is_leader)
    left = [one.attempt for one in world.window if one.attempt not in world.begun]
    to_dead = {attempt for attempt, id in leader.member.replica.given.items() if not world.by_id[id].is_alive}
    assert set(left) <= to_dead, (seed, "what is left was given to pilots that died", world.notes[-30:])
