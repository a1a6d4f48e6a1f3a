"""The server's own certificate authority: its key, the server's certificate, and those of pilots
[security S2, S3; protocol 9].

The files are in `STATE/tls/` (0700). A key and its certificate share one file (0600), so that a crash leaves both or
neither. Time is an argument; nothing here reads a clock.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import ssl
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shoal.db.database_lock import sync_folder
from shoal.model.errors import Refused, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.server.private_files import write_private
from shoal.wire.join import SERVER_NAME

FOLDER = "tls"
CA_FILE = "ca-with-key.pem"  # the name warns against copying it
SERVER_FILE = "server-with-key.pem"
CA_LASTS = 10 * 365 * 86_400.0
SERVER_LASTS = 60 * 86_400.0
PILOT_LASTS = 30 * 86_400.0  # at most
SKEW = 3_600.0  # certificates begin this much earlier: not every host's clock is right
EARLIEST = 1_767_225_600.0  # 2026-01-01: an earlier time is wrong
_PEM = serialization.Encoding.PEM
_DER = serialization.Encoding.DER
_AGAIN = "or make a new CA with --new-ca: every pilot must then join again"


@dataclass(frozen=True)
class Ends:
    """When certificates end, in seconds since 1970."""

    leaf: float
    ca: float


@dataclass(frozen=True)
class _Pair:
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def begins(self) -> float:
        return self.certificate.not_valid_before_utc.timestamp()

    @property
    def ends(self) -> float:
        return self.certificate.not_valid_after_utc.timestamp()


class CertificateAuthority:
    """The CA with the server's certificate and the live TLS context. Made by `open`."""

    def __init__(self, folder: Path, names: frozenset[str], ca: _Pair, now: float) -> None:
        self._folder, self._names, self._ca = folder, names, ca
        self._context: ssl.SSLContext | None = None
        path = folder / SERVER_FILE
        found = _load(path, f"delete {path}: the server makes a new one") if os.path.lexists(path) else None
        self._leaf = self._make_leaf(now) if found is None or self._is_due(found, now) else found
        self._trouble = ""
        self._check_clock(now)

    @classmethod
    def open(cls, state_dir: Path, names: Iterable[str], now: float, new_ca: bool = False) -> CertificateAuthority:
        """The authority of a state directory, made at the first start; `names`: host names and IP addresses of the server."""
        folder = state_dir / FOLDER
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_mode & 0o077:
                raise _refused(f"{folder} is open to others", f"chmod 700 {folder}")
            if new_ca:
                _set_aside(folder)
            return cls(folder, _check_names(names), _open_ca(folder, now), now)
        except OSError as error:
            raise _refused(
                f"{error.filename or folder} cannot be used: {error.strerror}", "the server's own account must own it"
            ) from None

    @property
    def trouble(self) -> str:
        """A problem for the administrator: a clock that cannot be right, a CA that ended. Empty: none."""
        return self._trouble

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the CA's certificate: what a join string carries."""
        return hashlib.sha256(self._ca.certificate.public_bytes(_DER)).hexdigest()

    @property
    def ca_pem(self) -> str:
        """The CA's certificate, for everyone."""
        return self._ca.certificate.public_bytes(_PEM).decode()

    @property
    def ends(self) -> Ends:
        """When the certificates end."""
        return Ends(self._leaf.ends, self._ca.ends)

    def context(self) -> ssl.SSLContext:
        """The server's one TLS context; a client may show a certificate of this CA, and no other."""
        if self._context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=self.ca_pem)
            context.num_tickets = 0  # a resumed session would outlive the certificate it was begun with
            context.set_alpn_protocols(["http/1.1"])
            context.load_cert_chain(self._folder / SERVER_FILE)
            self._context = context
        return self._context

    def renew_if_due(self, now: float) -> bool:
        """Renew the server's certificate if it is due, for handshakes from now on; True if it was renewed."""
        self._check_clock(now)
        if not self._is_due(self._leaf, now):
            return False
        self._leaf = self._make_leaf(now)
        if self._context is not None:
            self._context.load_cert_chain(self._folder / SERVER_FILE)
        return True

    def pilot_certificate(self, name: str, lasts: float, now: float, peer: str = "") -> tuple[str, str]:
        """A pilot's certificate and key, as PEM; not stored. It is good as a client of the server and a server of peers, to
        which the URI `peer` names its mesh and its id."""
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        names += [x509.UniformResourceIdentifier(peer)] if peer else []
        pair = self._sign(name, names, _CLIENT_AND_SERVER, now, min(lasts, PILOT_LASTS))
        return pair.certificate.public_bytes(_PEM).decode(), _key_pem(pair.key).decode()

    def _check_clock(self, now: float) -> None:
        today = _day(now)
        if now < EARLIEST:
            self._trouble = f"clock looks wrong: it says {today}; TLS fails with every host whose clock is right"
        elif now < self._ca.begins:
            made = _day(self._ca.begins + SKEW)
            self._trouble = f"clock looks wrong: it says {today}, but this server's CA was made on {made}"
        elif now >= self._ca.ends:
            self._trouble = (
                f"the CA ended on {_day(self._ca.ends)} and the clock says {today}: set the clock right, {_AGAIN}"
            )
        else:
            self._trouble = ""

    def _is_due(self, leaf: _Pair, now: float) -> bool:
        if _names_of(leaf.certificate) != self._names or leaf.begins > now:
            return True
        try:
            leaf.certificate.verify_directly_issued_by(self._ca.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return True
        # Near the end of the CA a new one would not last longer.
        return leaf.ends - now < SERVER_LASTS / 3 and leaf.ends < min(_end(now, SERVER_LASTS), self._ca.ends)

    def _make_leaf(self, now: float) -> _Pair:
        ordered = [SERVER_NAME, *sorted(self._names - {SERVER_NAME})]
        leaf = self._sign(SERVER_NAME, [_general(name) for name in ordered], _SERVER, now, SERVER_LASTS)
        _save(self._folder / SERVER_FILE, leaf)
        return leaf

    def _sign(
        self, name: str, names: list[x509.GeneralName], usage: list[x509.ObjectIdentifier], now: float, lasts: float
    ) -> _Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._ca.certificate
        end = _end(now, lasts)
        if now < self._ca.ends:  # after that the server starts all the same, and reports it
            end = min(end, self._ca.ends)
        builder = _builder(name, issuer.subject, key, now, end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca.key.public_key())
        builder = builder.add_extension(authority, critical=False)
        return _Pair(key, builder.sign(self._ca.key, hashes.SHA256()))


_SERVER = [ExtendedKeyUsageOID.SERVER_AUTH]
_CLIENT_AND_SERVER = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]


# --- making certificates
def _open_ca(folder: Path, now: float) -> _Pair:
    path = folder / CA_FILE
    if not os.path.lexists(path):
        if os.path.lexists(folder / SERVER_FILE):
            # A new CA made silently would lock out every pilot that trusts the old one.
            raise _refused(f"{path} is gone", f"restore it from a backup, {_AGAIN}")
        pair = _make_ca(now)
        _save(path, pair)
        return pair
    pair = _load(path, f"restore it from a backup, {_AGAIN}")
    try:
        is_ca = pair.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        is_ca = False
    if not is_ca:
        raise _refused(f"{path} holds no CA certificate", f"restore it from a backup, {_AGAIN}")
    return pair


def _make_ca(now: float) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # Part of the key in the name distinguishes the old and the new CA in messages.
    name = f"Shoal CA {x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest.hex()[:8]}"
    builder = _builder(name, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, now, _end(now, CA_LASTS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return _Pair(key, builder.sign(key, hashes.SHA256()))


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: float, ends: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_date(now - SKEW))
        .not_valid_after(_date(ends))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _end(now: float, lasts: float) -> float:
    """The end of a certificate. One made by a clock in 1970 must not have ended when the clock is set."""
    return max(now, EARLIEST) + lasts


def _date(seconds: float) -> datetime.datetime:
    # X.509 knows no time before 1950, and a clock at zero less an hour is in 1969.
    return datetime.datetime.fromtimestamp(max(0.0, seconds), datetime.UTC)


def _day(seconds: float) -> str:
    return _date(seconds).strftime("%Y-%m-%d")


# --- names
def _check_names(names: Iterable[str]) -> frozenset[str]:
    found = {SERVER_NAME}
    for name in names:
        try:
            found.add(str(_general(name).value))
        except ValueError:
            raise _refused(f"{echo(name)!r} can be no name of a server", "give host names and IP addresses") from None
    return frozenset(found)


def _general(name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(name.partition("%")[0]))  # the zone is local to this machine
    except ValueError:
        if not name or not set(name.lower()) <= set("abcdefghijklmnopqrstuvwxyz0123456789-._"):
            raise
        return x509.DNSName(name.lower())


def _names_of(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    return frozenset(str(name.value) for name in names)


# --- files
def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _save(path: Path, pair: _Pair) -> None:
    write_private(path, _key_pem(pair.key) + pair.certificate.public_bytes(_PEM))


def _load(path: Path, fix: str) -> _Pair:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if os.fstat(handle).st_mode & 0o077:
            raise _refused(f"{path} is open to others", f"chmod 600 {path}; if someone may have read it: {fix}")
        data = file.read()
    try:
        key = serialization.load_pem_private_key(data, None)
        certificate = x509.load_pem_x509_certificate(data)
        belongs = _public(key.public_key()) == _public(certificate.public_key())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _refused(f"{path} is broken", fix) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _refused(f"{path} holds a key of another kind", fix)
    if not belongs:
        raise _refused(f"{path} holds a certificate that does not belong to its key", fix)
    return _Pair(key, certificate)


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(_DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _set_aside(folder: Path) -> None:
    """Move the CA and what it signed into `old-N`; the CA last, so that it stays in force after a crash between."""
    if not os.path.lexists(folder / CA_FILE) and not os.path.lexists(folder / SERVER_FILE):
        return
    number = 1
    while (folder / f"old-{number}").exists():
        number += 1
    old = folder / f"old-{number}"
    old.mkdir(mode=0o700)
    for name in (SERVER_FILE, CA_FILE):
        if os.path.lexists(folder / name):
            (folder / name).rename(old / name)
    sync_folder(old)
    sync_folder(folder)


def _refused(message: str, hint: str) -> Refused:
    return Refused(message, code="bad_tls", hint=hint)
