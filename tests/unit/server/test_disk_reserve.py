"""The space that a server keeps for its last words: made, given up, made again; and what it means to be full."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from shoal.model.limits import MAX_RESERVE, RESERVE_SHARE
from shoal.server.disk_reserve import Reserve, is_full

MIB = 1 << 20


class Disk:
    """A disk of our own: so large, with so much free beside the reserve."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
        self.total, self.free = total, free
        monkeypatch.setattr(os, "statvfs", self.statvfs)

    def statvfs(self, path: object) -> SimpleNamespace:
        return SimpleNamespace(f_blocks=self.total // 4096, f_frsize=4096, f_bavail=self.free // 4096)


def test_it_is_a_part_of_a_small_disk_and_bounded_on_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, 16 * MIB, 10 * MIB)
    assert Reserve(tmp_path).size == 16 * MIB // RESERVE_SHARE
    disk.total = 1 << 40
    assert Reserve(tmp_path).size == MAX_RESERVE
    assert Reserve(tmp_path, MIB).size == MIB


def test_it_takes_real_space_and_gives_it_back(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, MIB)
    assert reserve.open() == ""
    assert reserve.path.stat().st_blocks * 512 >= MIB
    assert reserve.path.stat().st_mode & 0o777 == 0o600
    assert reserve.give_up() and reserve.path.stat().st_blocks == 0
    assert not reserve.give_up(), "there is nothing left to give"
    assert reserve.keep() and reserve.path.stat().st_size == MIB


def test_it_is_made_again_only_when_there_is_space_for_others_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, 1 << 40, 2 * MIB)
    reserve = Reserve(tmp_path, MIB)
    assert reserve.open() == ""
    disk.free = 0
    assert not reserve.has_space() and reserve.give_up()
    disk.free = MIB * 5 // 4
    assert not reserve.keep()
    disk.free = 2 * MIB
    assert reserve.keep() and reserve.has_space() and not reserve.has_space(2 * MIB)


def test_a_start_on_a_full_disk_gives_it_up_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Reserve(tmp_path, MIB).open()
    disk = Disk(monkeypatch, 1 << 40, 1000)
    reserve = Reserve(tmp_path, MIB)
    assert reserve.open().startswith("the disk is full, or nearly")
    assert reserve.path.stat().st_blocks == 0
    disk.free = 0
    Reserve(tmp_path, MIB).open()


def test_a_quota_counts_as_full_and_a_file_system_without_the_call_as_well_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(code: int) -> None:
        def refuse(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "posix_fallocate", refuse)

    fail(errno.EDQUOT)
    assert Reserve(tmp_path, MIB).open() != ""
    fail(errno.EOPNOTSUPP)
    reserve = Reserve(tmp_path, MIB)
    assert reserve.open() == "" and not reserve.give_up()


def test_a_full_disk_is_told_from_other_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_full(tmp_path) and not is_full(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert is_full(tmp_path)
