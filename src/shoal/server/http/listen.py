"""Listening: the addresses of a server, the names that others use for it, and its sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
import stat
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from shoal.model.errors import BadInput, Refused, echo
from shoal.server.http.connections import Connections
from shoal.server.http.protocol import HttpServer
from shoal.wire.http import unix_socket
from shoal.wire.join import MAX_ADDRESSES

BACKLOG = 1024
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})")


def parse_address(text: str, field: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port` or `:port` (every interface)."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 <= int(found["port"]) <= 65535:
        raise BadInput(
            f"{echo(text)!r} is no address", code="bad_address", field=field, hint="e.g. :8443 or 10.0.0.5:8443"
        )
    return found["six"] or found["host"], int(found["port"])


def join(host: str, port: int) -> str:
    """An address as in a join string."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def local_addresses(trie: str = "/proc/net/fib_trie") -> list[str]:
    """IPv4 addresses of this machine that others may reach, as the kernel lists them."""
    try:
        lines = Path(trie).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    found: dict[str, None] = {}
    for before, line in pairwise(lines):
        address = re.search(r"(\d+\.\d+\.\d+\.\d+)$", before.strip())
        if address is not None and "/32 host LOCAL" in line and not address[1].startswith("127."):
            found[address[1]] = None
    return list(found)


def reached_by(listens: Iterable[tuple[str, int]], extra: Iterable[tuple[str, int]]) -> list[str]:
    """The addresses for join strings: those of the command line first, then those of this machine."""
    found = [join(host, port) for host, port in extra]
    for host, port in listens:
        if host not in ("", "0.0.0.0", "::"):
            found.append(join(host, port))
            continue
        found += [join(address, port) for address in local_addresses()]
        name = socket.gethostname()
        if "." in name:
            found.append(join(name, port))
    return list(dict.fromkeys(found))[:MAX_ADDRESSES] or [join("127.0.0.1", port) for _, port in listens][:1]


def names_of(addresses: Iterable[str]) -> frozenset[str]:
    """The hosts in addresses, as certificates and Host headers name them, and this machine's own name."""
    hosts = {address.rpartition(":")[0].strip("[]").lower() for address in addresses}
    return frozenset(hosts | {socket.gethostname().lower()})


async def bind(
    connections: Connections, server: HttpServer, host: str, port: int, context: ssl.SSLContext
) -> tuple[asyncio.Server, int]:
    """Listen over TLS; returns the port. Port 0: any."""
    loop = asyncio.get_running_loop()
    try:
        factory = connections.protocol_factory(server.make_protocol, context)
        listener = await loop.create_server(factory, host or None, port, backlog=BACKLOG, reuse_address=True)
    except (OSError, OverflowError) as error:
        why = os.strerror(error.errno or 0) if isinstance(error, OSError) and error.errno else str(error)
        hint = "choose another address or port"
        raise Refused(f"{join(host, port)} cannot be listened on: {why}", code="port_taken", hint=hint) from None
    return listener, int(listener.sockets[0].getsockname()[1])


async def bind_local(
    connections: Connections, server: HttpServer, path: Path, context: ssl.SSLContext | None = None
) -> asyncio.Server:
    """Listen on a Unix socket, which only this account can reach: its directory is private, and the kernel identifies
    callers. With a context it speaks TLS. The holder of the database's lock may replace a socket that an earlier server
    left."""
    _check_private(path.parent)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        try:  # by its directory, so that a path of any length will do
            opened.bind(unix_socket.direct_path(str(path), folder))
        finally:
            os.close(folder)
        path.chmod(0o600)
        return await asyncio.get_running_loop().create_unix_server(
            connections.protocol_factory(server.make_protocol, context), sock=opened, backlog=BACKLOG
        )
    except OSError as error:
        opened.close()
        hint = "choose a directory on a local disk with --state"
        raise Refused(f"no socket can be made at {path}: {error.strerror}", code="bad_state_dir", hint=hint) from None


def _check_private(folder: Path) -> None:
    """Refuse a directory in which somebody else could replace the socket."""
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        what = f"the state directory {folder} belongs to another account or can be written to by others"
        raise Refused(what, code="bad_state_dir", hint=f"chmod 700 {folder}, or choose another with --state")
