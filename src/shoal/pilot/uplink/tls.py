"""Whom we believe and who we are: the server's pinned CA, and the certificate that the server made for us [protocol 9].

Nothing but the CA certificate itself is ever fetched without verification, and that is compared with the
fingerprint before it is used. There is no way to leave the verification out.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import socket
import ssl
import threading

from shoal.pilot.host import memory_files
from shoal.wire.join import SERVER_NAME

log = logging.getLogger(__name__)

MAX_CA = 1 << 16
_NOT_YET_VALID, _EXPIRED = 9, 10  # as OpenSSL numbers them


class WrongServer(Exception):
    """Whoever answers is not the server that the join string names."""


class TlsConnection(http.client.HTTPConnection):
    """HTTP over TLS, under the one name that every server's certificate is for."""

    def __init__(self, host: str, port: int, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout)
        self._context = context

    def connect(self) -> None:
        super().connect()
        plain: socket.socket = self.sock
        try:
            self.sock = self._context.wrap_socket(plain, server_hostname=SERVER_NAME)
        except BaseException:
            plain.close()
            raise


class Trust:
    """The CA of one server, fetched once, and our own certificate; used by all lanes."""

    def __init__(self) -> None:
        self.generation = 0  # counts our certificates; 0: we have none
        self._lock = threading.Lock()
        self._authority: dict[str, bytes] = {}  # fingerprint -> DER
        self._chain = b""
        self._contexts: dict[tuple[str, int], ssl.SSLContext] = {}

    def identify(self, certificate: str, key: str) -> None:
        """From now on connections may show this certificate."""
        with self._lock:
            self._chain = f"{certificate}\n{key}".encode()
            self.generation += 1
            self._contexts.clear()

    def connection(self, host: str, port: int, fingerprint: str, timeout: float, certified: bool) -> TlsConnection:
        """A connection, not yet made, to the server that the fingerprint names."""
        with self._lock:
            authority = self._authority.get(fingerprint)
            if authority is None:
                authority = self._authority[fingerprint] = _fetch_authority(host, port, fingerprint, timeout)
            generation = self.generation if certified else 0
            context = self._contexts.get((fingerprint, generation))
            if context is None:
                context = _context()
                context.load_verify_locations(cadata=authority)
                if generation:
                    _show(context, self._chain)
                self._contexts[fingerprint, generation] = context
        return TlsConnection(host, port, timeout, context)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if ssl.HAS_TLSv1_3 else ssl.TLSVersion.TLSv1_2
    return context


def _fetch_authority(host: str, port: int, fingerprint: str, timeout: float) -> bytes:
    """The server's CA certificate (DER), which has the fingerprint."""
    context = _context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # what comes is compared with the fingerprint instead
    connection = TlsConnection(host, port, timeout, context)
    try:
        connection.request("GET", "/v1/ca", headers={"Host": SERVER_NAME})
        response = connection.getresponse()
        body = response.read(MAX_CA)
    finally:
        connection.close()
    if response.status != 200:
        raise OSError(f"no CA certificate from {host}:{port}: status {response.status}")
    # The very bytes that were compared are what is believed, not the text: it might hold a second certificate.
    try:
        authority = ssl.PEM_cert_to_DER_cert(body.decode("ascii"))
    except ValueError:
        authority = b""
    if hashlib.sha256(authority).hexdigest() != fingerprint:
        raise WrongServer("server certificate does not match the join string")
    return authority


def _show(context: ssl.SSLContext, chain: bytes) -> None:
    try:
        fd = memory_files.hold(chain)
    except OSError as error:
        log.warning("we cannot show our certificate: %s", error.strerror)
        return
    try:
        context.load_cert_chain(memory_files.path_of(fd))
    finally:
        os.close(fd)


def explain(error: Exception) -> str:
    """What went wrong on a connection, in words, with what may be done about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        clock = " (is the clock right?)" if error.verify_code in (_NOT_YET_VALID, _EXPIRED) else ""
        return f"the server's certificate: {error.verify_message}{clock}"
    return str(error) or type(error).__name__


def is_our_certificate_refused(error: Exception) -> bool:
    """Did the server end the connection for the certificate that we showed?"""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)
