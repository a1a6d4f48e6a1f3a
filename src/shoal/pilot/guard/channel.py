"""The line between the pilot's loop and its guard: plain objects over a socket pair.

Neither end ever waits for the other: a stopped pilot must not stop the guard, nor the reverse. Messages are packed
by `marshal`, three times faster than JSON: both ends are forks of one interpreter, and nobody else has the line.
Only what `marshal` knows may be in them: no enum, no subclass of int or str.
"""

from __future__ import annotations

import contextlib
import marshal
import socket
from typing import Any

_CHUNK = 1 << 16
_LENGTH = 4  # bytes before each packet: how long it is


class Channel:
    """One end of the line. `closed` is set for good once the other end is gone."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._in = b""
        self._out = bytearray()  # packed, and not yet taken by the socket
        self._queue: list[dict[str, Any]] = []  # not yet packed
        self._held = False
        self.closed = False

    def fileno(self) -> int:
        """For selectors."""
        return self._sock.fileno()

    @property
    def wants_write(self) -> bool:
        """Is something waiting for room in the socket?"""
        return bool(self._out) and not self.closed

    def hold(self) -> None:
        """What is sent from here on waits for `flush`: each waking of the other end costs a switch of processes."""
        self._held = True

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message and send what the socket takes now, unless held."""
        self._queue.append(message)
        if not self._held:
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        self._held = False
        if self._queue:
            data = marshal.dumps(self._queue)
            self._queue.clear()
            self._out += len(data).to_bytes(_LENGTH, "big") + data
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
        pieces = [self._in]
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
            pieces.append(data)
        if len(pieces) == 1:
            return []
        data = b"".join(pieces)
        at, messages = 0, []
        while len(data) - at >= _LENGTH:
            end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
            if end > len(data):
                break
            messages += marshal.loads(data[at + _LENGTH : end])
            at = end
        self._in = data[at:]
        return messages

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._sock.close()
