"""TLS on the pilot's side: the server's pinned CA, and the certificate that the server made for this pilot [protocol 9].

There is no way to skip the verification.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Iterable

from shoal.pilot.host import memfd
from shoal.wire.http.connection import (
    CERTIFICATE_EXPIRED,
    CERTIFICATE_NOT_YET_VALID,
    TlsConnection,
    fetch_ca_unverified,
    fingerprint_of,
    make_context,
)

log = logging.getLogger(__name__)


class WrongServer(Exception):
    """Whoever answers is not the server that the join string names."""


class Trust:
    """The CA of one server, fetched once, and our own certificate; shared by all threads that connect."""

    def __init__(self) -> None:
        self.generation = 0  # counts our certificates; 0: we have none
        self._lock = threading.Lock()
        self._authority: dict[str, bytes] = {}  # fingerprint -> DER
        self._chain = b""
        self._contexts: dict[tuple[str, int], ssl.SSLContext] = {}

    def identify(self, certificate: str, key: str) -> None:
        """From now on connections may present this certificate."""
        with self._lock:
            self._chain = f"{certificate}\n{key}".encode()
            self.generation += 1
            self._contexts.clear()

    def vouch(self, authority: str, fingerprint: str) -> None:
        """The CA's certificate (PEM) came by another way than from the server; it has to have the fingerprint all the same."""
        try:
            certificate = ssl.PEM_cert_to_DER_cert(authority.strip())
        except ValueError:
            certificate = b""
        if fingerprint_of(certificate) != fingerprint:
            raise WrongServer("the CA certificate of the ticket does not match the join string")
        with self._lock:
            self._authority.setdefault(fingerprint, certificate)

    def peer_contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """For connections from and to other pilots of this server: both sides show a certificate of its CA."""
        with self._lock:
            return peer_contexts(self._chain, self._authority.values())

    def connection(
        self, host: str, port: int, fingerprint: str, timeout: float, certified: bool, relay_key: str = ""
    ) -> TlsConnection:
        """A connection, not yet opened, to the server that the fingerprint names; with a key, through the relay there."""
        with self._lock:
            authority = self._authority.get(fingerprint)
            if authority is None:
                authority = self._authority[fingerprint] = _fetch_ca(host, port, fingerprint, timeout, relay_key)
            generation = self.generation if certified else 0
            context = self._contexts.get((fingerprint, generation))
            if context is None:
                context = make_context()
                context.load_verify_locations(cadata=authority)
                if generation:
                    _load_certificate(context, self._chain)
                self._contexts[fingerprint, generation] = context
        return TlsConnection(host, port, timeout, context, relay_key=relay_key)


def peer_contexts(chain: bytes, authorities: Iterable[bytes]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of both sides that show this certificate, and accept those of these authorities."""
    found = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    for context in found:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # a peer is named by the URI in its certificate
        context.verify_mode = ssl.CERT_REQUIRED
        for authority in authorities:
            context.load_verify_locations(cadata=authority)
        _load_certificate(context, chain)
    found[0].num_tickets = 0  # a resumed session would outlive the certificate it was begun with
    return found


def _fetch_ca(host: str, port: int, fingerprint: str, timeout: float, relay_key: str) -> bytes:
    """The server's CA certificate (DER), which has the fingerprint."""
    status, certificate = fetch_ca_unverified(host, port, timeout, relay_key)
    if status != 200:
        raise OSError(f"no CA certificate from {host}:{port}: status {status}")
    if fingerprint_of(certificate) != fingerprint:
        raise WrongServer("server certificate does not match the join string")
    return certificate


def _load_certificate(context: ssl.SSLContext, chain: bytes) -> None:
    try:
        fd = memfd.hold(chain)
    except OSError as error:
        log.warning("we cannot show our certificate: %s", error.strerror)
        return
    try:
        context.load_cert_chain(memfd.path_of(fd))
    finally:
        os.close(fd)


def explain(error: Exception) -> str:
    """What went wrong on a connection, with what may be done about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        is_time = error.verify_code in (CERTIFICATE_NOT_YET_VALID, CERTIFICATE_EXPIRED)
        return f"the server's certificate: {error.verify_message}{' (is the clock right?)' if is_time else ''}"
    return str(error) or type(error).__name__


def is_our_certificate_refused(error: Exception) -> bool:
    """True if the server closed the connection because of the certificate that we presented."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)
