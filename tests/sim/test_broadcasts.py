"""Broadcasts with aggregation over the table of a site [LBO D7]: everybody is reached, nobody sends much, the dead cost little.

150 peers; SHOAL_PROVE=1 plays 2,000.
"""

from __future__ import annotations

import math
import os
from functools import partial

from shoal.dht.spread import CONFIRM_WITHIN, PARTS, TRIES
from shoal.sim.broadcasts import Broadcasts
from shoal.sim.mesh import Mesh

PEERS = 2_000 if os.environ.get("SHOAL_PROVE") == "1" else 150


def built(seed: int) -> Mesh:
    mesh = Mesh(seed)
    for _ in range(PEERS):
        mesh.join()
        mesh.run(0.02)
    mesh.run(3.0)
    return mesh


def test_one_broadcast_reaches_all_peers_and_nobody_sends_more_than_eight_messages() -> None:
    mesh = built(1)
    broadcasts, root = Broadcasts(mesh), min(mesh.peers)
    found, took = broadcasts.broadcast(root)
    assert broadcasts.reached == set(mesh.peers)
    assert sorted(found.items) == sorted(map(str, mesh.peers)) and found.peers == PEERS and found.missing == 0
    assert broadcasts.sent[root] <= PARTS and broadcasts.received[root] <= PARTS
    assert took < 0.05 * (math.log(PEERS, PARTS) + 2)


def test_with_a_tenth_of_the_contacts_dead_two_broadcasts_reach_all_that_live() -> None:
    mesh = built(2)
    broadcasts = Broadcasts(mesh)
    for id in mesh.rng.sample(list(mesh.peers), PEERS // 10):
        mesh.kill(id)
    root = min(mesh.peers)
    first, took = broadcasts.broadcast(root)
    reached = set(broadcasts.reached)
    second, _ = broadcasts.broadcast(root)
    assert reached | broadcasts.reached == set(mesh.peers)
    assert second.peers >= 0.99 * len(mesh.peers), "most tables are repaired by the first one"
    assert broadcasts.sent[root] <= PARTS + 2 and broadcasts.received[root] <= PARTS + 2, "dead contacts are replaced"
    assert first.peers >= 0.95 * len(mesh.peers)
    assert took < CONFIRM_WITHIN * TRIES * (math.log(PEERS, PARTS) + 2)


def test_a_peer_that_dies_with_a_branch_costs_that_branch_and_its_late_answers_are_counted() -> None:
    mesh = built(3)
    broadcasts = Broadcasts(mesh, work=0.5)
    root = min(mesh.peers)
    victims = mesh.rng.sample([id for id in mesh.peers if id != root], 3)
    for victim in victims:
        mesh.clock.after(0.2, partial(mesh.kill, victim))
    found, _ = broadcasts.broadcast(root)
    living = set(mesh.peers)
    told = {int(item) for item in found.items}
    assert found.missing > 0 and told <= living and len(told) >= 0.5 * len(living)
    second, _ = broadcasts.broadcast(root)
    assert {int(item) for item in second.items} == living
