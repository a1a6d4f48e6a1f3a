"""Fair share with real processes [promise I13]: a server, four pilots with twenty slots, five owners of one group."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from bench.simulated_shares import due_fractions
from shoal.client.client import Client
from shoal.report.acct import account
from shoal.report.data_source import HttpSource
from tests.integration.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]
GROUP, SLOTS, PILOTS = "lab", 20, 4
PROVE = os.environ.get("SHOAL_PROVE") == "1"
PACE = 1.0 if PROVE else 0.3  # at the quicker pace most of the tasks are short enough to be fetched ahead
WARM, WINDOW, STEP = 2.0, 50.0 * PACE, 0.25 * PACE  # seconds
SHARES = {"ada": (1.0, 0.8), "bea": (1.0, 3.0), "cyd": (2.0, 1.0), "dan": (3.0, 1.5), "eve": (5.0, 2.0)}  # share, sleep
PEOPLE = {name: (share, PACE * seconds) for name, (share, seconds) in SHARES.items()}


def start_pilots(cluster: Cluster) -> None:
    """Pilots of the group, by a token that lets in such."""
    told = cluster.address()
    with cluster.client() as client:
        enrol = client.new_token("enrol", group=GROUP, site="here")["token"]
    file = cluster.folder / "group.json"
    file.write_text(json.dumps({**told, "token": enrol, "enrol": enrol}), encoding="utf-8")
    file.chmod(0o600)
    for _ in range(PILOTS):
        cluster.start_pilot(SLOTS // PILOTS, server_file=Path(file))


def test_five_owners_of_a_group_use_what_is_due(cluster: Cluster) -> None:
    cluster.start_server()
    tokens: dict[str, str] = {}
    with cluster.client() as client:
        client.add_group(GROUP)
        for name in PEOPLE:
            client.add_user(name, GROUP)
            tokens[name] = client.new_token("submit", owner=name)["token"]
        client.set_policy({"share": {name: share for name, (share, _) in PEOPLE.items()}}, 0)
    url = cluster.address()["url"]
    runs: dict[str, int] = {}
    for name, (_, seconds) in PEOPLE.items():
        with Client(url, tokens[name]) as client:
            task = {"command": ["sleep", str(seconds)], "array": "1-5000"}
            runs[name] = int(client.submit(cluster.submission(task))["run"][1:])
    start_pilots(cluster)
    cluster.until(lambda: all(cluster.succeeded(run) for run in runs.values()), "everybody has begun")
    begin = time.time() + WARM
    time.sleep(WARM + WINDOW)
    for name, run in runs.items():
        with Client(url, tokens[name]) as client:
            client.cancel([f"r{run}"], unless_running=True)
    for run in runs.values():
        cluster.wait_run(run)

    spans = {
        name: [
            (row["started"], row["started"] + row["duration"])
            for row in cluster.rows(run)
            if row["state"] == "succeeded"
        ]
        for name, run in runs.items()
    }
    used, due = reckon(spans, begin, begin + WINDOW)
    every = sum(used.values())
    assert every >= 0.6 * SLOTS * WINDOW, "the slots were busy"
    width = max(seconds for _, seconds in PEOPLE.values()) / (SLOTS * WINDOW)
    for name in PEOPLE:
        assert abs(used[name] - due[name]) / every <= 0.05 + width, (name, used, due)

    with HttpSource(cluster.client()) as source:
        lines = {line["owner"]: line for line in account(source, "owner")["rows"]}
    for name in PEOPLE:
        took = sum(end - start for start, end in spans[name])
        assert lines[name]["tasks"] == len(spans[name]) == cluster.succeeded(runs[name])
        assert 3_600.0 * lines[name]["useful"] == pytest.approx(took, rel=1e-6)


def reckon(
    spans: dict[str, list[tuple[float, float]]], begin: float, end: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Core seconds that each used between two times, and that were due to each by what all had used before."""
    first = min(start for rows in spans.values() for start, _ in rows)
    shares, groups = {name: share for name, (share, _) in PEOPLE.items()}, dict.fromkeys(PEOPLE, GROUP)
    past, used, due = dict.fromkeys(PEOPLE, 0.0), dict.fromkeys(PEOPLE, 0.0), dict.fromkeys(PEOPLE, 0.0)
    at = first
    while at < end:
        parts = due_fractions(frozenset(PEOPLE), shares, groups, past)
        now = {
            name: sum(max(0.0, min(stop, at + STEP) - max(start, at)) for start, stop in rows)
            for name, rows in spans.items()
        }
        for name in PEOPLE:
            past[name] += now[name]
            if at >= begin:
                used[name] += now[name]
                due[name] += parts[name] * sum(now.values())
        at += STEP
    return used, due
