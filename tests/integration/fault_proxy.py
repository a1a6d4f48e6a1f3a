"""A proxy between pilot and server that injects faults into real connections: lose, cut, delay, deliver twice.

It parses just enough HTTP (Content-Length on both sides) to find the end of a request and of its reply. Two functions
decide about each message; they are called in the thread of the connection and may wait. The faults that happened are
counted, so that a test can prove that its fault happened.
"""

from __future__ import annotations

import contextlib
import enum
import json
import shutil
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from tests.unix_http import connect


class Fate(enum.Enum):
    """What becomes of a request or of its reply."""

    PASS = "passed"
    TWICE = "request delivered twice"
    CUT_REQUEST = "request cut in the middle"
    DROP_REPLY = "reply dropped"
    CUT_REPLY = "reply cut in the middle"


@dataclass(frozen=True)
class Message:
    """A complete request or reply."""

    head: bytes
    body: bytes

    @property
    def raw(self) -> bytes:
        """As it goes over the wire."""
        return self.head + self.body

    @property
    def path(self) -> str:
        """The path of a request."""
        return self.head.split(b" ", 2)[1].decode()

    def json(self) -> dict[str, Any]:
        """The body; empty if it is not a JSON object."""
        try:
            data = json.loads(self.body)
        except ValueError:
            return {}
        return data if isinstance(data, dict) else {}


class FaultProxy:
    """Listens on a socket of its own and forwards to the server at `url`, which may change at any time."""

    def __init__(self, url: str) -> None:
        self.target = url
        self.on_request: Callable[[Message], Fate] = lambda request: Fate.PASS
        self.on_reply: Callable[[Message, Message], Fate] = lambda request, reply: Fate.PASS
        self.counts: Counter[Fate] = Counter()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._folder = tempfile.mkdtemp(prefix="shoal-")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"{self._folder}/sock")
        self._listener.listen(64)
        self.url = f"unix:{self._folder}/sock"
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections, and close those that are open."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        shutil.rmtree(self._folder, ignore_errors=True)

    def cut(self) -> None:
        """Cut every open connection; new ones are accepted."""
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _count(self, fate: Fate) -> None:
        with self._lock:
            self.counts[fate] += 1

    # --- one thread per connection
    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), name="proxy-connection", daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(OSError, ValueError))
            self._keep(stack, near)
            requests = stack.enter_context(near.makefile("rb"))
            far = self._connect(stack)
            replies = stack.enter_context(far.makefile("rb"))
            while (request := read_message(requests)) is not None:
                fate = self.on_request(request)
                if fate is Fate.CUT_REQUEST:
                    far.sendall(request.raw[: len(request.head) + len(request.body) // 2])
                    self._count(fate)
                    return
                twin = self._twin(stack, request) if fate is Fate.TWICE else None
                far.sendall(request.raw)
                reply = read_message(replies)
                if twin is not None:
                    twin.join()
                if reply is None:
                    return
                fate = self.on_reply(request, reply)
                self._count(fate)
                if fate is Fate.DROP_REPLY:
                    return
                if fate is Fate.CUT_REPLY:
                    near.sendall(reply.raw[: len(reply.head) + len(reply.body) // 2])
                    return
                near.sendall(reply.raw)

    def _connect(self, stack: contextlib.ExitStack) -> socket.socket:
        far = connect(self.target, 30.0)
        far.settimeout(None)
        self._keep(stack, far)
        return far

    def _keep(self, stack: contextlib.ExitStack, sock: socket.socket) -> None:
        with self._lock:
            self._open.add(sock)
        stack.callback(self._forget, sock)

    def _forget(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.discard(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def _twin(self, stack: contextlib.ExitStack, request: Message) -> threading.Thread:
        """The same request once more at the same time, over a connection of its own."""
        far = self._connect(stack)

        def deliver() -> None:
            with contextlib.suppress(OSError, ValueError), far.makefile("rb") as replies:
                far.sendall(request.raw)
                if read_message(replies) is not None:
                    self._count(Fate.TWICE)

        thread = threading.Thread(target=deliver, name="proxy-twin", daemon=True)
        thread.start()
        return thread


def read_message(stream: BinaryIO) -> Message | None:
    """One request or reply; None if the connection ended before it was complete."""
    head, length = b"", 0
    while True:
        line = stream.readline(65_536)
        if not line.endswith(b"\n"):
            return None
        head += line
        if line in (b"\r\n", b"\n"):
            break
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    body = stream.read(length)
    return Message(head, body) if len(body) == length else None
