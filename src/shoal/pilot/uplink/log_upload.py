"""Upload of streams to a server that cannot read our files: each as a whole at the end of its attempt, and, while
somebody watches, what is new twice a second.

What is not sent yet stays in its file, so that a server that is away costs no memory. Runs on the loop's thread.
"""

from __future__ import annotations

import contextlib
import json
import os
from binascii import b2a_base64
from collections.abc import Callable, Collection, Mapping
from typing import Optional

from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_TAIL
from shoal.pilot.commands import streams
from shoal.wire.messages import LogPiece

WATCHED = 30.0  # seconds after each `tail` order
LOOK = 0.5
_LONGER = 4 / 3  # what base64 makes of bytes


@dataclass
class _Stream:
    """One stream file, and how much of it was sent."""

    path: str
    watched_until: float = 0.0
    at: int = 0  # bytes that were read, which are those of the server's copy
    is_over: bool = False  # nothing is written any more
    is_sent: bool = False  # to its end

    @property
    def left(self) -> int:
        """Bytes that were not sent."""
        return max(0, _size(self.path) - self.at)


class LogUpload:
    """The streams of all attempts whose files only we can read; `capacity` returns how many bytes may be sent now."""

    def __init__(self, capacity: Callable[[], int]) -> None:
        self._capacity = capacity
        self._streams: dict[str, dict[str, _Stream]] = {}
        self._settled: set[str] = set()
        self._look_at = 0.0

    def add(self, attempt: str, paths: Mapping[str, str]) -> None:
        """Add the streams of an attempt, by name."""
        self._streams[attempt] = {name: _Stream(path) for name, path in paths.items()}

    def watch(self, attempt: str, name: str, now: float) -> None:
        """Somebody wants to see a stream (no name: both) as it is written."""
        for found, stream in self._streams.get(attempt, {}).items():
            if name in (found, ""):
                stream.watched_until = now + WATCHED
                self._look_at = now

    def end(self, attempt: str, cut: Collection[str]) -> None:
        """An attempt ended: nothing is written any more. The streams in `cut` lost their middle and are sent anew."""
        for name, stream in self._streams.get(attempt, {}).items():
            stream.is_over = True
            if name in cut or _size(stream.path) < stream.at:
                stream.at = 0  # the file is not the one that was read: the server's copy begins anew too

    def settle(self, attempt: str) -> None:
        """The server has decided on the attempt: its files are removed once they are sent."""
        self._settled.add(attempt)
        self._clear()

    @property
    def has_more(self) -> bool:
        """True if streams of ended attempts were not sent to their end."""
        return any(s.is_over and not s.is_sent for found in self._streams.values() for s in found.values())

    def deadline(self) -> Optional[float]:
        """When to read watched streams again."""
        watched = [s for found in self._streams.values() for s in found.values() if not s.is_over]
        return self._look_at if any(s.watched_until > self._look_at for s in watched) else None

    def read(self, now: float) -> list[LogPiece]:
        """The pieces to send now, as far as there is capacity."""
        pieces: list[LogPiece] = []
        left = self._capacity()
        is_time = now >= self._look_at
        ready = [
            (attempt, name, stream)
            for attempt, found in self._streams.items()
            for name, stream in found.items()
            if not stream.is_sent and (stream.is_over or (is_time and stream.watched_until > now))
        ]
        if len(ready) > 2:
            ready.sort(key=lambda one: one[2].left)  # short ones do not wait behind a long one
        for attempt, name, stream in ready:
            if left > 0:
                found = _cut(attempt, name, stream, _read(stream, left))
                left -= sum(len(piece.text) + len(piece.data) for piece in found)
                pieces += found
        if is_time:
            self._look_at = now + LOOK
        self._clear()
        return pieces

    def _clear(self) -> None:
        for attempt in [a for a in self._settled if all(s.is_sent for s in self._streams.get(a, {}).values())]:
            self._settled.remove(attempt)
            for stream in self._streams.pop(attempt, {}).values():
                streams.remove(stream.path)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _read(stream: _Stream, capacity: int) -> bytes:
    """The next part of a file."""
    data = b""
    with contextlib.suppress(OSError):
        # A task could put anything in place of its file.
        fd = os.open(stream.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.pread(fd, capacity, stream.at)
        finally:
            os.close(fd)
    stream.is_sent = stream.is_over and len(data) < capacity
    return data


def _cut(attempt: str, name: str, stream: _Stream, data: bytes) -> list[LogPiece]:
    """Cut bytes into pieces of the largest size, none within a character of a text."""
    pieces: list[LogPiece] = []
    at = 0
    while at < len(data):
        end = min(at + MAX_TAIL, len(data))
        cut = end
        while cut > max(at, end - 3) and cut < len(data) and data[cut] & 0xC0 == 0x80:
            cut -= 1
        text, encoded = _encode(data[at:cut])
        pieces.append(LogPiece(attempt, name, text, stream.at, encoded))
        stream.at += cut - at
        at = cut
    return pieces


def _encode(data: bytes) -> tuple[str, str]:
    """Bytes as text, or as base64 where they are none, or where that is shorter."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "", b2a_base64(data, newline=False).decode("ascii")
    if len(json.dumps(text, ensure_ascii=False)) > _LONGER * len(data) + 2:
        return "", b2a_base64(data, newline=False).decode("ascii")
    return text, ""
