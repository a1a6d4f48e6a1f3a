"""Verification of a server over TLS [protocol 9; security S2]: by its own CA under one fixed name, or by the system's
certificates. There is no way to skip it.
"""

from __future__ import annotations

import re
import ssl

from shoal.model.errors import BadInput, Refused, ShoalError, Unreachable, echo
from shoal.wire.http import connection
from shoal.wire.http.connection import CERTIFICATE_EXPIRED, CERTIFICATE_NOT_YET_VALID, first_certificate
from shoal.wire.join import SERVER_NAME

CLOCK_HINT = "is this machine's clock right?"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def is_fingerprint(ca: str) -> bool:
    """True for the SHA-256 of a certificate, rather than the certificate."""
    return _FINGERPRINT.fullmatch(ca) is not None


def fingerprint_of(pem: str) -> str:
    """The SHA-256 of the first certificate in a PEM text; empty if it holds none."""
    certificate = first_certificate(pem)
    return connection.fingerprint_of(certificate) if certificate else ""


def make_context(ca: str) -> ssl.SSLContext:
    """The TLS context that verifies a server: by its own CA given as PEM, or by the system's certificates."""
    try:
        context = ssl.create_default_context(cadata=ca or None)
    except (ssl.SSLError, ValueError) as error:
        raise BadInput(
            f"the CA certificate cannot be read: {echo(str(error))}", code="bad_ca", field="ca",
            hint="name a PEM file, or sha256: and its fingerprint",
        ) from None  # fmt: skip
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def name_of(ca: str, host: str) -> str:
    """The name a server's certificate must be for."""
    return SERVER_NAME if ca else host


def fetch_ca(url: str, host: str, port: int, fingerprint: str, timeout: float) -> str:
    """The server's CA certificate, taken from whoever answers and believed only if it has this fingerprint."""
    status, certificate = connection.fetch_ca_unverified(host, port, timeout)
    if status != 200 or not certificate:
        raise Refused(f"{url} has no CA certificate to show", code="not_shoal", hint="is another program on that port?")
    if connection.fingerprint_of(certificate) != fingerprint:
        raise wrong_certificate(url, "its CA has another fingerprint than the one you were given")
    return ssl.DER_cert_to_PEM_cert(certificate)


def wrong_certificate(url: str, why: str) -> Refused:
    """The error for another server at that address, or for a server with a new CA."""
    return Refused(
        f"server certificate does not match: {url}: {echo(why)}", code="wrong_certificate",
        hint="if its administrator made a new CA, ask for a new string and `shoal login -` again",
    )  # fmt: skip


def explain(error: ssl.SSLError, url: str) -> ShoalError:
    """The error for a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (CERTIFICATE_NOT_YET_VALID, CERTIFICATE_EXPIRED):
            when = "is not valid yet" if error.verify_code == CERTIFICATE_NOT_YET_VALID else "has expired"
            return Unreachable(f"the certificate of {url} {when}", code="certificate_time", hint=CLOCK_HINT)
        return wrong_certificate(url, error.verify_message)
    return Unreachable(
        f"no TLS 1.3 connection to {url}: {echo(error.reason or str(error))}", code="no_tls",
        hint="is it the server's https port?",
    )  # fmt: skip
