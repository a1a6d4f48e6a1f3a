"""The socket to which runners connect, in the pilot's directory, and the connections of those that were accepted.

The directory is the pilot's alone, so whoever reaches the socket is of the same user; Hello only names the runner.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from typing import Any

from shoal.pilot.guard.channel import Connection
from shoal.pilot.runner.main import SOCKET
from shoal.pilot.runner.messages import decode, encode

_MAX_PENDING = 64  # connections without a Hello


class RunnerConnection(Connection):
    """The pilot's end of the connection to a runner."""

    def send(self, message: tuple[Any, ...]) -> None:
        """Queue a message and send what the socket takes now."""
        self._out += encode(message)
        self.flush()

    def receive(self) -> list[Any]:
        """Every whole message that has arrived, also after the other end has closed."""
        self._read()
        *lines, self._in = self._in.split(b"\n")
        return [decode(line) for line in lines]


Accept = Callable[[RunnerConnection, Any], bool]


class Listener:
    """Accepts connections and dispatches what they send; readable when any of them has something.

    `accept` is given the first message of a connection and decides whether it stays.
    """

    def __init__(self, accept: Accept) -> None:
        self._accept = accept
        self._epoll = select.epoll()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._pending: dict[int, RunnerConnection] = {}
        self._readers: dict[int, Callable[[], None]] = {}
        self._writing: set[int] = set()

    def fileno(self) -> int:
        """For the loop."""
        return self._epoll.fileno()

    def open(self, folder: str) -> None:
        """Let runners connect."""
        near = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._socket.bind(f"/proc/self/fd/{near}/{SOCKET}")  # the whole path may be longer than a socket's may
        finally:
            os.close(near)
        self._socket.listen(64)
        self._epoll.register(self._socket, select.EPOLLIN)

    def receive(self) -> None:
        """Dispatch what has arrived."""
        for fd, _ in self._epoll.poll(0):
            reader = self._readers.get(fd)
            if reader is not None:
                reader()
            elif fd in self._pending:
                self._read_first(fd)
            elif fd == self._socket.fileno():
                self._add_pending()

    def _add_pending(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._socket.accept()
            if len(self._pending) >= _MAX_PENDING:
                sock.close()
                return
            self._pending[sock.fileno()] = RunnerConnection(sock)
            self._epoll.register(sock, select.EPOLLIN)

    def _read_first(self, fd: int) -> None:
        connection = self._pending[fd]
        try:
            messages = connection.receive()
        except (ValueError, LookupError, TypeError):
            messages = [None]
        if messages or connection.closed:
            del self._pending[fd]
            if not messages or not self._accept(connection, messages[0]):
                self.drop(connection)
                connection.close()

    def keep(self, connection: RunnerConnection, reader: Callable[[], None]) -> None:
        """Call `reader` from now on when this connection has something."""
        self._readers[connection.fileno()] = reader

    def drop(self, connection: RunnerConnection) -> None:
        """Forget a connection that is about to be closed."""
        fd = connection.fileno()
        self._readers.pop(fd, None)
        self._writing.discard(fd)
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def watch(self, connection: RunnerConnection) -> None:
        """Wake up when there is space for what could not be sent at once, and only then."""
        fd = connection.fileno()
        if connection.wants_write != (fd in self._writing):
            (self._writing.add if connection.wants_write else self._writing.discard)(fd)
            self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if connection.wants_write else 0))

    def close(self) -> None:
        """Accept no connection any more."""
        for connection in self._pending.values():
            connection.close()
        self._socket.close()
        self._epoll.close()
