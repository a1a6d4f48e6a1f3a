"""Blobs on a pilot's host: read where they lie, fetched once, kept as long as there is room and somebody needs them."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.model.blobs import digest_of
from shoal.model.file_names import blob_name
from shoal.pilot.files.fetch import NoBlob
from shoal.pilot.files.host_cache import HostCache, Limits
from shoal.pilot.uplink import blobs as module
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.server_address import ServerAddress
from shoal.wire.http import blob_transfer as wire
from shoal.wire.http.blob_transfer import AT_ONCE
from tests.unit.blob_server import BlobServer, Refusal

BIG = os.urandom(2 * AT_ONCE + 5)
DIGEST = digest_of([BIG])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobServer]:
    monkeypatch.setattr(wire, "PAUSE", 0.001)
    monkeypatch.setattr(wire, "LONGEST_PAUSE", 0.002)
    with BlobServer() as server:
        yield server


def make(server: BlobServer, folder: Path, most: int = 1 << 26, patience: float = 30.0) -> Blobs:
    token = folder / "token"
    token.write_text("an enrolment")
    cache = HostCache(str(folder / "kept"), Limits(most, 0))
    made = Blobs(ServerAddress(url=server.url, token_file=str(token)), cache, str(folder / "beside"), patience)
    made.joined("the-session")
    return made


def store(blobs: Blobs, data: bytes, run: str = "") -> str:
    """Upload these bytes from an open file."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return blobs.store_file(file.fileno(), run)


@pytest.fixture
def blobs(server: BlobServer, tmp_path: Path) -> Iterator[Blobs]:
    made = make(server, tmp_path)
    yield made
    made.close()
    made._connection().drop()


def test_a_blob_is_fetched_once_and_cannot_be_changed_by_accident(
    server: BlobServer, blobs: Blobs, tmp_path: Path
) -> None:
    server.blobs[DIGEST] = BIG
    path = Path(blobs.fetch(DIGEST))
    assert path.read_bytes() == BIG and path.parent == tmp_path / "kept" / "files"
    assert path.stat().st_mode & 0o777 == 0o444 and path.parent.stat().st_mode & 0o777 == 0o700
    assert blobs.fetch(DIGEST) == str(path)
    assert [asked.method for asked in server.asked] == ["GET"]
    assert server.asked[0].headers["authorization"] == "Bearer the-session"
    assert os.listdir(path.parent) == [path.name]


def test_where_the_servers_files_can_be_read_nothing_is_fetched(
    server: BlobServer, blobs: Blobs, tmp_path: Path
) -> None:
    server.blobs[DIGEST] = BIG
    near = tmp_path / "server"
    file = near / blob_name(DIGEST)
    file.parent.mkdir(parents=True)
    file.write_bytes(BIG)
    blobs.joined("the-session", str(near))
    assert blobs.fetch(DIGEST) == str(file) and not server.asked
    blobs.free(DIGEST)
    assert file.exists()
    file.rename(near / "elsewhere")
    file.symlink_to(near / "elsewhere")
    assert blobs.fetch(DIGEST) == str(tmp_path / "kept" / "files" / DIGEST[7:]), "a link is not a file of its name"


@pytest.mark.parametrize("cuts", [[1], [AT_ONCE, 5], [0, 0, len(BIG) - 1]])
def test_a_lost_connection_costs_only_what_was_in_flight(server: BlobServer, blobs: Blobs, cuts: list[int]) -> None:
    server.blobs[DIGEST] = BIG
    server.cuts = list(cuts)
    assert Path(blobs.fetch(DIGEST)).read_bytes() == BIG
    server.asked.clear()
    other = BIG[::-1]
    server.cuts = list(cuts)
    assert store(blobs, other) == digest_of([other]) and server.blobs[digest_of([other])] == other
    assert sum(asked.came for asked in server.asked) == len(other)


def test_wrong_bytes_never_get_the_name(server: BlobServer, blobs: Blobs, tmp_path: Path) -> None:
    server.blobs[DIGEST] = b"poison"
    with pytest.raises(NoBlob, match="what came is not") as caught:
        blobs.fetch(DIGEST)
    assert not caught.value.transient and not any(path.is_file() for path in (tmp_path / "kept" / "files").iterdir())


def test_what_the_server_does_not_have_is_said_at_once(server: BlobServer, blobs: Blobs) -> None:
    with pytest.raises(NoBlob, match="unknown_blob") as caught:
        blobs.fetch(DIGEST)
    assert not caught.value.transient and len(server.asked) == 1


@pytest.mark.parametrize("name", ["", "sha256:../../../etc/passwd", "sha256:" + "A" * 64, "/etc/passwd"])
def test_what_is_no_digest_names_no_file(server: BlobServer, blobs: Blobs, name: str) -> None:
    blobs.joined("the-session", "/")
    with pytest.raises(NoBlob, match="does not name a blob"):
        blobs.fetch(name)
    assert not server.asked


def test_least_recently_used_goes_and_never_one_in_use(server: BlobServer, tmp_path: Path) -> None:
    blobs = make(server, tmp_path, most=25)
    data = [bytes([65 + number]) * 10 for number in range(4)]
    digests = [digest_of([one]) for one in data]
    server.blobs.update(zip(digests, data, strict=True))

    def kept() -> set[int]:
        return {n for n, digest in enumerate(digests) if (tmp_path / "kept" / "files" / digest[7:]).exists()}

    blobs.fetch(digests[0])
    blobs.fetch(digests[0])
    blobs.fetch(digests[1])
    blobs.free(digests[1])
    blobs.fetch(digests[2])
    assert kept() == {0, 2}
    beside = Path(blobs.fetch(digests[3]))
    assert kept() == {0, 2} and beside.parent == tmp_path / "beside", "all in use: never over the bound"
    blobs.free(digests[3])
    assert not beside.exists()
    blobs.free(digests[0])
    assert Path(blobs.fetch(digests[3])).parent == tmp_path / "beside", "fetched twice, freed once"
    blobs.free(digests[3])
    blobs.free(digests[0])
    blobs.fetch(digests[3])
    assert kept() == {2, 3}
    for digest in digests:
        blobs.free(digest)
    assert kept() == {2, 3}
    blobs._connection().drop()


def test_changes_of_the_cache_are_told_once(server: BlobServer, tmp_path: Path) -> None:
    blobs = make(server, tmp_path, most=15)
    data = [bytes([65 + number]) * 10 for number in range(2)]
    one, two = (digest_of([part]) for part in data)
    server.blobs.update({one: data[0], two: data[1]})
    assert blobs.take_changes() == ([], [])
    blobs.fetch(one)
    assert blobs.take_changes() == ([(one, 10)], [])
    blobs.free(one)
    blobs.fetch(two)
    blobs.free(two)
    assert blobs.take_changes() == ([(two, 10)], [one])
    assert blobs.take_changes() == ([], [])
    blobs._connection().drop()


def test_two_threads_that_want_the_same_fetch_it_once(server: BlobServer, blobs: Blobs) -> None:
    server.blobs[DIGEST] = BIG
    found: list[str] = []

    def work() -> None:
        found.append(blobs.fetch(DIGEST))
        blobs._connection().drop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert len(set(found)) == 1 and len(found) == 6 and len(server.asked) == 1


@pytest.mark.parametrize("cuts", [[0] * 12, [0, 0, 0, AT_ONCE, *[0] * 12]])
def test_a_server_that_failed_often_gets_the_file_as_long_as_our_patience_lasts(
    server: BlobServer, blobs: Blobs, tmp_path: Path, cuts: list[int]
) -> None:
    """After eight tries the offset that an overloaded server named was taken for its last word, and the task failed."""
    (tmp_path / "out").write_bytes(BIG)
    server.cuts = list(cuts)
    assert blobs.store(str(tmp_path / "out")) == DIGEST and server.blobs[DIGEST] == BIG


def test_files_are_stored_by_path_or_open(server: BlobServer, blobs: Blobs, tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_bytes(BIG)
    assert blobs.store(str(file)) == DIGEST and server.blobs[DIGEST] == BIG
    assert store(blobs, b"ab") == digest_of([b"ab"])
    assert store(blobs, b"", run="r12") == digest_of([b""])
    assert server.asked[-1].target.endswith("?run=r12")


def test_only_plain_files_are_stored(server: BlobServer, blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "none", "."):
        with pytest.raises(NoBlob):
            blobs.store(str(tmp_path / name))
    assert not server.asked


def test_a_file_that_shrinks_meanwhile_is_said(
    server: BlobServer, blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out"
    file.write_bytes(BIG)

    def shrink(parts: Iterator[bytes]) -> str:
        found = digest_of(parts)
        os.truncate(file, AT_ONCE + 1)
        return found

    monkeypatch.setattr(module, "digest_of", shrink)
    with pytest.raises(NoBlob, match="became shorter"):
        blobs.store(str(file))
    assert DIGEST not in server.blobs


def test_a_session_that_ended_is_waited_for(server: BlobServer, blobs: Blobs) -> None:
    server.blobs[DIGEST] = BIG
    server.refusals = [
        Refusal(401, "unauthorised"),
        Refusal(503, "busy", {"Retry-After": "1"}),
        Refusal(401, "unauthorised"),
    ]
    assert Path(blobs.fetch(DIGEST)).read_bytes() == BIG
    server.refusals = [Refusal(401, "unauthorised"), Refusal(429, "too_busy")]
    assert store(blobs, b"result") == digest_of([b"result"])


def test_a_server_that_stays_away_is_given_up_when_patience_ends(server: BlobServer, tmp_path: Path) -> None:
    blobs = make(server, tmp_path, patience=0.1)
    server.refusals = [Refusal(503, "down")] * 10_000
    began = time.monotonic()
    with pytest.raises(NoBlob) as caught:
        blobs.fetch(DIGEST)
    assert caught.value.transient
    with pytest.raises(NoBlob) as caught:
        store(blobs, BIG)
    assert caught.value.transient
    assert time.monotonic() - began < 10.0
    blobs._connection().drop()


def test_the_end_of_the_pilot_ends_the_waiting(server: BlobServer, blobs: Blobs) -> None:
    server.refusals = [Refusal(503, "down")] * 10_000
    blobs.close()
    with pytest.raises(NoBlob, match="the pilot ends"):
        blobs.fetch(DIGEST)


def test_a_quota_is_said_in_the_servers_words(server: BlobServer, blobs: Blobs) -> None:
    server.refusals = [Refusal(507, "quota")]
    with pytest.raises(NoBlob, match="it said quota") as caught:
        store(blobs, b"x")
    assert caught.value.transient


def test_a_full_disk_of_the_server_is_waited_out(server: BlobServer, blobs: Blobs) -> None:
    """What was computed is not thrown away for a disk that will have space again."""
    server.refusals = [Refusal(507, "disk_full")] * 3
    assert store(blobs, BIG) == DIGEST
    assert server.blobs[DIGEST] == BIG


def test_a_full_disk_leaves_no_half_file(
    server: BlobServer, blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    server.blobs[DIGEST] = BIG
    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(NoBlob, match="no space left") as caught:
        blobs.fetch(DIGEST)
    assert (
        caught.value.transient
        and os.listdir(tmp_path / "kept" / "parts") == os.listdir(tmp_path / "kept" / "files") == []
    )
