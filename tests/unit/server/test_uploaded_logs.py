"""Streams of other hosts: every byte where it belongs, and how much has yet to come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.model.file_names import log_name
from shoal.model.limits import MAX_STREAM
from shoal.server.uploaded_logs import ON_ITS_WAY, UploadedLogs, write_piece
from shoal.wire import payload
from shoal.wire.messages import Batch, Capacity, Exchange, LogPiece, Report

NAME = "r1.1#1@1"
FILE = log_name(1, 1, 1, "stdout")


class Pilot:
    """A pilot that holds one attempt, or has ended it."""

    name = "p1"

    def __init__(self) -> None:
        self.is_here = True

    def holds(self, attempt: object) -> bool:
        return self.is_here

    def ended_lately(self, attempt: object) -> bool:
        return False


class State:
    """No run is in memory: the bound is the usual one."""

    runs: dict[int, Any] = {}  # noqa: RUF012 - never changed


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.free = folder, 100.0, 1 << 40
        self.logs = UploadedLogs(folder, lambda wanted: wanted <= self.free, lambda: self.now)
        self.pilot = Pilot()

    def receive(self, *pieces: LogPiece, **more: Any) -> None:
        exchange = Exchange(5, "p1", "s", 1, 0, Capacity(), tails=list(pieces), **more)
        self.logs.receive(State(), self.pilot, exchange)  # type: ignore[arg-type]  # as much of them as is used

    @property
    def data(self) -> bytes:
        return (self.folder / FILE).read_bytes()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_text_and_any_other_bytes_arrive_as_they_were_written(place: Place) -> None:
    place.receive(LogPiece(NAME, "stdout", "ä\n"), LogPiece(NAME, "stdout", "", 3, payload.to_text(b"\xff\0")))
    assert place.data == "ä\n".encode() + b"\xff\0"


def test_what_a_report_promised_is_missing_until_it_came(place: Place) -> None:
    place.receive(LogPiece(NAME, "stdout", "one "), reports=[Report(NAME, "succeeded", out=7)])
    assert place.logs.missing(FILE) == (3, True)
    place.pilot.is_here = False  # it is over, and others ended since: its last piece is taken all the same
    place.receive(LogPiece(NAME, "stdout", "two", 4))
    assert place.logs.missing(FILE) == (0, False)
    assert place.data == b"one two"


def test_what_does_not_come_for_long_never_comes(place: Place) -> None:
    place.receive(LogPiece(NAME, "stdout", "one "), batches=[Batch(NAME, 1, out=[7])])
    place.now += ON_ITS_WAY + 1
    assert place.logs.missing(FILE) == (3, False)


def test_a_full_disk_is_seen_by_whoever_reads(place: Place) -> None:
    place.free = 2
    place.receive(LogPiece(NAME, "stdout", "one "), reports=[Report(NAME, "succeeded", out=4)])
    assert not (place.folder / FILE).exists()
    assert place.logs.missing(FILE)[0] == 4


def test_pieces_of_others_attempts_are_not_taken(place: Place) -> None:
    place.pilot.is_here = False
    place.receive(LogPiece(NAME, "stdout", "one "), reports=[Report(NAME, "succeeded", out=4)])
    assert not (place.folder / FILE).exists()
    assert place.logs.missing(FILE) == (0, False)


def test_a_piece_behind_a_hole_or_a_bound_or_no_base64_changes_nothing(place: Place, tmp_path: Path) -> None:
    place.receive(
        LogPiece(NAME, "stdout", "x", 7), LogPiece(NAME, "stdout", "", 0, "="), LogPiece(NAME, "neither", "x")
    )
    assert not (place.folder / FILE).exists() or place.data == b""
    write_piece(tmp_path / "far", b"x", 2 * MAX_STREAM)
    write_piece(tmp_path / "far", b"x", -1)
    assert not (tmp_path / "far").exists()
