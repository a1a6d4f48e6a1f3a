"""Chains of short calls on real processes: what is begun behind what, what fails with it, and a server that is killed
[ADR 0064]."""

from __future__ import annotations

import base64
import pickle
import sys
from pathlib import Path
from typing import Any

from tests.integration.cluster import Cluster

WIDTH, LENGTH = 8, 25


def text(value: object) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def call(code: str, **more: Any) -> dict[str, Any]:
    return {"function": text(exec), "calls": [text(((code,), {}))], "python": sys.executable, **more}


def chains(tale: Path, bad: str = "", pause: float = 0.0) -> list[dict[str, Any]]:
    """Calls that write their names into a file; `bad` fails after that."""
    tables = []
    for at in range(LENGTH):
        for chain in range(WIDTH):
            name = f"c{chain}.{at}"
            code = f"import os, time; fd = os.open({str(tale)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)"
            code += f"; os.write(fd, b'{name}\\n'); os.close(fd); time.sleep({pause})" + (
                "; 1 / 0" if name == bad else ""
            )
            tables.append(call(code, name=name, after=[f"c{chain}.{at - 1}"] if at else []))
    return tables


def started(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    many = {**call("pass"), "calls": [text((("pass",), {}))] * 50}
    assert cluster.wait_run(cluster.submit(many))["succeeded"] == 50


def in_order(tale: Path) -> list[str]:
    """What began, each checked to have begun after the one before it in its chain."""
    lines = tale.read_text().split()
    for name in set(lines):
        chain, _, at = name.partition(".")
        assert at == "0" or lines.index(f"{chain}.{int(at) - 1}") < lines.index(name), name
    return lines


def longest_lease(cluster: Cluster, run: int) -> int:
    """The most calls that were leased as one, of this run."""
    events = cluster.events("tasks_leased")
    chunks = [chunk for event in events for chunk in event["data"].get("chunks", ())]
    return max(int(count) for first, count in chunks if first.startswith(f"r{run}."))


def test_calls_go_on_from_one_to_the_next_and_none_behind_one_that_failed(cluster: Cluster) -> None:
    started(cluster)
    tale = cluster.folder / "tale"
    run = cluster.submit(*chains(tale, bad="c3.4"))
    counts = cluster.wait_run(run)
    assert (counts["succeeded"], counts["failed"]) == (WIDTH * LENGTH - (LENGTH - 4), LENGTH - 4)
    lines = in_order(tale)
    assert len(lines) == len(set(lines)) == WIDTH * LENGTH - (LENGTH - 5) and "c3.5" not in lines
    rows = {row["element"]: row for row in cluster.rows(run) if row["state"] == "failed"}
    assert rows[4 * WIDTH + 4]["cause"] == "task_error"
    assert longest_lease(cluster, run) > WIDTH, "they were leased behind each other"


def test_a_server_that_is_killed_among_chains_loses_nothing_and_records_nothing_twice(cluster: Cluster) -> None:
    started(cluster)
    tale = cluster.folder / "tale"
    run = cluster.submit(*chains(tale, pause=0.004))
    cluster.until(lambda: tale.exists() and len(tale.read_text().split()) > 2 * WIDTH, "some have begun")
    cluster.kill_server()
    cluster.start_server()
    assert cluster.wait_run(run)["succeeded"] == WIDTH * LENGTH
    assert set(in_order(tale)) == {f"c{chain}.{at}" for chain in range(WIDTH) for at in range(LENGTH)}
    final = [event["task"] for event in cluster.events("task_finished", run=run)]
    assert sorted(final) == sorted(row["element"] for row in cluster.rows(run)) == list(range(1, WIDTH * LENGTH + 1))
