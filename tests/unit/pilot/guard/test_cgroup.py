"""Control groups in a folder that looks like the kernel's; `tests/integration/test_certain_end.py` has the real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.pilot.guard import cgroup


class Kernel:
    """A false /proc and /sys. Files that the kernel would put into a new group are put there by `mkdir`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, lines: str, files: dict[str, list[str]]) -> None:
        self.root, self.files = root, files
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(lines)
        for folder in files:
            self.make(root / folder)
        really = os.mkdir

        def mkdir(path: str, *more: int) -> None:
            really(path, *more)
            self.furnish(Path(path))

        monkeypatch.setattr(os, "mkdir", mkdir)
        rmdir = os.rmdir

        def remove(path: str) -> None:
            for name in self._names(Path(path)):
                (Path(path) / name).unlink(missing_ok=True)
            rmdir(path)

        monkeypatch.setattr(os, "rmdir", remove)

    def make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.furnish(folder)

    def furnish(self, folder: Path) -> None:
        for name in self._names(folder):
            (folder / name).touch()

    def _names(self, folder: Path) -> list[str]:
        for top, names in self.files.items():
            if folder.is_relative_to(self.root / top):
                return names
        return []


V1 = [
    "cgroup.procs",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.oom_control",
]
V2 = ["cgroup.procs", "cgroup.kill", "cgroup.subtree_control", "memory.max", "memory.swap.max", "memory.current"]


def test_version_1_gives_a_memory_limit_and_a_freezer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"sys/fs/cgroup/memory/job": V1, "sys/fs/cgroup/freezer": ["cgroup.procs", "freezer.state"]}
    Kernel(tmp_path, monkeypatch, "4:memory:/job\n6:freezer:/\n", files)
    groups = cgroup.make("abc", str(tmp_path))
    assert groups.kill == str(tmp_path / "sys/fs/cgroup/freezer/shoal-abc")
    assert groups.memory == str(tmp_path / "sys/fs/cgroup/memory/job/shoal-abc")
    limits = cgroup.MemoryLimits(groups.memory)
    one = limits.take(100 << 20, 77)
    assert Path(one, "cgroup.procs").read_text() == "77"
    assert Path(one, "memory.limit_in_bytes").read_text() == str(108 << 20)  # the kernel's own pages count, too
    assert not cgroup.has_killed(one)
    Path(one, "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert cgroup.has_killed(one)


def test_version_2_gives_a_memory_limit_where_it_is_delegated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel(tmp_path, monkeypatch, "0::/user/me\n", {"sys/fs/cgroup": V2})
    own = tmp_path / "sys/fs/cgroup/user/me"
    own.mkdir(parents=True)
    for name in V2:
        (own / name).touch()
    (own / "cgroup.subtree_control").write_text("memory pids\n")
    groups = cgroup.make("abc", str(tmp_path))
    assert groups.kill == str(own / "shoal-abc") and groups.memory == str(own / "shoal-abc-memory")
    one = cgroup.MemoryLimits(groups.memory).take(1 << 30, 5)
    assert Path(one, "memory.swap.max").read_text() == "0" and int(Path(one, "memory.max").read_text()) > 1 << 30


def test_a_group_that_is_as_good_as_new_serves_again_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kernel(tmp_path, monkeypatch, "4:memory:/\n", {"sys/fs/cgroup/memory": V1})
    limits = cgroup.MemoryLimits(cgroup.make("abc", str(tmp_path), may_kill=False).memory)
    one = limits.take(1 << 20, 1)
    Path(one, "memory.usage_in_bytes").write_text("4096\n")
    Path(one, "cgroup.procs").write_text("")
    limits.give_back(one)
    assert limits.take(1 << 20, 2) == one
    Path(one, "memory.usage_in_bytes").write_text(f"{50 << 20}\n")  # a file in memory that it left
    Path(one, "cgroup.procs").write_text("")
    limits.give_back(one)
    assert not Path(one).exists() and limits.take(1 << 20, 3) not in ("", one)


@pytest.mark.parametrize("lines", ["", "0::/\n", "4:memory:/gone\n"])
def test_a_host_without_writable_groups_has_none(tmp_path: Path, lines: str) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(lines)
    assert cgroup.make("abc", str(tmp_path)) == cgroup.Groups()
    assert cgroup.MemoryLimits(str(tmp_path / "none")).take(1, 1) == ""


def test_only_groups_of_ours_are_ever_ended(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("1\n")
    assert cgroup.end(str(tmp_path)) == 0 and tmp_path.exists()
