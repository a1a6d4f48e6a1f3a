"""Checkpoints that travel while their task runs, with real processes: what a task goes on from after its pilot is lost
[GWP G10].

The payload keeps a ledger of its own: where each attempt began, and what it counted.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.model.file_names import BLOBS, blob_name
from tests.integration.cluster import Cluster, Json

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

# Counts every tenth of a second, writes down how far it is, and ends when it is told that it may.
COUNTER = """
import os, signal, sys, time
ledger, enough = sys.argv[1:3]
def tell(*words):
    with open(ledger, "a") as file:
        file.write(" ".join(map(str, (os.environ["SHOAL_ATTEMPT"].partition("@")[0], *words))) + chr(10))
def write():
    with open("state.new", "w") as file:
        file.write(str(at))
    os.rename("state.new", "state")
def end(*_):
    tell("told", at)
    write()
    sys.exit(85)
signal.signal(signal.SIGTERM, end)
at = int(open("state").read()) if os.path.exists("state") else 0
tell("from", at)
while not os.path.exists(enough):
    at += 1
    write()
    tell("at", at)
    time.sleep(0.1)
tell("done", at)
"""


class Counted:
    """One such task and what it told."""

    def __init__(self, cluster: Cluster, **more: Any) -> None:
        self.cluster, self.ledger, self.enough = cluster, cluster.folder / "ledger", cluster.folder / "enough"
        script = cluster.folder / "counter.py"
        script.write_text(COUNTER, encoding="utf-8")
        argv = [sys.executable, "-I", "-S", str(script), str(self.ledger), str(self.enough)]
        self.task: Json = {"command": argv, "cwd": "own", "checkpoint": ["state"], **more}

    def told(self, word: str) -> list[tuple[str, int]]:
        """What attempts told under a word: the attempt, and how far it was."""
        text = self.ledger.read_text(encoding="utf-8") if self.ledger.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        return [(attempt, int(at)) for attempt, said, at in lines if said == word]

    def kept(self, run: int) -> int:
        """How far the checkpoint is that the server keeps; 0: there is none."""
        files = (self.cluster.row(run).get("special") or {}).get("files") or {}
        return int((self.cluster.state / BLOBS / blob_name(files["state"])).read_text()) if files else 0

    def wait_begun(self, attempts: int) -> tuple[str, int]:
        """Wait for so many attempts; where the last of them began."""
        self.cluster.until(lambda: len(self.told("from")) >= attempts, f"attempt {attempts} begins")
        return self.told("from")[attempts - 1]


def test_after_kill_9_of_its_pilot_a_task_goes_on_from_the_checkpoint_that_travelled(cluster: Cluster) -> None:
    cluster.start_server()
    first = cluster.start_pilot(1)
    counted = Counted(cluster, checkpoint_every=1)
    run = cluster.submit(counted.task)
    cluster.until(lambda: counted.kept(run) > 0, "a first checkpoint is on the server")
    before = counted.kept(run)
    cluster.until(lambda: counted.kept(run) > before, "a newer one takes its place")
    cluster.start_pilot(1)
    kept = counted.kept(run)
    first.kill()
    attempt, began = counted.wait_begun(2)
    assert attempt == f"r{run}.1#2"
    assert kept <= began <= max(at for who, at in counted.told("at") if who == f"r{run}.1#1"), "not from 0"
    counted.enough.touch()
    assert cluster.wait_run(run) == {"succeeded": 1}
    assert cluster.events("checkpoint_saved", run=run)


def test_one_sigterm_has_a_task_write_its_checkpoint_and_go_on_elsewhere_while_others_finish(cluster: Cluster) -> None:
    cluster.timing.update(lease=60.0)  # so long that nothing here can be for want of contact
    cluster.start_server()
    first = cluster.start_pilot(2)
    counted, gate = Counted(cluster, checkpoint_every=0), cluster.folder / "gate"
    run = cluster.submit(counted.task)
    plain = cluster.submit(cluster.telling(gate))
    cluster.wait_running(plain)
    cluster.until(lambda: len(counted.told("at")) > 3, "it counts")
    cluster.start_pilot(1)
    os.kill(first.pid, signal.SIGTERM)
    attempt, began = counted.wait_begun(2)
    assert (attempt, began) == (f"r{run}.1#2", counted.told("told")[0][1]), "from where it was when it was told"
    assert first.is_alive, "what has no checkpoint is finished"
    gate.touch()
    assert cluster.wait_run(plain) == {"succeeded": 1}
    cluster.until(lambda: not first.is_alive, "the pilot ends when that is done")
    counted.enough.touch()
    assert cluster.wait_run(run) == {"succeeded": 1}
    assert cluster.row(plain)["attempt"] == 1 and cluster.row(run)["retries"] == 0


def test_exit_85_at_once_for_ever_ends_with_a_cause(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_server()
    cluster.start_pilot(1)
    task = {"shell": "echo same >state; exit 85", "cwd": "own", "checkpoint": ["state"], "retries": 9}
    run = cluster.submit(task)
    assert cluster.wait_run(run) == {"failed": 1}
    row = cluster.row(run)
    assert row["cause"] == "task_error" and "left its checkpoint as it was" in row["message"]
