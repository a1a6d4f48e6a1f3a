"""Short commands of an array on real servers and pilots: they travel, run and are reported by the piece [ADR 0033]."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from shoal.model.file_names import LOGS
from tests.integration.cluster import Cluster, children, comm, is_dead

pytestmark = pytest.mark.integration
TOTAL = 600


def guards_of(pid: int) -> list[int]:
    """The guards of a pilot."""
    return [child for child in children(pid) if comm(child) == "shoal-guard"]


def test_each_of_many_short_commands_has_its_own_end_and_its_own_streams(cluster: Cluster) -> None:
    """Those that fail, write or die by a signal are told from their neighbours, and get what is theirs."""
    cluster.start_server()
    cluster.start_pilot(2)
    script = 'case $SHOAL_INDEX in *00) exit 3;; *50) kill -9 $$;; *25) echo "$1 $SHOAL_ATTEMPT $SHOAL_TASK";; esac'
    run = cluster.submit(
        {"command": ["sh", "-c", script, "x", "{i}"], "params": {"i": f"1..{TOTAL}"}, "max_output": 4096}
    )
    assert cluster.wait_run(run, 120) == {"succeeded": TOTAL - 12, "failed": 12}
    rows = {row["element"]: row for row in cluster.rows(run)}
    for element, row in rows.items():
        expected = {0: ("failed", 3), 50: ("failed", None)}.get(element % 100, ("succeeded", 0))
        assert (row["state"], row["exit_code"]) == expected, element
        assert row["started"] > 1e9 and row["duration"] > 0 and row["max_rss"] > 0
        written = f"{element} r{run}.{element}#1 r{run}.{element}" if element % 100 == 25 else ""
        assert (row["last_line"] or "") == written
        log = cluster.state / LOGS / f"r{run}/0/{element}.1.out"
        assert (log.read_text() == written + "\n") if written else not log.exists()
    assert len(rows) == TOTAL == len(cluster.events("task_finished", run=run))


def test_each_gets_a_directory_of_its_own_where_the_pilot_does_not_see_that_of_the_submitter(cluster: Cluster) -> None:
    """As on a server to which somebody submits from another machine: each one has its own end, output and directory."""
    cluster.start_server()
    cluster.start_pilot(2)
    script = 'ls -A; echo "$1" > file; [ "$1" = 77 ] && exit 3; echo "$1"'
    task = {"command": ["sh", "-c", script, "x", "{i}"], "params": {"i": "1..300"}}
    submission = cluster.submission(task, environment_file=f"/nowhere/{'0' * 64}.json")
    del submission["environment"]
    with cluster.client() as client:
        run = int(client.submit(submission)["run"][1:])
    assert cluster.wait_run(run, 60) == {"succeeded": 299, "failed": 1}
    for row in cluster.rows(run):
        element = row["element"]
        assert (row["state"], row["exit_code"]) == (("failed", 3) if element == 77 else ("succeeded", 0))
        log = cluster.state / LOGS / f"r{run}/0/{element}.1.out"
        written = f"{element}\n" if element != 77 else ""
        assert (log.read_text() if log.exists() else "") == written, "nothing of another one"


@pytest.mark.slow
def test_any_guard_killed_among_short_commands_costs_nothing_but_the_pilot(cluster: Cluster) -> None:
    cluster.start_server()
    first, lines = cluster.start_pilot(2), cluster.cwd / "lines"
    both = guards_of(first.pid)
    assert len(both) == 2
    run = cluster.submit({"command": ["sh", "-c", f"echo $SHOAL_TASK >> {lines}"], "array": "1-3000", "retries": 0})
    cluster.wait_succeeded(run, 300, 60)
    os.kill(both[1], signal.SIGKILL)
    assert first.process.wait(30) == 3  # this host is unfit
    cluster.until(lambda: all(map(is_dead, both)), "they stand and fall together")
    assert cluster.succeeded(run) < 3000
    cluster.start_pilot(2)
    assert cluster.wait_run(run, 180) == {"succeeded": 3000}
    cluster.check_recorded_once(run, 3000)
    begun = Counter(lines.read_text().split())
    assert len(begun) == 3000 and sum(begun.values()) < 3000 + 100, "only what was under way ran again"


@pytest.mark.slow
def test_a_long_one_among_short_ones_holds_nobody_up_and_can_be_cancelled(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    script = "[ $SHOAL_INDEX = 301 ] && exec sleep 300 || true"
    run = cluster.submit({"command": ["sh", "-c", script], "array": f"1-{TOTAL}"})
    cluster.wait_succeeded(run, TOTAL - 1, 60)
    cluster.wait_running(run, [301])
    with cluster.client() as client:
        client.cancel([f"r{run}.301"])
    assert cluster.wait_run(run, 60) == {"succeeded": TOTAL - 1, "cancelled": 1}
