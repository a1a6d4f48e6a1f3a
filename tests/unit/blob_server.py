"""A small server of blobs in a thread, that breaks connections and refuses when it is told to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.unix_http import UnixHTTPServer

RANGE = re.compile(r"bytes (?:\*|(\d+)-(\d+))/(\d+)")


@dataclass
class Refusal:
    """A canned answer."""

    status: int
    code: str
    headers: dict[str, str] = field(default_factory=dict)
    unread: bool = False  # before the body was read


@dataclass
class Asked:
    """One request: what its headers said, and how many bytes of it came."""

    method: str
    target: str
    headers: dict[str, str]
    came: int = 0


class BlobServer(UnixHTTPServer):
    """`cuts`: after so many bytes of a body, in or out, the connection ends; one for each request that has one."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.blobs: dict[str, bytes] = {}
        self.parts: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.refusals: list[Refusal] = []
        self.asked: list[Asked] = []
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> BlobServer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Quiet."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BlobServer

    def _begin(self) -> tuple[Asked, str, Refusal | None]:
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers)
        self.server.asked.append(asked)
        digest = self.path.partition("?")[0].rpartition("/")[2]
        return asked, digest, self.server.refusals.pop(0) if self.server.refusals else None

    def do_PUT(self) -> None:
        asked, digest, refusal = self._begin()
        if refusal is not None and refusal.unread:
            self._refuse(refusal)
            self.close_connection = True
            return
        length = int(asked.headers["content-length"])
        most = self.server.cuts.pop(0) if self.server.cuts and length else length
        data = self.rfile.read(min(length, most))
        asked.came = len(data)
        said = RANGE.fullmatch(asked.headers.get("content-range", ""))
        if refusal is not None:
            self._refuse(refusal)
            return
        if digest in self.server.blobs:
            self._answer(200, b"{}")
            return
        before = self.server.parts.get(digest, b"") if said else b""
        if said and (said[1] is None or int(said[1]) != len(before)):
            self._refuse(Refusal(409, "wrong_offset", {"X-Shoal-Offset": str(len(before))}))
            return
        whole = self.server.parts[digest] = before + data
        if len(data) < length:
            self._hang_up()
        elif f"sha256:{hashlib.sha256(whole).hexdigest()}" != digest:
            del self.server.parts[digest]
            self._refuse(Refusal(422, "wrong_digest"))
        else:
            self.server.blobs[digest] = self.server.parts.pop(digest)
            self._answer(200, b"{}")

    def do_GET(self) -> None:
        asked, digest, refusal = self._begin()
        if refusal is not None:
            self._refuse(refusal)
            return
        if digest not in self.server.blobs:
            self._refuse(Refusal(404, "unknown_blob"))
            return
        data, status = self.server.blobs[digest], 200
        if "range" in asked.headers:
            start = int(asked.headers["range"].removeprefix("bytes=").removesuffix("-"))
            data, status = data[start:], 206
        most = self.server.cuts.pop(0) if self.server.cuts else len(data)
        self._answer(status, data, most)
        if most < len(data):
            self._hang_up()

    def _refuse(self, refusal: Refusal) -> None:
        words = {"error": {"code": refusal.code, "message": f"it said {refusal.code}", "field": "", "hint": ""}}
        self._answer(refusal.status, json.dumps(words).encode(), more=refusal.headers)

    def _answer(self, status: int, data: bytes, most: int | None = None, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[:most])
        self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Quiet."""
