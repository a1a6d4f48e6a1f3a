"""Verification of a server over TLS [protocol 9; security S2]: by its own CA under one fixed name, or by the system's
certificates. There is no way to skip it.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import ssl

from shoal.model.errors import BadInput, Refused, ShoalError, Unreachable, echo
from shoal.wire.join import SERVER_NAME

MAX_CA = 64 * 1024
CLOCK_HINT = "is this machine's clock right?"
_NOT_YET_VALID, _EXPIRED = 9, 10  # of OpenSSL's X509_V_ERR_*
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_PEM_HEAD = "-----BEGIN CERTIFICATE-----"


class TlsConnection(http.client.HTTPConnection):
    """HTTP over TLS; the name to be verified may differ from the address."""

    def __init__(self, host: str, port: int, timeout: float, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=timeout)
        self._context, self._name = context, name

    def connect(self) -> None:
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name)


def is_fingerprint(ca: str) -> bool:
    """True for the SHA-256 of a certificate, rather than the certificate."""
    return _FINGERPRINT.fullmatch(ca) is not None


def fingerprint_of(pem: str) -> str:
    """The SHA-256 of the first certificate in a PEM text; empty if it holds none."""
    try:
        # Only the first one: what follows it is not compared with anything.
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(_first(pem))).hexdigest()
    except ValueError:
        return ""


def _first(pem: str) -> str:
    start, end = pem.find(_PEM_HEAD), pem.find("-----END CERTIFICATE-----")
    return pem[start : end + 25] if 0 <= start < end else ""


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
    """Fetch the server's CA certificate without verification; accepted only if it has this fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # no secret is sent, and the fingerprint verifies the response
    connection = TlsConnection(host, port, timeout, context, SERVER_NAME)
    try:
        connection.request("GET", "/v1/ca", headers={"Host": SERVER_NAME})
        response = connection.getresponse()
        data = response.read(MAX_CA)
    finally:
        connection.close()
    pem = _first(data.decode("ascii", "replace"))
    if response.status != 200 or not pem:
        raise Refused(f"{url} has no CA certificate to show", code="not_shoal", hint="is another program on that port?")
    if fingerprint_of(pem) != fingerprint:
        raise wrong_certificate(url, "its CA has another fingerprint than the one you were given")
    return pem + "\n"


def wrong_certificate(url: str, why: str) -> Refused:
    """The error for another server at that address, or for a server with a new CA."""
    return Refused(
        f"server certificate does not match: {url}: {echo(why)}", code="wrong_certificate",
        hint="if its administrator made a new CA, ask for a new string and `shoal login -` again",
    )  # fmt: skip


def explain(error: ssl.SSLError, url: str) -> ShoalError:
    """The error for a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
            when = "is not valid yet" if error.verify_code == _NOT_YET_VALID else "has expired"
            return Unreachable(f"the certificate of {url} {when}", code="certificate_time", hint=CLOCK_HINT)
        return wrong_certificate(url, error.verify_message)
    return Unreachable(
        f"no TLS 1.3 connection to {url}: {echo(error.reason or str(error))}", code="no_tls",
        hint="is it the server's https port?",
    )  # fmt: skip
