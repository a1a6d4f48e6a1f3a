"""Files of tasks that run where the submitter's directory is not seen: inputs and programs go there, outputs come back.

The pilot is in a mount namespace of its own, where an empty directory lies over the submitter's.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import PATIENCE, Cluster, free_port
from tests.integration.test_visible_files import other_namespace

pytestmark = pytest.mark.integration
SIM = '#!/bin/sh\ntest ! -e secret || exit 9\ncat "in/$1.txt" common > "out/$1.txt"\npwd\n'


@pytest.fixture
def pool(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A server that others reach, with one pilot that does not see the submitter's directory."""
    if os.geteuid() != 0 or subprocess.run([*other_namespace(), "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespaces here: that files travel was NOT tested")
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(cluster.folder / "home" / name.lower()))
    monkeypatch.setenv("SHOAL_SERVER", cluster.start_server("--listen", f"127.0.0.1:{free_port()}"))
    monkeypatch.setenv("SHOAL_TOKEN", cluster.address()["token"])
    monkeypatch.chdir(cluster.cwd)
    empty = cluster.folder / "empty"
    empty.mkdir()
    (cluster.cwd / "secret").write_text("of the submitter")
    cluster.start_pilot(2, under=other_namespace(empty, cluster.cwd))
    yield cluster


def typed(*words: str, status: int = 0, cwd: Path | None = None) -> str:
    """What a command of a person prints."""
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=2 * PATIENCE, check=False, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout


def write_sim(folder: Path) -> None:
    """A program, its input for each task, and one for all."""
    (folder / "sim").write_text(SIM)
    (folder / "sim").chmod(0o755)
    (folder / "in").mkdir()
    for number in range(1, 9):
        (folder / "in" / f"{number}.txt").write_text(f"input {number}\n")
    (folder / "common").write_bytes(os.urandom(300_000))


def test_inputs_and_the_program_go_where_the_task_runs_and_outputs_come_back(pool: Cluster) -> None:
    write_sim(pool.cwd)
    words = ("--input", "in/{x}.txt", "--input", "common", "--output", "out/{x}.txt", "x=1..8", "--", "./sim", "{x}")
    said = typed("sweep", *words)
    assert "8 succeeded" in said and "8 outputs fetched" in said, said
    common = (pool.cwd / "common").read_bytes()
    for number in range(1, 9):
        assert (pool.cwd / "out" / f"{number}.txt").read_bytes() == f"input {number}\n".encode() + common
    assert not list(pool.cwd.rglob("*.part"))
    listed = typed("get", "r1", "out/[12].txt", "--list")
    assert listed.count("out/") == 2, listed
    assert "2 files" in typed("get", "r1", "out/[12].txt", "--to", "again")
    assert (pool.cwd / "again" / "out" / "2.txt").read_bytes() == (pool.cwd / "out" / "2.txt").read_bytes()
    assert "8 files there already" in typed("get", "r1"), "what is there with the same bytes is left"
    assert "8 tasks not run again" in typed("sweep", "--resume", *words), "fetched files are those that the tasks wrote"
    (pool.cwd / "in" / "1.txt").write_text("another\n")
    typed("sweep", *words)
    assert (pool.cwd / "out" / "1.txt").read_bytes() == b"another\n" + common, "an edit between two runs counts"
    assert "1 file left that are newer" in typed("get", "r1"), "an old run does not undo a new one"
    assert (pool.cwd / "out" / "1.txt").read_bytes() == b"another\n" + common
    assert "another directory" in typed("get", "r1", status=2, cwd=pool.folder)
    blobs = {path.name for path in (pool.folder / "state").rglob("*") if path.is_file()}
    name = hashlib.sha256(common).hexdigest()
    assert sum(1 for one in blobs if name in one) == 1, "the content that all of them read was sent once"


def test_a_declared_output_that_is_missing_or_leads_out_is_the_tasks_failure(pool: Cluster) -> None:
    said = typed("run", "--output", "never", "--", "true", status=125)
    assert "output never was not written" in said
    said = typed("run", "--output", "link", "--shell", "--", "ln -s /etc/passwd link", status=125)
    assert "output_refused" in said
    said = typed("run", "--output", "twin", "--shell", "--", "touch one; ln one twin", status=125)
    assert "a second name of another file" in said


def test_an_input_that_is_not_here_is_refused_before_anything_is_sent(pool: Cluster) -> None:
    assert "gone.txt" in typed("run", "--input", "gone.txt", "--", "true", status=2)
    (pool.cwd / "folder").mkdir()
    assert "folder" in typed("run", "--input", "folder", "--", "true", status=2)
    assert "no runs" in typed("ps")


def test_a_task_that_declares_nothing_waits_for_a_host_that_sees_its_directory(pool: Cluster) -> None:
    """What it reads and writes is not known, and must not be lost in a directory that is removed."""
    write_sim(pool.cwd)
    run = typed("submit", "--", "./sim", "1").split()[-1]
    pool.until(lambda: "no pilot sees" in typed("why", run), "it waits for a host that sees its directory")
