"""The relay on a login host: it copies bytes between pilots, which reach that host only, and the end of a tunnel.

This file is sent over ssh and run there by whatever Python 3.9 or newer there is, so it imports nothing of Shoal. Its
standard input has one line of JSON (`key`, `to`: the tunnel's port, a socket's path, or host and port, `host`: where to
listen, `ports`: in order of preference, 0: any), then a line every few seconds; when it ends, or is silent, the relay
ends. It prints one line: where it listens, or why it cannot.

A caller must prove that it has the key before anything is copied [protocol 9]: the same preamble as in
`wire/http/relay_preamble.py`. TLS is end to end, so no token is seen here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

GREETING = b"shoal-relay/1 "
PROOF = 4 + 1 + 64 + 1 + 64 + 1  # bytes that a caller sends: word, nonce, HMAC
PREAMBLE_WITHIN = 5.0  # seconds
SILENT_AFTER = 60.0  # seconds without a line on standard input: the ssh session is dead, though nobody closed it
MAX_HALF_OPEN = 256  # callers that have not proven anything; a new one displaces the oldest
MAX_OPEN = 8192  # connections that are copied
SPARE_FILES = 32
PIECE = 64 * 1024
CLOSE_WITHIN = 30.0  # seconds for what is still to be sent
QUIT_WITHIN = 1.5  # seconds for an earlier relay to free its port
EVERYWHERE = "0.0.0.0"
ANNOUNCED = "shoal-relay "  # begins the line that is printed: login hosts print all sorts of greetings before


def proof(key: bytes, word: bytes, ours: bytes, theirs: bytes) -> bytes:
    """The HMAC that goes with a word; `ours` is the nonce of the relay, `theirs` that of the caller."""
    return hmac.new(key, b" ".join((word, ours, theirs)), hashlib.sha256).hexdigest().encode()


class Relay:
    """All connections of one relay."""

    def __init__(self, key: bytes, to: int | str | list[Any], most: int, quit_now: Callable[[], None]) -> None:
        self._key, self._to, self._most, self._quit_now = key, to, most, quit_now
        self._half_open: dict[asyncio.StreamWriter, None] = {}  # the first is the oldest
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One caller, from the greeting to the end."""
        if len(self._half_open) >= MAX_HALF_OPEN:
            oldest = next(iter(self._half_open))
            self._half_open.pop(oldest)
            oldest.transport.abort()
        self._half_open[writer] = None
        try:
            try:
                agreed = await asyncio.wait_for(self._greet(reader, writer), PREAMBLE_WITHIN)
            finally:
                self._half_open.pop(writer, None)
            if agreed is not None:
                await self._go_on(reader, writer, agreed)
        except (OSError, EOFError, asyncio.TimeoutError):  # noqa: UP041  (another class in Python 3.9)
            pass  # whoever left or was refused is told nothing more
        finally:
            writer.transport.abort()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, bytes] | None:
        """The nonces of both sides, if the caller has the key."""
        ours = os.urandom(32).hex().encode()
        writer.write(GREETING + ours + b"\n")
        said = await reader.readexactly(PROOF)
        word, theirs, found = said[:4], said[5:69], said[70:134]
        if not hmac.compare_digest(found, proof(self._key, word, ours, theirs)):
            return None
        if word == b"quit":
            self._quit_now()
        return (ours, theirs) if word == b"join" else None

    async def _go_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nonces: tuple[bytes, bytes]
    ) -> None:
        if self._open >= self._most:
            await self._say(writer, b"full", nonces)
            return
        self._open += 1
        try:
            await self._connect(reader, writer, nonces)
        finally:
            self._open -= 1

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nonces: tuple[bytes, bytes]
    ) -> None:
        try:
            if isinstance(self._to, str):
                far_reader, far_writer = await asyncio.open_unix_connection(self._to, limit=PIECE)
            else:
                host, port = self._to if isinstance(self._to, list) else ("127.0.0.1", self._to)
                far_reader, far_writer = await asyncio.open_connection(host, port, limit=PIECE)
        except OSError:
            await self._say(writer, b"down", nonces)
            return
        try:
            await self._say(writer, b"open", nonces)
            # A host that is switched off says no more, and its connection would be kept.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
            await asyncio.wait_for(close(far_writer, writer), CLOSE_WITHIN)
        finally:
            far_writer.transport.abort()

    async def _say(self, writer: asyncio.StreamWriter, word: bytes, nonces: tuple[bytes, bytes]) -> None:
        writer.write(word + b" " + proof(self._key, word, *nonces) + b"\n")
        await writer.drain()
        if word != b"open":
            await asyncio.wait_for(close(writer), CLOSE_WITHIN)


async def close(*writers: asyncio.StreamWriter) -> None:
    """Close connections once everything is sent."""
    for writer in writers:
        writer.close()
    for writer in writers:
        await writer.wait_closed()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of one side, and pass that on."""
    while True:
        data = await reader.read(PIECE)
        if not data:
            break
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def make_way(key: bytes, host: str, port: int) -> bool:
    """Ask whoever listens on a port to end, if it is an earlier relay with the same key whose ssh session is dead; False
    if a program that is no relay listens there."""
    with contextlib.suppress(OSError), socket.create_connection((host or "127.0.0.1", port), QUIT_WITHIN) as caller:
        greeting = b""
        while len(greeting) < len(GREETING) + 65:
            more = caller.recv(len(GREETING) + 65 - len(greeting))
            if not more:
                return False
            greeting += more
        if not greeting.startswith(GREETING):
            return False
        theirs, ours = greeting[len(GREETING) :].strip(), os.urandom(32).hex().encode()
        caller.sendall(b" ".join((b"quit", ours, proof(key, b"quit", theirs, ours))) + b"\n")
        while caller.recv(PIECE):
            pass
        return True
    return False


async def listen(relay: Relay, key: bytes, host: str, ports: list[int]) -> asyncio.AbstractServer:
    """Listen on the first port that is free; an earlier relay of ours is asked to free the first of all."""
    trouble = OSError("no port was named")
    loop = asyncio.get_running_loop()
    for number, port in enumerate(ports):
        until, was_asked = loop.time(), number > 0 or not port
        while True:
            try:
                return await asyncio.start_server(relay.serve, host or EVERYWHERE, port, limit=PIECE, backlog=1024)
            except OSError as error:
                trouble = error
            if not was_asked:
                was_asked = True
                if await loop.run_in_executor(None, make_way, key, host, port):
                    until = loop.time() + QUIT_WITHIN  # its end closes the port a moment after our connection
            if loop.time() >= until:
                break
            await asyncio.sleep(0.05)
    raise trouble


def own_addresses(host: str) -> list[str]:
    """How other hosts may reach this one: addresses of private networks first, which clusters have inside."""
    if host:
        return [host]
    found: dict[str, None] = {}
    with contextlib.suppress(OSError), open("/proc/net/fib_trie", encoding="ascii") as trie:
        before = ""
        for line in trie:
            if "/32 host LOCAL" in line:
                address = before.split()[-1]
                if not address.startswith("127."):
                    found[address] = None
            before = line
    private = ("10.", "192.168.", *(f"172.{n}." for n in range(16, 32)))
    ordered = sorted(found, key=lambda address: not address.startswith(private))
    return [*ordered[:4], socket.gethostname()][:5]


def watch_input(quit_now: Callable[[], None]) -> None:
    """End with the ssh session that started this relay."""
    silence = threading.Timer(SILENT_AFTER, quit_now)
    silence.daemon = True
    silence.start()
    while sys.stdin.buffer.readline():
        silence.cancel()
        silence = threading.Timer(SILENT_AFTER, quit_now)
        silence.daemon = True
        silence.start()
    quit_now()


async def run() -> None:
    """Serve until standard input ends."""
    asked = json.loads(sys.stdin.buffer.readline())
    key = asked["key"].encode()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    files = MAX_OPEN * 2 + MAX_HALF_OPEN + SPARE_FILES if soft == resource.RLIM_INFINITY else soft
    most = max(1, min(MAX_OPEN, (files - MAX_HALF_OPEN - SPARE_FILES) // 2))
    relay = Relay(key, asked["to"], most, lambda: os._exit(0))
    try:
        server = await listen(relay, key, asked["host"], asked["ports"])
    except OSError as error:
        say({"error": f"no port can be listened on: {os.strerror(error.errno or 0) or error}"})
        return
    threading.Thread(target=watch_input, args=(lambda: os._exit(0),), daemon=True).start()
    port = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]  # of the class that it really is
    say({"port": port, "addresses": own_addresses(asked["host"])})
    await server.serve_forever()


def say(found: dict[str, object]) -> None:
    """Tell whoever started us."""
    print(ANNOUNCED + json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(run())
