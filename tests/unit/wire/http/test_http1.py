"""Requests as bytes, and answers out of bytes in whatever pieces they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.wire.http.http1 import MAX_HEAD, HttpResponse, NoAnswer, Reading, host_of, request

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Shoal: a\r\nx-shoal: b \r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=1\r\nlo\r\n0\r\n\r\n"
EARLY = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


def read(data: bytes, cuts: list[int], method: str = "GET", most: int = 1000) -> HttpResponse | None:
    reading, before = Reading(method, most), 0
    for cut in [*sorted(c for c in set(cuts) if 0 < c < len(data)), len(data)]:
        found = reading.feed(data[before:cut])
        before = cut
        if found is not None:
            assert cut == len(data), "not before all of it is here"
            return found
    return None


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, EARLY])
@given(cuts=st.lists(st.integers(0, 200)))
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(data: bytes, cuts: list[int]) -> None:
    found = read(data, cuts)
    assert found is not None
    assert (found.status, found.body, found.is_kept) == (200, b"hello", True)


def test_headers_are_by_small_names_and_the_last_counts() -> None:
    found = read(PLAIN, [])
    assert found is not None and found.headers["x-shoal"] == "b"


@pytest.mark.parametrize(
    ("head", "method"),
    [(b"HTTP/1.1 204 No Content\r\n", "GET"), (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n", "HEAD")],
)
def test_some_answers_have_no_body(head: bytes, method: str) -> None:
    found = read(head + b"\r\n", [], method)
    assert found is not None and found.body == b""


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\n", b"HTTP/1.0 200 OK\r\n"], ids=["said so", "older"]
)
def test_a_connection_that_will_close_is_not_kept(head: bytes) -> None:
    found = read(head + b"Content-Length: 0\r\n\r\n", [])
    assert found is not None and not found.is_kept


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", PLAIN + b"more",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"x" * (MAX_HEAD + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2002,
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(NoAnswer):
        read(data, [])


@pytest.mark.parametrize("data", [b"", PLAIN[:20], PLAIN[:-1]])
def test_a_line_that_is_cut_is_a_lost_connection(data: bytes) -> None:
    reading = Reading("GET", 1000)
    if data:
        assert reading.feed(data) is None
    with pytest.raises(ConnectionResetError):
        reading.feed(b"")


def test_a_request_is_one_piece_with_its_length() -> None:
    assert (
        request("POST", "/v1/x", {"Host": "a"}, b"{}")
        == b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert request("GET", "/", {}, b"") == b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("where", ["target", "header"])
def test_nothing_can_be_smuggled_into_the_head(where: str) -> None:
    bad = "a\r\nX-Evil: 1"
    with pytest.raises(NoAnswer):
        request("GET", bad if where == "target" else "/", {"X": bad if where == "header" else "b"}, b"")


def test_the_host_is_written_as_a_server_expects_it() -> None:
    assert [host_of("127.0.0.1", 8443), host_of("::1", 80), host_of("localhost", None)] == [
        "127.0.0.1:8443", "[::1]", "localhost",
    ]  # fmt: skip
