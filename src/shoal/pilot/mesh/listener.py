"""What other pilots get from this one: the table's answers, files by their digest, and whether they can be reached.

One port for everything. TLS on both sides comes first; who is no member of this mesh hears nothing. Connections, messages
and transfers are bounded, for each peer and for all together [security S16; promise I16].
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Callable, Optional

from shoal.dht import messages as wire
from shoal.dht.key import parse_key
from shoal.dht.peers import DialBack, DialedBack, FileHead, GetFile, Hello, NoFile
from shoal.dht.routing_table import Contact
from shoal.model.limits import (
    MAX_PEER_ADDRESS,
    MAX_PEER_CONNECTIONS,
    MAX_PEER_CONNECTIONS_EACH,
    MAX_PEER_RATE,
    MAX_PEER_TRANSFERS,
)
from shoal.pilot.leader.messages import Elect, Follow, Lead, Vote
from shoal.pilot.mesh import frames
from shoal.pilot.mesh.links import NO_DELAY, Links, NotAMember
from shoal.pilot.mesh.peer_table import PeerTable

if TYPE_CHECKING:
    from shoal.pilot.mesh.leading import Leading

log = logging.getLogger(__name__)

HELLO_WITHIN = 5.0  # seconds for the handshake and the first message
IDLE = 60.0  # seconds without a message
STALL = 20.0  # seconds without a byte taken
PIECE = 1 << 18  # bytes of a file that are read and encrypted at a time
REQUESTS = (wire.FindPeers, wire.FindHolders, wire.Store, wire.HandOver, wire.Withdraw, wire.Leave)
Handler = Callable[[Contact, Any], Iterable[Any]]  # the answers to a message, one after another
OpenFile = Callable[[str], Optional[int]]  # a file by its digest as a descriptor, which is the caller's; None: not here


def open_port(ports: Sequence[int]) -> Optional[socket.socket]:
    """Listen on the first of these ports that is free, on all addresses of this host; None if there is none."""
    for port in ports:
        with contextlib.suppress(OSError):
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, backlog=64, dualstack_ipv6=True)
            return socket.create_server(("", port), backlog=64)
    return None


class _Rate:
    """A token bucket for the messages of one connection; who empties it waits."""

    def __init__(self) -> None:
        self._left, self._at = 5.0 * MAX_PEER_RATE, time.monotonic()

    def wait(self) -> None:
        now = time.monotonic()
        self._left = min(5.0 * MAX_PEER_RATE, self._left + (now - self._at) * MAX_PEER_RATE) - 1.0
        self._at = now
        if self._left < 0.0:
            time.sleep(-self._left / MAX_PEER_RATE)


class Listener:
    """Serves the other pilots of one mesh."""

    def __init__(self, server: socket.socket, open_file: OpenFile) -> None:
        self._server, self._open_file = server, open_file
        self._links: Optional[Links] = None
        self._table: Optional[PeerTable] = None
        self._is_member: Callable[[int], bool] = lambda id: False
        self.leading: Optional[Leading] = None  # set where the mesh has a leader
        self._mutex = threading.Lock()
        self._open: dict[socket.socket, int] = {}  # connections, with the peer as soon as it is known
        self._transfers = threading.BoundedSemaphore(MAX_PEER_TRANSFERS)
        self.handlers: dict[type, Handler] = {}  # of further kinds of messages; a handler may take its time
        self.sent: Counter[str] = Counter()  # files that were sent whole, by digest
        self._thread = threading.Thread(target=self._accept, name="mesh-listen", daemon=True)

    @property
    def port(self) -> int:
        """Where we listen."""
        return int(self._server.getsockname()[1])

    def serve(self, table: PeerTable, links: Links, is_member: Callable[[int], bool]) -> None:
        """Answer with this table from now on, and as the peer that these credentials name."""
        is_first = self._table is None
        self._table, self._links, self._is_member = table, links, is_member
        if is_first:
            self._thread.start()

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._server.close()
        with self._mutex:
            found = list(self._open)
        for connection in found:
            _cut(connection)

    def drop(self, id: int) -> None:
        """End the connections of a peer that is a member no more."""
        with self._mutex:
            found = [connection for connection, peer in self._open.items() if peer == id]
        for connection in found:
            _cut(connection)

    # --- connections
    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                if self._server.fileno() < 0:
                    return
                time.sleep(0.1)  # no descriptor is left: those that are open will end
                continue
            with self._mutex:
                is_full = len(self._open) >= MAX_PEER_CONNECTIONS
                if not is_full:
                    self._open[connection] = -1
            if is_full:
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="mesh-peer", daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        stream = None
        try:
            raw.settimeout(HELLO_WITHIN)
            raw.setsockopt(*NO_DELAY)
            assert self._links is not None
            credentials = self._links.credentials
            stream = credentials.as_server.wrap_socket(raw, server_side=True)
            id = parse_key(credentials.name_of(stream).id)
            hello = frames.receive(stream)
            if not isinstance(hello, Hello) or len(hello.address) > MAX_PEER_ADDRESS:
                raise NotAMember("it does not say who it is")
            if not self._admit(raw, stream, id):
                raise NotAMember("it is shut out, or has too many connections")
            self._answer_all(stream, Contact(id, hello.address))
        except (OSError, ValueError) as error:
            log.debug("peer connection ended: %s", error)
        except Exception:
            log.exception("a peer's connection met a defect")
        finally:
            with self._mutex:
                self._open.pop(raw, None)
                if stream is not None:
                    self._open.pop(stream, None)
            (stream or raw).close()

    def _admit(self, raw: socket.socket, stream: ssl.SSLSocket, id: int) -> bool:
        with self._mutex:
            count = sum(1 for peer in self._open.values() if peer == id)
            if count >= MAX_PEER_CONNECTIONS_EACH or not self._is_member(id):
                return False
            self._open.pop(raw, None)  # wrapping detached its descriptor
            self._open[stream] = id
        return True

    def _answer_all(self, stream: ssl.SSLSocket, sender: Contact) -> None:
        rate = _Rate()
        while self._is_member(sender.id):
            stream.settimeout(IDLE)
            message = frames.receive(stream)
            rate.wait()
            stream.settimeout(STALL)
            for answer in self._answer(stream, sender, message):
                frames.send(stream, answer)

    def _answer(self, stream: ssl.SSLSocket, sender: Contact, message: Any) -> Iterable[Any]:
        assert self._table is not None
        assert self._links is not None
        if isinstance(message, GetFile):
            return self._send_file(stream, message)
        if isinstance(message, DialBack):
            return [DialedBack(self._reaches(Contact(sender.id, message.address)))]
        if isinstance(message, (Follow, Elect)):
            if self.leading is not None:
                return self.leading.answer(sender, message)
            # We have not heard of the leader of our mesh yet: the sender asks again.
            return [Lead(0, "") if isinstance(message, Follow) else Vote(0, False)]
        if isinstance(message, REQUESTS):
            return self._table.answer(sender, message)
        handler = self.handlers.get(type(message))
        if handler is not None:
            return handler(sender, message)
        raise NotAMember("that is no request")

    def _reaches(self, contact: Contact) -> bool:
        """True if we can connect to that address, and the peer itself is there."""
        assert self._links is not None
        with contextlib.suppress(OSError, ValueError):
            self._links.connect(contact).close()
            return True
        return False

    # --- files
    def _send_file(self, stream: ssl.SSLSocket, wanted: GetFile) -> Sequence[Any]:
        if not self._transfers.acquire(blocking=False):
            return [NoFile(is_busy=True)]
        fd = None
        try:
            fd = self._open_file(wanted.digest)
            if fd is None:
                return [NoFile()]
            size = os.fstat(fd).st_size
            if not 0 <= wanted.offset <= size:
                return [NoFile()]
            frames.send(stream, FileHead(size))
            buffer, at = memoryview(bytearray(min(PIECE, max(1, size - wanted.offset)))), wanted.offset
            while at < size:
                count = os.preadv(fd, [buffer[: size - at]], at)
                if not count:
                    raise frames.Broken("the file became shorter")
                stream.sendall(buffer[:count])
                at += count
            self.sent[wanted.digest] += 1
        finally:
            self._transfers.release()
            if fd is not None:
                os.close(fd)
        return []


def _cut(connection: socket.socket) -> None:
    """End a connection that another thread uses: it wakes up with an error."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
