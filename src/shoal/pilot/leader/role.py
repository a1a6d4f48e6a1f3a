"""Whether this pilot hands on the exchanges of others, or has another one hand on its own."""

from __future__ import annotations

from typing import Optional

from shoal.dht.peers import parse_mesh_uri
from shoal.pilot.leader.bundler import Bundler
from shoal.pilot.leader.way import LeaderWay
from shoal.wire.messages import Leadership, Registered


class Role:
    """Leader, follower, or neither."""

    def __init__(self, bundler: Bundler, way: LeaderWay) -> None:
        self._bundler, self._way = bundler, way
        self._registered: Optional[Registered] = None
        self._leader: Optional[Leadership] = None

    def on_joined(self, registered: Registered) -> None:
        """We are another pilot than before, also for our mesh."""
        self._registered, self._leader = registered, None
        self._way.beat = registered.beat
        self.on_leader(registered.leader)

    def on_leader(self, leader: Optional[Leadership]) -> None:
        """This pilot leads our mesh, unless a later one was named already; None: nobody does."""
        registered = self._registered
        if registered is None or (leader and self._leader and leader.term < self._leader.term):
            return
        self._leader = leader
        if leader is not None and not leader.id:  # nobody leads
            leader = None
        own = parse_mesh_uri(registered.peer)
        if leader is not None and own is not None and leader.id == own.id:
            self._way.follow(None)
            self._bundler.lead(leader.term, registered)
        else:
            self._bundler.rest()
            self._way.follow(leader if own is not None else None)

    def close(self) -> None:
        """The pilot ends."""
        self._way.follow(None)
        self._bundler.close()
