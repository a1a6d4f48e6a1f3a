"""The files of one run, published and looked up again by the product's own peers: `dht/peer.py` in `sim/mesh.py` [LBO III.A].

The model takes the table of a site as faultless. Here every file that a pilot made or fetched is published by a peer, and each
that a pilot looked for elsewhere is looked up by one, at the times of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from shoal.dht.peer import Find, Publish
from shoal.sim.mesh import Mesh

BETWEEN_JOINS = 0.02  # seconds
SETTLES = 3.0  # seconds after the last one joined


class FileEvent(NamedTuple):
    """A pilot has a file from now on, or looks for one that its host does not have."""

    at: float
    site: int
    pilot: int
    file: int
    is_lookup: bool


class Lookups(NamedTuple):
    """What came of all lookups."""

    made: int
    found: int  # those that named a holder at once

    @property
    def ratio(self) -> float:
        """The part that named a holder; 1 if there was nothing to look for."""
        return self.found / self.made if self.made else 1.0


def replay(events: Iterable[FileEvent], pilots: Iterable[tuple[int, int]], seed: int) -> Lookups:
    """Replay the events of all sites, which are in the order of time; `pilots`: the number and the site of each."""
    events, pilots = list(events), list(pilots)
    found = [
        _replay_site([one for one in events if one.site == site], [n for n, at in pilots if at == site], seed)
        for site in sorted({site for _, site in pilots})
    ]
    return Lookups(sum(one.made for one in found), sum(one.found for one in found))


def _replay_site(events: list[FileEvent], pilots: list[int], seed: int) -> Lookups:
    mesh = Mesh(seed)
    peers = {}
    for pilot in pilots:
        peers[pilot] = mesh.join()
        mesh.run(BETWEEN_JOINS)
    mesh.run(SETTLES)
    start = mesh.clock.now
    holders: dict[int, set[int]] = {}
    made = right = 0
    for one in events:
        mesh.run(max(0.0, start + one.at - mesh.clock.now))
        peer, key = peers[one.pilot], int.from_bytes(sha256(str(one.file).encode()).digest(), "big")
        if not one.is_lookup:
            mesh.do(peer, Publish((key,)))
            holders.setdefault(one.file, set()).add(peer)
            continue
        answer = mesh.find(peer, lambda number, key=key: Find(number, key))  # type: ignore[misc]  # bound now
        made += 1
        right += bool({contact.id for contact in answer.contacts} & holders.get(one.file, set()))
    return Lookups(made, right)
