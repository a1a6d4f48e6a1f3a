"""Checkpoint files that travel while their task runs: when they are taken, and that nothing half written is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.model.blobs import digest_of
from shoal.pilot.agent.events import Event, Saved
from shoal.pilot.commands import checkpoint, checkpoint_watch
from shoal.pilot.commands.checkpoint_watch import CheckpointWatch, Watched
from shoal.pilot.commands.staging import Environment, Prepared
from shoal.pilot.files.host_cache import HostCache
from shoal.pilot.uplink.blobs import Blobs
from shoal.pilot.uplink.server_address import ServerAddress
from shoal.wire.http import blob_transfer as wire
from shoal.wire.messages import Capacity, Lease
from tests.unit.blob_server import BlobServer

ATTEMPT = "r3.1#1@1"


class Bench:
    """One attempt whose files are looked at when a test says so, on the test's own thread."""

    def __init__(self, tmp_path: Path, blobs: Blobs, names: tuple[str, ...] = ("state",), **more: object) -> None:
        self.base = tmp_path / "base"
        self.base.mkdir()
        self.tmp = tmp_path
        self.saved: list[Saved] = []
        lease = Lease(ATTEMPT, Capacity(1), "safe", command=["true"], checkpoint=list(names), **more)  # type: ignore[arg-type]
        self.made = Prepared(lease, lease.command, str(self.base), Environment(1, {}))
        self.made.before = checkpoint.look(str(self.base), names)
        self.watch = CheckpointWatch(str(tmp_path / "copies"), self._feed, lambda work: work(), lambda: blobs)
        self.watch._file_threads.do = lambda work: work()  # type: ignore[method-assign]  # here and now
        self.watch.add(self.made, 0.0)

    def _feed(self, event: Event) -> None:
        assert isinstance(event, Saved)
        self.saved.append(event)

    @property
    def watched(self) -> Watched:
        return self.watch._watched[ATTEMPT]

    def look(self) -> list[str]:
        """Look once more, whenever that was due; the digests of what travelled."""
        self.saved.clear()
        self.watch.tick(self.watched.due)
        return [digest for event in self.saved for digest in event.files.values()]

    def pause(self) -> float:
        """How long after the last look the next one is due."""
        return self.watched.due - time.clock_gettime(time.CLOCK_BOOTTIME)

    def write(self, text: str, name: str = "state") -> str:
        (self.base / name).write_text(text)
        return digest_of([text.encode()])

    def replace(self, text: str, name: str = "state") -> str:
        (self.base / "new").write_text(text)
        os.rename(self.base / "new", self.base / name)
        return digest_of([text.encode()])


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


def test_a_file_at_rest_travels_once_and_again_when_it_changed(
    server: BlobServer, blobs: Blobs, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, blobs, checkpoint_every=60.0)
    assert bench.look() == [] and bench.pause() <= checkpoint_watch.LOOK_EVERY, "nothing there yet"
    first = bench.write("1")
    assert bench.look() == [] and bench.pause() <= checkpoint_watch.SETTLE, "perhaps it is being written"
    assert bench.look() == [first] and server.blobs[first] == b"1"
    assert 55 < bench.pause() <= 60
    assert bench.look() == [] and bench.look() == []
    second = bench.write("two")
    assert bench.look() == [] and bench.look() == [second]
    assert server.asked[-1].target == f"/v1/blobs/{second}?run=r3&for=checkpoint"
    assert not any((tmp_path / "copies").iterdir()), "the copy is gone"


def test_a_file_that_is_written_in_place_all_the_time_is_never_taken(blobs: Blobs, tmp_path: Path) -> None:
    bench = Bench(tmp_path, blobs)
    for n in range(5):
        bench.write("x" * (n + 1))
        assert bench.look() == []


def test_a_file_that_is_replaced_all_the_time_is_taken_whole(blobs: Blobs, tmp_path: Path) -> None:
    bench = Bench(tmp_path, blobs)
    bench.replace("1")
    bench.look()
    found = []
    for n in range(3):
        digest = bench.replace(f"{n}" * 1000)
        found.append(bench.look() == [digest])
    assert any(found), "whoever renames does not have to pause"


def test_what_changes_while_it_is_copied_does_not_travel(
    server: BlobServer, blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, blobs)
    bench.write("old")
    bench.look()
    copied: Callable[..., Iterator[bytes]] = checkpoint_watch._copied

    def meanwhile(*words: object) -> Iterator[bytes]:
        yield from copied(*words)
        bench.write("newer")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_watch, "_copied", meanwhile)
        assert bench.look() == [] and server.asked == []
    bench.look()
    assert bench.look() == [digest_of([b"newer"])]


def test_several_files_travel_together_or_not_at_all(
    server: BlobServer, blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, blobs, ("a", "b"))
    bench.write("1", "a")
    assert bench.look() == [] and bench.look() == [] and server.asked == [], "one is missing"
    bench.write("1", "b")
    bench.look()
    copied: Callable[..., Iterator[bytes]] = checkpoint_watch._copied

    def meanwhile(*words: object) -> Iterator[bytes]:
        yield from copied(*words)
        bench.replace("2", "a")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_watch, "_copied", meanwhile)
        assert bench.look() == [] and server.asked == [], "a and b are of two moments"
    assert (bench.look() or bench.look()) == [digest_of([b"2"]), digest_of([b"1"])]


def test_an_empty_file_is_not_taken(blobs: Blobs, tmp_path: Path) -> None:
    bench = Bench(tmp_path, blobs)
    bench.write("")
    assert [bench.look() for _ in range(3)] == [[], [], []]


def test_a_checkpoint_that_is_too_large_stays_and_that_is_said_once(
    server: BlobServer, blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoint_watch, "MAX_CHECKPOINT_BYTES", 10)
    bench = Bench(tmp_path, blobs)
    bench.write("x" * 11)
    assert [bench.look() for _ in range(4)] == [[], [], [], []] and server.asked == []
    assert caplog.text.count("too many to travel while it runs (at most 10)") == 1
    digest = bench.write("x" * 10)
    bench.look()
    assert bench.look() == [digest]


def test_the_same_content_again_is_not_told_again(server: BlobServer, blobs: Blobs, tmp_path: Path) -> None:
    bench = Bench(tmp_path, blobs)
    bench.write("1")
    bench.look()
    assert len(bench.look()) == 1
    server.asked.clear()
    bench.write("1")
    assert bench.look() == [] and bench.look() == [] and server.asked == []


def test_what_was_brought_back_at_the_start_is_nothing_new(server: BlobServer, blobs: Blobs, tmp_path: Path) -> None:
    bench = Bench(tmp_path, blobs, restored={"state": digest_of([b"1"])})
    bench.write("1")
    assert bench.look() == [] and bench.look() == [] and server.asked == []


def test_a_link_out_of_the_directory_does_not_travel(server: BlobServer, blobs: Blobs, tmp_path: Path) -> None:
    bench = Bench(tmp_path, blobs)
    (tmp_path / "secret").write_text("hush")
    (bench.base / "state").symlink_to(tmp_path / "secret")
    assert [bench.look() for _ in range(3)] == [[], [], []] and server.asked == []


def test_nothing_is_looked_at_where_it_shall_travel_only_at_the_end(blobs: Blobs, tmp_path: Path) -> None:
    bench = Bench(tmp_path, blobs, checkpoint_every=0.0)
    assert bench.watch.deadline() is None


def test_an_attempt_that_ended_meanwhile_says_nothing_more(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, blobs)
    bench.write("1")
    bench.look()
    watched = bench.watched
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(bench.watch, "_post", later.append)
    bench.watch.tick(watched.due)
    bench.watch.remove(ATTEMPT)
    for work in later:
        work()
    assert bench.saved == [] and bench.watch.deadline() is None
