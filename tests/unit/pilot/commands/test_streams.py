"""Bounded streams and what a report carries of them."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from shoal.model.limits import MAX_LINE, MIN_STREAM
from shoal.pilot.commands import streams
from shoal.pilot.commands.streams import Blanks, Bound

MOST = 1 << 20
SLACK = MOST // 2  # of a bound this small


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a" / "stream"


def append(path: Path, data: bytes) -> None:
    fd = streams.open_stream(str(path))
    os.write(fd, data)
    os.close(fd)


def test_a_small_stream_stays_as_it_is(path: Path) -> None:
    append(path, b"x" * MOST)
    bound = Bound(str(path), most=MOST)
    assert not bound.look()
    bound.finish()
    assert path.read_bytes() == b"x" * MOST
    assert (bound.size, bound.left_out) == (MOST, 0)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_long_stream_keeps_head_and_tail_and_counts_what_is_missing(path: Path) -> None:
    bound = Bound(str(path), most=MOST)
    append(path, b"HEAD" + b"a" * (MOST + SLACK))
    assert bound.look()
    for _ in range(3):
        append(path, b"b" * (MOST + SLACK))
        assert bound.look()
    append(path, b"c" * 1000 + b"TAIL")
    bound.finish()
    data = path.read_bytes()
    assert len(data) == bound.size <= MOST
    assert data.startswith(b"HEADaaa") and data.endswith(b"cTAIL")
    head, middle, tail = data.split(b"\n")
    total = 8 + 4 * (MOST + SLACK) + 1000
    missing = total - len(head) - len(tail)
    assert middle == b"[... %d bytes left out by shoal ...]" % missing
    assert bound.left_out == missing


def test_the_head_of_a_long_stream_is_as_long_as_its_bound_allows(path: Path) -> None:
    append(path, bytes(4 * MOST))
    bound = Bound(str(path), most=2 * MOST)
    bound.finish()
    assert path.read_bytes().index(b"\n") > MOST  # the tail alone is short: it is copied at each cut


def test_a_stream_a_little_over_is_cut_at_its_end_only(path: Path) -> None:
    append(path, b"x" * (MOST + 10))
    bound = Bound(str(path), most=MOST)
    assert not bound.look()
    bound.finish()
    assert len(path.read_bytes()) <= MOST


def test_the_smallest_bound_holds_head_mark_and_tail(path: Path) -> None:
    append(path, b"H" + b"x" * 100_000 + b"T")
    Bound(str(path), most=MIN_STREAM).finish()
    data = path.read_bytes()
    assert len(data) <= MIN_STREAM and data.startswith(b"Hx") and data.endswith(b"xT") and b"left out by shoal" in data


def test_a_file_of_the_submitters_has_no_bound_and_stays_if_it_is_empty(path: Path) -> None:
    append(path, b"x" * (MOST + SLACK + 10))
    bound = Bound(str(path), most=0)
    assert not bound.look()
    bound.finish()
    assert path.stat().st_size == bound.size == MOST + SLACK + 10
    path.write_bytes(b"")
    Bound(str(path), most=0).finish()
    assert path.exists()


def test_a_cut_that_finds_no_space_counts_as_lost_output(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    append(path, b"x" * (MOST + SLACK + 10))
    bound = Bound(str(path), most=MOST)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        assert not bound.look()
    assert bound.error == errno.ENOSPC


def test_an_empty_stream_leaves_no_file(path: Path) -> None:
    append(path, b"")
    Bound(str(path)).finish()
    assert not path.exists()
    Bound(str(path)).finish()  # nor does a missing one hurt


def test_a_link_in_place_of_a_stream_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"x" * (3 * MOST))
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


@pytest.fixture
def blanks(path: Path) -> Blanks:
    blanks = Blanks()
    bound = blanks.open(str(path))
    if not bound.is_blank:
        pytest.skip("this file system has no files without a name: they were NOT tried")
    blanks.finish(bound)
    return blanks


def test_a_stream_that_nobody_wrote_to_never_has_a_name_and_serves_again(blanks: Blanks, path: Path) -> None:
    first = blanks.open(str(path))
    fd = first.fd
    assert not blanks.finish(first)
    assert list(path.parent.iterdir()) == []
    second = blanks.open(str(path.parent / "other"))
    assert second.fd == fd
    blanks.finish(second)


def test_a_stream_that_was_written_to_has_its_name_at_the_end_and_is_not_given_again(
    blanks: Blanks, path: Path
) -> None:
    bound = blanks.open(str(path))
    os.write(bound.fd, b"said")
    assert blanks.finish(bound)
    assert path.read_bytes() == b"said" and path.stat().st_mode & 0o777 == 0o600
    other = blanks.open(str(path.parent / "other"))
    assert os.fstat(other.fd).st_ino != path.stat().st_ino
    blanks.finish(other)


@pytest.mark.parametrize("change", ["bytes", "mode", "link"])
def test_a_stream_whose_file_was_changed_is_not_given_again(blanks: Blanks, path: Path, change: str) -> None:
    bound = blanks.open(str(path))
    kept = blanks._free[str(path.parent)]
    assert kept == []
    if change == "bytes":
        os.write(bound.fd, b"x")
    elif change == "mode":
        os.fchmod(bound.fd, 0o666)
    else:
        os.link(f"/proc/self/fd/{bound.fd}", path.parent / "stolen", src_dir_fd=bound.fd, follow_symlinks=True)
    blanks.finish(bound)
    assert kept == []


def test_the_next_task_finds_nothing_of_how_the_last_one_left_its_stream(blanks: Blanks, path: Path) -> None:
    bound = blanks.open(str(path))
    fcntl.fcntl(bound.fd, fcntl.F_SETFL, os.O_NONBLOCK)
    os.lseek(bound.fd, 100, os.SEEK_SET)
    blanks.finish(bound)
    bound = blanks.open(str(path))
    flags = fcntl.fcntl(bound.fd, fcntl.F_GETFL)
    assert flags & os.O_APPEND and not flags & os.O_NONBLOCK
    assert os.lseek(bound.fd, 0, os.SEEK_CUR) == 0
    blanks.finish(bound)


def test_a_stream_with_a_name_grows_on_and_is_cut_like_any_other(blanks: Blanks, path: Path) -> None:
    bound = blanks.open(str(path), MOST)
    fd = os.dup(bound.fd)
    blanks.name(bound)
    assert path.exists() and bound.fd == -1
    os.write(fd, b"HEAD" + b"x" * (MOST + SLACK))
    assert bound.look()
    os.close(fd)
    assert blanks.finish(bound) and bound.left_out > 0
    assert path.read_bytes().startswith(b"HEAD") and path.stat().st_size <= MOST


def test_a_long_stream_without_a_name_is_cut_too(blanks: Blanks, path: Path) -> None:
    bound = blanks.open(str(path), MOST)
    os.write(bound.fd, b"x" * (2 * MOST))
    assert blanks.finish(bound) and bound.left_out > 0
    assert path.stat().st_size <= MOST


def test_a_name_that_is_taken_is_taken_over_and_a_link_not_followed(blanks: Blanks, path: Path) -> None:
    (path.parent / "precious").write_bytes(b"precious")
    path.symlink_to("precious")
    bound = blanks.open(str(path))
    os.write(bound.fd, b"said")
    blanks.finish(bound)
    assert path.read_bytes() == b"said" and not path.is_symlink()
    assert (path.parent / "precious").read_bytes() == b"precious"


def test_where_there_are_no_files_without_a_name_others_serve(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_BLANK", os.O_WRONLY | os.O_DIRECTORY)  # as on a file system that has none
    blanks = Blanks()
    bound = blanks.open(str(path))
    assert not bound.is_blank and path.exists()
    bound.settle()
    assert not blanks.finish(bound) and not path.exists()


def test_only_so_many_files_are_held_open(blanks: Blanks, path: Path) -> None:
    bounds = [blanks.open(str(path.parent / str(at))) for at in range(100)]
    for bound in bounds:
        bound.settle()
    assert 0 < sum(bound.fd >= 0 for bound in bounds) < 100
    for bound in bounds:
        blanks.finish(bound)
    assert list(path.parent.iterdir()) == []


def test_guards_that_try_a_folder_at_the_same_time_do_not_hinder_each_other(tmp_path: Path) -> None:
    """Each may be process 1 of its namespace, and both write to one folder of logs."""
    (tmp_path / f".trial-{os.getpid()}.{os.getpid()}").touch()  # another one's, half way through
    bound = Blanks().open(str(tmp_path / "1.out"))
    assert bound.is_blank
    bound.close()


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ({"stdout": 1}, "1 byte of its stdout was left out"),
        ({"stdout": 1_234}, "1,234 bytes of its stdout were left out"),
        ({"stdout": 1, "stderr": 1}, "1 byte of its stdout and 1 byte of its stderr were left out"),
    ],
)
def test_what_was_left_out_is_counted_in_plain_words(left_out: dict[str, int], said: str) -> None:
    assert streams.not_whole("", left_out).startswith(said)
