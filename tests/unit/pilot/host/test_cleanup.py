"""What dead pilots left, and who may be taken for one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.pilot.guard import proctree
from shoal.pilot.host import cleanup, host_lock

NAME = "0123456789ab"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def line_of(work: Path, pilot: int, guard: int) -> cleanup.RegistryLine:
    known = cleanup.describe(str(work), guard)
    return replace(known, pilot=f"{pilot}.{proctree.began(pilot)}")


def ended() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_registry_that_is_not_safely_ours_is_not_used(tmp_path: Path) -> None:
    folder = Path(cleanup.registry(str(tmp_path)))
    assert folder.is_dir() and cleanup.registry(str(tmp_path)) == str(folder)
    folder.chmod(0o755)
    assert cleanup.registry(str(tmp_path)) == ""
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert cleanup.registry(str(tmp_path)) == ""


def test_a_line_that_is_held_keeps_its_directory_and_one_that_is_free_does_not(tmp_path: Path) -> None:
    registry, work = tmp_path / "registry", tmp_path / NAME
    registry.mkdir(mode=0o700)
    (work / "tasks").mkdir(parents=True)
    entry = cleanup.Entry()
    entry.write(str(registry), cleanup.describe(str(work), os.getpid()))
    assert cleanup.sweep(str(registry)).folders == () and work.exists()
    os.close(entry._fd)  # as if this process had been killed
    entry._fd = -1
    assert cleanup.sweep(str(registry)).folders == (str(work),)
    assert not work.exists() and list(registry.iterdir()) == []


def test_a_guard_that_lives_keeps_the_line(tmp_path: Path) -> None:
    registry, work = tmp_path / "registry", tmp_path / NAME
    registry.mkdir(mode=0o700)
    work.mkdir()
    entry = cleanup.Entry()
    entry.write(str(registry), cleanup.describe(str(work), os.getpid()))
    code = (
        "import sys; from shoal.pilot.host import host_lock; host_lock.hold(sys.argv[1]); print(1, flush=True); input()"
    )
    guard = subprocess.Popen([sys.executable, "-c", code, entry.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert guard.stdout is not None and guard.stdout.readline()
    os.close(entry._fd)
    assert cleanup.sweep(str(registry)).folders == () and work.exists()
    guard.kill()
    guard.communicate()
    assert cleanup.sweep(str(registry)).folders == (str(work),)


@pytest.mark.parametrize("name", ["precious", "0123456789ac"])
def test_a_line_that_names_a_directory_of_others_costs_nobody_theirs(tmp_path: Path, name: str) -> None:
    registry, theirs = tmp_path / "registry", tmp_path / name
    registry.mkdir(mode=0o700)
    theirs.mkdir()
    entry = cleanup.Entry()
    entry.write(str(registry), replace(cleanup.describe(str(theirs), os.getpid()), name=NAME))
    os.close(entry._fd)
    assert cleanup.sweep(str(registry)).folders == () and theirs.exists()


def test_lines_that_nobody_can_read_go(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    assert cleanup.sweep(str(tmp_path)) == cleanup.Swept()
    assert not (tmp_path / NAME).exists()


def test_tasks_are_abandoned_only_when_nobody_can_end_them(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    us, dead = os.getpid(), ended()
    assert not cleanup.is_abandoned(line_of(tmp_path, us, sleeper.pid).mark)
    assert not cleanup.is_abandoned(line_of(tmp_path, us, dead).mark)  # the pilot sees to it
    assert not cleanup.is_abandoned(line_of(tmp_path, dead, sleeper.pid).mark)  # the guard does
    assert cleanup.is_abandoned(line_of(tmp_path, dead, dead).mark)
    os.kill(sleeper.pid, signal.SIGSTOP)
    while proctree.state(sleeper.pid) != "T":
        time.sleep(0.005)
    assert not cleanup.is_abandoned(line_of(tmp_path, us, sleeper.pid).mark)
    assert cleanup.is_abandoned(line_of(tmp_path, dead, sleeper.pid).mark)  # a stopped guard
    assert cleanup.is_abandoned(line_of(tmp_path, sleeper.pid, dead).mark)  # a stopped pilot


def test_a_number_that_somebody_else_has_now_is_nobody(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    mark = ":".join((NAME, "1", f"{sleeper.pid}.1", f"{sleeper.pid}.1"))
    assert cleanup.is_abandoned(mark)


@pytest.mark.parametrize("space", ["", "1"])
def test_marked_processes_end_with_all_below_them_unless_another_namespace_says_so(tmp_path: Path, space: str) -> None:
    dead = ended()
    line = replace(line_of(tmp_path, dead, dead), name=NAME)
    line = replace(line, namespace=space or line.namespace)
    code = "env -i sh -c 'sleep 600; true' & setsid sleep 601; true"
    process = subprocess.Popen(["sh", "-c", code], env={"PATH": os.environ["PATH"], host_lock.MARK: line.mark})
    try:
        while len(proctree.descend(process.pid)) < 4:
            time.sleep(0.005)
        family = proctree.descend(process.pid)
        swept = cleanup.sweep("")
        if space:
            assert swept.processes == 0 and not any(map(proctree.is_zombie, family))
        else:
            assert swept.processes >= len(family)
            assert process.wait(10) == -signal.SIGKILL and all(map(proctree.is_zombie, family))
    finally:
        for pid in reversed(proctree.descend(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def test_a_mark_is_found_only_as_a_variable_of_its_own(sleeper: subprocess.Popen[bytes]) -> None:
    for env, mark in (
        ({host_lock.MARK: "x"}, "x"),
        ({"A": "1", host_lock.MARK: "y"}, "y"),
        ({f"Z{host_lock.MARK}": "z"}, ""),
    ):
        process = subprocess.Popen(["/bin/sleep", "600"], env=env)
        try:
            while proctree.words(process.pid)[:1] != ["/bin/sleep"]:
                time.sleep(0.005)
            assert cleanup.mark_of(process.pid) == mark
        finally:
            process.kill()
            process.wait()


def test_a_lock_is_shared_by_pilot_and_guard(tmp_path: Path) -> None:
    path = tmp_path / "line"
    path.touch()
    host_lock.hold(str(path))
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
