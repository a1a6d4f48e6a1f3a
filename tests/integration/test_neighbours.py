"""A pilot that is killed is found by its neighbours on the host, long before its lease has run out [ADR 0020]."""

from __future__ import annotations

import sys
import time

import pytest

from shoal.model.limits import POISON_LOSSES
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.integration
SLOW = {"beat": 10.0, "suspect": 30.0, "lease": 75.0, "hold": 900.0}  # as they are by default
SOON = 25.0  # seconds: two or three on an idle machine, and far from the lease

# A task that kills its pilot at once: the guard's parent. In a PID namespace it could not, so its pilots make none.
KILLER = """
import os, signal
stat = open(f"/proc/{os.getppid()}/stat").read()
os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
signal.pause()
"""


def test_what_a_killed_pilot_ran_runs_beside_it_within_seconds(cluster: Cluster) -> None:
    """Was: found after 74 s, though another pilot of that host lived."""
    cluster.timing |= SLOW
    cluster.start_server()
    first = cluster.start_pilot(1)
    run = cluster.submit(cluster.telling("600,0"))
    cluster.wait_running(run)
    second = cluster.start_pilot(1)
    began = time.monotonic()
    first.kill()
    cluster.wait_succeeded(run, 1, SOON)
    assert time.monotonic() - began < SOON
    assert f"says {second.name}" in cluster.pilot_row(first.name)["reason"]
    assert [life.attempt for life in cluster.lives()] == [1, 2]


def test_a_pilot_that_joins_tells_of_the_one_that_was_killed_before_it(cluster: Cluster) -> None:
    cluster.timing |= SLOW
    cluster.start_server()
    first = cluster.start_pilot(1)
    run = cluster.submit(cluster.telling("600,0"))
    cluster.wait_running(run)
    first.kill()
    assert cluster.succeeded(run) == 0
    cluster.start_pilot(1)
    cluster.wait_succeeded(run, 1, SOON)


def test_a_task_that_kills_its_pilots_stops_after_three_and_those_beside_it_succeed(cluster: Cluster) -> None:
    """Was: 24 pilots died on one task, and none of them counted, for nobody had heard of its start."""
    cluster.timing |= SLOW
    cluster.start_server()
    run = cluster.submit(
        {"command": [sys.executable, "-I", "-S", "-c", KILLER], "name": "killer"},
        {**cluster.telling(0.2), "array": "1-3"},
    )
    died = 0
    while cluster.run_row(run)["finished"] is None and died < 10:
        pilot = cluster.start_pilot(2, "--no-pid-namespace")
        cluster.until(
            lambda pilot=pilot: not pilot.is_alive or cluster.run_row(run)["finished"] is not None,  # type: ignore[misc]  # bound now
            "it dies, or all is done",
        )
        died += not pilot.is_alive
    row = cluster.row(run, 1)
    assert (row["state"], row["cause"], row["losses"]) == ("failed", "poison", POISON_LOSSES)
    assert died == POISON_LOSSES
    assert [cluster.row(run, element)["state"] for element in (2, 3, 4)] == ["succeeded"] * 3
