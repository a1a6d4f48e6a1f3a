"""Copies on a disk: whole or not at all, bounded, and only where nobody else can write."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from shoal.model import limits
from shoal.model.limits import COPY_KEPT
from shoal.pilot.leader import spool as spools
from shoal.pilot.leader.spool import Spool, folder_in
from shoal.wire.messages import Sealed

SERVER = "0123456789abcdef"


def copy(number: int, pilot: str = "p1", size: int = 10) -> Sealed:
    return Sealed(pilot, "x" * size, f"{number:064x}")


def test_what_is_put_is_found_by_the_next_pilot(tmp_path: Path) -> None:
    folder = folder_in(str(tmp_path))
    assert Spool(folder, SERVER).put(copy(1))
    assert Spool(folder, SERVER).put(copy(1)), "it is here already"
    assert Spool(folder, SERVER).put(copy(2, "p2"))
    again = Spool(folder, SERVER)
    assert again.copies("", 10, 1 << 20) == [copy(1), copy(2, "p2")]
    assert again.copies("p1", 10, 1 << 20) == [copy(2, "p2")]
    assert again.copies("", 10, 1 << 20, [copy(1).seal]) == [copy(2, "p2")]
    assert again.copies("", 1, 1 << 20) == [copy(1)]
    assert again.copies("", 10, 5) == [copy(1)]
    again.drop("p1", [copy(1).seal, "../../x", copy(7).seal])
    assert again.copies("", 10, 1 << 20) == [copy(2, "p2")]


def test_copies_for_another_server_are_not_touched(tmp_path: Path) -> None:
    folder = folder_in(str(tmp_path))
    Spool(folder, "f" * 16).put(copy(1))
    assert Spool(folder, SERVER).copies("", 10, 1 << 20) == []
    assert len(list(Path(folder).iterdir())) == 1


@pytest.mark.parametrize("odd", [Sealed("../p1", "", "0" * 64), Sealed("p1", "", "../x"), Sealed("p1", "", "")])
def test_a_name_leads_nowhere_else(odd: Sealed, tmp_path: Path) -> None:
    folder = folder_in(str(tmp_path))
    assert not Spool(folder, SERVER).put(odd)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_copy_or_too_old_is_removed(tmp_path: Path) -> None:
    folder = Path(folder_in(str(tmp_path)))
    spool = Spool(str(folder), SERVER)
    for number in range(4):
        spool.put(copy(number))
    paths = sorted(folder.iterdir())
    paths[0].write_bytes(paths[0].read_bytes()[:-1])
    old = time.time() - COPY_KEPT - 1
    os.utime(paths[1], (old, old))
    paths[2].unlink()
    paths[2].symlink_to(paths[3])
    assert spool.copies("", 10, 1 << 20) == [copy(3)]
    assert sorted(folder.iterdir()) == paths[3:]


def test_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "MAX_COPIES", 2)
    spool = Spool(folder_in(str(tmp_path)), SERVER)
    assert [spool.put(copy(number)) for number in range(3)] == [True, True, False]
    monkeypatch.setattr(spools, "MAX_COPIES", limits.MAX_COPIES)
    monkeypatch.setattr(spools, "MAX_COPIES_BYTES", 1_000)
    assert not spool.put(copy(4, size=1_000))


def test_a_folder_that_others_can_reach_is_not_used(tmp_path: Path) -> None:
    folder = Path(folder_in(str(tmp_path)))
    spool = Spool(str(folder), SERVER)
    assert spool.copies("", 1, 1) == []
    assert not folder.exists(), "it is made with the first copy"
    assert spool.put(copy(1))
    folder.chmod(0o755)
    assert not spool.put(copy(2))
    assert spool.copies("", 10, 1 << 20) == []
    folder.chmod(0o700)
    spool.drop("p1", [copy(1).seal])
    assert not folder.exists(), "and goes with the last"
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert not spool.put(copy(1))
    assert not Spool(str(tmp_path / "no" / "such"), SERVER).put(copy(1))


def test_a_folder_below_one_of_a_project_is_ours_all_the_same(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    spool = Spool(folder_in(str(tmp_path)), SERVER)
    assert spool.put(copy(1)) and spool.copies("", 10, 1 << 20) == [copy(1)]


def test_old_copies_for_any_server_make_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "MAX_COPIES", 3)
    folder = folder_in(str(tmp_path))
    for number in range(3):
        assert Spool(folder, "f" * 16).put(copy(number))
    assert not Spool(folder, SERVER).put(copy(9))
    old = time.time() - COPY_KEPT - 60.0
    for name in os.listdir(folder):
        os.utime(os.path.join(folder, name), (old, old))
    assert Spool(folder, SERVER).put(copy(9))
