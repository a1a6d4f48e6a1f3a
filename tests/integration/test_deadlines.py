"""Deadlines with real processes: what is stated before a run starts, told while it goes on, and scored afterwards
[SPHINX S6; ADR 0054]."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Json, clean_env
from tests.integration.test_notify import Receiver, allow
from tests.integration.test_notify import receiver as receiver

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SHOAL = str(Path(sys.executable).with_name("shoal"))
TASK = ("--", "sh", "-c", "sleep 0.1 # {x}")


def env_of(cluster: Cluster) -> dict[str, str]:
    address = cluster.address()
    return {**clean_env(), "SHOAL_SERVER": address["url"], "SHOAL_TOKEN": address["token"], "PATH": os.environ["PATH"]}


def typed(cluster: Cluster, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SHOAL, *argv], capture_output=True, text=True, timeout=120, env=env_of(cluster), cwd=cluster.cwd,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def at_terminal(cluster: Cluster, answer: str, *argv: str) -> tuple[int, str]:
    """A command at a terminal, at which a person answers its question."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        [SHOAL, *argv], stdin=other, stdout=other, stderr=other, env={**env_of(cluster), "TERM": "dumb"}, cwd=cluster.cwd,
        start_new_session=True,
    )  # fmt: skip
    os.close(other)
    shown = b""
    while True:
        try:
            shown += os.read(main, 4096)
        except OSError:  # its other side was closed
            break
        if answer and b"another time" in shown:
            os.write(main, f"{answer}\n".encode())
            answer = ""
    os.close(main)
    return process.wait(60.0), shown.decode()


def events(cluster: Cluster, run: str, kind: str) -> list[Json]:
    with cluster.client() as client:
        return [event["data"] for event in client.events(run=run, kinds=[kind])["events"]]


def test_the_chance_is_stated_by_earlier_runs_of_the_command_and_scored(cluster: Cluster) -> None:
    cluster.start_server()
    first = typed(cluster, "submit", "--within", "10m", "x=1..40", *TASK)
    assert first.returncode == 0 and "is not known yet: no pilot" in first.stderr
    cluster.start_pilot(2)
    cluster.wait_run(1)
    other = typed(cluster, "submit", "--within", "10m", "x=1..40", "--", "sh", "-c", "sleep 0.11 # {x}")
    assert "no task with this command has run here" in other.stderr
    cluster.wait_run(2)
    good = typed(cluster, "sweep", "--within", "10m", "x=1..50", "--json", *TASK)
    assert good.returncode == 0, good.stderr
    found = json.loads(good.stdout)["deadline"]
    assert found["stated"] > 0.95 and found["met"] is True and found["at_risk"] == 0
    assert events(cluster, "r3", "deadline_stated")[0]["chance"] == found["stated"]
    late = typed(cluster, "sweep", "--within", "1s", "x=1..50", *TASK)
    assert "P(by " in late.stderr and "< 1 %" in late.stderr, late.stderr
    assert "slots would make it 95 %" in late.stderr and "of the 50 tasks make it with 95 %" in late.stderr
    assert late.returncode == 0 and "deadline missed by" in late.stdout and "it was told P < 1 %" in late.stdout
    shown = typed(cluster, "show", "r4")
    assert "deadline missed by" in shown.stdout
    assert json.loads(typed(cluster, "show", "r3", "--json").stdout)["deadline"]["met"] is True
    for argv, told in (
        (("--by", "25:00"), "is no time"), (("--by", "2020-01-01T08:00"), "is over"), (("--within", "-3s"), "within"),
        (("--by", "08:00", "--within", "3h"), "together"),
    ):  # fmt: skip
        refused = typed(cluster, "submit", *argv, "--", "true")
        assert refused.returncode == 2 and told in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr


def test_at_a_terminal_a_person_accepts_changes_or_withdraws(cluster: Cluster) -> None:
    cluster.start_server()
    cluster.start_pilot(2)
    cluster.submit({"command": list(TASK[1:]), "params": {"x": "1..20"}})
    cluster.wait_run(1)
    status, shown = at_terminal(cluster, "n", "submit", "--within", "1s", "x=1..50", *TASK)
    assert status == 1 and "withdrawn: nothing was submitted" in shown
    status, shown = at_terminal(cluster, "1h", "submit", "--within", "1s", "x=1..50", *TASK)
    assert status == 0 and shown.count("P(by") == 2 and "> 99 %" in shown
    status, shown = at_terminal(cluster, "", "submit", "--yes", "--within", "1s", "x=1..50", *TASK)
    assert status == 0 and "another time" not in shown
    with cluster.client() as client:
        assert [row["run"] for row in client.runs()["runs"]] == ["r3", "r2", "r1"]


def test_a_run_that_falls_behind_is_at_risk_once_and_whom_it_notifies_is_told(
    cluster: Cluster, receiver: Receiver
) -> None:
    cluster.start_server()
    allow(cluster, receiver.place)
    cluster.start_pilot(1)
    run = cluster.submit({"command": ["sleep", "0.2"], "array": "1-400", "deadline": "20s"}, notify=[receiver.url])
    began = time.monotonic()
    found = cluster.until(lambda: events(cluster, f"r{run}", "deadline_at_risk"), "it is found to be at risk")
    assert time.monotonic() - began < 19.0, "long before its deadline"
    assert found[0]["chance"] < 0.7
    cluster.until(lambda: receiver.what() == ["deadline"], "and told")
    assert "may miss its deadline" in receiver.told[0]["text"]
    with cluster.client() as client:
        client.cancel([f"r{run}"])
    cluster.until(lambda: "end" in receiver.what(), "the end comes, too")
    assert len(events(cluster, f"r{run}", "deadline_at_risk")) == 1
