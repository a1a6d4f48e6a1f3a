"""Pilot and guard killed together: no payload survives, none of two copies of an exclusive task meet, nothing is left on
the disk. Once with the PID namespace that root may make, and once without, where the next pilot sweeps."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal.pilot.host import cleanup, registry
from tests.integration.cluster import MOST_PIDS, Cluster, PilotProcess, comm, is_dead, processes_with

pytestmark = pytest.mark.integration

PLAIN = "--no-pid-namespace"

# Writes a beat with the time into a ledger, from itself and from two grandchildren in sessions of their own.
FAMILY = """
import json, os, sys, time
ledger, me = sys.argv[1], os.environ["SHOAL_ATTEMPT"]
def beat(who):
    out = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    while True:
        os.write(out, (json.dumps([me, who, time.monotonic()]) + "\\n").encode())
        time.sleep(0.02)
for who in ("first", "second"):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            beat(who)
        os._exit(0)
beat("main")
"""

# Stops and then kills whoever watches it, as far as it can see them, and goes on for ever.
REBEL = """
import os, signal, sys, time
open(sys.argv[1], "w").write("began")
me, tries = os.getpid(), {os.getppid(), 1}
while True:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if open(f"/proc/{name}/comm").read().strip() in ("shoal-pilot", "shoal-guard"):
                if sys.argv[2].encode() in open(f"/proc/{name}/cmdline", "rb").read():
                    tries.add(int(name))
        except OSError:
            pass
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in tries - {1, me} if len(tries) > 2 else tries - {me}:
            try:
                os.kill(pid, number)
            except OSError:
                pass
    with open(sys.argv[1], "a") as file:
        file.write("x")
    time.sleep(0.02)
"""


def may_confine() -> bool:
    """May a process here make a PID namespace?"""
    if os.geteuid() != 0:
        return False
    pid = os.fork()
    if pid == 0:
        from shoal.pilot.guard import pid_namespace

        try:
            pid_namespace.leave()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


needs_root = pytest.mark.skipif(not may_confine(), reason="NOT SHOWN: a PID namespace may not be made here")


def kill_both(pilot: PilotProcess) -> float:
    """kill -9 of pilot and guard so that neither can act on the death of the other; when that was."""
    guard = pilot.guard
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (pilot.pid, guard):
            os.kill(pid, number)
    killed = time.monotonic()
    pilot.process.wait(30)
    return killed


def beats(ledger: Path) -> list[tuple[str, str, float]]:
    with contextlib.suppress(FileNotFoundError):
        return [tuple(json.loads(line)) for line in ledger.read_text().splitlines()]
    return []


def whole(ledger: Path) -> bool:
    return len({who for _, who, _ in beats(ledger)}) == 3


def family(cluster: Cluster, name: str, **more: Any) -> tuple[dict[str, Any], Path]:
    script, ledger = cluster.folder / "family.py", cluster.cwd / name
    script.write_text(FAMILY)
    return {"command": [sys.executable, "-I", "-S", str(script), str(ledger)], **more}, ledger


def living(cluster: Cluster) -> list[int]:
    return [pid for pid, _ in processes_with(str(cluster.folder / "family.py"))]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", [pytest.param("namespace", marks=needs_root), "cgroup", "mark"])
def test_pilot_and_guard_killed_together_leave_nothing(cluster: Cluster, mode: str) -> None:
    """Safe and exclusive payloads with grandchildren in sessions of their own; the ledger shows who lived when."""
    words = {"namespace": [], "cgroup": [PLAIN], "mark": [PLAIN, "--no-cgroup"]}[mode]
    cluster.start_server()
    pilot = cluster.start_pilot(2, *words)
    safe, safe_ledger = family(cluster, "safe", cwd="own")
    alone, alone_ledger = family(cluster, "alone", rerun="exclusive")
    run = cluster.submit(safe, alone)
    for ledger in (safe_ledger, alone_ledger):
        cluster.until(partial(whole, ledger), "the whole family runs")
    cluster.wait_running(run, (1, 2))
    killed = kill_both(pilot)
    if mode == "namespace":
        cluster.until(lambda: not living(cluster), "the kernel ends all of it", 10)
    else:
        # A pilot of another test that starts just now sweeps this host, too: then only the ledger tells that they survived.
        ledgers = (safe_ledger, alone_ledger)
        survived = living(cluster) or any(at > killed for ledger in ledgers for _, _, at in beats(ledger))
        assert survived, "this test shows nothing: without a namespace somebody should have survived"
    cluster.start_pilot(2, *words)
    cluster.until(lambda: any(a.endswith("#2") for a, _, _ in beats(alone_ledger)), "the exclusive task runs again", 90)
    rows = beats(alone_ledger)
    first_ended = max(at for attempt, _, at in rows if attempt.endswith("#1"))
    again_began = min(at for attempt, _, at in rows if attempt.endswith("#2"))
    assert first_ended < again_began, "two copies of an exclusive task met"
    old = [attempt for pid in living(cluster) if (attempt := _attempt(pid)).endswith("#1")]
    assert not old, f"copies of a dead pilot run on: {old}"
    assert not list(pilot.work.iterdir()), "the scratch directory of the dead pilot is still there"
    uncertain = [event["task"] for event in cluster.events("end_uncertain", run=run)]
    if mode == "namespace":
        assert uncertain == []
    else:
        assert set(uncertain) == {2}, "the start of the exclusive task did not say that its end is not certain"
    with cluster.client() as client:
        client.cancel([f"r{run}"])


def _attempt(pid: int) -> str:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"SHOAL_ATTEMPT="):
                return entry[14:].decode()
    return ""


@needs_root
@pytest.mark.timeout(120)
def test_a_task_cannot_stop_or_kill_those_who_watch_it(cluster: Cluster) -> None:
    """It sends SIGSTOP and SIGKILL to all it can see; its time limit ends it all the same, and the pilot goes on."""
    cluster.start_server()
    pilot = cluster.start_pilot(2)
    guard, mark, script = pilot.guard, cluster.cwd / "began", cluster.folder / "rebel.py"
    script.write_text(REBEL)
    run = cluster.submit({"command": [sys.executable, "-I", str(script), str(mark), str(pilot.work)], "time": 2.0})
    counts = cluster.wait_run(run)
    assert counts == {"failed": 1} and cluster.row(run)["cause"] == "over_time"
    assert mark.exists() and pilot.is_alive and not is_dead(guard) and comm(guard) == "shoal-guard"
    assert not [pid for pid, _ in processes_with(str(script))]
    assert cluster.wait_run(cluster.submit({"command": ["true"]})) == {"succeeded": 1}


@pytest.mark.timeout(120)
def test_a_task_that_killed_its_watchers_is_ended_by_the_next_pilot(cluster: Cluster) -> None:
    """Where there is no namespace it can; then whoever comes next on that host ends it."""
    cluster.start_server()
    pilot = cluster.start_pilot(1, PLAIN)
    mark, script = cluster.cwd / "began", cluster.folder / "rebel.py"
    script.write_text(REBEL)
    run = cluster.submit({"command": [sys.executable, "-I", str(script), str(mark), str(pilot.work)], "rerun": "never"})
    cluster.until(lambda: not pilot.is_alive, "it killed its pilot")
    assert [pid for pid, _ in processes_with(str(script))], "this test shows nothing: it died with its pilot"
    cluster.start_pilot(1, PLAIN)
    assert not [pid for pid, _ in processes_with(str(script))]
    assert not list(pilot.work.iterdir())
    with cluster.client() as client:
        client.cancel([f"r{run}"])


@pytest.mark.timeout(60)
def test_a_living_sibling_is_left_alone_by_a_sweep(cluster: Cluster) -> None:
    """Also one that is stopped, and one whose guard is stopped: both may go on, and are watched by the other."""
    cluster.start_server()
    pilot = cluster.start_pilot(2, PLAIN)
    task, ledger = family(cluster, "sibling")
    run = cluster.submit(task)
    cluster.until(partial(whole, ledger), "the whole family runs")
    before = sorted(living(cluster))
    pilot.stop()
    assert cleanup.sweep(registry.find_folder()).processes == 0
    pilot.cont()
    os.kill(pilot.guard, signal.SIGSTOP)
    assert cleanup.sweep(registry.find_folder()).processes == 0
    os.kill(pilot.guard, signal.SIGCONT)
    assert sorted(living(cluster)) == before and list(pilot.work.iterdir())
    with cluster.client() as client:
        client.cancel([f"r{run}"])


MEMFD = """
import os, time
file = os.memfd_create("hidden")
for _ in range(600):
    os.write(file, b"x" * (1 << 20))
time.sleep(3)
print("survived")
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("limited_by", ["cgroup", "watch"])
def test_what_is_written_to_a_file_in_memory_counts(cluster: Cluster, limited_by: str, tmp_path: Path) -> None:
    """600 MiB in a memfd under a limit of 100 MiB: the kernel ends it where a cgroup can be made, else the guard does."""
    words = []
    if limited_by == "watch":
        words = ["--no-cgroup"]
    elif not _has_memory_group():
        pytest.skip("NOT SHOWN: no memory cgroup can be made here")
    cluster.start_server()
    cluster.start_pilot(1, *words)
    run = cluster.submit({"command": [sys.executable, "-I", "-S", "-c", MEMFD], "memory": 100 << 20})
    assert cluster.wait_run(run) == {"failed": 1}
    row = cluster.row(run)
    assert row["cause"] == "out_of_memory", row
    (first, *_) = cluster.events("task_retried", run=run)
    assert "its memory limit is 100 MiB" in first["data"]["message"], first


def _has_memory_group() -> bool:
    from shoal.pilot.guard import cgroup

    groups = cgroup.make("0" * 12, may_kill=False)
    for group in groups.all:
        cgroup.remove(group)
    return bool(groups.memory)


def test_the_number_for_the_dead_is_nobodys() -> None:
    """What stands for a payload that was never seen alive must not be a process."""
    assert is_dead(MOST_PIDS + 1)
