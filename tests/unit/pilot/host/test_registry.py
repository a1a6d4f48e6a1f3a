"""The registry of pilots: who may use its folder, what its files hold, and whose locks prove what."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from shoal.model.credentials import alias
from shoal.pilot.host import registry
from shoal.pilot.host.registry import Entry, Record

NAME = "0123456789ab"


def enter(folder: str, work: str = f"/srv/ann/{NAME}", groups: tuple[str, ...] = ()) -> Entry:
    entry = Entry()
    assert entry.write(folder, registry.describe(work, os.getpid(), groups)) == ""
    return entry


def dead(folder: str) -> list[Record]:
    return [pilot.record for pilot in registry.dead_pilots(folder)]


def test_a_folder_that_is_not_safely_ours_is_not_used(tmp_path: Path) -> None:
    folder = Path(registry.find_folder(str(tmp_path)))
    assert folder.is_dir() and registry.find_folder(str(tmp_path)) == str(folder)
    for mode in (0o755, 0o770, 0o777):
        folder.chmod(mode)
        assert registry.find_folder(str(tmp_path)) == ""
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert registry.find_folder(str(tmp_path)) == ""
    folder.unlink()
    folder.touch()
    assert registry.find_folder(str(tmp_path)) == ""


@pytest.mark.skipif(os.getuid() != 0, reason="NOT SHOWN: only root can give a folder to another user")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    os.chown(registry.find_folder(str(tmp_path)), 12345, 12345)
    assert registry.find_folder(str(tmp_path)) == ""


def test_without_a_folder_nothing_is_written_and_nobody_is_dead() -> None:
    entry = enter("")
    entry.join("server", "session")
    assert entry.path == "" and dead("") == []
    entry.remove()


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    folder = registry.find_folder(str(tmp_path))
    odd = f"/srv/a\nb\udce9/{NAME}"
    entry = enter(folder, odd, ("/sys/fs/cgroup/a", "b"))
    entry.join("a much longer name of a server", "first")
    entry.join("server", "second")
    assert dead(folder) == []
    os.close(entry._fd)  # as if this process had been killed
    (record,) = dead(folder)
    assert (record.work, record.groups) == (odd, ("/sys/fs/cgroup/a", "b"))
    assert (record.server, record.session) == ("server", alias("second"))
    assert record.mark.startswith(f"{NAME}:") and registry.MARK_FORM.fullmatch(record.mark)


def test_who_ends_in_order_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = registry.find_folder(str(tmp_path))
    one, two = enter(folder), enter(folder, "/srv/ann/ba9876543210")
    one.remove()
    assert os.listdir(folder) == ["ba9876543210"]
    two.remove()
    two.remove()
    assert list(tmp_path.iterdir()) == []
    enter(folder).remove()  # the folder is made anew
    assert list(tmp_path.iterdir()) == []


def test_a_pilot_that_cannot_enter_says_why(tmp_path: Path) -> None:
    folder = registry.find_folder(str(tmp_path))
    entry = enter(folder)
    again = Entry().write(str(tmp_path / "a" / "b"), registry.describe(f"/srv/ann/{NAME}", os.getpid()))
    assert again == f"this pilot is not in the registry {tmp_path}/a/b: No such file or directory"
    entry.remove()


def test_only_one_cleans_up_and_only_when_the_guard_is_dead(tmp_path: Path) -> None:
    folder = registry.find_folder(str(tmp_path))
    entry = enter(folder)
    os.close(entry._fd)
    for pilot in registry.dead_pilots(folder):
        for other in registry.dead_pilots(folder):
            assert pilot.take() and not other.take()
        pilot.remove()
    guard = enter(folder)
    registry.hold(guard.path)
    os.close(guard._fd)
    assert [pilot.take() for pilot in registry.dead_pilots(folder)] == [False]


@pytest.mark.parametrize("content", ["{", "", "a\0b\0c\0d\0e\0f\0g", "\0" * 40])
def test_files_that_hold_no_record_are_removed(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    assert dead(str(tmp_path)) == [] and not (tmp_path / NAME).exists()


def test_a_file_that_is_about_to_be_written_is_left_alone_for_a_while(tmp_path: Path) -> None:
    part = tmp_path / f".{NAME}"
    part.touch()
    assert dead(str(tmp_path)) == [] and part.exists()
    os.utime(part, (time.time() - 2 * registry.KEPT,) * 2)
    assert dead(str(tmp_path)) == [] and not part.exists()
