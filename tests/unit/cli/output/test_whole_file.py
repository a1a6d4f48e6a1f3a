"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from shoal.cli.output.whole_file import file_to_replace, write_whole


def test_a_full_disk_leaves_the_file_as_it_was_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ("long" * 60)
    write_whole(str(file), "first")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(str(file), "second")
    assert file.read_text() == "first" and list(tmp_path.iterdir()) == [file]


def test_a_file_that_could_not_be_written_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_whole(str(tmp_path / "none" / "w.dag.rescue001"), "text")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_whole(str(pipe), "text")
    if not stat.S_ISFIFO(pipe.lstat().st_mode):  # it was replaced: the reader still waits for somebody to open it
        pytest.fail("the pipe was replaced by a file")
    reader.join(60)
    assert read == ["text"] and list(tmp_path.iterdir()) == [pipe]


def test_a_device_stays_one(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        device.read_bytes()
    except OSError:
        pytest.skip("no device can be made here")
    write_whole(str(device), "text")
    assert stat.S_ISCHR(device.lstat().st_mode) and list(tmp_path.iterdir()) == [device]


def test_of_a_link_the_file_is_replaced_that_it_leads_to(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to("real")
    write_whole(str(link), "first")
    before = real.stat().st_ino
    write_whole(str(link), "second", 0o755)
    assert link.is_symlink() and real.read_text() == "second"
    assert real.stat().st_ino != before and real.stat().st_mode & 0o777 == 0o755


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        write_whole(str(tmp_path), "text")
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_name_any_more_is_written_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as opened:
        file.unlink()
        assert file_to_replace(f"/proc/self/fd/{opened.fileno()}") is None
