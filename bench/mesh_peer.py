"""A peer in this process, made of the pilot's own parts: it registers, joins the table of its mesh, and looks for files."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from shoal.dht.key import parse_key
from shoal.dht.peer import Join
from shoal.dht.peers import CLIENT_ONLY, PEER_TAG, parse_mesh_uri
from shoal.dht.routing_table import Contact
from shoal.pilot.mesh.links import Credentials, Links
from shoal.pilot.mesh.peer_table import PeerTable
from shoal.pilot.mesh.source import contacts_of
from shoal.pilot.uplink.server_address import ServerAddress, read_join
from shoal.pilot.uplink.uplink import ServerConnection
from shoal.wire import codec
from shoal.wire.messages import PROTOCOL, Capacity, Register, Registered


class Seeker:
    """One such peer, which nobody reaches."""

    def __init__(self, join: Path) -> None:
        address = ServerAddress(join=read_join(None, str(join)))
        connection = ServerConnection(address)
        room, tags = Capacity(1, 1 << 30, 1 << 30), {PEER_TAG: CLIENT_ONLY}
        answer = connection.enrol(
            codec.encode(Register(PROTOCOL, "0", "seeker", "seeker", room, tags=dict(tags))), 30.0
        )
        connection.drop()
        registered = codec.decode(Registered, answer.body)
        address.trust.identify(registered.certificate, registered.key)
        own = parse_mesh_uri(registered.peer)
        if own is None:
            raise RuntimeError("the server gave no certificate")
        self._links = Links(Credentials(own, *address.trust.peer_contexts()))
        self._table = PeerTable(Contact(parse_key(own.id), ""), self._links, Random(1), lambda id: True)
        self._table.start()
        self._table.handle(Join(contacts_of(registered.neighbours)))

    def find(self, key: int) -> float:
        """Seconds until holders of a file are known."""
        began = time.monotonic()
        if not self._table.find(key).holders:
            raise RuntimeError("a file that a pilot has was not found")
        return time.monotonic() - began

    def close(self) -> None:
        """End."""
        self._table.close(leaves=False)
        self._links.close()
