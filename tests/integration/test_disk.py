"""A full disk, a database that is damaged, removed or shared: what a server does, as seen from outside."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client.client import Client
from shoal.db.backups import check_file
from shoal.db.reader import Reader
from shoal.model.errors import Refused, ShoalError, Unreachable
from shoal.model.file_names import DATABASE, RESERVE
from tests.integration.cluster import PATIENCE, Cluster, clean_env

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
PROVE = bool(os.environ.get("SHOAL_PROVE"))
BEAT = 10.0


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root makes file systems")
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "shoal-test", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def stuff(path: Path, leave: int = 0) -> None:
    """Fill a disk, but for so many bytes. Nearly all of it at once: what the server gives up meanwhile is not ours."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        disk = os.statvfs(path.parent)
        with contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, disk.f_bavail * disk.f_frsize - 65_536))
        file.seek(0, os.SEEK_END)
        while True:
            file.write(b"x" * 4_096)
    if leave:
        with path.open("rb+") as file:
            file.truncate(max(0, path.stat().st_size - leave))


def run_server(cluster: Cluster) -> subprocess.CompletedProcess[str]:
    """Start a server that is expected to end by itself."""
    return subprocess.run(
        cluster.server_argv(), capture_output=True, text=True, timeout=PATIENCE, check=False, cwd="/", env=clean_env()
    )


def refusal_at_start(cluster: Cluster) -> str:
    """The one line with which a server refuses to start."""
    done = run_server(cluster)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    lines = [line for line in done.stderr.splitlines() if not re.match(r"\d{4}-\d\d-\d\d \S+ (INFO|ERROR)", line)]
    assert len(lines) == 1 and lines[0].startswith("shoal server: "), done.stderr
    return lines[0]


def submit_status(cluster: Cluster) -> str:
    """What a submission gets: `ok`, or the code of the refusal."""
    with contextlib.suppress(Unreachable, OSError):
        try:
            cluster.submit({"command": ["true"]})
            return "ok"
        except ShoalError as error:
            return error.code
    return "unreachable"


# --- a full disk [promise I10]
@pytest.mark.parametrize("seed", range(100 if PROVE else 2))
def test_a_full_disk_loses_no_result_and_recovers_alone(cluster: Cluster, tmp_path: Path, seed: int) -> None:
    """Running tasks end and are recorded while the disk is full, submissions get 507, and space alone heals it."""
    rng = random.Random(seed)
    cluster.timing |= {"lease": 30.0, "hold": 40.0}  # nobody is given up, however busy the machine
    with small_disk(cluster.state, f"{rng.choice([16, 32, 64])}m") as disk:
        cluster.start_server()
        cluster.start_pilot(4)
        go = tmp_path / "go"
        run = cluster.submit(*(cluster.telling(go, name=f"t{n}", rerun="never") for n in range(4)))
        cluster.wait_running(run, range(1, 5))
        stuff(disk / "other")
        cluster.until(lambda: submit_status(cluster) == "disk_full", "submissions are refused")
        time.sleep(rng.uniform(0.0, 1.0))
        go.touch()
        assert cluster.wait_run(run) == {"succeeded": 4}, "recorded while the disk is still full"
        assert submit_status(cluster) == "disk_full"
        assert cluster.server_pid and cluster.address()
        (disk / "other").unlink()
        freed = time.monotonic()
        cluster.until(lambda: submit_status(cluster) == "ok", "work is accepted again")
        assert time.monotonic() - freed < 3 * BEAT
        cluster.check_recorded_once(run, 4)
        assert (disk / RESERVE).stat().st_blocks > 0, "the reserve is there again"
        cluster.stop_server()
        assert check_file(str(disk / DATABASE)) == []
        for pilot in cluster.pilots:
            pilot.kill()


def test_a_server_starts_on_a_full_disk_with_its_reserve_and_says_so_without(cluster: Cluster) -> None:
    with small_disk(cluster.state, "16m") as disk:
        cluster.start_server()
        run = cluster.submit({"command": ["true"]})
        cluster.kill_server()
        stuff(disk / "other")
        cluster.start_server()
        assert submit_status(cluster) == "disk_full"
        assert cluster.run_row(run)["total"] == 1
        cluster.kill_server()
        assert (disk / RESERVE).stat().st_blocks == 0
        stuff(disk / "more")
        line = refusal_at_start(cluster)
        assert "space" in line or "full" in line, line
        (disk / "other").unlink()
        cluster.start_server()
        cluster.until(lambda: submit_status(cluster) == "ok", "work is accepted again")
        cluster.stop_server()


# --- a damaged database
def test_a_malformed_database_is_refused_in_one_line_with_a_way_out(cluster: Cluster) -> None:
    cluster.start_server()
    run = cluster.submit(*({"command": ["true"], "name": f"t{n}"} for n in range(300)))
    shoal = [str(Path(sys.executable).with_name("shoal")), "server"]
    made = subprocess.run([*shoal, "backup", "--state", str(cluster.state)], capture_output=True, text=True, check=True)
    cluster.kill_server()
    path = cluster.state / DATABASE
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    good, line = path.read_bytes(), ""
    for damage in (b"\xff" * 64, os.urandom(4096 * 8)):
        content = bytearray(good)
        for page in range(2, len(content) // 4096):
            content[page * 4096 : page * 4096 + len(damage)] = damage
        path.write_bytes(content[: len(good)])
        line = refusal_at_start(cluster)
        assert "damaged" in line or "malformed" in line or "cannot be read" in line, line
        assert f"shoal server restore --state {cluster.state} {cluster.state}/backups/shoal-" in line
        checked = subprocess.run(
            [*shoal, "check", "--state", str(cluster.state)], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 3 and "Traceback" not in checked.stderr, checked
    words = line.partition("`shoal server ")[2].partition("`")[0].split()
    done = subprocess.run([*shoal, *words], capture_output=True, text=True, check=True)
    assert "restored" in done.stdout and made.stdout
    cluster.start_server()
    assert cluster.run_row(run)["total"] == 300
    cluster.stop_server()


# --- a database that is taken away
@pytest.mark.parametrize("how", ["removed", "replaced", "log removed"])
def test_a_database_taken_away_is_noticed_within_a_beat_and_never_answered_200(cluster: Cluster, how: str) -> None:
    cluster.start_server()
    run = cluster.submit({"command": ["true"]})
    path = cluster.state / DATABASE
    assert cluster._server is not None
    if how == "removed":
        path.unlink()
    elif how == "replaced":
        (cluster.state / "other").write_bytes(b"something else")
        os.replace(cluster.state / "other", path)
    else:
        path.with_name(f"{DATABASE}-wal").unlink()
    gone = time.monotonic()
    assert submit_status(cluster) in ("database_gone", "unreachable"), "not answered as if it were durable"
    told = cluster.address()
    with Client(told["url"], told["token"]) as client, pytest.raises((Refused, Unreachable)) as caught:
        while time.monotonic() - gone < BEAT:
            client.server()
            time.sleep(0.05)
    assert caught.value.code in ("database_gone", "unreachable")
    assert cluster._server.wait(PATIENCE) == 5
    assert time.monotonic() - gone < 3 * BEAT
    cluster._server = None
    said = cluster.server_log.read_text(encoding="utf-8")
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if "so the server ends" in line]
    saved = re.search(r"what it held is in (\S+)", line)
    assert saved is not None and check_file(saved[1]) == []
    with Reader(saved[1]) as reader:
        assert reader.run(run) is not None
    if how == "replaced":
        assert path.read_bytes() == b"something else", "what lies there now is not ours to touch"
        return
    if how == "removed":
        assert "was removed while a server ran" in refusal_at_start(cluster)
    words = line.partition("`shoal server ")[2].partition("`")[0].split()
    subprocess.run([str(Path(sys.executable).with_name("shoal")), "server", *words], check=True, capture_output=True)
    cluster.start_server()
    assert cluster.run_row(run)["total"] == 1
    cluster.stop_server()


def test_a_second_server_is_refused_without_the_lock_file(cluster: Cluster) -> None:
    """The lock belongs to the database: neither its own file nor another name lets a second one in."""
    cluster.start_server()
    cluster.submit({"command": ["true"]})
    first, second = cluster.state, cluster.folder / "second"
    second.mkdir()
    for name in ("lock deleted", "symbolic link", "hard link"):
        (first / f"{DATABASE}.lock").unlink(missing_ok=True)
        target = second / DATABASE
        target.unlink(missing_ok=True)
        if name == "symbolic link":
            target.symlink_to(first / DATABASE)
        elif name == "hard link":
            target.hardlink_to(first / DATABASE)
        cluster.state = first if name == "lock deleted" else second
        try:
            assert "in use by another server" in refusal_at_start(cluster), name
        finally:
            cluster.state = first
    assert submit_status(cluster) == "ok"
    assert len(cluster.events("server_started")) == 1  # readers without the server still work
    cluster.stop_server()


def test_a_disk_that_gives_errors_ends_the_server_in_one_line(cluster: Cluster) -> None:
    """A failed write is not tried again; what was acknowledged is there for the next server."""
    cluster.start_server()
    runs = [cluster.submit({"command": ["true"]})]
    assert cluster._server is not None
    # A file may not grow beyond this: the kernel refuses the write of the log with an error that is not "no space".
    size = (cluster.state / f"{DATABASE}-wal").stat().st_size + 8_192
    resource.prlimit(cluster.server_pid, resource.RLIMIT_FSIZE, (size, size))
    with pytest.raises(Unreachable):
        for _ in range(500):
            runs.append(cluster.submit({"command": ["x" * 5_000]}))
    assert cluster._server.wait(PATIENCE) == 5
    cluster._server = None
    said = cluster.server_log.read_text(encoding="utf-8")
    assert "Traceback" not in said, said
    (line,) = [line for line in said.splitlines() if "CRITICAL" in line]
    assert "gives errors" in line and "the server ends" in line, line
    cluster.start_server()
    assert [cluster.run_row(run)["run"] for run in runs] == runs
    cluster.stop_server()
