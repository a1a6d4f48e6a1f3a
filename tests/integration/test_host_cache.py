"""The cache that the pilots of a host share: each content is fetched once, survives them, and is never trusted blindly."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import PATIENCE, Cluster
from tests.integration.test_files_travel import pool as pool
from tests.integration.test_files_travel import typed
from tests.integration.test_visible_files import COVER, other_namespace

pytestmark = pytest.mark.integration


COVER_TOO = ("sh", "-c", COVER, "sh")


@pytest.fixture
def folder(pool: Cluster) -> Iterator[Path]:
    """A cache that two pilots share, in place of those of the pilot that is there."""
    pool.pilots[0].kill()
    folder = pool.folder / "cache"
    for _ in range(2):
        start(pool, folder)
    yield folder


def start(pool: Cluster, folder: Path, *more: str) -> None:
    empty, blobs = pool.folder / "empty", pool.state / "blobs"
    under = (*other_namespace(empty, pool.cwd), *COVER_TOO, str(empty), str(blobs))
    pool.start_pilot(1, "--cache-dir", str(folder), *more, under=under)


def listed(folder: Path) -> dict[str, int]:
    """What `shoal cache ls` shows: digests and sizes."""
    answer = json.loads(typed("cache", "ls", "--dir", str(folder), "--json"))
    assert answer["bytes"] == sum(row["bytes"] for row in answer["files"]) <= answer["space"]
    return {row["digest"]: row["bytes"] for row in answer["files"]}


def test_files_stay_for_all_pilots_of_a_host_and_damaged_ones_are_fetched_again(pool: Cluster, folder: Path) -> None:
    data = os.urandom(2 << 20)
    (pool.cwd / "data").write_bytes(data)
    (pool.cwd / "small").write_bytes(b"abc")
    digest = hashlib.sha256(data).hexdigest()
    run = ("sweep", "--input", "data", "--input", "small", "--output", "{x}.sum", "x=1..6", "--shell")
    typed(*run, "--", "sha256sum < data > {x}.sum; sleep 0.3")
    assert all((pool.cwd / f"{x}.sum").read_text().split()[0] == digest for x in range(1, 7))
    assert listed(folder) == {f"sha256:{digest}": len(data), f"sha256:{hashlib.sha256(b'abc').hexdigest()}": 3}
    shown = [typed("show", f"r1.{x}") for x in range(1, 7)]
    assert sum("from server (2.0M)" in text for text in shown) == 1, "fetched once, by one of two pilots"
    for text in shown:
        assert [
            word for word in ("prepare", "stage-in", "run", "stage-out", "publish", "clean") if f"\n{word} " not in text
        ] == []
    path = folder / "files" / digest
    first = path.stat().st_mtime_ns
    for pilot in pool.pilots[1:]:
        pilot.kill()
    start(pool, folder)
    typed(*run, "--", "sha256sum < data | cat > {x}.sum")
    assert path.stat().st_mtime_ns == first, "it survived its pilots, and was not fetched again"
    for pilot in pool.pilots[3:]:
        pilot.kill()
    path.chmod(0o644)
    path.write_bytes(data[:-1] + b"x")
    start(pool, folder)
    typed(*run, "--", "cat data | sha256sum > {x}.sum")
    assert all((pool.cwd / f"{x}.sum").read_text().split()[0] == digest for x in range(1, 7))
    assert path.read_bytes() == data and path.stat().st_mtime_ns != first
    assert "2 files removed" in typed("cache", "clean", "--dir", str(folder)) and not listed(folder)
    assert "no files in" in typed("cache", "ls", "--dir", str(folder))


def test_an_input_larger_than_the_disk_of_a_host_is_no_fault_of_the_host(pool: Cluster) -> None:
    """It went by as a full disk, for which the host was banned."""
    pool.pilots[0].kill()
    work = pool.work / "2"
    disk = ("sh", "-c", 'mount -t tmpfs -o size=100m none "$1" && shift && exec "$@"', "sh", str(work))
    empty, blobs = pool.folder / "empty", pool.state / "blobs"
    pool.start_pilot(1, under=(*other_namespace(empty, pool.cwd), *COVER_TOO, str(empty), str(blobs), *disk))
    with (pool.cwd / "big").open("wb") as file:
        file.truncate(150 << 20)
    (pool.cwd / "small").write_text("small")
    said = typed("run", "--input", "big", "--", "true", status=125)
    assert "input big is too large for" in said and "are free in" in said
    typed("run", "--input", "small", "--", "true")
    assert "banned" not in typed("why", next(iter(pool.pilots[1].names)))


def test_a_small_cache_is_never_more_than_full_and_what_does_not_fit_is_used_once(pool: Cluster) -> None:
    pool.pilots[0].kill()
    folder = pool.folder / "cache"
    start(pool, folder, "--cache-max", "300000", "--cache-reserve", "100000")
    for x in range(1, 6):
        (pool.cwd / f"{x}.in").write_bytes(os.urandom(90_000 * x))
    run = ("sweep", "--input", "{x}.in", "--output", "{x}.sum", "x=1..5", "--shell")
    typed(*run, "--", "sha256sum < {x}.in > {x}.sum")
    for x in range(1, 6):
        digest = hashlib.sha256((pool.cwd / f"{x}.in").read_bytes()).hexdigest()
        assert (pool.cwd / f"{x}.sum").read_text().split()[0] == digest
    held = listed(folder)
    assert 0 < sum(held.values()) <= 200_000
    assert not list(Path(pool.pilots[1].work).rglob("blobs/*"))


SCRIPT = """
import own_module, shoal
if __name__ == "__main__":
    with shoal.Executor() as pool:
        print(list(pool.map(own_module.value, range(6))))
"""


def test_an_executors_own_modules_go_to_hosts_that_do_not_see_them_by_their_cache(pool: Cluster, folder: Path) -> None:
    """[CMS C3]: by digest, once for a host."""
    (pool.cwd / "main.py").write_text(SCRIPT)
    (pool.cwd / "own_module.py").write_text(
        f"DATA = {os.urandom(100_000).hex()!r}\ndef value(x): return x + len(DATA)\n"
    )
    done = subprocess.run(
        [sys.executable, "main.py"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == str([x + 200_000 for x in range(6)])
    assert any(size > 100_000 for size in listed(folder).values()), "the modules are in the cache of the host"
