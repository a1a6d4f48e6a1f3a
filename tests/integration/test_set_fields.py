"""`shoal set` against a pilot that has fetched ahead: what is said to be changed runs with the new values."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_a_changed_task_that_was_queued_in_the_guard_runs_with_its_new_limit(cluster: Cluster) -> None:
    """Short commands before made the pilot queue ahead in its guard, from where they were not given back."""
    cluster.start_server()
    cluster.start_pilot(1)
    wait = "while [ ! -e go ]; do sleep 0.02; done; sleep $1"
    for _ in range(3):  # sh is a short command by now
        assert cluster.wait_run(cluster.submit({"command": ["sh", "-c", ":"], "array": "1-20"}))["succeeded"] == 20
    run = cluster.submit(*({"command": ["sh", "-c", wait, "sh", length]} for length in ("0", "0", "30")))
    cluster.wait_running(run)
    cluster.until(lambda: cluster.row(run, 3)["state"] == "leased", "the pilot has fetched all three")
    with cluster.client() as client:
        assert client.set_fields([f"r{run}"], {"priority": 5})["tasks"] == 2
        done = client.set_fields([f"r{run}.3"], {"time": 1})
        assert done["tasks"] == 1, done
    cluster.until(lambda: len(cluster.events("task_returned", run=run)) >= 2, "the pilot gives them back")
    (cluster.cwd / "go").touch()
    assert cluster.wait_run(run) == {"succeeded": 2, "failed": 1}
    row = cluster.row(run, 3)
    assert row["cause"] == "over_time", row
