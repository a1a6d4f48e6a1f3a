"""Who may hold a socket, and for how long: every connection passes here before and while aiohttp has it
[security S16; promise I21].

The Door is the protocol that the socket sees, and hands everything on to aiohttp's. It makes the TLS handshake itself:
a connection that asyncio secures is unknown to its protocol until the handshake is over, and so could not be counted.

Rules: a connection is *unknown* until a request on it showed a good token. Room is made by ending the oldest unknown
connection, of the same address or of all: an attacker must then fill the house faster than an honest client speaks.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import resource
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from shoal.model.limits import MAX_CONNECTIONS, MAX_PER_KEY, MAX_POOL_RATIO, MAX_UNKNOWN
from shoal.wire.http import unix_socket

SPARE_FILES = 256  # descriptors that are no connections: database, logs, environments, the pilot of this machine
HANDSHAKE_SECONDS = 10.0
HEAD_SECONDS = 10.0
STALL_SECONDS = 30.0
CLOSING_SECONDS = 600.0  # for the rest of an answer and the goodbye of TLS; who takes nothing is cut much earlier
LEAST_TAKEN = 16 * 1024  # bytes that a slow reader must take in STALL_SECONDS to be called slow and not gone
SWEEP_SECONDS = 1.0
# asyncio gives every TLS connection 256 KiB to read into, used or not: 10,000 half-open ones took 3 GB. One record is 16.
TLS_BUFFER = 16 * 1024


@dataclass(frozen=True)
class ConnectionLimits:
    """What the Door allows."""

    total: int = MAX_CONNECTIONS
    unknown: int = MAX_UNKNOWN
    per_key: int = MAX_PER_KEY
    handshake: float = HANDSHAKE_SECONDS
    head: float = HEAD_SECONDS
    stall: float = STALL_SECONDS
    sweep: float = SWEEP_SECONDS


@dataclass
class ConnectionCounts:
    """Connections now, and those ended since the start."""

    open: int = 0
    unknown: int = 0
    refused: int = 0  # for want of room
    slow: int = 0


class Connections:
    """All connections of a server."""

    def __init__(self, bounds: ConnectionLimits) -> None:
        self.bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._all: set[_Connection] = set()
        self._handlers: dict[RequestHandler, _Connection] = {}
        # Dictionaries keep the order of insertion: the first is the oldest.
        self._unknown: dict[_Connection, None] = {}
        self._addresses: dict[str, dict[_Connection, None]] = {}
        self._keys: dict[str, dict[_Connection, None]] = {}
        self._pools: dict[str, dict[_Connection, None]] = {}  # of all pilots of one owner or group
        self._heads: dict[_Connection, float] = {}  # since when a request's headers are awaited
        self._stalls: dict[_Connection, _Mark] = {}  # has, or may have, an answer that was not taken yet
        self._shakes: set[asyncio.Task[None]] = set()
        self._refused = self._slow = 0
        self._sweep_at = self._loop.time() + bounds.sweep
        self._timer = self._loop.call_at(self._sweep_at, self._sweep)

    def protocol_factory(
        self, server: Callable[[], RequestHandler], context: ssl.SSLContext | None = None
    ) -> Callable[[], asyncio.Protocol]:
        """For `loop.create_server`, which must be given no `ssl`: with a context the Door secures each connection."""
        if context is not None:
            sslproto.SSLProtocol.max_size = TLS_BUFFER
        return lambda: _Connection(self, server, context)

    @property
    def counts(self) -> ConnectionCounts:
        """What metrics show."""
        return ConnectionCounts(len(self._all), len(self._unknown), self._refused, self._slow)

    # --- told by the application
    def entered(self, request: web.BaseRequest) -> None:
        """A request's headers are in."""
        connection = self._handlers.get(request.protocol)
        if connection is not None:
            connection.busy = True
            self._heads.pop(connection, None)

    def known(self, request: web.BaseRequest, key: str, pool: str = "") -> bool:
        """A request showed a good token of this person or pilot; `pool` names whose pilot it is. False: they hold too
        many connections, all at work.

        A pool may grow while there is room, but only in proportion to what is left: whoever comes after the greediest
        still finds some (dynamic thresholds, Choudhury and Hahne 1998).
        """
        connection = self._handlers.get(request.protocol)
        if connection is None or connection.key == key:
            return True
        self._forget_names(connection)
        free = self.bounds.total - len(self._all) + len(self._unknown)
        bounded = [(self._keys.get(key, {}), self.bounds.per_key)]
        if pool:
            bounded.append((self._pools.get(pool, {}), max(1, MAX_POOL_RATIO * free)))
        for mine, most in bounded:
            if len(mine) >= most:
                idle = next((other for other in mine if not other.busy), None)
                if idle is None:
                    self._remember_unknown(connection)
                    return False
                self._refuse(idle)
        connection.key, connection.pool = key, pool
        self._keys.setdefault(key, {})[connection] = None
        if pool:
            self._pools.setdefault(pool, {})[connection] = None
        return True

    def left(self, request: web.BaseRequest) -> None:
        """A request was answered; whether the answer is taken is seen from here on."""
        connection = self._handlers.get(request.protocol)
        if connection is not None:
            connection.busy = False
            self._watch(connection)

    def close(self) -> None:
        """End every connection."""
        self._timer.cancel()
        for task in self._shakes:
            task.cancel()
        for connection in list(self._all):
            self._end(connection)

    # --- told by connections
    def _admit(self, connection: _Connection) -> bool:
        mine = self._addresses.get(connection.address, {})
        if len(mine) >= self.bounds.unknown:
            self._refuse(next(iter(mine)))
        elif len(self._all) >= self.bounds.total:
            if not self._unknown:
                self._refused += 1
                return False
            self._refuse(next(iter(self._unknown)))
        self._all.add(connection)
        self._remember_unknown(connection)
        return True

    def _begun(self, connection: _Connection, handler: RequestHandler) -> None:
        self._handlers[handler] = connection
        self._await_head(connection)

    def _await_head(self, connection: _Connection) -> None:
        if connection not in self._heads:
            self._heads[connection] = self._loop.time()

    def _watch(self, connection: _Connection) -> None:
        self._stalls[connection] = _Mark(self._loop.time(), connection.pending)

    def _shake(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._shakes.add(task)
        task.add_done_callback(self._shakes.discard)

    def _gone(self, connection: _Connection) -> None:
        self._all.discard(connection)
        self._forget_names(connection)
        self._heads.pop(connection, None)
        self._stalls.pop(connection, None)
        if connection.handler is not None:
            self._handlers.pop(connection.handler, None)

    # --- names
    def _remember_unknown(self, connection: _Connection) -> None:
        self._unknown[connection] = None
        self._addresses.setdefault(connection.address, {})[connection] = None

    def _forget_names(self, connection: _Connection) -> None:
        self._unknown.pop(connection, None)
        _drop(self._addresses, connection.address, connection)
        if connection.key is not None:
            _drop(self._keys, connection.key, connection)
            _drop(self._pools, connection.pool, connection)
            connection.key = None

    # --- ends
    def _refuse(self, connection: _Connection) -> None:
        self._refused += 1
        self._end(connection)

    def _end(self, connection: _Connection) -> None:
        self._gone(connection)
        connection.abort()

    def _sweep(self) -> None:
        """Cut who is slow; unless it is the server that was, and has not read yet what lies in its sockets."""
        now, late = self._loop.time(), self._loop.time() - self._sweep_at
        self._sweep_at = now + self.bounds.sweep
        self._timer = self._loop.call_at(self._sweep_at, self._sweep)
        if late > self.bounds.sweep:
            return
        for connection in [one for one, since in self._heads.items() if now - since >= self.bounds.head]:
            self._slow += 1
            self._end(connection)
        for connection, mark in list(self._stalls.items()):
            pending = connection.pending
            if not pending and not connection.paused and not connection.closing:
                del self._stalls[connection]
            elif mark.progress(now, pending) >= self.bounds.stall:
                self._slow += 1
                self._end(connection)


class _Mark:
    """How an answer is being taken: since when so much is left of it."""

    __slots__ = ("_left", "_since")

    def __init__(self, since: float, left: int) -> None:
        self._since, self._left = since, left

    def progress(self, now: float, left: int) -> float:
        """For how many seconds nothing to speak of was taken."""
        if left <= self._left - LEAST_TAKEN:
            self._since, self._left = now, left
        self._left = max(self._left, left)  # the application wrote more
        return now - self._since


class _Connection(asyncio.Protocol):
    """One socket: first as it was accepted, then secured, then aiohttp's."""

    def __init__(
        self, connections: Connections, server: Callable[[], RequestHandler], context: ssl.SSLContext | None
    ) -> None:
        self._connections, self._server, self._context = connections, server, context
        self._socket: asyncio.Transport | None = None
        self._secured: asyncio.Transport | None = None
        self._early: list[bytes] = []  # came with the end of the handshake, before `_begin`
        self._lost = False
        self.handler: RequestHandler | None = None  # from `_begin` on
        self.address = ""
        self.key: str | None = None  # the person or pilot whose token it showed
        self.pool = ""  # whose pilot that is
        self.busy = False  # a request is in work
        self.paused = False

    @property
    def pending(self) -> int:
        """Bytes of answers that the other side has not taken."""
        if self._lost:
            return 0
        return sum(t.get_write_buffer_size() for t in (self._socket, self._secured) if t is not None)

    @property
    def closing(self) -> bool:
        """Does it wait for nothing but its end?"""
        transport = self._secured or self._socket
        return transport is not None and transport.is_closing()

    def abort(self) -> None:
        """End at once; what was not sent is lost."""
        if self._socket is not None:
            self._socket.abort()

    # --- the life of the socket
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self.address = address_of(transport)
        if is_foreign(transport):
            self._connections._refused += 1
            transport.abort()
        elif not self._connections._admit(self):
            transport.abort()
        elif self._context is None:
            self._begin(transport)
        else:
            transport.pause_reading()  # what comes now is for TLS
            self._connections._shake(self._secure(transport, self._context))

    async def _secure(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        if self not in self._connections._all:
            return  # pushed out since: asyncio would keep a handshake with nobody until its time is over
        try:
            self._secured = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._connections.bounds.handshake,
                ssl_shutdown_timeout=CLOSING_SECONDS,
            )
        except OSError as error:  # of which TLS errors are a kind
            self._lost = True
            if isinstance(error, ConnectionAbortedError) and self in self._connections._all:
                self._connections._slow += 1
        if self._lost or self._secured is None:
            self._connections._end(self)
        else:
            self._begin(self._secured)

    def _begin(self, transport: asyncio.Transport) -> None:
        self.handler = handler = self._server()
        self._connections._begun(self, handler)
        handler.connection_made(transport)
        for data in self._early:
            handler.data_received(data)
        self._early.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._connections._gone(self)
        if self.handler is not None:
            self.handler.connection_lost(exc)

    # --- handed on
    def data_received(self, data: bytes) -> None:
        if self.handler is None:
            self._early.append(data)
            return
        if not self.busy:
            self._connections._await_head(self)
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        if self.handler is not None:
            self.handler.eof_received()
        return None

    def pause_writing(self) -> None:
        self.paused = True
        self._connections._watch(self)
        if self.handler is not None:
            self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.paused = False
        self._connections._watch(self)
        if self.handler is not None:
            self.handler.resume_writing()


def address_of(transport: asyncio.BaseTransport) -> str:
    """Whom a connection is counted for: its IPv4 address, or the /64 that one owner of IPv6 has whole."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return "local"
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


def is_foreign(transport: asyncio.BaseTransport) -> bool:
    """Is it a process of another account at the other end of our Unix socket? Connections elsewhere have other proofs."""
    opened = transport.get_extra_info("socket")
    if opened is None or opened.family != socket.AF_UNIX:
        return False
    found = opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, unix_socket.CREDENTIALS.size)
    return not unix_socket.is_trusted(unix_socket.peer_uid(found), os.geteuid())


def peer_name(transport: asyncio.BaseTransport | None) -> str:
    """The name in the certificate that a connection's client showed and TLS has checked; empty if it showed none."""
    said = transport.get_extra_info("peercert") if transport is not None else None
    pairs = [pair for part in (said or {}).get("subject", ()) for pair in part]
    return next((str(value) for kind, value in pairs if kind == "commonName"), "")


def raise_file_limit() -> tuple[int, int]:
    """Take all the open files that this process may have: how many it could open before, and now.

    Programs that it starts should get the old number back: some still use `select`, which breaks above 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft, soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, wanted


def room_for(files: int) -> int:
    """How many connections fit into this many open files."""
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(files - SPARE_FILES, files // 2))


def _drop(groups: dict[str, dict[_Connection, None]], name: str, connection: _Connection) -> None:
    group = groups.get(name)
    if group is not None:
        group.pop(connection, None)
        if not group:
            del groups[name]
