"""Snakemake through its plug-in cluster-generic, with the very files that docs/howto/snakemake.md shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.client.client import Client
from tests.integration.cluster import Cluster, clean_env

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
PARTS = 29  # and one that merges them: 30 jobs
WORKFLOW = f"""
rule all:
    input: "sum.txt"

rule part:
    output: "part/{{n}}.txt"
    shell: "echo {{wildcards.n}} > {{output}}; echo {{wildcards.n}} >> ledger.txt; echo $SHOAL_TASK >> tasks.txt"

rule merge:
    input: expand("part/{{n}}.txt", n=range({PARTS}))
    output: "sum.txt"
    shell: "cat {{input}} | awk '{{{{s += $1}}}} END {{{{print s}}}}' > {{output}}"
"""
WAITS = """
rule all:
    input: "never.txt", "wrong.txt"

rule never:
    output: "never.txt"
    shell: "echo begun >> begun.txt; sleep 600"

rule wrong:
    output: "wrong.txt"
    shell: "echo begun >> begun.txt; sleep 600; exit 3"
"""


def blocks(kind: str) -> list[str]:
    """The blocks of a kind that the document asks the reader to save."""
    text = (ROOT / "docs" / "howto" / "snakemake.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The workflow's directory, with the profile as the document has it."""
    (config,), (cancel,) = blocks("yaml"), blocks("sh")
    profile = tmp_path / "work" / "shoal"
    profile.mkdir(parents=True)
    (profile / "config.yaml").write_text(config, encoding="utf-8")
    (profile / "cancel").write_text(cancel, encoding="utf-8")
    (profile / "cancel").chmod(0o755)
    return profile.parent


def start(folder: Path, workflow: str, look_every: int) -> subprocess.Popen[str]:
    (folder / "Snakefile").write_text(workflow, encoding="utf-8")
    here = Path(sys.executable).parent
    env = clean_env() | {name: os.environ[name] for name in ("SHOAL_SERVER", "SHOAL_TOKEN")}
    env |= {"PATH": f"{here}:{os.environ['PATH']}", "HOME": str(folder.parent)}
    words = [str(here / "snakemake"), "--profile", "shoal", "--seconds-between-status-checks", str(look_every)]
    return subprocess.Popen(
        words,
        cwd=folder,
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def test_a_workflow_of_30_jobs(pool: Cluster, folder: Path) -> None:
    process = start(folder, WORKFLOW, 1)
    said, _ = process.communicate(timeout=280)
    assert process.returncode == 0, said
    assert sorted(map(int, lines(folder / "ledger.txt"))) == list(range(PARTS))  # each once
    assert lines(folder / "sum.txt") == [str(sum(range(PARTS)))]
    assert len(set(lines(folder / "tasks.txt"))) == PARTS  # all of them in the pool
    with Client(pool.address()["url"], pool.address()["token"]) as client:
        runs = client.runs(limit=100)["runs"]
    assert sorted(row["name"] for row in runs) == ["merge", *["part"] * PARTS]
    assert all(row["counts"]["succeeded"] == row["total"] for row in runs)


def test_ctrl_c_in_snakemake_cancels_the_jobs(pool: Cluster, folder: Path) -> None:
    process = start(folder, WAITS, 300)  # while Snakemake looks, it forgets its jobs and cancels none
    end = time.monotonic() + 150.0
    try:
        while len(lines(folder / "begun.txt")) < 2:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        with Client(pool.address()["url"], pool.address()["token"]) as client:
            runs = {str(row["name"]): str(row["run"]) for row in client.runs(limit=2)["runs"]}
            assert sorted(runs) == ["never", "wrong"]
            while not all(client.run(run)["counts"].get("cancelled") == 1 for run in runs.values()):
                assert time.monotonic() < end
                time.sleep(0.1)
    finally:
        process.kill()  # else it ends when it would have looked again
        said, _ = process.communicate()
    assert "2 tasks cancelled" in said
