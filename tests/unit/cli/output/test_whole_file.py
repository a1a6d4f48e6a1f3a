"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from shoal.cli.output.whole_file import write_whole


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
