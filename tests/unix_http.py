"""HTTP over Unix sockets for tests: servers in a thread, and connections."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import tempfile
from http.server import ThreadingHTTPServer
from typing import Any


class UnixHTTPServer(ThreadingHTTPServer):
    """A server on a socket of its own, in a directory with a short name, because the names of sockets must be."""

    address_family = socket.AF_UNIX
    daemon_threads = True

    def __init__(self, handler: Any) -> None:
        self.folder = tempfile.mkdtemp(prefix="shoal-")
        self.path = os.path.join(self.folder, "sock")
        super().__init__(self.path, handler)  # type: ignore[arg-type]  # the stubs know only hosts and ports

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    def server_bind(self) -> None:
        """Without the name and the port that a server on a network has."""
        self.socket.bind(self.path)

    def server_close(self) -> None:
        super().server_close()
        shutil.rmtree(self.folder, ignore_errors=True)


class UnixHTTPConnection(http.client.HTTPConnection):
    """A connection to the server of a socket."""

    def __init__(self, path: str, timeout: float = 30.0) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path.removeprefix("unix:")

    def connect(self) -> None:
        self.sock = connect(self._path, self.timeout or 30.0)


def connect(path: str, timeout: float = 10.0) -> socket.socket:
    """An open connection to a socket; `path` may be a URL."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    opened.settimeout(timeout)
    try:
        opened.connect(path.removeprefix("unix:"))
    except OSError:
        opened.close()  # nobody is there
        raise
    return opened
