"""Blobs from a client: sent once, gone on with after a lost connection, compared when they come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import blobs
from shoal.client.client import Client
from shoal.client.connection.transport import Transport
from shoal.model.blobs import digest_of
from shoal.model.errors import BadInput, Conflict, NotFound, Refused, ShoalError, Unreachable
from shoal.wire.http.blob_transfer import AT_ONCE
from tests.unit.blob_server import BlobServer, Refusal

BIG = os.urandom(3 * AT_ONCE + 5)
DIGEST = digest_of([BIG])


@pytest.fixture
def server() -> Iterator[BlobServer]:
    with BlobServer() as server:
        yield server


class Line:
    """A transport whose waits are written down instead of waited."""

    def __init__(self, server: BlobServer) -> None:
        self.transport = Transport(server.url, "token")
        self.waits: list[float] = []

    def put(self, *parts: bytes | bytearray | memoryview) -> str:
        return blobs.put_blob(self.transport, parts, self.waits.append)

    def get(self, digest: str) -> bytearray:
        return blobs.get_blob(self.transport, digest, self.waits.append)


@pytest.fixture
def line(server: BlobServer) -> Iterator[Line]:
    made = Line(server)
    yield made
    made.transport.close()


def test_a_client_puts_and_gets(server: BlobServer) -> None:
    with Client(server.url, "token") as client:
        digest = client.put_blob([b"he", memoryview(b"xllo")[1:], bytearray()])
        assert digest == digest_of([b"hello"]) and server.blobs == {digest: b"hello"}
        assert client.get_blob(digest) == b"hello"
        assert client.get_blob(client.put_blob([])) == b""
    assert all(asked.headers["authorization"] == "Bearer token" for asked in server.asked)


def test_a_large_one_is_asked_about_first_and_sent_once(server: BlobServer, line: Line) -> None:
    assert line.put(BIG[:10], BIG[10:]) == DIGEST and server.blobs[DIGEST] == BIG
    assert line.put(BIG) == DIGEST
    assert [asked.came for asked in server.asked] == [0, len(BIG), 0]
    assert line.get(DIGEST) == BIG and line.waits == [0.0]


@pytest.mark.parametrize("cuts", [[1], [AT_ONCE, 2 * AT_ONCE], [len(BIG) - 1], [0, 100, 0, 5]])
def test_a_lost_connection_costs_only_what_was_in_flight(server: BlobServer, line: Line, cuts: list[int]) -> None:
    server.cuts = list(cuts)
    assert line.put(BIG) == DIGEST and server.blobs[DIGEST] == BIG
    assert sum(asked.came for asked in server.asked) == len(BIG)


@pytest.mark.parametrize("cuts", [[1], [AT_ONCE, 2 * AT_ONCE], [len(BIG) - 1], [0, 100, 0, 5]])
def test_a_download_goes_on_behind_what_came(server: BlobServer, line: Line, cuts: list[int]) -> None:
    server.blobs[DIGEST] = BIG
    server.cuts = list(cuts)
    assert line.get(DIGEST) == BIG


def test_a_server_that_stays_away_is_given_up(server: BlobServer, line: Line) -> None:
    server.blobs[digest_of([b"x"])] = b"x"
    for work in (lambda: line.put(BIG), lambda: line.get(digest_of([b"x"]))):
        server.cuts = [0] * 100
        with pytest.raises(Unreachable):
            work()
        assert 5 <= len(line.waits) < 50 and max(line.waits) <= 10.0
        line.waits.clear()


def test_other_bytes_than_asked_for_are_refused(server: BlobServer, line: Line) -> None:
    server.blobs[DIGEST] = b"something else"
    with pytest.raises(Refused) as caught:
        line.get(DIGEST)
    assert caught.value.code == "wrong_digest"


def test_a_damaged_part_on_the_server_is_replaced(server: BlobServer, line: Line) -> None:
    server.parts[DIGEST] = b"rubbish"
    assert line.put(BIG) == DIGEST and server.blobs[DIGEST] == BIG


def test_a_busy_server_is_asked_again_after_the_time_it_said(server: BlobServer, line: Line) -> None:
    server.refusals = [Refusal(429, "too_busy", {"Retry-After": "3"}), Refusal(429, "being_sent", {"Retry-After": "1"})]
    line.put(BIG)
    assert line.waits[:2] == [3.0, 1.0] and server.blobs[DIGEST] == BIG
    server.refusals = [Refusal(429, "too_busy", {"Retry-After": "2"})]
    line.waits.clear()
    assert line.get(DIGEST) == BIG
    assert line.waits[:1] == [2.0]  # a connection that breaks by the way is taken up again after a pause of its own


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(507, "quota", Refused), (404, "unknown_blob", NotFound), (422, "bad_digest", BadInput)],
)
def test_a_refusal_is_raised_as_it_was_meant(
    server: BlobServer, line: Line, status: int, code: str, kind: type[ShoalError]
) -> None:
    for work in (lambda: line.put(BIG), lambda: line.get(DIGEST)):
        server.refusals = [Refusal(status, code)]
        with pytest.raises(kind) as caught:
            work()
        assert caught.value.code == code and not line.waits


def test_a_refusal_before_the_body_was_read_is_heard(server: BlobServer, line: Line) -> None:
    server.refusals = [Refusal(409, "wrong_offset", {"X-Shoal-Offset": "0"}), Refusal(507, "quota", unread=True)]
    with pytest.raises((Refused, Unreachable)) as caught:
        line.put(BIG * 4)
    assert caught.value.code in ("quota", "wrong_digest", "unreachable")


def test_what_is_no_digest_is_not_asked_for(server: BlobServer, line: Line) -> None:
    with pytest.raises(BadInput):
        line.get("sha256:../../etc/passwd")
    assert not server.asked


def test_a_file_is_sent_from_the_disk_and_tells_how_far_it_is(server: BlobServer, line: Line, tmp_path: Path) -> None:
    for data in (BIG, b""):
        (tmp_path / "file").write_bytes(data)
        with (tmp_path / "file").open("rb") as file:
            told: list[int] = []
            server.cuts = [AT_ONCE + 7] if data else []
            found = blobs.put_file(line.transport, file.fileno(), told.append, line.waits.append)
        assert found == (digest_of([data]), len(data)) and server.blobs[found[0]] == data
        assert told[-1:] == [len(data)][: len(data)] and told == sorted(told), "also where it broke off between"


@pytest.mark.parametrize("size", [0, len(BIG) - 1, len(BIG), len(BIG) + 1])
def test_a_file_that_is_changed_while_it_is_read_is_refused(
    server: BlobServer, line: Line, tmp_path: Path, size: int
) -> None:
    """[input E50]: shorter, of the same size, longer."""
    path = tmp_path / "file"
    path.write_bytes(BIG)

    def change(sent: int) -> None:
        if path.read_bytes() == BIG:
            path.write_bytes(bytes(size))

    with path.open("rb") as file, pytest.raises(Conflict) as caught:
        blobs.put_file(line.transport, file.fileno(), change, line.waits.append)
    assert caught.value.code == "changed_while_reading"
