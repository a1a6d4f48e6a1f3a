"""Files by which a task goes on, against a small server of blobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.model.blobs import digest_of
from shoal.pilot.commands import checkpoint
from shoal.pilot.commands.files import StageError
from shoal.pilot.files.host_cache import HostCache
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.server_address import ServerAddress
from shoal.wire.http import blob_transfer as wire
from tests.unit.blob_server import BlobServer, Refusal

DATA = b"state of the task"
DIGEST = digest_of([DATA])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobServer]:
    monkeypatch.setattr(wire, "PAUSE", 0.001)
    monkeypatch.setattr(wire, "LONGEST_PAUSE", 0.002)
    with BlobServer() as server:
        yield server


@pytest.fixture
def blobs(server: BlobServer, tmp_path: Path) -> Iterator[Blobs]:
    token = tmp_path / "token"
    token.write_text("an enrolment")
    made = Blobs(ServerAddress(url=server.url, token_file=str(token)), HostCache(str(tmp_path / "kept")))
    made.joined("the-session")
    yield made
    made.close()
    made._connection().drop()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base").mkdir()
    return tmp_path / "base"


def test_what_was_kept_comes_back(server: BlobServer, blobs: Blobs, base: Path, tmp_path: Path) -> None:
    (base / "deep").mkdir()
    (base / "deep" / "state").write_bytes(DATA)
    (base / "empty").touch()
    kept = checkpoint.keep(str(base), ["deep/state", "empty"], blobs, "r3", None)
    assert kept == {"deep/state": DIGEST, "empty": digest_of([])}
    other = tmp_path / "other"
    other.mkdir()
    checkpoint.restore(str(other), kept, blobs, 0o022)
    assert (other / "deep" / "state").read_bytes() == DATA and (other / "empty").read_bytes() == b""
    assert (other / "deep" / "state").stat().st_mode & 0o777 == 0o644
    assert (other / "deep").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in other.rglob("*")) == ["deep", "empty", "state"]


def test_only_another_content_is_replaced(server: BlobServer, blobs: Blobs, base: Path) -> None:
    server.blobs[DIGEST] = DATA
    (base / "state").write_bytes(DATA)
    before = os.stat(base / "state").st_ino
    checkpoint.restore(str(base), {"state": DIGEST}, blobs, 0o022)
    assert os.stat(base / "state").st_ino == before and not server.asked
    (base / "state").write_bytes(b"S" + DATA[1:])
    checkpoint.restore(str(base), {"state": DIGEST}, blobs, 0o022)
    assert (base / "state").read_bytes() == DATA and server.asked


def test_a_task_may_see_its_directory_by_a_link(blobs: Blobs, base: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(base)
    (base / "state").write_bytes(DATA)
    assert checkpoint.keep(str(tmp_path / "link"), ["state"], blobs, "r3", None) == {"state": DIGEST}


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "behind a link"])
def test_what_is_no_plain_file_is_neither_kept_nor_overwritten(
    server: BlobServer, blobs: Blobs, base: Path, tmp_path: Path, kind: str
) -> None:
    name = "deep/state" if kind == "behind a link" else "state"
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "state").write_text("not ours")
    if kind == "link":
        (base / "state").symlink_to(tmp_path / "target" / "state")
    elif kind == "folder":
        (base / "state").mkdir()
    elif kind == "pipe":
        os.mkfifo(base / "state")
    else:
        (base / "deep").symlink_to(tmp_path / "target")
    server.blobs[DIGEST] = DATA
    with pytest.raises(StageError, match="checkpoint_refused") as kept:
        checkpoint.keep(str(base), [name], blobs, "r3", None)
    with pytest.raises(StageError, match="checkpoint_refused") as restored:
        checkpoint.restore(str(base), {name: DIGEST}, blobs, 0o022)
    assert (kept.value.cause, restored.value.cause, server.asked) == ("stage_out", "stage_in", [])
    assert (tmp_path / "target" / "state").read_text() == "not ours"


def test_a_missing_file_is_named_before_anything_is_sent(server: BlobServer, blobs: Blobs, base: Path) -> None:
    (base / "a").write_bytes(DATA)
    with pytest.raises(StageError, match="checkpoint b was not written") as caught:
        checkpoint.keep(str(base), ["a", "b"], blobs, "r3", None)
    assert (caught.value.cause, server.asked) == ("output_missing", [])


def test_who_has_no_time_gives_up_soon(server: BlobServer, blobs: Blobs, base: Path) -> None:
    server.refusals += [Refusal(503, "busy")] * 3
    (base / "a").write_bytes(DATA)
    with pytest.raises(StageError, match="checkpoint a cannot be kept") as caught:
        checkpoint.keep(str(base), ["a"], blobs, "r3", 0.0)
    assert (caught.value.cause, len(server.refusals)) == ("stage_out", 2), "one try, no more"


def test_written_means_all_of_them_and_since_then(base: Path) -> None:
    (base / "a").write_text("1")
    before = checkpoint.look(str(base), ["a", "b"])
    assert before["b"] is None
    (base / "b").write_text("1")
    assert not checkpoint.is_written(str(base), before), "a is as it was"
    (base / "new").write_text("1")
    os.utime(base / "new", ns=(0, before["a"][0] if before["a"] else 0))
    os.rename(base / "new", base / "a")
    assert checkpoint.is_written(str(base), before), "another file under its name, however old it says it is"
    (base / "b").unlink()
    assert not checkpoint.is_written(str(base), before)
