"""The server's certificate authority: what it makes, renews, keeps and refuses; handshakes run in memory."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shoal.model.errors import Refused
from shoal.server.auth.certificate_authority import (
    CA_FILE,
    CA_LASTS,
    EARLIEST,
    FOLDER,
    PILOT_LASTS,
    SERVER_FILE,
    SERVER_LASTS,
    SKEW,
    CertificateAuthority,
)
from shoal.server.http.connections import peer_name

NOW = 1_795_000_000.0  # 2026-11-18
DAY = 86_400.0


def at(seconds: float) -> float:
    """Certificates count whole seconds."""
    return float(int(seconds))


def leaf_of(state: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((state / FOLDER / SERVER_FILE).read_bytes())


def client_context(authority: CertificateAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.ca_pem)


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "shoal-server") -> tuple[ssl.SSLObject, bytes]:
    """Both sides of a handshake in memory: the server's end, and the certificate the client saw."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    for side in (near, far) * 4:
        if side not in done:
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    assert done == {near, far}
    return far, near.getpeercert(binary_form=True) or b""


class Transport(asyncio.BaseTransport):
    """A connection whose TLS end is given."""

    def __init__(self, end: ssl.SSLObject) -> None:
        super().__init__({"peercert": end.getpeercert()})


def with_pilot(tmp_path: Path, authority: CertificateAuthority, cert: str, key: str) -> ssl.SSLContext:
    """A client that trusts the authority and shows this certificate."""
    path = tmp_path / "pilot.pem"
    path.write_text(key + cert)
    context = client_context(authority)
    context.load_cert_chain(path)
    return context


# --- what is made
def test_first_start_makes_a_private_ca_of_ten_years_that_signs_nothing_but_leaves(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, ["10.1.2.3"], NOW)
    ca = x509.load_pem_x509_certificate(authority.ca_pem.encode())
    limits = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.critical, limits.value.ca, limits.value.path_length) == (True, True, 0)
    assert ca.not_valid_before_utc.timestamp() == at(NOW - SKEW)
    assert authority.ends.ca == at(NOW + CA_LASTS)
    assert authority.fingerprint == hashlib.sha256(ssl.PEM_cert_to_DER_cert(authority.ca_pem)).hexdigest()
    assert "PRIVATE" not in authority.ca_pem
    assert authority.trouble == ""


def test_files_are_private_from_the_beginning(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    folder = tmp_path / FOLDER
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {CA_FILE: 0o600, SERVER_FILE: 0o600}


def test_server_certificate_carries_the_fixed_name_and_the_given_ones(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, ["Head.example", "10.1.2.3", "fe80::1%eth0", "10.1.2.3"], NOW)
    leaf = leaf_of(tmp_path)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["shoal-server", "head.example"]
    assert {str(ip) for ip in names.get_values_for_type(x509.IPAddress)} == {"10.1.2.3", "fe80::1"}
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert authority.ends.leaf == at(NOW + SERVER_LASTS)


@pytest.mark.parametrize("name", ["", "a b", "höst", "a/b", "-\n"])
def test_name_that_no_server_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="can be no name of a server"):
        CertificateAuthority.open(tmp_path, [name], NOW)


def test_second_start_keeps_ca_and_certificate(tmp_path: Path) -> None:
    first = CertificateAuthority.open(tmp_path, ["a.example"], NOW)
    before = (tmp_path / FOLDER / SERVER_FILE).read_bytes()
    second = CertificateAuthority.open(tmp_path, ["a.example"], NOW + DAY)
    assert second.fingerprint == first.fingerprint
    assert (tmp_path / FOLDER / SERVER_FILE).read_bytes() == before


def test_part_left_by_a_crash_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir(mode=0o700)
    (folder / f"{CA_FILE}.part").write_text("-----BEGIN")
    (folder / f"{SERVER_FILE}.part").write_text("")
    CertificateAuthority.open(tmp_path, [], NOW)
    assert sorted(path.name for path in folder.iterdir()) == [CA_FILE, SERVER_FILE]


# --- renewal
def test_certificate_is_renewed_when_a_third_is_left(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, [], NOW)
    assert not authority.renew_if_due(NOW + SERVER_LASTS * 2 / 3 - 10)
    assert authority.renew_if_due(NOW + SERVER_LASTS * 2 / 3 + 10)
    assert authority.ends.leaf == at(NOW + SERVER_LASTS * 5 / 3 + 10)
    assert leaf_of(tmp_path).not_valid_after_utc.timestamp() == authority.ends.leaf
    assert not authority.renew_if_due(NOW + SERVER_LASTS * 2 / 3 + 20)


def test_certificate_is_renewed_at_start_when_the_names_changed(tmp_path: Path) -> None:
    first = CertificateAuthority.open(tmp_path, ["10.0.0.1"], NOW)
    before = leaf_of(tmp_path).serial_number
    second = CertificateAuthority.open(tmp_path, ["10.0.0.2"], NOW + 10)
    assert leaf_of(tmp_path).serial_number != before
    assert second.fingerprint == first.fingerprint


def test_certificate_never_outlives_its_ca_and_is_not_renewed_for_nothing(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, [], NOW)
    late = authority.ends.ca - 5 * DAY
    assert authority.renew_if_due(late)
    assert authority.ends.leaf == authority.ends.ca
    assert not authority.renew_if_due(late + 10)


def test_live_context_gives_the_new_certificate_to_new_handshakes(tmp_path: Path) -> None:
    now = time.time()
    authority = CertificateAuthority.open(tmp_path, [], now - SERVER_LASTS * 0.9)
    context, client = authority.context(), client_context(authority)
    old = shake(context, client)[1]
    assert authority.renew_if_due(now)
    assert authority.context() is context
    new = shake(context, client)[1]
    assert old != new == leaf_of(tmp_path).public_bytes(Encoding.DER)


# --- handshakes
def test_client_that_knows_only_the_fingerprint_gets_a_strict_tls_1_3_connection(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, ["127.0.0.1"], time.time())
    client = client_context(authority)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("shoal-server", "127.0.0.1"):
        end, _ = shake(authority.context(), client, name)
        assert end.version() == "TLSv1.3"
        assert peer_name(Transport(end)) == ""
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(authority.context(), client, "other.example")


def test_tls_1_2_is_refused(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, [], time.time())
    client = client_context(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake(authority.context(), client)


def test_pilot_certificate_names_its_pilot_to_the_server(tmp_path: Path) -> None:
    now = time.time()
    authority = CertificateAuthority.open(tmp_path, [], now)
    cert, key = authority.pilot_certificate("p3f9c", 90 * DAY, now)
    parsed = x509.load_pem_x509_certificate(cert.encode())
    assert parsed.not_valid_after_utc.timestamp() == at(now + PILOT_LASTS)
    assert parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "p3f9c"
    usage = parsed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    end, _ = shake(authority.context(), with_pilot(tmp_path, authority, cert, key))
    assert peer_name(Transport(end)) == "p3f9c"


def test_pilot_certificate_names_mesh_and_id_to_other_pilots(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, [], time.time())
    uri = f"shoal://mesh/uni/%40phys/{'0' * 64}"
    cert, key = authority.pilot_certificate("p3f9c", DAY, time.time(), uri)
    end, _ = shake(authority.context(), with_pilot(tmp_path, authority, cert, key))
    assert peer_name(Transport(end)) == "p3f9c"
    shown = end.getpeercert()
    assert shown is not None
    assert ("URI", uri) in shown["subjectAltName"]


def test_pilots_trust_each_other_by_their_certificates(tmp_path: Path) -> None:
    now = time.time()
    authority = CertificateAuthority.open(tmp_path, [], now)
    one = with_pilot(tmp_path, authority, *authority.pilot_certificate("p1", DAY, now))
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.verify_mode = ssl.CERT_REQUIRED
    other.load_verify_locations(cadata=authority.ca_pem)
    cert, key = authority.pilot_certificate("p2", DAY, now)
    (tmp_path / "p2.pem").write_text(key + cert)
    other.load_cert_chain(tmp_path / "p2.pem")
    assert peer_name(Transport(shake(other, one, "p2")[0])) == "p1"


def test_certificate_of_another_ca_is_refused(tmp_path: Path) -> None:
    now = time.time()
    (tmp_path / "other").mkdir()
    authority, stranger = (
        CertificateAuthority.open(tmp_path, [], now),
        CertificateAuthority.open(tmp_path / "other", [], now),
    )
    client = with_pilot(tmp_path, authority, *stranger.pilot_certificate("p1", DAY, now))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(authority.context(), client)


def test_server_certificate_is_no_pilots_certificate(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, [], time.time())
    client = client_context(authority)
    client.load_cert_chain(tmp_path / FOLDER / SERVER_FILE)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake(authority.context(), client)


def test_plain_connection_has_no_peer_name() -> None:
    assert peer_name(asyncio.BaseTransport()) == ""
    assert peer_name(None) == ""


# --- a new CA
def test_new_ca_moves_the_old_one_aside(tmp_path: Path) -> None:
    first = CertificateAuthority.open(tmp_path, [], NOW)
    second = CertificateAuthority.open(tmp_path, [], NOW + 10, new_ca=True)
    third = CertificateAuthority.open(tmp_path, [], NOW + 20, new_ca=True)
    assert len({first.fingerprint, second.fingerprint, third.fingerprint}) == 3
    old = [tmp_path / FOLDER / f"old-{number}" for number in (1, 2)]
    kept = [x509.load_pem_x509_certificate((path / CA_FILE).read_bytes()) for path in old]
    made = [x509.load_pem_x509_certificate(a.ca_pem.encode()) for a in (first, second)]
    assert kept == made
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in old)


def test_new_ca_at_the_very_first_start_is_just_a_start(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW, new_ca=True)
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == [CA_FILE, SERVER_FILE]


def test_new_ca_repairs_a_broken_one(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    (tmp_path / FOLDER / CA_FILE).write_text("rubbish")
    authority = CertificateAuthority.open(tmp_path, [], NOW, new_ca=True)
    assert authority.ends.ca == at(NOW + CA_LASTS)


# --- refusals
@pytest.mark.parametrize("name", [CA_FILE, SERVER_FILE])
@pytest.mark.parametrize("keep", [0, 60, 300, 700])
def test_half_written_file_is_refused_with_the_fix(tmp_path: Path, name: str, keep: int) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    path = tmp_path / FOLDER / name
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(Refused, match=f"{name} is broken") as raised:
        CertificateAuthority.open(tmp_path, [], NOW)
    assert "\n" not in raised.value.line
    assert ("--new-ca" if name == CA_FILE else f"delete {path}") in raised.value.hint


@pytest.mark.parametrize("name", [CA_FILE, SERVER_FILE])
def test_certificate_of_another_key_is_refused(tmp_path: Path, name: str) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    path = tmp_path / FOLDER / name
    mine = path.read_bytes()
    (tmp_path / "other").mkdir()
    CertificateAuthority.open(tmp_path / "other", [], NOW)
    theirs = (tmp_path / "other" / FOLDER / name).read_bytes()
    mark = b"-----BEGIN CERTIFICATE"
    path.write_bytes(mine[: mine.index(mark)] + theirs[theirs.index(mark) :])
    with pytest.raises(Refused, match="does not belong to its key"):
        CertificateAuthority.open(tmp_path, [], NOW)


@pytest.mark.parametrize("name", [CA_FILE, SERVER_FILE])
def test_key_that_others_can_read_is_refused(tmp_path: Path, name: str) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    (tmp_path / FOLDER / name).chmod(0o640)
    with pytest.raises(Refused, match="open to others") as raised:
        CertificateAuthority.open(tmp_path, [], NOW)
    assert "chmod 600" in raised.value.hint


def test_directory_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    (tmp_path / FOLDER).chmod(0o750)
    with pytest.raises(Refused, match="open to others"):
        CertificateAuthority.open(tmp_path, [], NOW)


def test_lost_ca_is_not_replaced_silently(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    (tmp_path / FOLDER / CA_FILE).unlink()
    with pytest.raises(Refused, match="is gone") as raised:
        CertificateAuthority.open(tmp_path, [], NOW)
    assert "--new-ca" in raised.value.hint


def test_ca_file_that_holds_no_ca_is_refused(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    (tmp_path / FOLDER / CA_FILE).write_bytes((tmp_path / FOLDER / SERVER_FILE).read_bytes())
    with pytest.raises(Refused, match="no CA certificate"):
        CertificateAuthority.open(tmp_path, [], NOW)


def test_link_in_place_of_a_key_is_refused(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    path = tmp_path / FOLDER / CA_FILE
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="cannot be used"):
        CertificateAuthority.open(tmp_path, [], NOW)


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("")
    with pytest.raises(Refused, match="cannot be used"):
        CertificateAuthority.open(tmp_path, [], NOW)


# --- clocks
def test_clock_in_1970_starts_and_says_that_it_looks_wrong(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, [], 0.0)
    assert authority.trouble.startswith("clock looks wrong: it says 1970-01-01")
    assert authority.ends.ca == EARLIEST + CA_LASTS
    fingerprint = authority.fingerprint
    assert authority.renew_if_due(NOW)  # the clock was set
    assert authority.trouble == ""
    assert authority.ends.leaf == at(NOW + SERVER_LASTS)
    assert CertificateAuthority.open(tmp_path, [], NOW).fingerprint == fingerprint


def test_clock_before_the_beginning_of_the_ca_looks_wrong(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    authority = CertificateAuthority.open(tmp_path, [], NOW - 30 * DAY)
    assert authority.trouble.startswith(
        "clock looks wrong: it says 2026-10-19, but this server's CA was made on 2026-11"
    )


def test_small_step_back_of_the_clock_is_no_trouble(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    assert CertificateAuthority.open(tmp_path, [], NOW - SKEW / 2).trouble == ""


def test_ended_ca_is_told(tmp_path: Path) -> None:
    CertificateAuthority.open(tmp_path, [], NOW)
    authority = CertificateAuthority.open(tmp_path, [], NOW + CA_LASTS + DAY)
    assert authority.trouble.startswith("the CA ended on 2036-")
    assert "--new-ca" in authority.trouble


def test_certificate_made_under_a_clock_of_the_future_is_made_again(tmp_path: Path) -> None:
    authority = CertificateAuthority.open(tmp_path, [], NOW)
    assert authority.renew_if_due(NOW + 365 * DAY)
    assert authority.renew_if_due(NOW)
    assert authority.ends.leaf == at(NOW + SERVER_LASTS)
