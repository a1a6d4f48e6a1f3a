"""Signals to a pilot: what it was started to ignore (by `nohup`, in the background of a script) it ignores, and however
often it is told to end, it ends in order."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.cluster import PATIENCE, Cluster

pytestmark = pytest.mark.integration

DEAF = ("sh", "-c", 'trap "" INT HUP; exec "$@"', "sh")


def ignored(pid: int) -> set[int]:
    """Signals that a process ignores, by the kernel's word."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_a_pilot_that_was_started_to_ignore_a_hangup_outlives_it_and_its_tasks_do_not_inherit_that(
    cluster: Cluster,
) -> None:
    cluster.start_server()
    pilot = cluster.start_pilot(1, under=DEAF)
    assert ignored(pilot.pid) >= {signal.SIGHUP, signal.SIGINT}
    run = cluster.submit(cluster.telling(cluster.cwd / "go"))
    task = cluster.wait_start(f"r{run}.1").pid
    assert not ignored(task) & {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
    os.kill(pilot.pid, signal.SIGHUP)
    os.kill(pilot.pid, signal.SIGINT)
    (cluster.cwd / "go").touch()
    assert cluster.wait_run(run) == {"succeeded": 1}
    second = cluster.submit(cluster.telling())
    assert cluster.wait_run(second) == {"succeeded": 1}, "a pilot that was told to end takes nothing more"
    pilot.process.terminate()
    assert pilot.process.wait(PATIENCE) == 0


def test_a_hangup_that_is_not_ignored_ends_a_pilot(cluster: Cluster) -> None:
    cluster.start_server()
    pilot = cluster.start_pilot(1)
    assert not ignored(pilot.pid) & {signal.SIGHUP, signal.SIGINT}
    os.kill(pilot.pid, signal.SIGHUP)
    assert pilot.process.wait(PATIENCE) == 0


def test_a_pilot_that_is_told_to_end_again_and_again_ends_in_order(cluster: Cluster) -> None:
    """Was: -15, if a SIGTERM came while Python ended."""
    cluster.start_server()
    pilot = cluster.start_pilot(1)
    code = None
    while code is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pilot.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = pilot.process.wait(0.0005)
    assert code == 0
