"""Databases that are rolled back under living pilots: no result crosses from one history to another, and nothing stays
leased beside an idle pilot [ADR 0015]. Real processes; the database files are changed while the server is dead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shoal.model.file_names import DATABASE
from tests.integration.cluster import Cluster, Json

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def files(cluster: Cluster) -> list[Path]:
    """The database with its log."""
    return [path for path in cluster.state.iterdir() if path.name.startswith(DATABASE) and "lock" not in path.name]


def echo(word: str, after: Path | None = None) -> Json:
    """Say a word, once a file is there."""
    wait = f"while ! [ -e {after} ]; do sleep 0.05; done; " if after is not None else ""
    return {"command": ["sh", "-c", f"{wait}echo {word}"]}


def test_a_new_run_of_a_deleted_database_never_gets_the_old_runs_result(cluster: Cluster) -> None:
    """The old r1 runs on in its pilot, and reports to a server for which r1 is another run."""
    gate = cluster.folder / "gate"
    cluster.start_server()
    pilot = cluster.start_pilot(2)
    assert cluster.submit(echo("OLD", gate)) == 1
    cluster.wait_running(1)
    cluster.kill_server()
    for path in files(cluster):
        path.unlink()
    gate.touch()  # it ends while no server is there: its report waits for the next one
    cluster.start_server()
    assert cluster.submit(echo("NEW")) == 1
    cluster.wait_run(1)
    row = cluster.row(1)
    assert (row["state"], row["last_line"]) == ("succeeded", "NEW"), cluster.story()
    assert pilot.is_alive and len(pilot.names) == 2, "the same process, taken in anew"
    with cluster.client() as client:
        assert client.logs("r1.1").data == b"NEW\n"
    assert (cluster.state / "logs" / "r1.lost-1").is_dir(), "what the old one wrote is kept, under another name"


def test_a_rolled_back_database_leaves_nothing_leased_beside_an_idle_pilot(cluster: Cluster) -> None:
    """The copy is of a moment at which r1 ran; by the time it is put back, r1 is over and forgotten by its pilot, and
    r2, which the copy does not know, has a successor of the same number."""
    gate = cluster.folder / "gate"
    cluster.timing.update(lease=30.0, quarantine=20.0)  # nobody shall be given up, however busy the machine
    cluster.start_server()
    cluster.start_pilot(2)
    assert cluster.submit(echo("FIRST", gate)) == 1
    cluster.wait_running(1)
    cluster.kill_server()
    copy = cluster.folder / "copy"
    copy.mkdir()
    for path in files(cluster):
        shutil.copy(path, copy / path.name)
    cluster.start_server()
    gate.touch()
    cluster.wait_run(1)
    assert cluster.submit(echo("OLD")) == 2
    cluster.wait_run(2)
    cluster.kill_server()
    for path in files(cluster):
        path.unlink()
    for path in copy.iterdir():
        shutil.copy(path, cluster.state / path.name)
    cluster.start_server()
    assert cluster.submit(echo("NEW")) == 2
    cluster.wait_run(2)
    cluster.wait_run(1)
    assert (cluster.row(2)["last_line"], cluster.row(1)["last_line"]) == ("NEW", "FIRST")
    assert cluster.events("task_returned", run=1), [(e["kind"], e["data"]) for e in cluster.events(run=1)]
