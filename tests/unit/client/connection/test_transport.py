"""Connections: which addresses, what is verified over TLS, what is repeated and when
[protocol 9; security S2; input E62]."""

from __future__ import annotations

import datetime
import socket
import threading
from typing import Any

import pytest

from shoal.client.client import Client
from shoal.client.connection.tls import make_context
from shoal.client.connection.transport import Transport, check_url, wait_of
from shoal.model.errors import BadInput, Refused, Unreachable
from shoal.wire.http.connection import TlsConnection
from tests.unit.client.fake_server import Authority, FakeServer

URL = "unix:/run/shoal-1"
DAY = datetime.timedelta(days=1)
BUSY = (429, b"", {"Retry-After": "7"})


@pytest.mark.parametrize(
    "url",
    ["unix:/run/x.sock", "unix:/with space/x", "https://box:8443", "https://127.0.0.1:8443",
     "https://box.example.org", "https://[fe80::1]:8443/"],
)  # fmt: skip
def test_addresses_that_keep_the_token_safe_are_taken(url: str) -> None:
    assert check_url(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    ["", "box", "127.0.0.1:80", "http://", "http://127.0.0.1", "http://127.0.0.1:99999", "http://127.0.0.1:x", "ftp://h:1",
     "http://127.0.0.1:80/path", "http://127.0.0.1:80", "http://localhost:8443/", "http://[::1]:9",
     "unix:relative", "http://box:8443", "http://[::1", "http://127.evil.org:80", "https://",
     "https://me:secret@box:1", "https://box:x", "https://box/path"],
)  # fmt: skip
def test_other_addresses_are_refused_with_the_form_to_write(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_url(url)
    assert "https://" in caught.value.line


def test_a_token_with_a_newline_is_refused_before_it_is_sent() -> None:
    with pytest.raises(BadInput, match="token"):
        Transport(URL, "x\r\nEvil: 1")


def test_a_server_is_verified_by_its_own_ca_under_the_fixed_name(authority: Authority) -> None:
    with FakeServer(authority.context(), authority.pem) as server:
        server.answers["/v1/whoami"] = {"owner": "anna"}
        with Client(server.url, "secret", authority.pem) as client:
            assert client.whoami() == {"owner": "anna"}
            assert client.whoami() == {"owner": "anna"}
    assert [request.headers["host"] for request in server.requests] == ["shoal-server"] * 2


def test_a_fingerprint_becomes_the_certificate_and_no_token_is_sent_before(authority: Authority) -> None:
    with (
        FakeServer(authority.context(), authority.pem) as server,
        Client(server.url, "secret", authority.fingerprint) as client,
    ):
        client.whoami()
        assert client.ca == authority.pem
    first, second = server.requests
    assert (first.target, "authorization" in first.headers) == ("/v1/ca", False)
    assert (second.target, second.headers["authorization"]) == ("/v1/whoami", "Bearer secret")


def test_another_ca_than_the_fingerprint_says_is_refused(authority: Authority, stranger: Authority) -> None:
    """Row 62."""
    with (
        FakeServer(stranger.context(), stranger.pem) as server,
        pytest.raises(Refused, match="server certificate does not match") as caught,
    ):
        Client(server.url, "secret", authority.fingerprint).whoami()
    assert caught.value.code == "wrong_certificate"
    assert [request.target for request in server.requests] == ["/v1/ca"]


def test_a_man_in_the_middle_who_shows_the_right_ca_is_refused(authority: Authority, stranger: Authority) -> None:
    for ca in (authority.fingerprint, authority.pem):
        with (
            FakeServer(stranger.context(), authority.pem) as server,
            pytest.raises(Refused, match="server certificate does not match"),
        ):
            Client(server.url, "secret", ca).whoami()
        assert "secret" not in str(server.requests)


def test_a_certificate_for_another_name_is_refused(authority: Authority) -> None:
    with (
        FakeServer(authority.context("box.example.org"), authority.pem) as server,
        pytest.raises(Refused, match="server certificate does not match"),
    ):
        Client(server.url, "secret", authority.pem).whoami()


def test_without_a_ca_the_system_decides(authority: Authority) -> None:
    with (
        FakeServer(authority.context("127.0.0.1"), authority.pem) as server,
        pytest.raises(Refused, match="server certificate does not match"),
    ):
        Client(server.url, "secret").whoami()
    assert server.requests == []


@pytest.mark.parametrize(
    ("begins", "ends", "words"), [(-2 * DAY, -DAY, "has expired"), (DAY, 2 * DAY, "is not valid yet")]
)
def test_a_certificate_out_of_its_time_asks_for_the_clock(
    authority: Authority, begins: datetime.timedelta, ends: datetime.timedelta, words: str
) -> None:
    with (
        FakeServer(authority.context(begins=begins, ends=ends), authority.pem) as server,
        pytest.raises(Unreachable, match=words) as caught,
    ):
        Client(server.url, "secret", authority.pem).whoami()
    assert caught.value.hint == "is this machine's clock right?"


def test_nothing_below_tls_1_3_is_spoken(authority: Authority) -> None:
    import ssl

    assert make_context(authority.pem).minimum_version is ssl.TLSVersion.TLSv1_3
    old = authority.context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    for ca in (authority.pem, authority.fingerprint):
        with FakeServer(old, authority.pem) as server, pytest.raises(Unreachable, match=r"no TLS 1\.3"):
            Client(server.url, "secret", ca).whoami()


def test_a_plain_server_on_the_port_is_told(authority: Authority) -> None:
    heard: list[bytes] = []

    def answer(listener: socket.socket) -> None:
        with listener.accept()[0] as link:
            heard.append(link.recv(4096))
            link.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with pytest.raises(Unreachable, match="https port"):
            Client(f"https://127.0.0.1:{listener.getsockname()[1]}", "secret", authority.pem).whoami()
        thread.join()
    assert b"secret" not in heard[0]


def test_a_certificate_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="CA certificate cannot be read"):
        make_context("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n")


def test_an_answer_without_a_certificate_is_refused(authority: Authority) -> None:
    with FakeServer(authority.context()) as server, pytest.raises(Refused, match="no CA certificate"):
        Client(server.url, "secret", authority.fingerprint).whoami()


def test_a_closed_connection_is_made_anew_for_what_may_be_repeated(authority: Authority) -> None:
    with FakeServer(authority.context(), authority.pem) as server:
        server.answers["/v1/whoami"] = (200, b"{}", {"Connection": "close"})
        with Client(server.url, "secret", authority.pem) as client:
            assert [client.whoami(), client.whoami()] == [{}, {}]


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    naps: list[float] = []
    with FakeServer() as server:
        server.answers["/x"] = [BUSY, (429, b"", {"Retry-After": "900"}), (429, b"", {}), {"ok": 1}]
        transport = Transport(server.url, sleep=naps.append)
        assert transport.send("GET", "/x", None, True, 5.0).data == b'{"ok": 1}'
        transport.close()
    assert naps == [7.0, 30.0, 1.0]


def test_patience_with_a_busy_server_ends() -> None:
    naps: list[float] = []
    with FakeServer() as server:
        server.answers["/x"] = BUSY
        transport = Transport(server.url, sleep=naps.append)
        assert transport.send("GET", "/x", None, True, 5.0).status == 429
        transport.close()
    assert naps == [7.0] * 5


def test_what_may_not_be_repeated_is_not_but_may_be_tried_again() -> None:
    with FakeServer() as server, Client(server.url) as client:
        server.answers["/v1/cancel"] = BUSY
        with pytest.raises(Refused) as caught:
            client.cancel(["r1"])
    assert caught.value.transient
    assert len(server.requests) == 1


def test_a_submission_with_a_key_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer() as server, Client(server.url) as client:
        monkeypatch.setattr(client._transport, "_sleep", lambda seconds: None)
        server.answers["/v1/runs"] = [BUSY, {"run": "r1"}]
        assert client.submit({"key": "k"}) == {"run": "r1"}
    first, second = server.sent("/v1/runs")
    assert first == second


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 1.0), ("5", 5.0), ("0", 0.1), ("-3", 0.1), ("1e9", 30.0), ("Fri, 01 Aug 2031", 1.0)]
)
def test_waiting_is_bounded(text: str, seconds: float) -> None:
    assert wait_of(text) == seconds


def test_nobody_listening_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        for url in ("unix:/run/shoal-none", f"https://127.0.0.1:{taken.getsockname()[1]}"):
            with pytest.raises(Unreachable, match="no answer"):
                Client(url).whoami()


def test_ctrl_c_in_the_middle_of_an_answer_leaves_a_usable_client(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        closed, host, port = False, "127.0.0.1", 80

        @property
        def sock(self) -> Interrupted:
            return self

        def sendall(self, _: bytes) -> None:
            raise KeyboardInterrupt

        def close(self) -> None:
            self.closed = True

    transport, connection = Transport(URL), Interrupted()

    def connected(timeout: float) -> tuple[Any, bool]:
        transport._connection = connection  # type: ignore[assignment]  # a stand-in
        return connection, True

    monkeypatch.setattr(transport, "_connected", connected)
    with pytest.raises(KeyboardInterrupt):
        transport.send("POST", "/v1/cancel", b"{}", False, 5.0)
    assert connection.closed
    assert transport._connection is None


def test_a_handshake_that_fails_leaves_no_open_socket(authority: Authority, stranger: Authority) -> None:
    with FakeServer(stranger.context()) as server:
        host, _, port = server.address.partition(":")
        connection = TlsConnection(host, int(port), 5.0, make_context(authority.pem), "shoal-server")
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            connection.connect()
        connection.close()
