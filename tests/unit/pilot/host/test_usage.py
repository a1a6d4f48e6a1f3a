"""What changes of a host, and when the server is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from shoal.pilot.guard import proctree
from shoal.pilot.host.usage import MEASURE_EVERY, SEND_EVERY, HostUsage
from shoal.pilot.uplink.latency import Latency


class Host:
    """A false /proc and a clock."""

    def __init__(self, root: Path) -> None:
        self.root, self.now, self.room = root, 1000.0, 1 << 40
        (root / "proc").mkdir()
        self.network = Latency(Random(1))
        self.load("1.00")
        self.memory(1000)
        self.usage = HostUsage(str(root), [0], self.network, lambda: self.room, lambda: self.now, str(root))

    def load(self, text: str) -> None:
        (self.root / "proc/loadavg").write_text(f"{text} 0.5 0.4 1/300 4711\n")

    def memory(self, mebi: int) -> None:
        (self.root / "proc/meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {mebi * 1024} kB\n")

    def stat(self, pid: int, *, own: int, children: int, pages: int) -> None:
        fields = ["S", "1", "1", "1", "0", "-1", "0", "0", "0", "0", "0", str(own), "0", str(children), "0"]
        fields += ["20", "0", "1", "0", "5", "1000000", str(pages), "99"]
        (self.root / f"proc/{pid}").mkdir(exist_ok=True)
        (self.root / f"proc/{pid}/stat").write_text(f"{pid} (a) b) {' '.join(fields)}\n")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(proctree, "descend", lambda pid: [pid])
    return Host(tmp_path)


def test_a_registration_has_all_of_it(host: Host) -> None:
    host.network.answered(0.004)
    told = host.usage.all()
    assert (told["load"], told["memory_available_mb"], told["task_memory_mb"], told["lag_ms"]) == (1.0, 1000, 0, 4.0)
    free = told["disk_available_mb"]
    assert isinstance(free, int) and free > 0
    assert host.usage.changed() == {}


def test_only_what_changed_noticeably_is_told_and_not_often(host: Host) -> None:
    host.usage.all()
    host.load("5.00")
    host.now += MEASURE_EVERY
    assert host.usage.changed() == {}, "it was told something lately"
    host.now += SEND_EVERY
    host.memory(950)
    assert host.usage.changed() == {"load": 5.0}
    host.memory(800)
    host.now += SEND_EVERY - 1
    assert host.usage.changed() == {}
    host.now += 1
    assert host.usage.changed() == {"memory_available_mb": 800}
    host.load("5.40")
    host.now += 10 * SEND_EVERY
    assert host.usage.changed() == {}


def test_a_small_change_that_goes_on_is_told_in_the_end(host: Host) -> None:
    host.usage.all()
    told = []
    for step in range(10):
        host.memory(1000 - 20 * step)
        host.now += SEND_EVERY
        told += list(host.usage.changed().values())
    assert told == [880]


def test_a_limited_cgroup_counts(host: Host) -> None:
    host.room = 100 << 20
    assert host.usage.all()["memory_available_mb"] == 100


def test_memory_and_cpu_of_tasks_are_those_below_the_guard(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proctree, "descend", lambda pid: [0, 7, 8, 9])
    mebi = (1 << 20) // os.sysconf("SC_PAGE_SIZE")
    ticks = os.sysconf("SC_CLK_TCK")
    host.stat(0, own=1000 * ticks, children=5 * ticks, pages=1000 * mebi)
    host.stat(7, own=2 * ticks, children=0, pages=60 * mebi)
    host.stat(8, own=1 * ticks, children=1 * ticks, pages=20 * mebi)
    told = host.usage.all()
    assert (told["task_memory_mb"], told["task_cpu"]) == (80, 0.0)
    # One ended and is counted with the guard, the other went on: 15 seconds more within 30.
    monkeypatch.setattr(proctree, "descend", lambda pid: [0, 8])
    host.stat(0, own=2000 * ticks, children=10 * ticks, pages=1000 * mebi)
    host.stat(8, own=13 * ticks, children=1 * ticks, pages=20 * mebi)
    host.now += 30.0
    assert host.usage.changed() == {"task_cpu": 0.5, "task_memory_mb": 20}


def test_looks_that_take_long_become_rare(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.usage.all()
    looks = []

    def descend(pid: int) -> list[int]:
        looks.append(host.now)
        host.now += 1.0
        return [pid]

    monkeypatch.setattr(proctree, "descend", descend)
    while host.now < 2000.0:
        host.now += 10.0
        host.usage.changed()
    assert 4 <= len(looks) <= 6


def test_on_this_machine_it_finds_a_child_that_works() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "x = bytearray(60 << 20)\nprint(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        told = HostUsage("/", [os.getpid()], Latency(Random(1))).all()
    finally:
        child.kill()
        child.wait()
        child.stdout.close() if child.stdout is not None else None
    memory = told["task_memory_mb"]
    assert isinstance(memory, int) and memory >= 60
    assert isinstance(told["load"], float)
