"""Streams for a server that cannot read our files: as they are written, and whole at the end [input E51]."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.model.limits import MAX_TAIL
from shoal.pilot.commands.streams import Bound
from shoal.pilot.uplink.log_upload import LOOK, WATCHED, LogUpload
from shoal.wire import codec, payload
from shoal.wire.messages import LogPiece

NAME = "r1.1#1@1"
MIB = 1 << 20


class Copy:
    """A task's files, a reader of them, and the server's copy."""

    def __init__(self, folder: Path) -> None:
        self.out, self.err = folder / "out", folder / "err"
        self.room = 1 << 30
        self.tails = LogUpload(lambda: self.room)
        self.tails.add(NAME, {"stdout": str(self.out), "stderr": str(self.err)})
        self.texts = {"stdout": b"", "stderr": b""}
        self.now = 100.0

    def write(self, data: bytes, path: Path | None = None) -> None:
        with (path or self.out).open("ab") as file:
            file.write(data)

    def read(self, after: float = LOOK) -> list[LogPiece]:
        self.now += after
        said = self.tails.read(self.now)
        for tail in said:
            data = payload.of_text(tail.data) if tail.data else tail.text.encode()
            assert len(data) <= MAX_TAIL
            assert len(self.texts[tail.stream]) >= tail.offset, "a piece is missing"
            self.texts[tail.stream] = self.texts[tail.stream][: tail.offset] + data
        return said

    def end(self, *cut: str) -> list[LogPiece]:
        self.tails.end(NAME, cut)
        return self.read(0.0)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


# --- at the end
def test_without_a_watcher_everything_comes_at_the_end(copy: Copy) -> None:
    copy.write(b"out")
    copy.write(b"err", copy.err)
    assert copy.read() == []
    assert copy.tails.deadline() is None
    copy.end()
    assert copy.texts == {"stdout": b"out", "stderr": b"err"}
    assert not copy.tails.has_more


def test_a_long_stream_arrives_whole(copy: Copy) -> None:
    text = "".join(f"line {n} äöü\n" for n in range(200_000)).encode()[: 3 * MIB - 1]
    copy.write(text)
    assert len(copy.end()) <= 3 * MIB // MAX_TAIL + 2
    assert copy.texts["stdout"] == text


def test_an_attempt_that_wrote_nothing_says_nothing(copy: Copy) -> None:
    assert copy.end() == []
    assert not copy.tails.has_more


def test_what_there_is_no_room_for_waits_in_its_file(copy: Copy) -> None:
    copy.write(b"x" * 300_000)
    copy.room = 100_000
    copy.end()
    assert len(copy.texts["stdout"]) == 100_000
    assert copy.tails.has_more
    copy.room = 0
    assert copy.read() == []
    copy.room = 1 << 30
    copy.read()
    assert copy.texts["stdout"] == b"x" * 300_000
    assert not copy.tails.has_more


def test_files_go_when_they_are_said_and_the_server_has_decided(copy: Copy) -> None:
    copy.write(b"x" * 1000)
    copy.room = 500
    copy.end()
    copy.tails.settle(NAME)
    assert copy.out.exists(), "half of it is not said"
    copy.read()
    copy.read()
    assert not copy.out.exists()
    assert copy.texts["stdout"] == b"x" * 1000


@pytest.mark.parametrize(
    "data",
    [
        b"a" + "ä€🐟".encode() * 20_000 + b"\xff\xfe" + b"\0" * 10 + b"\xe2\x82",
        bytes(range(256)) * 1_000,
        b"\x80" * 200_000,
        b"\0" * 200_000,
    ],
)
def test_every_byte_arrives_as_it_was_written(copy: Copy, data: bytes) -> None:
    copy.write(data)
    copy.room = 10_001
    pieces = copy.end()
    while copy.tails.has_more:
        pieces += copy.read()
    assert copy.texts["stdout"] == data
    assert sum(len(codec.encode(piece)) for piece in pieces) < 1.5 * len(data) + 200 * len(pieces)


def test_a_short_stream_does_not_wait_behind_a_long_one(copy: Copy, tmp_path: Path) -> None:
    copy.write(b"x" * 300_000)
    other, empty = tmp_path / "other", tmp_path / "empty"
    copy.tails.add("r1.2#1@1", {"stdout": str(other), "stderr": str(empty)})
    other.write_bytes(b"short")
    copy.room = 100_000
    copy.tails.end("r1.2#1@1", ())
    copy.tails.end(NAME, ())
    assert LogPiece("r1.2#1@1", "stdout", "short", 0) in copy.tails.read(copy.now)


# --- while it is watched
def test_what_is_new_comes_twice_a_second_while_it_is_watched(copy: Copy) -> None:
    copy.write(b"one\n")
    copy.tails.watch(NAME, "stdout", copy.now)
    assert copy.tails.deadline() == copy.now
    assert copy.read(0.0) == [LogPiece(NAME, "stdout", "one\n", 0)]
    assert copy.tails.deadline() == copy.now + LOOK
    copy.write(b"two\n")
    copy.write(b"not asked for", copy.err)
    assert copy.read(LOOK / 2) == []
    assert copy.read(LOOK / 2) == [LogPiece(NAME, "stdout", "two\n", 4)]
    assert copy.read() == []


def test_watching_ends_when_nobody_asks_any_more(copy: Copy) -> None:
    copy.tails.watch(NAME, "", copy.now)
    copy.write(b"x")
    copy.write(b"y", copy.err)
    assert len(copy.read(WATCHED - 1.0)) == 2
    copy.write(b"late")
    assert copy.read(2.0) == []
    assert copy.tails.deadline() is None
    assert copy.end() == [LogPiece(NAME, "stdout", "late", 1)]


def test_half_a_character_is_sent_as_it_is(copy: Copy) -> None:
    copy.tails.watch(NAME, "stdout", copy.now)
    copy.write("ä".encode()[:1])
    copy.read()
    copy.write("ä".encode()[1:])
    copy.read()
    assert copy.texts["stdout"] == "ä".encode()


def test_a_stream_that_was_cut_is_sent_anew_at_the_end(copy: Copy) -> None:
    bound = Bound(str(copy.out), most=MIB)
    copy.tails.watch(NAME, "stdout", copy.now)
    copy.write(b"h" * 100_000)
    copy.read()
    copy.write(b"m" * (2 * MIB))
    assert bound.look()
    copy.read()
    copy.write(b"t" * (2 * MIB))
    bound.look()
    bound.finish()
    said = copy.end("stdout")
    assert said[0].offset == 0
    assert copy.texts["stdout"] == copy.out.read_bytes()
    assert b"left out by shoal" in copy.texts["stdout"] and len(copy.texts["stdout"]) <= MIB


def test_a_stream_that_the_task_itself_made_shorter_is_sent_anew(copy: Copy) -> None:
    copy.tails.watch(NAME, "stdout", copy.now)
    copy.write(b"long text")
    copy.read()
    copy.out.write_bytes(b"short")
    copy.end()
    assert copy.texts["stdout"] == b"short"


def test_a_pipe_or_link_in_place_of_the_file_does_not_hold_us_up(copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    copy.out.symlink_to(tmp_path / "secret")
    os.mkfifo(copy.err)
    assert copy.end() == []
    assert not copy.tails.has_more


def test_attempts_that_are_not_ours_to_send_are_no_problem(copy: Copy) -> None:
    copy.tails.watch("r9.9#1@1", "stdout", copy.now)
    copy.tails.end("r9.9#1@1", ())
    copy.tails.settle("r9.9#1@1")
    assert copy.read() == []
