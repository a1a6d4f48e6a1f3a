"""Pilots of another version [protocol 8]: the released pilot of protocol 4 works with this server, and one whose zip is
another than the server's becomes the server's own when it is idle.

The old pilot is kept in tests/fixtures as it was released; no code of today is in it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, children, comm, is_dead

pytestmark = pytest.mark.integration
FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "pilot-protocol-4.pyz.gz"
SHA256 = "693b1d6ea348e62f85fe1dfb6de4ae0d4e6877f7213bd61de30a2539f223196a"


@pytest.fixture
def old_zip(tmp_path: Path) -> Path:
    """The released pilot of protocol 4, and proof that it is the very one."""
    data = gzip.decompress(FIXTURE.read_bytes())
    assert hashlib.sha256(data).hexdigest() == SHA256
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert b"\nPROTOCOL = 4\n" in archive.read("shoal/wire/messages.py")
    path = tmp_path / "pilot-protocol-4.pyz"
    path.write_bytes(data)
    return path


@pytest.fixture
def old(tmp_path: Path, old_zip: Path) -> Iterator[Cluster]:
    """A cluster whose pilots are old ones."""
    made = Cluster(tmp_path / "cluster", old_zip)
    try:
        yield made
    finally:
        made.close()


# --- the protocol before this one
def test_the_released_pilot_of_protocol_4_runs_50_tasks_across_a_crash_of_the_server(old: Cluster) -> None:
    """It joins, works, comes back to the next server, and nothing runs twice."""
    old.start_server()
    pilot = old.start_pilot(2)
    run = old.submit(old.telling(0.1, array="1-50"))
    old.wait_succeeded(run, 8)
    old.kill_server()
    assert 8 <= old.succeeded(run) < 50
    old.start_server()
    old.wait_run(run)
    old.check_recorded_once(run, 50)
    lives = old.lives()
    assert len(lives) == 50 == len({life.task for life in lives}), "each ran once"
    assert all(life.alone and life.end is not None for life in lives)
    assert pilot.is_alive and {row["pilot"] for row in old.rows(run)} <= set(pilot.names)
    assert "Traceback" not in pilot.log.read_text() and "malformed" not in pilot.log.read_text()
    old.stop_server()


def test_the_released_pilot_of_protocol_4_is_followed_signalled_cancelled_and_renewed(old: Cluster) -> None:
    """What it does not know it is not sent; idle, it becomes the server's own."""
    old.start_server()
    pilot = old.start_pilot(1)
    words = "trap 'echo caught' USR1; echo begun; while :; do sleep 0.1; done"
    run = old.submit({"command": ["sh", "-c", words]})
    old.wait_running(run)
    with old.client() as client:
        part = client.logs(f"r{run}.1", wait=5.0)
        assert (part.data, part.more) == (b"begun\n", True)
        began = time.monotonic()
        assert client.logs(f"r{run}.1", offset=part.next, wait=1.0).data == b""
        assert time.monotonic() - began < 30.0
        assert client.signal([f"r{run}.1"], "USR1") == {"signalled": 1, "not_running": 0}
        assert client.logs(f"r{run}.1", offset=part.next, wait=10.0).data == b"caught\n"
        guard = pilot.guard
        assert client.cancel([f"r{run}"]) == {"cancelled": 1, "already_final": 0}
    assert old.wait_run(run) == {"cancelled": 1}
    old.until(lambda: not children(guard), "what was cancelled is gone")
    old.until(lambda: len(pilot.names) == 2, "it becomes the server's own")
    after = old.submit(old.telling(array="1-3"))
    assert old.wait_run(after) == {"succeeded": 3}, "it goes on"
    with old.client() as client:
        assert client.drain([pilot.name]) == {"pilots": 1}
    assert pilot.process.wait(30.0) == 0, pilot.log.read_text()
    assert old.pilot_row(pilot.name)["state"] == "gone"
    assert list(pilot.work.iterdir()) == [], "it left nothing"
    old.stop_server()


# --- another zip of this version
def test_a_pilot_with_another_zip_becomes_the_servers_own_when_idle_and_goes_on(
    tmp_path: Path, pilot_zip: Path
) -> None:
    """One byte of a comment differs: it works as it is, renews itself once, in the same process, and works on."""
    other = tmp_path / "other.pyz"
    _with_another_comment(pilot_zip, other)
    before, now = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (other, pilot_zip))
    assert before != now
    cluster = Cluster(tmp_path / "cluster", other)
    try:
        cluster.start_server()
        first = cluster.submit(cluster.telling(0.3, array="1-4"))
        pilot = cluster.start_pilot(2)
        old_name, pid = pilot.name, pilot.pid
        cluster.wait_run(first)
        cluster.check_recorded_once(first, 4)
        assert {row["pilot"] for row in cluster.rows(first)} == {old_name}, "the work came before the renewal"
        cluster.until(lambda: len(pilot.names) == 2, "it comes back as the server's own")
        rows = {name: cluster.pilot_row(name) for name in pilot.names}
        assert rows[old_name]["tags"]["zip"] == before and rows[pilot.name]["tags"]["zip"] == now
        assert rows[old_name]["state"] == "gone" and "renewed by the server" in rows[old_name]["reason"]
        assert pilot.is_alive and pilot.pid == pid and comm(pid) == "shoal-pilot"
        second = cluster.submit(cluster.telling(0.0, array="1-4"))
        cluster.wait_run(second)
        cluster.check_recorded_once(second, 4)
        assert {row["pilot"] for row in cluster.rows(second)} == {pilot.name}
        assert len(cluster.lives()) == 8 and len(cluster.events("pilot_joined")) == 2
        with cluster.client() as client:
            client.drain([pilot.name])
        assert pilot.process.wait(30.0) == 0
        assert list(pilot.work.iterdir()) == [] and is_dead(pid)
        cluster.stop_server()
    finally:
        cluster.close()


def _with_another_comment(source: Path, target: Path) -> None:
    """A copy of a pilot's zip in which one byte of one comment is another."""
    packed = io.BytesIO()
    packed.write(b"#!/usr/bin/env python3\n")
    changed = 0
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as made:
        for entry in given.infolist():
            data = given.read(entry)
            if entry.filename == "shoal/pilot/main.py":
                mark = b"# What the guard does not need"
                assert data.count(mark) == 1
                data = data.replace(mark, b"# what the guard does not need")
                changed += 1
            made.writestr(entry, data)
    assert changed == 1
    target.write_bytes(packed.getvalue())
