"""What dead pilots left, and who may be taken for one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.model.credentials import alias
from shoal.pilot.guard import proctree
from shoal.pilot.host import cleanup, registry
from shoal.pilot.host.registry import Entry

NAME = "0123456789ab"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def line_of(work: Path, pilot: int, guard: int) -> registry.Record:
    known = registry.describe(str(work / NAME), guard)
    return replace(known, pilot=f"{pilot}.{proctree.began(pilot)}")


def ended() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def world(tmp_path: Path) -> tuple[str, Path]:
    """A registry and the work directory of a pilot."""
    work = tmp_path / "work" / NAME
    (work / "tasks").mkdir(parents=True)
    return registry.find_folder(str(tmp_path)), work


def enter(folder: str, work: Path) -> Entry:
    entry = Entry()
    assert entry.write(folder, registry.describe(str(work), os.getpid())) == ""
    return entry


def die(entry: Entry) -> None:
    """As if this process had been killed."""
    os.close(entry._fd)


def test_a_pilot_that_lives_keeps_its_directory_and_one_that_is_dead_does_not(world: tuple[str, Path]) -> None:
    folder, work = world
    entry = enter(folder, work)
    assert cleanup.sweep(folder).folders == () and work.exists()
    die(entry)
    assert cleanup.sweep(folder).folders == (str(work),)
    assert not work.exists() and os.listdir(folder) == []


def test_a_guard_that_lives_keeps_the_directory(world: tuple[str, Path]) -> None:
    folder, work = world
    entry = enter(folder, work)
    code = (
        "import sys; from shoal.pilot.host import registry; registry.hold(sys.argv[1]); print(1, flush=True); input()"
    )
    guard = subprocess.Popen([sys.executable, "-c", code, entry.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert guard.stdout is not None and guard.stdout.readline()
    die(entry)
    assert cleanup.sweep(folder).folders == () and work.exists()
    guard.kill()
    guard.communicate()
    assert cleanup.sweep(folder).folders == (str(work),)


@pytest.mark.parametrize("name", ["precious", "0123456789ac"])
def test_a_record_that_names_a_directory_of_others_costs_nobody_theirs(world: tuple[str, Path], name: str) -> None:
    folder, work = world
    theirs = work.parent / name
    theirs.mkdir()
    Path(folder, NAME).write_bytes(registry.describe(str(theirs), os.getpid()).encode())
    assert cleanup.sweep(folder).folders == () and theirs.exists()


def test_a_dead_pilot_that_had_joined_is_cleaned_up_once_and_stays_to_be_reported(world: tuple[str, Path]) -> None:
    folder, work = world
    entry = enter(folder, work)
    entry.join("server", "session")
    die(entry)
    assert cleanup.sweep(folder).folders == (str(work),)
    work.mkdir()  # another pilot might get the same name
    assert cleanup.sweep(folder).folders == () and work.exists()
    assert os.listdir(folder) == [NAME]
    os.utime(entry.path, (time.time() - 2 * registry.KEPT,) * 2)
    cleanup.sweep(folder)
    assert os.listdir(folder) == []


HOLD = """
import os, sys, time
from shoal.pilot.host.registry import Entry, describe
entry = Entry()
entry.write(sys.argv[1], describe(sys.argv[2], os.getpid()))
entry.join("server", sys.argv[3])
print("held", flush=True)
time.sleep(600)
"""


def holder(folder: str, work: Path, session: str) -> subprocess.Popen[str]:
    """Another process that is the pilot with this session."""
    words = [sys.executable, "-c", HOLD, folder, str(work), session]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()


def sweeper(folder: str, server: str = "server") -> cleanup.Sweeper:
    return cleanup.Sweeper(folder, server, print, lambda sessions: None)


def test_a_killed_pilot_is_reported_once_and_a_living_one_is_not(world: tuple[str, Path]) -> None:
    folder, work = world
    here = sweeper(folder)
    one, two = (holder(folder, work.parent / (digit * 12), digit) for digit in "12")
    try:
        assert here.dead() == []
        kill(one)
        assert here.dead() == here.dead() == [alias("1")], "until it was reported"
        cleanup.sweep(folder)
        assert here.dead() == [alias("1")], "also after it was cleaned up"
        here.reported.add(alias("1"))
        assert here.dead() == [], "reported once"
        assert sweeper(folder).dead() == [alias("1")], "but everybody may report it"
        assert sweeper(folder, "another").dead() == []
    finally:
        kill(two)
    assert here.dead() == [alias("2")]


def test_a_pilot_that_ends_forgets_whom_it_has_reported(world: tuple[str, Path]) -> None:
    folder, work = world
    entry, here = enter(folder, work), sweeper(folder)
    entry.join("server", "mine")
    kill(holder(folder, work.parent / ("1" * 12), "1"))
    here.forget_reported()
    assert here.dead() == [alias("1")]
    here.reported.add(alias("1"))
    here.forget_reported()
    entry.remove()
    assert not os.path.exists(folder)


def test_a_pilot_of_another_boot_is_cleaned_up_and_not_reported(world: tuple[str, Path]) -> None:
    folder, work = world
    entry = Entry()
    entry.write(folder, replace(registry.describe(str(work), os.getpid()), boot="0-1"))
    entry.join("server", "old")
    die(entry)  # as if the machine had gone down
    assert sweeper(folder).dead() == []
    assert cleanup.sweep(folder).folders == (str(work),)


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
    line = line_of(tmp_path, dead, dead)
    line = replace(line, namespace=space or line.namespace)
    code = "env -i sh -c 'sleep 600; true' & setsid sleep 601; true"
    process = subprocess.Popen(["sh", "-c", code], env={"PATH": os.environ["PATH"], registry.MARK: line.mark})
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
        ({registry.MARK: "x"}, "x"),
        ({"A": "1", registry.MARK: "y"}, "y"),
        ({f"Z{registry.MARK}": "z"}, ""),
    ):
        process = subprocess.Popen(["/bin/sleep", "600"], env=env)
        try:
            while proctree.command_line(process.pid)[:1] != ["/bin/sleep"]:
                time.sleep(0.005)
            assert cleanup.mark_of(process.pid) == mark
        finally:
            process.kill()
            process.wait()
