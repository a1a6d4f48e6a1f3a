"""A real server with pilots at two sites: a plan directs tasks to both, people are told, and the weather is seen
[SPHINX S5, S7; ADR 0057]."""

from __future__ import annotations

import json

import pytest

from shoal.model.credentials import ENROL
from tests.integration.cluster import Cluster
from tests.integration.test_files_travel import typed

pytestmark = pytest.mark.integration


def test_tasks_are_directed_to_sites_and_why_and_weather_tell(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(cluster.folder / "home" / name.lower()))
    monkeypatch.setenv("SHOAL_SERVER", cluster.start_server())
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    for cores, site in ((1, "near"), (2, "far")):
        with cluster.client() as client:
            token = client.new_token(ENROL, site=site)["token"]
        address = cluster.folder / f"{site}.json"
        address.write_text(json.dumps({**cluster.address(), "enrol": token}))
        cluster.start_pilot(cores, "--site", site, server_file=address)
    run = cluster.submit({"command": ["sleep", "0.5"], "array": "1-60", "cores": 1})

    def directed() -> dict[str, float]:
        with cluster.client() as client:
            needs = client.demand()["needs"]
        return needs[0]["directed"] if needs else {}

    found = cluster.until(directed, "a plan directs tasks")
    assert set(found) == {"near", "far"} and found["far"] > found["near"], "far has twice the cores"
    assert "the plan directs of its like" in typed("why", f"r{run}")
    seen = json.loads(typed("site", "weather", "--json"))["weather"]
    assert {"near", "far"} <= set(seen) and seen["far"]["running"]["forecast"]["value"] >= 0.0
    assert "cores that run tasks" in typed("site", "weather", "far")
    assert cluster.wait_run(run) == {"succeeded": 60}
    assert {row["site"] for row in cluster.rows(run)} == {"near", "far"}
