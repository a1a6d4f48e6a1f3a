"""Bounded streams and what a report carries of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.model.limits import MAX_LINE, MAX_STREAM
from shoal.pilot import streams
from shoal.pilot.streams import SLACK, Bound


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a" / "stream"


def append(path: Path, data: bytes) -> None:
    fd = streams.open_stream(str(path))
    os.write(fd, data)
    os.close(fd)


def test_a_small_stream_stays_as_it_is(path: Path) -> None:
    append(path, b"x" * MAX_STREAM)
    bound = Bound(str(path))
    assert not bound.look()
    bound.finish()
    assert path.read_bytes() == b"x" * MAX_STREAM
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_long_stream_keeps_head_and_tail_and_counts_what_is_missing(path: Path) -> None:
    bound = Bound(str(path))
    append(path, b"HEAD" + b"a" * (MAX_STREAM + SLACK))
    assert bound.look()
    for _ in range(3):
        append(path, b"b" * (MAX_STREAM + SLACK))
        assert bound.look()
    append(path, b"c" * 1000 + b"TAIL")
    bound.finish()
    data = path.read_bytes()
    assert len(data) <= MAX_STREAM
    assert data.startswith(b"HEADaaa") and data.endswith(b"cTAIL")
    head, middle, tail = data.split(b"\n")
    total = 8 + 4 * (MAX_STREAM + SLACK) + 1000
    missing = total - len(head) - len(tail)
    assert middle == b"[... %d bytes left out by shoal ...]" % missing


def test_a_stream_a_little_over_is_cut_at_its_end_only(path: Path) -> None:
    append(path, b"x" * (MAX_STREAM + 10))
    bound = Bound(str(path))
    assert not bound.look()
    bound.finish()
    assert len(path.read_bytes()) <= MAX_STREAM


def test_an_empty_stream_leaves_no_file(path: Path) -> None:
    append(path, b"")
    Bound(str(path)).finish()
    assert not path.exists()
    Bound(str(path)).finish()  # nor does a missing one hurt


def test_a_link_in_place_of_a_stream_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"x" * (3 * MAX_STREAM))
    (tmp_path / "link").symlink_to("precious")
    assert not Bound(str(tmp_path / "link")).look()
    with pytest.raises(OSError, match="symbolic"):
        streams.open_stream(str(tmp_path / "link"))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", ""),
        (b"one\ntwo\n", "two"),
        (b"one\ntwo\n\n  \n", "two"),
        (b"no newline", "no newline"),
        (b"bad \xff\xfe bytes\n", "bad \ufffd\ufffd bytes"),
        (b"a\n" + b"x" * 10_000 + b"END", "x" * (MAX_LINE - 3) + "END"),
    ],
)
def test_the_last_line_is_the_last_that_says_something(path: Path, data: bytes, line: str) -> None:
    append(path, data)
    assert streams.last_line(str(path)) == line


def test_a_tail_is_bounded_in_bytes_also_when_they_are_no_text(path: Path) -> None:
    append(path, b"\xff" * 5000)
    assert len(streams.tail(str(path), 100).encode()) <= 100
    assert streams.tail(str(path.parent / "none"), 100) == ""


def test_log_files_lie_where_the_server_looks_for_them() -> None:
    assert streams.log_paths("/logs", "r12.2345#3@1") == ("/logs/r12/2/2345.3.out", "/logs/r12/2/2345.3.err")
