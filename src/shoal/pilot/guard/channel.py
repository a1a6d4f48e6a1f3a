"""The connection between the pilot's loop and its guard: messages over a socket pair.

Neither end ever waits for the other: a stopped pilot must not stop the guard, nor the reverse. Messages are packed by
`marshal`, three times faster than JSON: both ends are forks of one interpreter, and nobody else has the connection.
"""

from __future__ import annotations

import contextlib
import marshal
import socket
from typing import Any

from shoal.pilot.guard.messages import Message, pack, unpack

_CHUNK = 1 << 16
_LENGTH = 4  # bytes before each packet: how long it is


class Connection:
    """A stream socket that never blocks, buffered both ways. `closed` is set for good once the other end is gone."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._in = b""  # received, and not yet a whole message
        self._out = bytearray()  # not yet taken by the socket
        self.closed = False

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    @property
    def wants_write(self) -> bool:
        """True while something waits for space in the socket's buffer."""
        return bool(self._out) and not self.closed

    def flush(self) -> None:
        """Send what the socket takes now."""
        while self._out and not self.closed:
            try:
                sent = self.sock.send(self._out)
            except OSError:
                return  # full, or the other end is gone: what it sent before is still to be read
            del self._out[:sent]

    def _read(self) -> bool:
        """Add what has arrived to `_in`; False: nothing has."""
        pieces = [self._in]
        while not self.closed:
            try:
                data = self.sock.recv(_CHUNK)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                data = b""
            self.closed = not data
            pieces.append(data)
        self._in = b"".join(pieces)
        return len(pieces) > 1

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        with contextlib.suppress(OSError):
            self.sock.close()


class Channel(Connection):
    """One end of the connection between loop and guard."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._queue: list[tuple[Any, ...]] = []  # not yet marshalled
        self._held = False

    def hold(self) -> None:
        """Keep what is sent from here on until `flush`: each wake-up of the other end costs a context switch."""
        self._held = True

    def send(self, message: Message) -> None:
        """Queue a message and send what the socket takes now, unless held."""
        self._queue.append(pack(message))
        if not self._held:
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        self._held = False
        if self._queue:
            data = marshal.dumps(self._queue)
            self._queue.clear()
            self._out += len(data).to_bytes(_LENGTH, "big") + data
        super().flush()

    def receive(self) -> list[Any]:
        """Every whole message that has arrived, also after the other end has closed."""
        if not self._read():
            return []
        data, at, messages = self._in, 0, []
        while len(data) - at >= _LENGTH:
            end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
            if end > len(data):
                break
            messages += [unpack(packed) for packed in marshal.loads(data[at + _LENGTH : end])]
            at = end
        self._in = data[at:]
        return messages
