"""A server that stood still (stopped, or asleep with its laptop) holds that against nobody."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, state_of

pytestmark = pytest.mark.integration


@pytest.mark.timeout(120)
def test_never_tasks_and_pilots_survive_a_frozen_server(cluster: Cluster, tmp_path: Path) -> None:
    """Frozen for longer than lease, hold and margin together: no pilot is lost, the task ends once, by itself."""
    cluster.timing["lease"] = 5.0  # so that nobody is given up because the machine is busy
    cluster.start_server()
    pilots = [cluster.start_pilot(), cluster.start_pilot()]
    go = tmp_path / "go"
    run = cluster.submit(*(cluster.telling(go, name=f"t{n}", rerun="never") for n in range(3)))
    cluster.wait_running(run, (1, 2, 3))
    os.kill(cluster.server_pid, signal.SIGSTOP)
    try:
        cluster.until(lambda: state_of(cluster.server_pid) == "T", "the server stands still")
        time.sleep(cluster.timing["lease"] + cluster.timing["hold"] + cluster.timing["margin"])
    finally:
        os.kill(cluster.server_pid, signal.SIGCONT)
    cluster.until(lambda: cluster.events("server_resumed"), "the server noticed")
    # Whatever it would have done to them it does with the next ticks; both pilots speak in between.
    time.sleep(2.0)
    assert cluster.events("pilot_gone") == [] and cluster.events("task_lost_pilot") == []
    go.touch()
    assert cluster.wait_run(run) == {"succeeded": 3}
    cluster.check_recorded_once(run, 3)
    assert len(cluster.lives()) == 3
    assert all(len(pilot.names) == 1 for pilot in pilots), "nobody had to enrol again"
