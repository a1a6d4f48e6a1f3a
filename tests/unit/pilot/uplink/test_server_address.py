"""Where the server is, and that nobody else is taken for it [protocol 9; security S2, S12; input E62]."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.model import credentials
from shoal.model.errors import BadInput
from shoal.model.file_names import PILOT_PIDS
from shoal.pilot.host import memfd
from shoal.pilot.uplink import tls
from shoal.pilot.uplink.left_addresses import LeftAddresses
from shoal.pilot.uplink.server_address import NoServerAddress, ServerAddress, check_url, read_join, read_join_file
from shoal.pilot.uplink.tls import WrongServer
from shoal.wire import codec
from shoal.wire.http.connection import send
from shoal.wire.join import SERVER_NAME, Join
from shoal.wire.messages import Neighbour, Registered, Ticket
from tests.unit.pilot.small_server import DAY, Authority, Request, Response, SmallServer, TlsHttp, padded_authority

TOKEN = credentials.make(credentials.ENROL, "e" * 43)
Start = Callable[..., SmallServer]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def start(tmp_path: Path, authority: Authority) -> Iterator[Start]:
    """Start servers that give their CA to everybody."""
    running: list[SmallServer] = []

    def begin(pem: bytes = authority.pem, **more: object) -> SmallServer:
        def answer(request: Request) -> Response:
            return Response(body=pem if request.path == "/v1/ca" else b"ok")

        server = SmallServer(answer, tmp_path, **{"authority": authority, **more})  # type: ignore[arg-type]
        running.append(server)
        return server

    yield begin
    for server in running:
        server.close()


def by_join(fingerprint: str, *servers: SmallServer) -> ServerAddress:
    return ServerAddress(join=Join(tuple(f"127.0.0.1:{server.port}" for server in servers), fingerprint, TOKEN))


def ask(where: ServerAddress, certified: bool = False) -> int:
    connected = where.connect(5.0, certified)
    try:
        return send(connected.http, "GET", connected.base + "/v1/x", connected.headers, b"", 1 << 16).status
    finally:
        connected.http.close()


# --- where
@pytest.mark.parametrize("url", ["unix:/run/x.sock", "https://127.0.0.1:8443", "https://box:8443"])
def test_a_pilot_speaks_to_this_machine_or_encrypted(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:9", "http://10.0.0.1:80",
        "http://127.0.0.1", "ftp://127.0.0.1:1", "http://127.0.0.1:x", "", "unix:x",
        "http://127.evil.example:80", "https://box", "https://:1",
    ],
)  # fmt: skip
def test_it_speaks_to_no_other(url: str) -> None:
    with pytest.raises(NoServerAddress, match="no address"):
        check_url(url)


def test_the_server_file_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    where = ServerAddress(server_file=str(file))
    with pytest.raises(NoServerAddress, match=r"server\.json"):
        where.read()
    file.write_text('{"url": "unix:/run/shoal-1", "token": "t", "pid": 3}')
    assert (where.read().urls, where.read().token) == (("unix:/run/shoal-1",), "t")
    file.write_text('{"url": "unix:/run/shoal-2", "token": "t", "enrol": "e"}')
    assert (where.read().urls, where.read().token) == (("unix:/run/shoal-2",), "e")
    for bad in ("", "[]", '{"url": 3}', '{"url": "unix:/run/shoal-1"}'):
        file.write_text(bad)
        with pytest.raises(NoServerAddress):
            where.read()


def test_the_token_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    where = ServerAddress(url="unix:/s", token_file=str(tmp_path / "token"))
    assert (where.read().urls, where.read().token) == (("unix:/s",), "secret")
    assert "secret" not in f"{where} {where!r} {where.read()!r}"


def test_a_join_string_is_read_once_from_an_open_file_which_is_closed() -> None:
    join = Join(("box:1", "box:2"), "a" * 64, TOKEN)
    fd = memfd.hold(str(join).encode() + b"\n")
    assert read_join(fd, "") == join
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
    with pytest.raises(NoServerAddress, match="cannot read the join string"):
        read_join(fd, "")


def test_a_join_string_may_be_in_a_file(tmp_path: Path) -> None:
    join = Join(("unix:/run/shoal-8000",), "", TOKEN)
    (tmp_path / "join").write_text(str(join))
    where = ServerAddress(join=read_join(None, str(tmp_path / "join")))
    assert (where.read().urls, where.read().token) == (("unix:/run/shoal-8000",), TOKEN)
    assert TOKEN not in f"{where} {where!r} {where.read()!r}"
    (tmp_path / "join").write_text(str(join)[:-1])
    with pytest.raises(BadInput) as caught:
        read_join(None, str(tmp_path / "join"))
    assert TOKEN[:20] not in str(caught.value)


# --- a server that moved
def moved(tmp_path: Path, join: Join, *left: str) -> ServerAddress:
    """A pilot at whose site these addresses were left."""
    for address in reversed(left):
        others = LeftAddresses(join, shared=str(tmp_path))
        others.start()
        others.leave(address)
        others.wait(30.0)
    found = LeftAddresses(join, shared=str(tmp_path))
    found.start()
    where = ServerAddress(join=join, left=found)
    with pytest.raises(OSError, match="refused"):
        where.connect(5.0)
    found.wait(30.0)
    return where


def test_a_server_that_moved_is_found_where_its_address_was_left(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    server, gone = start(), start()
    gone.close()
    join = Join((f"127.0.0.1:{gone.port}",), authority.fingerprint, TOKEN)
    where = moved(tmp_path, join, f"127.0.0.1:{server.port}")
    assert ask(where) == 200
    assert where.nearest.endswith(f":{server.port}")


def test_a_lie_among_them_costs_a_connection_and_nothing_else(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    """Whether or not we have met our server before [security S2]."""
    liar, server, gone = start(Authority().pem, authority=Authority()), start(), start()
    gone.close()
    join = Join((f"127.0.0.1:{gone.port}",), authority.fingerprint, TOKEN)
    where = moved(tmp_path, join, f"127.0.0.1:{liar.port}", f"127.0.0.1:{server.port}")
    assert ask(where) == 200
    where.forget(where.nearest)
    assert ask(where) == 200
    assert not any("Authorization" in str(request) for request in liar.requests)


# --- whom to believe
def test_the_ca_is_fetched_once_and_then_everything_is_verified_under_one_name(
    start: Start, authority: Authority
) -> None:
    server = start()
    where = by_join(authority.fingerprint, server)
    assert ask(where) == ask(where) == 200
    assert [request.path for request in server.requests] == ["/v1/ca", "/v1/x", "/v1/x"]
    assert {request.headers["host"] for request in server.requests} == {SERVER_NAME}
    assert {request.tls for request in server.requests} == {"TLSv1.3"}
    assert "authorization" not in server.requests[0].headers


def test_another_ca_than_the_join_string_names_is_not_spoken_to(start: Start) -> None:
    server = start()
    where = by_join("0" * 64, server)
    with pytest.raises(WrongServer, match="server certificate does not match the join string"):
        ask(where)
    assert [request.path for request in server.requests] == ["/v1/ca"]


@pytest.mark.parametrize(
    "text", [b"", b"<html>", b"\xff", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_does_not_match(start: Start, authority: Authority, text: bytes) -> None:
    with pytest.raises(WrongServer):
        ask(by_join(authority.fingerprint, start(pem=text)))


def test_a_ca_smuggled_in_behind_the_right_one_is_not_believed(start: Start) -> None:
    """Python takes the padding of the first certificate for the end, so the digest is that of the right one."""
    right, evil = padded_authority(), Authority()
    text = right.pem + evil.pem
    assert hashlib.sha256(ssl.PEM_cert_to_DER_cert(text.decode())).hexdigest() == right.fingerprint
    server = start(pem=text, authority=evil)
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(by_join(right.fingerprint, server))
    assert [request.path for request in server.requests] == ["/v1/ca"]


def test_who_shows_the_right_ca_but_has_no_certificate_of_it_is_not_spoken_to(
    start: Start, authority: Authority
) -> None:
    server = start(authority=Authority())
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(by_join(authority.fingerprint, server))


def test_a_certificate_for_another_name_is_not_enough(start: Start, authority: Authority) -> None:
    server = start(chain=authority.make("p0001"))
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(by_join(authority.fingerprint, server))


@pytest.mark.parametrize(("begins", "ends"), [(-2 * DAY, -DAY), (DAY, 2 * DAY)])
def test_a_certificate_out_of_its_time_makes_us_doubt_the_clock(
    start: Start, authority: Authority, begins: object, ends: object
) -> None:
    server = start(chain=authority.make(begins=begins, ends=ends))  # type: ignore[arg-type]
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        ask(by_join(authority.fingerprint, server))
    assert "is the clock right?" in tls.explain(caught.value)


def test_an_older_tls_is_refused(start: Start, authority: Authority) -> None:
    server = start()
    assert isinstance(server.http, TlsHttp)
    context = server.http.context
    assert context is not None
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        ask(by_join(authority.fingerprint, server))


def test_https_without_a_fingerprint_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    where = ServerAddress(url="https://box:1", token_file=str(tmp_path / "token"))
    with pytest.raises(NoServerAddress, match="join string"):
        where.connect(1.0)


# --- who we are
def open_files() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return found


def test_our_certificate_is_shown_once_we_have_it_and_only_where_wanted(start: Start, authority: Authority) -> None:
    server = start()
    where = by_join(authority.fingerprint, server)
    ask(where, certified=True)
    where.trust.identify(*authority.make("p0001"))
    ask(where, certified=True)
    ask(where, certified=False)
    assert [request.shown for request in server.requests] == ["", "", "p0001", ""]
    assert not any("memfd:shoal" in name for name in open_files()), "the key stays in no open file"


def test_a_server_that_refuses_our_certificate_is_understood(start: Start, authority: Authority) -> None:
    server = start()
    where = by_join(authority.fingerprint, server)
    where.trust.identify(*Authority().make("p0001"))
    connected = where.connect(5.0, certified=True)
    with pytest.raises(ssl.SSLError) as caught:
        connected.http.sock.recv(1)
    connected.http.close()
    assert tls.is_our_certificate_refused(caught.value)
    assert not tls.is_our_certificate_refused(ConnectionResetError())


# --- several addresses
def test_the_last_good_address_comes_first_then_the_others(start: Start, authority: Authority) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # does not listen
        good, other = start(), start()
        ports = (nobody.getsockname()[1], good.port, other.port)
        where = ServerAddress(join=Join(tuple(f"127.0.0.1:{port}" for port in ports), authority.fingerprint, TOKEN))
        assert [ask(where), ask(where)] == [200, 200]
        assert (len(good.requests), len(other.requests)) == (3, 0)
        where.forget(good.url)
        good.close()
        assert [ask(where), ask(where)] == [200, 200]
        assert len(other.requests) == 2, "the CA is known already"


def test_when_no_address_answers_the_reason_is_told(authority: Authority) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        where = ServerAddress(join=Join((f"127.0.0.1:{nobody.getsockname()[1]}",), authority.fingerprint, TOKEN))
        with pytest.raises(ConnectionRefusedError):
            ask(where)


def test_nothing_of_all_this_is_logged_with_a_secret(
    start: Start, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    where = by_join(authority.fingerprint, start())
    where.trust.identify(*authority.make("p0001"))
    ask(where, certified=True)
    assert TOKEN not in caplog.text and "PRIVATE" not in caplog.text


def test_a_server_that_starts_beside_us_is_awaited_by_a_byte_in_a_file(tmp_path: Path) -> None:
    """Not by asking again and again: each second try waits longer."""
    read, write = os.pipe()
    where = ServerAddress(str(tmp_path / "server.json"), awaited=read)
    try:
        for _ in range(2):  # not ready within the time of one try
            with pytest.raises(NoServerAddress):
                where.connect(0.05)
            assert where.awaited == read

        def become_ready() -> None:
            (tmp_path / "server.json").write_text('{"url": "unix:/nowhere/sock", "token": "t"}')
            os.write(write, b".")
            os.close(write)

        ready = threading.Timer(0.05, become_ready)
        ready.start()
        with pytest.raises(FileNotFoundError):  # of the socket: the file is read after the end, and not before
            where.connect(10.0)
        ready.join()
        assert where.awaited is None
    finally:
        os.close(read)


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_pilot_whose_server_died_before_it_took_note_of_it_ends(tmp_path: Path, is_noted: bool) -> None:
    """Otherwise the next server starts another one, and both stay."""
    pids = [1, os.getpid()] if is_noted else [1, os.getpid() + 1]
    (tmp_path / PILOT_PIDS).write_text("".join(f"{pid}\n" for pid in pids))
    (tmp_path / "server.json").write_text('{"url": "unix:/nowhere/sock", "token": "t"}')
    read, write = os.pipe()
    os.close(write)
    ended: list[str] = []
    where = ServerAddress(str(tmp_path / "server.json"), awaited=read, abandoned=lambda: ended.append("now"))
    try:
        with pytest.raises(FileNotFoundError if is_noted else NoServerAddress):
            where.connect(10.0)
    finally:
        os.close(read)
    assert ended == ([] if is_noted else ["now"])


def test_a_ca_certificate_of_a_ticket_counts_only_with_the_fingerprint_of_the_join_string(authority: Authority) -> None:
    """[ADR 0065; security S2]."""
    trust = tls.Trust()
    for pem in (Authority().pem.decode(), "", "no certificate"):
        with pytest.raises(WrongServer):
            trust.vouch(pem, authority.fingerprint)
    trust.vouch(authority.pem.decode(), authority.fingerprint)
    trust.connection("127.0.0.1", 1, authority.fingerprint, 1.0, False)  # it has nothing to fetch


def test_a_ticket_may_follow_the_join_string(tmp_path: Path) -> None:
    join, file = Join(("box:1",), "a" * 64, TOKEN), tmp_path / "join"
    registered = Registered(
        "", "", 1, 10.0, 60.0, 900.0, 720.0, 10.0, 600.0, 86_400.0, neighbours=[Neighbour("a", "b:1")]
    )
    ticket = Ticket(registered, "PEM")
    file.write_text(f"{join}\n{codec.encode(ticket).decode()}\n")
    assert read_join_file(None, str(file)) == (join, ticket)
    for odd in ("", "\n", "{}", "no ticket", '{"registered": 1, "authority": ""}'):
        file.write_text(f"{join}\n{odd}")
        assert read_join_file(None, str(file)) == (join, None)
