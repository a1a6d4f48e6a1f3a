"""A real HTTP server in a thread, with or without TLS, and certificates made on the spot."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shoal.wire.join import SERVER_NAME
from tests.unix_http import UnixHTTPServer

DAY = datetime.timedelta(days=1)


def error(code: str, words: str = "so") -> bytes:
    return json.dumps({"error": {"code": code, "message": words}}).encode()


class Authority:
    """A private CA and what it signs."""

    def __init__(self, name: str = "shoal CA") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=0)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self.certificate = (
            self._begin(self.name, self.key.public_key(), -DAY, 10 * DAY)
            .add_extension(basic, critical=True)
            .add_extension(usage, critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)
        der = self.certificate.public_bytes(serialization.Encoding.DER)
        self.fingerprint = hashlib.sha256(der).hexdigest()

    def _begin(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime.timedelta, ends: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder(self.name, subject, key, x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )

    def make(
        self, name: str = SERVER_NAME, begins: datetime.timedelta = -DAY, ends: datetime.timedelta = DAY
    ) -> tuple[str, str]:
        """(certificate, key) for a name, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        leaf = self._begin(subject, key.public_key(), begins, ends).add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
        )
        text = leaf.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return text, private.decode()


def padded_authority() -> Authority:
    """One whose certificate ends with padding in its text; the length of a signature varies."""
    while True:
        found = Authority()
        if b"=\n-----END" in found.pem:
            return found


@dataclass
class Request:
    """What somebody asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    shown: str = ""  # the name in the certificate that was shown
    tls: str = ""

    @property
    def bearer(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


@dataclass
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class SmallServer:
    """Answers by `answer(request)` and remembers every request. `None` hangs up without a word."""

    def __init__(
        self,
        answer: Callable[[Request], Response | None],
        folder: Path | None = None,
        authority: Authority | None = None,
        chain: tuple[str, str] | None = None,
    ) -> None:
        self.requests: list[Request] = []
        self.changed = threading.Condition()
        handler = _handler(self, answer)
        self.http: TlsHttp | _LocalHttp = (
            _LocalHttp(handler) if authority is None else TlsHttp(("127.0.0.1", 0), handler)
        )
        self.port = int(self.http.server_address[1]) if isinstance(self.http, TlsHttp) else 0
        self.url = f"https://127.0.0.1:{self.port}" if isinstance(self.http, TlsHttp) else self.http.url
        if authority is not None:
            assert folder is not None and isinstance(self.http, TlsHttp)
            file = folder / f"chain-{self.port}.pem"
            file.write_text("\n".join(chain or authority.make()))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file)
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=authority.pem.decode())
            self.http.context = context
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def wait(self, what: Callable[[], Any], seconds: float = 30.0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: bool(what()), seconds), [(r.method, r.path) for r in self.requests]

    def note(self, request: Request) -> None:
        with self.changed:
            self.requests.append(request)
            self.changed.notify_all()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


class TlsHttp(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake belongs to the connection's own thread: a client that fails it holds up nobody."""
        if self.context is not None:
            request = self.context.wrap_socket(request, server_side=True)
        try:
            super().finish_request(request, client_address)
        finally:
            if self.context is not None:
                request.close()

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class _LocalHttp(UnixHTTPServer):
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def _handler(outer: SmallServer, answer: Callable[[Request], Response | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, body)
            if isinstance(self.connection, ssl.SSLSocket):
                request.tls = self.connection.version() or ""
                found: Any = self.connection.getpeercert() or {}
                request.shown = "".join(value for ((_, value),) in found.get("subject", ()))
            outer.note(request)
            given = answer(request)
            if given is None:
                self.close_connection = True
                return
            with contextlib.suppress(OSError):
                self.send_response(given.status)
                for name, value in given.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(given.body)))
                self.end_headers()
                self.wfile.write(given.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
