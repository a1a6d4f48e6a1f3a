"""A real HTTP or HTTPS server in a thread that answers what it is told, and certificates to do so."""

from __future__ import annotations

import datetime
import json
import shutil
import socket
import ssl
import tempfile
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shoal.client.connection.tls import fingerprint_of

DAY = datetime.timedelta(days=1)
Answer = dict[str, Any] | tuple[int, bytes, dict[str, str]]


@dataclass(frozen=True)
class Request:
    """What a client sent; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Authority:
    """A CA of one's own, and certificates by it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Shoal CA")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = self._builder(self._name, self._key.public_key(), -DAY, DAY)
        builder = builder.add_extension(x509.BasicConstraints(True, 0), True).add_extension(usage, True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()
        self.fingerprint = fingerprint_of(self.pem)

    def context(
        self, name: str = "shoal-server", begins: datetime.timedelta = -DAY, ends: datetime.timedelta = DAY
    ) -> ssl.SSLContext:
        """What a server with a certificate for a name serves with."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key.public_key(), begins, ends)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        leaf = builder.add_extension(issuer, False).sign(self._key, hashes.SHA256())
        file = self._folder / f"{leaf.serial_number}.pem"
        plain = serialization.NoEncryption()
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        file.write_bytes(secret + leaf.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime.timedelta, ends: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now + begins).not_valid_after(now + ends)
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def do_GET(self) -> None:  # the name that http.server looks for
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(Request(self.command, self.path, headers, body))
        status, data, more = self.server.answer(urlsplit(self.path).path)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815  # as above

    def log_message(self, *_: object) -> None:
        """Quiet."""


class FakeServer(ThreadingHTTPServer):
    """Answers by path; a list of answers is used up to its last one. Without TLS it listens on a Unix socket."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None, ca: str = "") -> None:
        self._folder = tempfile.mkdtemp(prefix="shoal-")
        if context is None:
            self.address_family = socket.AF_UNIX
        place = f"{self._folder}/sock" if context is None else ("127.0.0.1", 0)
        super().__init__(place, _Handler)  # type: ignore[arg-type]  # the stubs know only hosts and ports
        self.requests: list[Request] = []
        self.answers: dict[str, Answer | list[Answer]] = {}
        if ca:
            self.answers["/v1/ca"] = (200, ca.encode(), {})
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self.url = f"unix:{self._folder}/sock" if context is None else f"https://{self.address}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def server_bind(self) -> None:
        """Without asking the network for the name of a path."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """What is next for this path; an empty object if nothing was said."""
        told = self.answers.get(path, {})
        if isinstance(told, list):
            told = told.pop(0) if len(told) > 1 else told[0]
        return (200, json.dumps(told).encode(), {}) if isinstance(told, dict) else told

    def sent(self, path: str) -> list[Any]:
        """The bodies that came to a path."""
        found = (request for request in self.requests if urlsplit(request.target).path == path)
        return [json.loads(request.body) for request in found if request.body]

    def handle_error(self, *_: object) -> None:
        """A client that does not trust us hangs up: nothing to say."""
