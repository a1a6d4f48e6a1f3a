"""`shoal server backup` and `shoal pilot build` write where a person says, whatever is there."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from shoal.db.backups import check_file
from shoal.db.sqlite import Database
from tests.unit.cli.conftest import Typed


def _read_all(pipe: Path, found: list[bytes]) -> threading.Thread:
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    return reader


def test_a_backup_goes_into_a_pipe_and_through_a_link(typed: Typed, tmp_path: Path) -> None:
    state = tmp_path / "server"
    state.mkdir()
    Database.open(str(state / "shoal.db")).close()
    read: list[bytes] = []
    reader = _read_all(tmp_path / "pipe", read)
    status, out, err = typed("server", "backup", "--state", str(state), "pipe")
    assert (status, err) == (0, "") and out.startswith(f"backup: {tmp_path}/pipe (0 runs")
    assert (tmp_path / "pipe").is_fifo()
    reader.join(60)
    (tmp_path / "copy").write_bytes(read[0])
    assert check_file(str(tmp_path / "copy")) == []
    assert list((state / "backups").iterdir()) == []
    (tmp_path / "link").symlink_to("real")
    assert typed("server", "backup", "--state", str(state), "link")[0] == 0
    assert (tmp_path / "link").is_symlink() and check_file(str(tmp_path / "real")) == []
    status, _, err = typed("server", "backup", "--state", str(state), ".")
    assert (status, err) == (
        3, "shoal: cannot write .: Is a directory (name a file in a directory that you can write to)\n"
    )  # fmt: skip


def test_a_pilot_is_built_into_a_pipe_and_through_a_link(typed: Typed, tmp_path: Path) -> None:
    read: list[bytes] = []
    reader = _read_all(tmp_path / "pipe", read)
    assert typed("pilot", "build", "-o", "pipe")[0] == 0
    assert (tmp_path / "pipe").is_fifo()
    reader.join(60)
    (tmp_path / "link").symlink_to("real")
    assert typed("pilot", "build", "-o", "link")[0] == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == read[0]
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o755
