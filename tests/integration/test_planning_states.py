"""The server is killed in each planning state of a run, and goes on where it was; a step that another package brings is one of
the list, without a change to the others [SPHINX S1; ADR 0059]."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Json

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
# Each of these states is left once a file with its name is in the directory of the run: so the server can be killed in it.
HELD = {"held_first": "unpredicted", "held_second": "unaccepted", "held_third": "unplanned", "held_last": "unfinished"}
PACKAGE = """
import os
from shoal.server.planning.steps import Found

class Held:
    name = before = ""
    async def take(self, service, run):
        with open(os.path.join(run.cwd, "taken"), "a") as file:
            file.write(self.name + "\\n")
        if os.path.exists(os.path.join(run.cwd, self.name)):
            return Found({self.name: "seen"})
        return Found(waits="for its file")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with planning steps."""
    home = tmp_path / "packages"
    (home / "held-1.dist-info").mkdir(parents=True)
    (home / "held-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: held\nVersion: 1\n", encoding="utf-8"
    )
    points = "".join(f"{name} = held:{name}\n" for name in HELD)
    (home / "held-1.dist-info" / "entry_points.txt").write_text(f"[shoal.planning]\n{points}", encoding="utf-8")
    made = "".join(f"class {n}(Held):\n    name, before = {n!r}, {before!r}\n" for n, before in HELD.items())
    (home / "held.py").write_text(PACKAGE + made, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))


def planning(cluster: Cluster, run: int) -> Json:
    found: Json = cluster.run_row(run)["planning"]
    return found


def reborn(cluster: Cluster) -> None:
    cluster.kill_server()
    cluster.start_server()


@pytest.mark.usefixtures("package")
def test_a_server_that_is_killed_in_any_planning_state_goes_on(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    table = {"name": "work", "command": ["true"], "params": {"x": [1, 2, 3]}, "deadline": "10h"}
    before = cluster.submit({**table, "params": {"x": [1, 2]}, "deadline": "9h"})
    cluster.wait_run(before)
    run = cluster.submit(table, {"command": ["true"], "after": ["work"], "deadline": "10h"}, plan=1.0)
    reborn(cluster)  # unreduced, or just behind it
    seen = []
    for state in HELD:
        cluster.until(lambda at=state: planning(cluster, run)["stage"] == at, f"the run is {state}")  # type: ignore[misc]
        seen.append(planning(cluster, run)["stage"])
        assert cluster.run_row(run)["counts"].get("live", 0) == 0 and not cluster.rows(run), "something began"
        reborn(cluster)
        assert planning(cluster, run)["stage"] == state
        (cluster.cwd / state).touch()
        if state == "held_second":
            cluster.until(lambda: planning(cluster, run)["stage"] == "unaccepted", "it waits for a person")
            reborn(cluster)
            with cluster.client() as client:
                cluster.until(lambda: "accept" in client.why(f"r{run}")["reasons"][0]["text"], "why says so")
                assert client.accept(f"r{run}")["advanced"]
    counts = cluster.wait_run(run)
    assert counts == {"succeeded": 4} and seen == list(HELD)
    assert planning(cluster, run)["stage"] == "remove" and planning(cluster, run)["accepted"]
    steps = [(event["data"]["step"], event["data"]["stage"]) for event in cluster.events("run_planned", run=run)]
    states = [
        "unreduced", "held_first", "unpredicted", "held_second", "unaccepted", "held_third", "unplanned", "held_last",
        "unfinished",
    ]  # fmt: skip
    assert steps == list(pairwise(states)), "each state once, in order"


def test_a_run_without_a_plan_has_no_row_of_one(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(1)
    run = cluster.submit({"command": ["true"]})
    cluster.wait_run(run)
    assert cluster.run_row(run)["planning"] is None and not cluster.events("run_planned")
