"""A peer with a good certificate that a test has behave badly: it registers, joins the table, says that it has files, and sends
what it likes. Made of the product's own parts, in this process.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from shoal.dht import peer as decide
from shoal.dht.key import parse_key
from shoal.dht.peers import PEER_TAG, FileHead, GetFile, parse_mesh_uri
from shoal.dht.routing_table import Contact
from shoal.pilot.mesh import frames
from shoal.pilot.mesh.links import Credentials, Links
from shoal.pilot.mesh.listener import Listener, open_port
from shoal.pilot.mesh.peer_table import PeerTable
from shoal.pilot.mesh.source import contacts_of
from shoal.pilot.uplink.server_address import ServerAddress, read_join
from shoal.pilot.uplink.uplink import ServerConnection
from shoal.wire import codec
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Register, Registered

Send = Callable[[Any, GetFile], None]  # what it does when it is asked for a file


class OddPeer:
    """One such peer."""

    def __init__(self, join: Path, send: Send, machine: str = "odd") -> None:
        server = open_port((0,))
        assert server is not None
        self.address = f"127.0.0.1:{server.getsockname()[1]}"
        self._join = ServerAddress(join=read_join(None, str(join)))
        self._connection = ServerConnection(self._join)
        register = Register(
            PROTOCOL, "0", "odd", machine, Capacity(1, 1 << 30, 1 << 30), tags={PEER_TAG: self.address}, nonce=machine
        )
        answer = self._connection.enrol(codec.encode(register), 30.0)
        assert answer.status == 200, answer
        self.registered = codec.decode(Registered, answer.body)
        self._join.trust.identify(self.registered.certificate, self.registered.key)
        own = parse_mesh_uri(self.registered.peer)
        assert own is not None
        self.links = Links(Credentials(own, *self._join.trust.peer_contexts()), self.address)
        self.table = PeerTable(Contact(parse_key(own.id), self.address), self.links, Random(1), lambda id: True)
        self.table.start()
        self.asked: list[GetFile] = []  # files that others wanted
        self.listener = _OddListener(server, send, self.asked)
        self.listener.serve(self.table, self.links, lambda id: True)
        self.contacts = contacts_of(self.registered.neighbours)
        self.table.handle(decide.Join(self.contacts))
        self._end, self._seq = threading.Event(), 0
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def publish(self, *digests: str) -> None:
        """Say that these files are here."""
        self.table.handle(decide.Publish(tuple(parse_key(digest.partition(":")[2]) for digest in digests)))

    def close(self) -> None:
        """End without a word."""
        self._end.set()
        self._thread.join()
        self._connection.drop()
        self.listener.close()
        self.table.close(leaves=False)
        self.links.close()

    def _live(self) -> None:
        """Have the server take it for a living pilot, which takes no task."""
        while not self._end.wait(0.3):
            self._seq += 1
            name, session, seq = self.registered.pilot, self.registered.session, self._seq
            message = Exchange(PROTOCOL, name, session, seq, seq - 1, Capacity(), nonce=str(seq))
            try:
                self._connection.ask("POST", f"/v1/pilots/{name}/exchange", codec.encode(message), session, 30.0)
            except OSError:
                self._connection.drop()


class _OddListener(Listener):
    def __init__(self, server: socket.socket, send: Send, asked: list[GetFile]) -> None:
        super().__init__(server, lambda digest: None)
        self._send, self._asked = send, asked

    def _send_file(self, stream: Any, wanted: GetFile) -> Sequence[Any]:
        self._asked.append(wanted)
        self._send(stream, wanted)
        return []


def wrong_bytes(size: int) -> Send:
    """As many as there should be, and none of them right."""

    def send(stream: Any, wanted: GetFile) -> None:
        frames.send(stream, FileHead(size))
        stream.sendall(os.urandom(size - wanted.offset))

    return send


def breaks_off(data: bytes) -> Send:
    """The right bytes, but only the first half of what is wanted."""

    def send(stream: Any, wanted: GetFile) -> None:
        frames.send(stream, FileHead(len(data)))
        stream.sendall(data[wanted.offset : (wanted.offset + len(data)) // 2])
        raise ConnectionAbortedError

    return send


def too_long(size: int) -> Send:
    """A file that is larger than the one that was wanted."""

    def send(stream: Any, wanted: GetFile) -> None:
        frames.send(stream, FileHead(size + 1))
        stream.sendall(os.urandom(size + 1 - wanted.offset))

    return send


def stalls(size: int, end: threading.Event) -> Send:
    """A few bytes, and then nothing."""

    def send(stream: Any, wanted: GetFile) -> None:
        frames.send(stream, FileHead(size))
        stream.sendall(b"x" * 100)
        end.wait(60.0)
        raise ConnectionAbortedError

    return send
