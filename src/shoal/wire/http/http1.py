"""The part of HTTP/1.1 that client and pilot use: a request as bytes, and a response parsed from bytes as they come.

The standard library's client takes a third of a millisecond for each request, most of it for reading headers as if they
were a letter. A pilot under load, and a call that waits for its result, feel that. No socket is in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

MAX_HEAD = 64 * 1024
READ = 1 << 18  # bytes to read from a socket at a time


class NoAnswer(OSError):
    """A message that is not HTTP as used here; the connection cannot be used any more."""


class HttpResponse(NamedTuple):
    """A response; header names in lower case, of a repeated one the last value."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_kept: bool  # the connection may be used again


def host_of(host: str, port: Optional[int]) -> str:
    """The value of the header Host."""
    name = f"[{host}]" if ":" in host else host
    return name if port in (None, 80, 443) else f"{name}:{port}"


def request(method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A request as bytes."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body or method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise NoAnswer("a line break in a header")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class Reading:
    """The incremental parser of a response; NoAnswer if it is malformed, and then the connection is unusable."""

    def __init__(self, method: str, most: int) -> None:
        self._is_bare, self._most = method == "HEAD", most
        self._parts: list[bytes] = []
        self._size = 0
        self._status, self._headers, self._is_kept = 0, dict[str, str](), False
        self._length: Optional[int] = None  # of the body; None: the head is not here yet, or it comes in chunks
        self._chunks: Optional[bytearray] = None  # the body so far, if it comes in chunks

    def feed(self, data: bytes) -> Optional[HttpResponse]:
        """Take more bytes; returns the response once it is complete. No data: the other side closed the connection."""
        if not data:
            if not self._size and not self._status:
                raise ConnectionResetError("the server closed the connection without an answer")
            raise ConnectionResetError("the server closed the connection in the middle of an answer")
        self._parts.append(data)
        self._size += len(data)
        while not self._status:
            if not self._read_head():
                return None
        if self._chunks is not None:
            return self._read_chunks(self._chunks)
        assert self._length is not None
        if self._size < self._length:
            return None
        if self._size > self._length:
            raise NoAnswer("more than one answer came")
        return self._done(b"".join(self._parts))

    def _done(self, body: bytes) -> HttpResponse:
        return HttpResponse(self._status, self._headers, body, self._is_kept)

    def _read_head(self) -> bool:
        data = b"".join(self._parts)
        head, found, rest = data.partition(b"\r\n\r\n")
        self._parts, self._size = [rest if found else data], len(rest if found else data)
        if not found:
            if len(data) > MAX_HEAD:
                raise NoAnswer("the head of the answer is too long")
            return False
        status, headers = _parse(head)
        if status < 200:
            return bool(rest) or self._size > 0  # 100 Continue and similar: the response follows
        self._status, self._headers = status, headers
        self._is_kept = headers.get("connection", "keep-alive").lower() != "close" and head.startswith(b"HTTP/1.1")
        length = headers.get("content-length", "")
        if self._is_bare or status in (204, 304):
            self._length = 0
        elif headers.get("transfer-encoding", "").lower() == "chunked":  # a proxy may do that
            self._chunks = bytearray()
        elif not length.isdecimal():
            raise NoAnswer("an answer without a length")
        else:
            self._length = int(length)
            if self._length > self._most:
                raise NoAnswer("the answer is too long")
        return True

    def _read_chunks(self, body: bytearray) -> Optional[HttpResponse]:
        data = b"".join(self._parts)
        while True:
            line, found, rest = data.partition(b"\r\n")
            size = _chunk_size(line) if found else 0
            if not found or len(rest) < size + 2:
                self._parts, self._size = [data], len(data)
                return None
            if len(body) + size > self._most:
                raise NoAnswer("the answer is too long")
            body += rest[:size]
            data = rest[size + 2 :]
            if size == 0:
                return self._done(bytes(body))


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.split(b";")[0], 16)
    except ValueError:
        raise NoAnswer("a malformed chunk") from None


def _parse(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdecimal():
        raise NoAnswer(f"this is no HTTP: {first[:80]!r}")
    headers = {}
    for line in lines:
        name, found, value = line.partition(":")
        if not found:
            raise NoAnswer("a malformed header")
        headers[name.lower()] = value.strip()
    return int(parts[1]), headers
