"""A disk that is full where the pilot writes streams, results and directories: the host's failure, with its cause, and the
attempt goes elsewhere or waits. Shown on a small file system in memory that is filled and emptied."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.integration

SIZE = 96 << 20  # a pilot begins with 64 MiB free

# Ends well whatever became of what it wrote, as many programs do.
CARELESS = """
import os, sys
try:
    os.write(1, b"precious\\n")
except OSError:
    pass
with open(sys.argv[1], "a") as file:
    file.write("ran\\n")
"""
STRICT = "print('precious', flush=True)"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "shoal-test", str(place)]
    if os.geteuid() != 0 or subprocess.run(words, check=False).returncode != 0:
        pytest.skip("NOT SHOWN: a small file system may not be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    """Until nothing more can be written there."""
    with contextlib.suppress(OSError), (place / "ballast").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while True:
                    if file.write(b"x" * size) < size:
                        break
    room = os.statvfs(place)
    assert room.f_bavail == 0, room


def empty(place: Path) -> None:
    (place / "ballast").unlink()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("manner", ["careless", "strict"])
def test_output_that_met_a_full_disk_is_the_hosts_failure(cluster: Cluster, small: Path, manner: str) -> None:
    """The logs lie on a disk that fills up while the task waits. It is not `succeeded` with nothing, burns no retry, and
    runs again when there is space; until then the pilot takes nothing and says why."""
    (cluster.state / "logs").mkdir(parents=True)
    cluster.state.chmod(0o700)
    subprocess.run(["mount", "--bind", str(small), str(cluster.state / "logs")], check=True)
    try:
        cluster.start_server()
        pilot = cluster.start_pilot(1)
        go, ran = cluster.cwd / "go", cluster.cwd / "ran"
        wait = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        code = wait + (CARELESS if manner == "careless" else STRICT)
        run = cluster.submit({"command": [sys.executable, "-I", "-S", "-c", code, str(ran)]})
        cluster.wait_running(run)
        fill(small)
        go.touch()
        cluster.until(lambda: cluster.events("task_returned", run=run), "the attempt is given back")
        (event, *_) = cluster.events("task_returned", run=run)
        assert "no space left in" in event["data"]["why"] and os.uname().nodename in event["data"]["why"], event
        with cluster.client() as client:
            cluster.until(
                lambda: "no space left" in str(client.why(f"r{run}.1")) or cluster.row(run)["state"] == "leased",
                "why tells of it",
            )
        cluster.until(lambda: "takes no tasks: no space left" in pilot.log.read_text(), "the pilot says so")
        assert pilot.is_alive and cluster.row(run)["state"] != "succeeded"
        empty(small)
        assert cluster.wait_run(run) == {"succeeded": 1}
        row = cluster.row(run)
        assert row["retries"] == 0 and row["last_line"] == "precious", row
        assert "takes tasks again" in pilot.log.read_text()
        assert len(pilot.names) == 1
    finally:
        subprocess.run(["umount", "--lazy", str(cluster.state / "logs")], check=True)


@pytest.mark.timeout(120)
def test_a_full_work_directory_gives_commands_back_and_comes_back(cluster: Cluster, small: Path) -> None:
    """No directory can be made: nothing fails, and it goes on when there is space again."""
    cluster.start_server()
    pilot = cluster.start_pilot(1, "--work-dir", str(small))
    assert cluster.wait_run(cluster.submit({"command": ["true"], "cwd": "own"})) == {"succeeded": 1}
    fill(small)
    run = cluster.submit({"command": ["sh", "-c", "echo fine"], "cwd": "own"})
    cluster.until(lambda: cluster.events("task_returned", run=run), "it is given back")
    assert "no space left in" in cluster.events("task_returned", run=run)[0]["data"]["why"]
    empty(small)
    assert cluster.wait_run(run) == {"succeeded": 1}
    assert cluster.row(run)["retries"] == 0 and pilot.is_alive


@pytest.mark.timeout(120)
def test_a_task_that_fills_the_disk_itself_beyond_what_it_asked_for_fails(cluster: Cluster, small: Path) -> None:
    """Else it would go from host to host and fill them all."""
    cluster.start_server()
    cluster.start_pilot(1, "--work-dir", str(small))
    code = "file = open('big', 'wb', 0)\nwhile True:\n    file.write(b'x' * (1 << 20))"
    run = cluster.submit({"command": [sys.executable, "-I", "-S", "-c", code], "cwd": "own", "disk": 10 << 20})
    assert cluster.wait_run(run) == {"failed": 1}
    row = cluster.row(run)
    assert row["cause"] == "task_error" and "it filled the disk" in row["message"], row
