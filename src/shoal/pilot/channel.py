"""The line between the pilot's loop and its guard: JSON objects, one per line, over a socket pair.

Neither end ever waits for the other: a stopped pilot must not stop the guard, nor the reverse.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

_CHUNK = 1 << 16


class Channel:
    """One end of the line. `closed` is set for good once the other end is gone."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._in = bytearray()
        self._out = bytearray()
        self.closed = False

    def fileno(self) -> int:
        """For selectors."""
        return self._sock.fileno()

    @property
    def wants_write(self) -> bool:
        """Is something waiting for room in the socket?"""
        return bool(self._out) and not self.closed

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message and send what the socket takes now."""
        # ASCII only, so that the surrogates which stand for odd bytes in file names survive the way.
        self._out += json.dumps(message, separators=(",", ":")).encode("ascii")
        self._out += b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        while self._out and not self.closed:
            try:
                sent = self._sock.send(self._out)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.closed = True
                return
            del self._out[:sent]

    def receive(self) -> list[dict[str, Any]]:
        """Every whole message that has arrived; what came before the end of the line is still given."""
        while not self.closed:
            try:
                data = self._sock.recv(_CHUNK)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            self._in += data
        end = self._in.rfind(b"\n")
        if end < 0:
            return []
        lines = bytes(self._in[:end]).split(b"\n")
        del self._in[: end + 1]
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._sock.close()
