"""Connections that client and pilot open to a server: HTTP over a Unix socket or over TLS [protocol 9].

Nothing is sent before the server has proven itself: the kernel tells under which account it runs, or TLS that it has
the right key. Only the server's CA certificate is ever fetched without verification, and the caller compares its
fingerprint. With `streamed` this is the one module of `wire` that does input and output.
"""

from __future__ import annotations

import hashlib
import os
import select
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Optional

from shoal.model.blobs import Bytes
from shoal.wire.http import unix_socket
from shoal.wire.http.http1 import READ, HttpResponse, NoAnswer, Reading, host_of, request
from shoal.wire.join import SERVER_NAME

if TYPE_CHECKING:
    import ssl

    from shoal.wire.http.streamed import StreamedResponse

HTTPS_PORT = 443
MAX_CA = 64 * 1024  # bytes of an answer with a CA certificate
CERTIFICATE_NOT_YET_VALID, CERTIFICATE_EXPIRED = 9, 10  # of OpenSSL's X509_V_ERR_*
_PEM_BEGIN, _PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class ForeignServer(OSError):
    """The socket of our server is served by another account: no token is sent there, and no lease taken."""


class Connection:
    """One connection to a server, opened by `connect`."""

    def __init__(self, host: str, port: Optional[int], timeout: float) -> None:
        self.host, self.port, self.timeout = host, port, timeout
        self._sock: Optional[socket.socket] = None

    @property
    def sock(self) -> socket.socket:
        """The open socket."""
        if self._sock is None:
            raise NoAnswer("the connection is closed")
        return self._sock

    @property
    def is_open(self) -> bool:
        """True between `connect` and the end of either side that was noticed here."""
        return self._sock is not None and self._sock.fileno() >= 0

    def connect(self) -> None:
        """Open it; the server has proven itself when this returns."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class UnixConnection(Connection):
    """HTTP over a Unix socket, to a server of our own account or of root."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", None, timeout)
        self._path = path

    def connect(self) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        if len(os.fsencode(self._path)) <= unix_socket.LONGEST_PATH:
            self.sock.connect(self._path)
        else:
            folder = os.open(os.path.dirname(self._path), os.O_PATH | os.O_CLOEXEC)
            try:
                self.sock.connect(unix_socket.direct_path(self._path, folder))
            finally:
                os.close(folder)
        credentials = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, unix_socket.CREDENTIALS.size)
        uid = unix_socket.peer_uid(credentials)
        if not unix_socket.is_trusted(uid, os.geteuid()):
            raise ForeignServer(f"{self._path} is served by another account (uid {uid}), so nothing was sent to it")


class TlsConnection(Connection):
    """HTTP over TLS to a server whose certificate is for `name`, which need not be its address; with a key, through the
    relay at that address."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout: float,
        context: ssl.SSLContext,
        name: str = SERVER_NAME,
        relay_key: str = "",
    ) -> None:
        super().__init__(host, port, timeout)
        self._context, self._name, self._relay_key = context, name, relay_key

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port or HTTPS_PORT), self.timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._relay_key:
                _pass_relay(plain, self._relay_key)
            self._sock = self._context.wrap_socket(plain, server_hostname=self._name)
        except BaseException:
            plain.close()
            raise


def _pass_relay(plain: socket.socket, key: str) -> None:
    """Prove to a relay that we have its key, and have it prove the same; from then on it copies bytes to the server."""
    from shoal.wire.http import relay_preamble  # few pilots are behind a relay

    greeting, ours = _read_exactly(plain, relay_preamble.GREETING_SIZE), os.urandom(32).hex().encode()
    plain.sendall(relay_preamble.answer(key, greeting, ours))
    relay_preamble.check_verdict(key, greeting, ours, _read_exactly(plain, relay_preamble.VERDICT_SIZE))


def _read_exactly(plain: socket.socket, size: int) -> bytes:
    """So many bytes and none of what follows them; fewer if the other side ends."""
    data = b""
    while len(data) < size and (more := plain.recv(size - len(data))):
        data += more
    return data


def make_context() -> ssl.SSLContext:
    """A TLS context for clients that verifies the server and trusts nobody yet."""
    import ssl  # a server on this machine is reached without

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if ssl.HAS_TLSv1_3 else ssl.TLSVersion.TLSv1_2
    return context


def fetch_ca_unverified(host: str, port: int, timeout: float, relay_key: str = "") -> tuple[int, bytes]:
    """The status of the answer and the CA certificate (DER, empty if there is none) of whoever answers there; the caller
    must compare its fingerprint."""
    import ssl

    context = make_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing secret is sent over it
    connection = TlsConnection(host, port, timeout, context, relay_key=relay_key)
    try:
        connection.connect()
        answer = send(connection, "GET", "/v1/ca", {"Host": SERVER_NAME}, b"", MAX_CA)
        return answer.status, first_certificate(answer.body.decode("ascii", "replace"))
    finally:
        connection.close()


def first_certificate(pem: str) -> bytes:
    """The first certificate of a PEM text as DER, empty if it holds none. What follows it was compared with nothing,
    so callers trust these very bytes and not the text."""
    import ssl

    start, end = pem.find(_PEM_BEGIN), pem.find(_PEM_END)
    try:
        return ssl.PEM_cert_to_DER_cert(pem[start : end + len(_PEM_END)]) if 0 <= start < end else b""
    except ValueError:
        return b""


def fingerprint_of(certificate: bytes) -> str:
    """The SHA-256 of a certificate (DER)."""
    return hashlib.sha256(certificate).hexdigest()


def is_usable(connection: Optional[Connection]) -> bool:
    """True if an open connection can take the next request: one that is readable before it was closed by the server."""
    if connection is None or not connection.is_open:
        return False
    return not is_readable(connection.sock.fileno(), 0.0)


def is_readable(file: int, within: float) -> bool:
    """True if something can be read, or its end is seen, in so many seconds. Not by `select`, which refuses a program
    that has more than 1,024 files open."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(max(0.0, within) * 1e3))


def send(
    connection: Connection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    max_size: int,
) -> HttpResponse:
    """Send a request and read its whole answer."""
    headers = {"Host": host_of(connection.host, connection.port), **headers}
    connection.sock.sendall(request(method, target, headers, body))
    reading = Reading(method, max_size)
    while True:
        answer = reading.feed(connection.sock.recv(READ))
        if answer is not None:
            return answer


def begin(
    connection: Connection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: Optional[Iterable[Bytes]],
) -> StreamedResponse:
    """Send a request whose body or answer is too large to be held in memory; the answer is yet to be read."""
    from shoal.wire.http import streamed

    return streamed.begin(connection, method, target, headers, body)
