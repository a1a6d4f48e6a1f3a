"""HTTP messages as the application sees them: a request with its body as it arrives, and responses."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

MAX_BUFFERED = 256 * 1024  # bytes of a body that wait to be read; beyond it the socket is not read
TUNNEL = "tunnel"  # stands for the address of whoever comes through a tunnel: it is not known here
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")


class BodyBroken(Exception):
    """The connection ended, or what came is no body, before the body was whole."""


class Headers:
    """The headers of a request; names are compared without regard to case."""

    __slots__ = ("_first", "_pairs")

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs  # names in lower case
        self._first = dict(reversed(pairs))

    def get(self, name: str, default: str = "") -> str:
        """The first value."""
        return self._first.get(name.lower(), default)

    def all(self, name: str) -> list[str]:
        """Every value."""
        name = name.lower()
        return [value for key, value in self._pairs if key == name]

    def repeated(self) -> list[str]:
        """Names that occur more than once, in lower case."""
        if len(self._first) == len(self._pairs):
            return []
        return [name for name in self._first if len(self.all(name)) > 1]

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._first

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)


class Body:
    """The body of a request as it arrives."""

    __slots__ = ("_before", "_error", "_flow", "_parts", "_size", "_waiter", "is_discarded", "is_over", "received")

    def __init__(self, flow: Callable[[bool], None], before: Callable[[], None]) -> None:
        self._parts: deque[bytes] = deque()
        self._size = 0
        self.received = 0  # bytes so far, read or not
        self._error: BodyBroken | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._flow = flow  # stops and resumes reading from the socket
        self._before = before  # called when somebody waits for the body: the client may expect a word
        self.is_over = False  # all of it has arrived
        self.is_discarded = False  # nobody will read the rest

    # --- called by the protocol
    def feed(self, data: bytes) -> None:
        """More bytes arrived."""
        self.received += len(data)
        if self.is_discarded:
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > MAX_BUFFERED:
            self._flow(False)
        self._wake()

    def end(self, error: BodyBroken | None = None) -> None:
        """It is whole, or broken."""
        self.is_over, self._error = True, error
        self._wake()

    def discard(self) -> None:
        """Drop what came and what will come."""
        self.is_discarded = True
        self._parts.clear()
        self._size = 0
        self._flow(True)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- called by the application
    async def wait(self) -> None:
        """Wait until there is more of it, or none will come."""
        while not self._parts and not self.is_over:
            if not self.is_discarded:
                self._before()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def take_whole(self) -> bytes | None:
        """All of a body that has arrived and of which nothing was read; None: it has to be waited for, or is broken."""
        if not self.is_over or self._error is not None or self._size != self.received:
            return None
        return self._take()

    def _take(self) -> bytes:
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self._flow(True)
        return data

    async def readany(self) -> bytes:
        """The next bytes; none at the end. BodyBroken if the rest will not come."""
        await self.wait()
        if self._parts:
            return self._take()
        if self._error is not None:
            raise self._error
        return b""

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The bytes as they come."""
        while data := await self.readany():
            yield data


class Request:
    """A request whose headers are in."""

    def __init__(
        self, method: str, target: str, version: str, headers: Headers, content: Body, protocol: Any, keep_alive: bool
    ) -> None:
        self.method, self.raw_path, self.version, self.headers = method, target, version, headers
        self.content, self.protocol, self.keep_alive = content, protocol, keep_alive
        self.match_info: dict[str, str] = {}  # parts of the path that the route names

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection; None when it is gone."""
        return self.protocol.transport  # type: ignore[no-any-return]  # the protocol of this request's connection

    @cached_property
    def remote(self) -> str:
        """The address of the client, or TUNNEL; empty on the Unix socket of this account."""
        if self.transport is None:
            return ""
        peer = self.transport.get_extra_info("peername")
        if isinstance(peer, tuple) and peer:
            return str(peer[0])
        return TUNNEL if self.transport.get_extra_info("ssl_object") is not None else ""

    @property
    def host(self) -> str:
        """The server's name, as the client has it."""
        return self.headers.get("Host")

    @property
    def path(self) -> str:
        """The path without the query, decoded: for people."""
        return unquote(self.raw_path.partition("?")[0])

    @property
    def query(self) -> list[tuple[str, str]]:
        """The parameters."""
        return parse_qsl(self.raw_path.partition("?")[2].partition("#")[0], keep_blank_values=True)

    @property
    def content_type(self) -> str:
        """The media type of the body, without its parameters."""
        return self.headers.get("Content-Type", "application/octet-stream").partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """The length of the body, where it is known. The parser has checked that it is a number."""
        text = self.headers.get("Content-Length")
        return int(text) if text else None

    def range(self, size: int) -> tuple[int, int] | None:
        """The first byte and the one behind the last that the client wants of so many; None: all. ValueError: there are
        none such."""
        text = self.headers.get("Range")
        if not text:
            return None
        found = _RANGE.fullmatch(text)
        if found is None or not (found[1] or found[2]):
            raise ValueError(text)
        first = int(found[1]) if found[1] else max(0, size - int(found[2]))
        end = min(int(found[2]) + 1, size) if found[1] and found[2] else size
        if first >= end:
            raise ValueError(text)
        return first, end


class Response:
    """A response whose body is in memory."""

    __slots__ = ("body", "headers", "is_last", "status")

    def __init__(
        self, body: bytes = b"", status: int = 200, headers: dict[str, str] | None = None, content_type: str = ""
    ) -> None:
        self.body, self.status, self.headers = body, status, headers or {}
        if content_type:
            self.headers["Content-Type"] = content_type
        self.is_last = False

    def force_close(self) -> None:
        """Close the connection behind it."""
        self.is_last = True


class FileResponse(Response):
    """A file, or the range of it that the client wants, sent within so many seconds."""

    __slots__ = ("path", "within")

    def __init__(self, path: Path, within: float, content_type: str) -> None:
        super().__init__(content_type=content_type, headers={"Accept-Ranges": "bytes"})
        self.path, self.within = path, within
