"""Connection limits: who may hold a socket, and for how long [security S16; promise I21].

`_Connection` is the protocol of each socket, and forwards everything to that of HTTP. It makes the TLS handshake itself: a
connection that asyncio secures is unknown to its protocol until the handshake is over, and could not be counted.

Rules: a connection is *unknown* until a request on it showed a valid token. A new one displaces the oldest unknown
connection, of the same address or of all: an attacker would have to open them faster than an honest client sends.
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
from typing import Any

from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_CONNECTIONS, MAX_PER_KEY, MAX_POOL_RATIO, MAX_UNKNOWN
from shoal.server.http.messages import TUNNEL, Request
from shoal.server.http.protocol import HttpProtocol
from shoal.wire.http import unix_socket

SPARE_FILES = 256  # descriptors that are no connections: database, logs, environments, the pilot of this machine
CLOSING_SECONDS = (
    600.0  # for the rest of a response and the end of TLS; a client that reads nothing is cut much earlier
)
LEAST_TAKEN = 16 * 1024  # bytes that a slow client must read within `stall` seconds so as not to be cut
# asyncio gives every TLS connection a buffer of 256 KiB: 10,000 half-open ones took 3 GB. One record is 16 KiB.
TLS_BUFFER = 16 * 1024


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections; times in seconds."""

    total: int = MAX_CONNECTIONS
    unknown: int = MAX_UNKNOWN
    per_key: int = MAX_PER_KEY
    handshake: float = 10.0
    head: float = 10.0  # for the headers of a request
    stall: float = 30.0  # without progress of a response
    sweep: float = 1.0


@dataclass
class ConnectionCounts:
    """Connections now, and those ended since the start."""

    open: int = 0
    unknown: int = 0
    refused: int = 0  # over a limit
    slow: int = 0


class Connections:
    """All connections of a server."""

    def __init__(self, bounds: ConnectionLimits) -> None:
        self.bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._all: set[_Connection] = set()
        self._handlers: dict[HttpProtocol, _Connection] = {}
        # Dictionaries keep the order of insertion: the first is the oldest.
        self._unknown: dict[_Connection, None] = {}
        self._addresses: dict[str, dict[_Connection, None]] = {}
        self._keys: dict[str, dict[_Connection, None]] = {}
        self._pools: dict[str, dict[_Connection, None]] = {}  # of all pilots of one owner or group
        self._heads: dict[_Connection, float] = {}  # since when a request's headers are awaited
        self._stalls: dict[_Connection, _Mark] = {}  # may have a response that was not read yet
        self._shakes: set[asyncio.Task[None]] = set()
        self._refused = self._slow = 0
        self._sweep_at = self._loop.time() + bounds.sweep
        self._timer = self._loop.call_at(self._sweep_at, self._sweep)

    def protocol_factory(
        self, server: Callable[[], HttpProtocol], context: ssl.SSLContext | None = None
    ) -> Callable[[], asyncio.Protocol]:
        """For `loop.create_server`, which must get no `ssl`: with a context each connection makes its own handshake."""
        if context is not None:
            sslproto.SSLProtocol.max_size = TLS_BUFFER
        return lambda: _Connection(self, server, context)

    @property
    def counts(self) -> ConnectionCounts:
        """The numbers for metrics."""
        return ConnectionCounts(len(self._all), len(self._unknown), self._refused, self._slow)

    # --- called by the application
    def entered(self, handler: HttpProtocol) -> None:
        """A request's headers are in."""
        connection = self._handlers.get(handler)
        if connection is not None:
            connection.busy = True
            self._heads.pop(connection, None)

    def known(self, request: Request, key: str, pool: str = "") -> bool:
        """A request showed a valid token of this person or pilot; `pool` names the owner of a pilot. False: they hold too
        many connections, all at work.

        A pool may grow only in proportion to the connections that are left, so that others still find some (dynamic
        thresholds, Choudhury and Hahne 1998).
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

    def left(self, handler: HttpProtocol) -> None:
        """A request was answered; from here on the progress of the response is watched."""
        connection = self._handlers.get(handler)
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

    # --- called by connections
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

    def _begun(self, connection: _Connection, handler: HttpProtocol) -> None:
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

    # --- ending connections
    def _refuse(self, connection: _Connection) -> None:
        self._refused += 1
        self._end(connection)

    def _end(self, connection: _Connection) -> None:
        self._gone(connection)
        connection.abort()

    def _sweep(self) -> None:
        """End slow connections; not if the server itself was late, and has not read its sockets yet."""
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
    """The progress of a response: since when how many bytes are left."""

    __slots__ = ("_left", "_since")

    def __init__(self, since: float, left: int) -> None:
        self._since, self._left = since, left

    def progress(self, now: float, left: int) -> float:
        """For how many seconds the client has read less than `LEAST_TAKEN`."""
        if left <= self._left - LEAST_TAKEN:
            self._since, self._left = now, left
        self._left = max(self._left, left)  # the application wrote more
        return now - self._since


class _Connection(asyncio.Protocol):
    """One socket: accepted, then secured, then forwarded to HTTP."""

    def __init__(
        self, connections: Connections, server: Callable[[], HttpProtocol], context: ssl.SSLContext | None
    ) -> None:
        self._connections, self._server, self._context = connections, server, context
        self._socket: asyncio.Transport | None = None
        self._secured: asyncio.Transport | None = None
        self._early: list[bytes] = []  # data that came with the end of the handshake, before `_begin`
        self._lost = False
        self.handler: HttpProtocol | None = None  # from `_begin` on
        self.address = ""
        self.key: str | None = None  # the person or pilot whose token it showed
        self.pool = ""  # the owner of that pilot
        self.busy = False  # a request is in work
        self.paused = False

    @property
    def pending(self) -> int:
        """Bytes of responses that the client has not read."""
        if self._lost:
            return 0
        return sum(t.get_write_buffer_size() for t in (self._socket, self._secured) if t is not None)

    @property
    def closing(self) -> bool:
        """True if the connection is being closed."""
        transport = self._secured or self._socket
        return transport is not None and transport.is_closing()

    def abort(self) -> None:
        """End at once; what was not sent is lost."""
        if self._socket is not None:
            self._socket.abort()

    # --- opening and closing
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self.address = address_of(transport, self._context is not None)
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
            return  # displaced since: asyncio would keep the handshake until its time is over
        try:
            within = self._connections.bounds.handshake
            self._secured = await asyncio.get_running_loop().start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=within,
                ssl_shutdown_timeout=CLOSING_SECONDS,
            )  # fmt: skip
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

    # --- forwarding
    def data_received(self, data: bytes) -> None:
        if self.handler is None:
            self._early.append(data)
            return
        if not self.busy:
            self._connections._await_head(self)
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self.handler.eof_received() if self.handler is not None else None

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


def address_of(transport: asyncio.BaseTransport, is_tls: bool = False) -> str:
    """The key that a connection is counted under: its IPv4 address, or its /64 of IPv6, which one owner has whole. What
    comes through a tunnel has one key: whoever floods it displaces nobody of this account."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return TUNNEL if is_tls else "local"
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


def is_foreign(transport: asyncio.BaseTransport) -> bool:
    """True if a process of another account is at the other end of the Unix socket."""
    opened = transport.get_extra_info("socket")
    if opened is None or opened.family != socket.AF_UNIX:
        return False
    found = opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, unix_socket.CREDENTIALS.size)
    return not unix_socket.is_trusted(unix_socket.peer_uid(found), os.geteuid())


def peer_name(transport: asyncio.BaseTransport | None) -> str:
    """The name in the client certificate, which TLS has verified; empty if there is none."""
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    pairs = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    return next((str(value) for kind, value in pairs if kind == "commonName"), "")


def raise_file_limit() -> tuple[int, int]:
    """Raise the limit of open files as far as allowed; returns the old and the new limit.

    Programs that it starts should get the old one: some still use `select`, which breaks above 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft, soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, wanted


def capacity_of(files: int) -> int:
    """How many connections this many open files allow."""
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(files - SPARE_FILES, files // 2))


def _drop(groups: dict[str, dict[_Connection, None]], name: str, connection: _Connection) -> None:
    group = groups.get(name)
    if group is not None:
        group.pop(connection, None)
        if not group:
            del groups[name]
