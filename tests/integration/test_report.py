"""The report of a real run agrees with what its payloads logged of themselves, with a server and without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shoal.report.database_source import FileSource
from shoal.report.history import Attempt
from shoal.report.run_record import read_record
from shoal.report.run_report import document, make_report
from tests.integration.cluster import Cluster, Life, clean_env

pytestmark = pytest.mark.integration
TASKS, SECONDS = 8, 0.6
NEAR = 0.1  # seconds between the clocks of a pilot and its payloads, on one host
START_UP = 5.0  # seconds that a payload may take to begin logging, and its end to be noticed, on a busy machine


def typed(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """`shoal report` as a person types it, who uses the cluster's server."""
    address = cluster.address()
    env = clean_env() | {"SHOAL_SERVER": address["url"], "SHOAL_TOKEN": address["token"], "COLUMNS": "70"}
    env |= {"HOME": str(cluster.folder), "XDG_STATE_HOME": str(cluster.folder / "none"), "PATH": os.environ["PATH"]}
    argv = [sys.executable, "-m", "shoal.cli", "report", *words]
    return subprocess.run(argv, capture_output=True, text=True, env=env, cwd=cluster.folder, timeout=120, check=False)


def at_once(spans: list[tuple[float, float]], moment: float) -> int:
    """How many of these were going on at a moment."""
    return sum(start <= moment < end for start, end in spans)


def test_a_report_agrees_with_the_ledger_of_the_payloads(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    killed = cluster.start_pilot(1)
    before = time.time()
    run = cluster.submit(
        cluster.telling(SECONDS, array=f"1-{TASKS}"),
        {"command": ["sh", "-c", "sleep 0.3; exit 3"], "retries": 1},
    )
    cluster.until(
        lambda: [life for life in cluster.lives() if cluster_pilot(cluster, life) == killed.name],
        "the pilot that will be killed has a task",
    )
    killed.kill()
    cluster.wait_run(run)
    after = time.time()

    answer = typed(cluster, f"r{run}", "--json")
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    offset = time.time() - time.monotonic()
    lives = cluster.lives()
    ledger = [(life.start + offset, life.end + offset) for life in lives if life.end is not None]

    # Makespan: no shorter than what the payloads saw, no longer than what the submitter saw.
    assert max(end for _, end in ledger) - min(start for start, _ in ledger) <= told["makespan"] + NEAR
    assert told["makespan"] <= after - before + NEAR
    assert told["tasks"] == {"total": TASKS + 1, "reused": 0, "succeeded": TASKS, "failed": 1}
    assert told["attempts"]["succeeded"] == TASKS and told["attempts"]["failed"] == 2
    assert (told["pilots"], told["slots"], told["most_slots"]) == (2, 3, 3)

    # Each attempt covers what its payload logged, and not much more; so the busy slots agree at every moment.
    with FileSource(cluster.state) as source:
        found = read_record(source, f"r{run}", None)
    useful = {one.task: one for one in found.record.attempts if one.outcome == "succeeded"}
    for life in lives:
        if life.end is not None:
            check_covered(useful[int(life.task.partition(".")[2])], life, offset)
    report = make_report(found)
    for at, low in enumerate(report.history.times[:-1]):
        middle = (low + report.history.times[at + 1]) / 2
        busy = report.history.useful[at] + report.history.wasted[at]
        assert busy <= report.history.pool[at]
        if report.history.times[at + 1] - low > 2 * NEAR:
            assert busy >= at_once([(start + NEAR, end - NEAR) for start, end in ledger], middle)
    spent = sum(end - start for start, end in ledger)
    assert spent - NEAR * TASKS <= report.anatomy.areas.useful <= spent + START_UP * TASKS
    assert told["slot_seconds"]["failed"] >= 2 * 0.3, "two attempts of one task, and what was lost with the pilot"
    assert report.history.pool[-1] == 2, "the pilot that was killed has left the pool"
    shares = [phase["lost_share"] for phase in told["phases"]]
    assert sum(shares) == pytest.approx(told["slot_seconds"]["lost_share"]) and 0.0 < sum(shares) < 1.0

    # The same figures without a server, and as text.
    text = typed(cluster, f"r{run}")
    assert text.returncode == 0 and f"r{run}: {TASKS + 1} tasks: {TASKS} succeeded, 1 failed" in text.stdout
    assert "whole run" in text.stdout and text.stdout.isascii()
    cluster.kill_server()
    with FileSource(cluster.state) as source:
        alone: dict[str, Any] = document(make_report(read_record(source, f"r{run}", None)))
    for name in ("makespan", "tasks", "attempts", "slot_seconds", "phases", "longest", "last"):
        assert alone[name] == told[name], name


def cluster_pilot(cluster: Cluster, life: Life) -> str:
    """The pilot that runs a payload, as far as the server knows."""
    run, _, element = life.task.partition(".")
    names = [
        event["pilot"]
        for event in cluster.events("tasks_leased")
        if covers(event["data"], int(run[1:]), int(element), life.attempt)
    ]
    return names[-1] if names else ""


def covers(data: dict[str, Any], run: int, element: int, number: int) -> bool:
    """True if an event of leases names this attempt."""
    if any(name.startswith(f"r{run}.{element}#{number}@") for name in data.get("attempts", ())):
        return True
    for name, count in data.get("chunks", ()):
        first = int(name.split(".")[1].split("#")[0])
        if name.startswith(f"r{run}.") and first <= element < first + count:
            return True
    return False


def check_covered(one: Attempt, life: Life, offset: float) -> None:
    """An attempt began before its payload logged its start, ended after its end, and not long."""
    assert life.end is not None
    start, end = life.start + offset, life.end + offset
    assert start - START_UP <= one.start <= start + NEAR, (one, start)
    assert end - NEAR <= one.end <= end + START_UP, (one, end)
