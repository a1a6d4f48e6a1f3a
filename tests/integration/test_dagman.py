"""DAGMan files of our own, each with the outcome that HTCondor's manual documents, on one real server with one pilot.

Each file in `dags/` says which page and passage of the manual it is about, and what has to come out: the exit status of `shoal
dag`, the lines of the file `log` that its nodes and scripts write (`|`: one after the other, `+`: in any order), and the nodes
that a rescue file marks as done.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.integration
DAGS = Path(__file__).with_name("dags")
NAMES = sorted(path.stem for path in DAGS.glob("*.dag"))
_TOLD = re.compile(r"# (manual|status|log|pairs|rescue):(.*)")
SHOAL = (sys.executable, "-m", "shoal.cli")


class Outcome(NamedTuple):
    """What came of one file."""

    status: int
    said: str
    folder: Path

    @property
    def log(self) -> list[str]:
        file = self.folder / "log"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def rescued(self, dag: str) -> list[str] | None:
        file = self.folder / f"{dag}.rescue001"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else None
        return sorted(line.split()[1] for line in lines if line.startswith("DONE ")) if lines is not None else None


class Pool:
    """A server with one pilot, and commands that use it."""

    def __init__(self, folder: Path, pilot_zip: Path) -> None:
        self.folder = folder
        self.cluster = Cluster(folder / "cluster", pilot_zip)
        self.cluster.start_server()
        self.cluster.start_pilot(8)
        address = self.cluster.address()
        self.env = {
            **os.environ, "SHOAL_SERVER": address["url"], "SHOAL_TOKEN": address["token"],
            "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"),
        }  # fmt: skip

    def place(self, name: str) -> Path:
        """A directory with all files of the cases."""
        shutil.copytree(DAGS, self.folder / name)
        return self.folder / name

    def shoal(self, folder: Path, *words: str) -> Outcome:
        """Carry out a command there."""
        done = subprocess.run(
            [*SHOAL, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=folder, env=self.env, timeout=180, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, folder)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, pilot_zip: Path) -> Iterator[Pool]:
    made = Pool(tmp_path_factory.mktemp("dagman"), pilot_zip)
    try:
        yield made
    finally:
        made.cluster.close()


@pytest.fixture(scope="module")
def outcomes(pool: Pool) -> Iterator[dict[str, Future[Outcome]]]:
    """All files are run, some at a time, while the first are looked at."""
    with ThreadPoolExecutor(4) as threads:
        yield {name: threads.submit(pool.shoal, pool.place(name), "dag", f"{name}.dag") for name in NAMES}


def told(name: str) -> dict[str, str]:
    """What a file says of itself."""
    lines = (DAGS / f"{name}.dag").read_text(encoding="utf-8").splitlines()
    return {found[1]: found[2].strip() for line in lines if (found := _TOLD.fullmatch(line))}


@pytest.mark.parametrize("name", NAMES)
def test_a_workflow_ends_as_the_manual_says(outcomes: dict[str, Future[Outcome]], name: str) -> None:
    expected, outcome = told(name), outcomes[name].result(180)
    assert "internal error" not in outcome.said
    assert outcome.status == int(expected["status"]), outcome.said
    left = outcome.log
    for group in expected["log"].split(" | ") if "log" in expected else ():
        wanted = group.split(" + ")
        assert sorted(left[: len(wanted)]) == sorted(wanted), (outcome.log, outcome.said)
        left = left[len(wanted) :]
    if "pairs" in expected:  # each begins when the one before has ended
        assert [line.replace("in ", "out ") for line in left[::2]] == left[1::2]
        assert sorted(line.split()[1] for line in left[::2]) == expected["pairs"].split()
        left = []
    assert left == [], outcome.said
    rescue = sorted(expected["rescue"].split()) if "rescue" in expected else None
    assert outcome.rescued(f"{name}.dag") == rescue, outcome.said
    assert list(outcome.folder.glob("*.shoal*")) == []
    assert "manual" in expected


def test_a_rescue_file_is_gone_on_from_and_numbered(pool: Pool, outcomes: dict[str, Future[Outcome]]) -> None:
    folder = outcomes["failure"].result(180).folder
    (folder / "log").unlink()
    again = pool.shoal(folder, "dag", "failure.dag")
    assert (again.status, again.log) == (1, ["B"]), again.said
    assert "failure.dag.rescue002" in again.said
    text = (folder / "failure.dag").read_text(encoding="utf-8")
    (folder / "failure.dag").write_text(text.replace('code="3"', 'code="0"'), encoding="utf-8")
    last = pool.shoal(folder, "run", "failure.dag")
    assert (last.status, last.log) == (0, ["B", "B", "D"]), last.said


def test_a_workflow_goes_on_when_its_command_is_killed_and_the_next_one_finds_it(pool: Pool) -> None:
    folder = pool.place("killed")
    lines = [
        "JOB A {",
        "executable = /bin/sh",
        "arguments = \"-c 'until [ -e go ]; do sleep 0.05; done; exit 4'\"",
        "}",
    ]
    (folder / "killed.dag").write_text(
        "\n".join([*lines, "JOB B parts/note.sub", "PARENT B CHILD A", ""]), encoding="utf-8"
    )
    with subprocess.Popen(
        [*SHOAL, "dag", "killed.dag"], cwd=folder, env=pool.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as first:
        pool.cluster.until(lambda: (folder / "killed.dag.shoal").exists() and (folder / "log").is_file(), "it began")
        first.send_signal(signal.SIGKILL)
    pool.cluster.kill_server()
    pool.cluster.start_server()
    again = pool.shoal(folder, "submit", "killed.dag")
    assert again.status == 2 and "works on killed.dag already" in again.said
    (folder / "go").touch()
    waited = pool.shoal(folder, "dag", "killed.dag")
    assert (waited.status, waited.log) == (1, ["B"]), waited.said
    assert waited.rescued("killed.dag") == ["B"], waited.said
    assert not (folder / "killed.dag.shoal").exists()


def test_a_workflow_that_was_submitted_is_come_back_to_and_not_run_again(pool: Pool) -> None:
    folder = pool.place("later")
    assert pool.shoal(folder, "submit", "diamond.dag").status == 0
    waited = pool.shoal(folder, "dag", "diamond.dag")
    assert (waited.status, len(waited.log)) == (0, 4), waited.said
    assert not (folder / "diamond.dag.shoal").exists()


def test_what_a_workflow_ends_with_is_known_after_old_events_were_pruned(pool: Pool) -> None:
    """automated-workflows/node-pass-or-fail.rst, Stopping the DAG on Node Failure: ABORT-DAG-ON with RETURN."""
    folder = pool.place("pruned")
    (folder / "gone").touch()
    assert pool.shoal(folder, "run", "--", "rm", "gone").status == 0
    pruned = pool.shoal(folder, "prune", "--older-than", "0.01")
    assert pruned.status == 0 and not pruned.said.startswith("0 events"), pruned.said
    aborted = pool.shoal(folder, "dag", "abort.dag")
    assert (aborted.status, aborted.rescued("abort.dag")) == (8, []), aborted.said
    assert not (folder / "abort.dag.shoal").exists()


def test_a_sub_workflow_goes_on_when_the_one_around_it_was_cancelled_and_is_run_again(pool: Pool) -> None:
    """automated-workflows/dagman-using-other-dags.rst, SUBDAGs and Rescue: "The final result is each DAG having a unique rescue
    DAG file that will be automatically detected upon re-run." """
    folder = pool.place("around")
    sub = [
        "JOB A parts/note.sub", "JOB B {", "executable = /bin/sh",
        "arguments = \"-c 'touch begun; until [ -e go ]; do sleep 0.05; done; echo B >>log'\"", "}", "PARENT A CHILD B", "",
    ]  # fmt: skip
    (folder / "sub.dag").write_text("\n".join(sub), encoding="utf-8")
    (folder / "around.dag").write_text("SUBDAG EXTERNAL Y sub.dag\n", encoding="utf-8")
    with subprocess.Popen(
        [*SHOAL, "dag", "around.dag"], cwd=folder, env=pool.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        pool.cluster.until(lambda: (folder / "begun").exists() and (folder / "sub.dag.shoal").exists(), "both run")
        run, inner = (
            json.loads((folder / name).read_text(encoding="utf-8"))["run"]
            for name in ("around.dag.shoal", "sub.dag.shoal")
        )
        assert pool.shoal(folder, "cancel", run).status == 0
        assert first.wait(120) == 1
    assert pool.shoal(folder, "wait", inner).status == 1  # it is cancelled with the task that submitted it
    (folder / "go").touch()
    again = pool.shoal(folder, "dag", "around.dag")
    assert (again.status, again.log) == (0, ["A", "B"]), again.said
    assert list(folder.glob("*.shoal*")) == []


def test_nothing_of_what_was_transferred_stays_when_a_job_is_ended_by_its_time_limit(pool: Pool) -> None:
    folder = pool.place("limited")
    (folder / "tmp").mkdir()
    job = [
        "JOB A {", "executable = /bin/sh", "arguments = \"-c 'touch here; sleep 600'\"", "allowed_execute_duration = 2",
        "transfer_input_files = parts/note", f'environment = "TMPDIR={folder}/tmp"', "}", "",
    ]  # fmt: skip
    (folder / "limited.dag").write_text("\n".join(job), encoding="utf-8")
    done = pool.shoal(folder, "dag", "limited.dag")
    assert done.status == 1 and "over_time" in done.said, done.said
    assert list((folder / "tmp").iterdir()) == []
    assert not (folder / "here").exists()


def test_shown_only_nothing_is_submitted(pool: Pool) -> None:
    folder = pool.place("shown")
    done = pool.shoal(folder, "dag", "diamond.dag", "--dry-run")
    assert done.status == 0 and done.log == []
    assert "4 tasks, 4 edges, 3 levels, widest 2" in done.said
    assert "critical path: 3 tasks: A -> B -> D" in done.said
