"""Where runners call in: one socket in the pilot's directory, and the lines of those that were let in.

The directory is the pilot's alone, so whoever reaches the socket is of the same user; hello only says which runner.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from collections.abc import Callable
from typing import Any

from shoal.pilot.runner.main import SOCKET

_MAX_STRANGERS = 64  # who connected and has not said hello
_CHUNK = 1 << 16


class RunnerConnection:
    """The pilot's end of a line to a runner: JSON objects, one per line. It never waits.

    JSON, since the other end may be another Python. `closed` is set for good once the other end is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._in = b""
        self._out = bytearray()
        self.closed = False

    def fileno(self) -> int:
        """For epoll."""
        return self.sock.fileno()

    @property
    def wants_write(self) -> bool:
        """Is something waiting for room in the socket?"""
        return bool(self._out) and not self.closed

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message and send what the socket takes now."""
        # ASCII only, so that the surrogates which stand for odd bytes in file names survive the way.
        self._out += json.dumps(message).encode("ascii") + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        while self._out and not self.closed:
            try:
                sent = self.sock.send(self._out)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return  # what it said before it went is still to be read
            del self._out[:sent]

    def receive(self) -> list[dict[str, Any]]:
        """Every whole message that has arrived; what came before the end of the line is still given."""
        data = self._in
        while not self.closed:
            try:
                more = self.sock.recv(_CHUNK)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                more = b""
            data += more
            if len(more) < _CHUNK:
                self.closed = not more
                break
        *lines, self._in = data.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        with contextlib.suppress(OSError):
            self.sock.close()


Greet = Callable[[RunnerConnection, dict[str, Any]], bool]


class Listener:
    """Sockets by number, and one file that is readable when any of them has something."""

    def __init__(self, greet: Greet) -> None:
        self._greet = greet
        self._epoll = select.epoll()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._strangers: dict[int, RunnerConnection] = {}
        self._hear: dict[int, Callable[[], None]] = {}
        self._writing: set[int] = set()

    def fileno(self) -> int:
        """For the loop."""
        return self._epoll.fileno()

    def open(self, folder: str) -> None:
        """Let runners call in."""
        near = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._listener.bind(f"/proc/self/fd/{near}/{SOCKET}")  # the whole path may be longer than a socket's may
        finally:
            os.close(near)
        self._listener.listen(64)
        self._epoll.register(self._listener, select.EPOLLIN)

    def receive(self) -> None:
        """Let each one that has something say it."""
        for fd, _ in self._epoll.poll(0):
            hear = self._hear.get(fd)
            if hear is not None:
                hear()
            elif fd in self._strangers:
                self._hear_stranger(fd)
            elif fd == self._listener.fileno():
                self._accept()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            if len(self._strangers) >= _MAX_STRANGERS:
                sock.close()
                return
            self._strangers[sock.fileno()] = RunnerConnection(sock)
            self._epoll.register(sock, select.EPOLLIN)

    def _hear_stranger(self, fd: int) -> None:
        line = self._strangers[fd]
        try:
            messages = line.receive()
        except ValueError:
            messages = [{}]
        if messages or line.closed:
            del self._strangers[fd]
            if not messages or not self._greet(line, messages[0]):
                self.drop(line)
                line.close()

    def keep(self, line: RunnerConnection, hear: Callable[[], None]) -> None:
        """From now on, what comes on this line is for `hear`."""
        self._hear[line.fileno()] = hear

    def drop(self, line: RunnerConnection) -> None:
        """The line is about to be closed."""
        fd = line.fileno()
        self._hear.pop(fd, None)
        self._writing.discard(fd)
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def watch(self, line: RunnerConnection) -> None:
        """Be woken when there is room for what could not be sent at once, and only then."""
        fd = line.fileno()
        if line.wants_write != (fd in self._writing):
            (self._writing.add if line.wants_write else self._writing.discard)(fd)
            self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if line.wants_write else 0))

    def close(self) -> None:
        """Nobody may come in any more."""
        for line in self._strangers.values():
            line.close()
        self._listener.close()
        self._epoll.close()
