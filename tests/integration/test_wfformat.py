"""Recorded workflows on an embedded server: replayed with every edge kept, run with their commands, and exported again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.flow.formats.wfformat import Instance, document, read
from shoal.flow.formats.wfformat_vertices import local_name
from tests.integration.cluster import PROVE, clean_env
from tests.wfformat_rules import complaints

pytestmark = pytest.mark.integration
# The workflows of the WfCommons collection that lie beside a checkout; they are not part of the repository.
RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "wfinstances"
SMALL = ("helloworld-chain-5-chameleon", "helloworld-forkjoin-10-chameleon", "bacass-dirt02-001")
FAST = 5_000.0  # recorded seconds in one: the small ones take a second
SPEED = 100.0
NEAR = 0.1  # seconds between the clock that tasks read, which may be set meanwhile, and the one that measures them


def recorded(name: str) -> Path:
    found = RECORDED / f"{name}.json"
    if not found.exists():
        pytest.skip(f"{found} is not there: the collection is kept beside a checkout, and not in it")
    return found


class Here:
    """`shoal` as a person types it in a directory of their own, with an embedded server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = clean_env() | {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
        self.env |= {"PATH": os.environ["PATH"], "COLUMNS": "100"}

    def shoal(self, *words: str, status: int = 0, errors: bool = False) -> str:
        """What a command prints, or says on standard error: with `errors`, or if it is to fail."""
        argv = [sys.executable, "-m", "shoal.cli", *words]
        done = subprocess.run(
            argv, capture_output=True, text=True, env=self.env, cwd=self.folder, timeout=600, check=False
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout if status == 0 and not errors else done.stderr


@contextmanager
def embedded(folder: Path) -> Iterator[Here]:
    here = Here(folder)
    try:
        yield here
    finally:
        here.shoal("server", "stop")


def ledger(path: Path) -> tuple[dict[str, float], dict[str, float]]:
    """When each task started and ended, as the tasks themselves wrote it; each exactly once."""
    found: dict[str, dict[str, float]] = {"start": {}, "end": {}}
    for line in path.read_text(encoding="utf-8").splitlines():
        moment, what, task = line.split(" ")
        assert task not in found[what], f"{task} has a second {what}"
        found[what][task] = float(moment)
    return found["start"], found["end"]


def edges(instance: Instance) -> set[tuple[str, str]]:
    return {(parent, task.id) for task in instance.tasks for parent in task.parents}


def check_replay(here: Here, path: Path, speed: float) -> None:
    """Replay a file, and compare the tasks' own ledger, their files and the export with what the file says."""
    before = read(path.read_text(encoding="utf-8"), path.name)
    told = here.folder / f"{path.stem}.ledger"
    here.shoal("run", "-q", str(path), "--replay", "--speed", str(speed), "--ledger", told.name, "--name", path.stem)
    start, end = ledger(told)
    assert start.keys() == end.keys() == {task.id for task in before.tasks}
    for parent, child in edges(before):
        assert end[parent] <= start[child], (parent, child)
    for task in before.tasks:
        for name in task.outputs:
            made = here.folder / f"{path.stem}.replay" / local_name(name)
            assert made.stat().st_size == int(before.sizes[name] / speed), name

    text = here.shoal("export", path.stem)
    assert complaints(json.loads(text)) == []
    after = read(text, "export")
    assert json.loads(json.dumps(document(after))) == json.loads(text)
    assert edges(after) == edges(before)
    of = {task.id: task for task in after.tasks}
    for task in before.tasks:
        other = of[task.id]
        assert other.name == task.name
        assert other.inputs == tuple(dict.fromkeys(map(local_name, task.inputs)))
        assert other.outputs == tuple(dict.fromkeys(map(local_name, task.outputs)))
        assert task.seconds is not None and other.seconds is not None
        assert other.seconds >= max(task.seconds / speed - 0.001, end[task.id] - start[task.id] - NEAR)
        assert other.machines and other.memory and other.cores == 1.0
    assert {name: int(size / speed) for name, size in sizes_here(before).items()} == dict(after.sizes)
    assert after.machines[0].cores and after.makespan >= max(end.values()) - min(start.values()) - NEAR


def sizes_here(instance: Instance) -> dict[str, int]:
    """The sizes of the files that tasks name; others are in no run."""
    used = {name for task in instance.tasks for name in (*task.inputs, *task.outputs)}
    return {local_name(name): size for name, size in instance.sizes.items() if name in used}


def test_small_recorded_workflows_replay_with_every_edge_and_export_themselves(tmp_path: Path) -> None:
    paths = [recorded(name) for name in SMALL]
    with embedded(tmp_path) as here:
        for path in paths:
            check_replay(here, path, FAST)


@pytest.mark.skipif(not PROVE, reason="takes minutes: SHOAL_PROVE=1 replays all at 1/100 of their recorded times")
@pytest.mark.timeout(1_800)
def test_every_recorded_workflow_replays_with_every_edge_and_exports_itself(tmp_path: Path) -> None:
    paths = sorted(RECORDED.glob("*.json"))
    if not paths:
        pytest.skip(f"there are no files in {RECORDED}: the collection is kept beside a checkout, and not in it")
    with embedded(tmp_path) as here:
        for path in paths:
            check_replay(here, path, SPEED)


def diamond(**changes: Any) -> dict[str, Any]:
    """A workflow of our own with commands that can be run: words are split, counted in two ways, and put together."""

    def task(name: str, parents: list[str], children: list[str], read: list[str], written: list[str]) -> dict[str, Any]:
        tied = {"parents": parents, "children": children}
        return {"name": name.rstrip("12"), "id": name, **tied, "inputFiles": read, "outputFiles": written}

    tasks = [
        task("split", [], ["count1", "count2"], ["text"], ["one", "two"]),
        task("count1", ["split"], ["join"], ["one"], ["one.n"]),
        task("count2", ["split"], ["join"], ["two"], ["two.n"]),
        task("join", ["count1", "count2"], [], ["one.n", "two.n"], ["sum"]),
    ]
    commands = {
        "split": "head -n 1 text > one\ntail -n 2 text > two",
        "count1": "wc -w < one > one.n",
        "count2": "wc -w < two > two.n",
        "join": "cat one.n two.n > sum",
    }
    ran = [
        {"id": name, "runtimeInSeconds": 1, "command": {"program": text, "arguments": []}}
        for name, text in commands.items()
    ]
    files = [{"id": name, "sizeInBytes": 9} for name in ("text", "one", "two", "one.n", "two.n", "sum")]
    execution = {"makespanInSeconds": 3, "executedAt": "2026-01-01T00:00:00+00:00", "tasks": ran}
    flow = {"specification": {"tasks": tasks, "files": files}, "execution": execution}
    return {"name": "diamond", "schemaVersion": "1.5", "workflow": flow, **changes}


def test_recorded_commands_run_and_the_export_of_the_run_runs_again(tmp_path: Path) -> None:
    (tmp_path / "diamond.json").write_text(json.dumps(diamond()))
    (tmp_path / "text").write_text("a b c\nd e\nf g\n")
    with embedded(tmp_path) as here:
        assert "4 tasks would be submitted" in here.shoal("run", "--dry-run", "diamond.json")
        here.shoal("run", "-q", "diamond.json")
        assert (tmp_path / "sum").read_text().split() == ["3", "4"]
        here.shoal("export", "-o", "again.json", "r1")
        found = json.loads((tmp_path / "again.json").read_text())
        assert complaints(found) == []
        assert edges(read(json.dumps(found), "again.json")) == edges(read(json.dumps(diamond()), "diamond.json"))
        (tmp_path / "sum").unlink()
        here.shoal("run", "-q", "again.json")
        assert (tmp_path / "sum").read_text().split() == ["3", "4"]
        # Without a server, from the database.
        here.shoal("server", "stop")
        assert json.loads(here.shoal("export", "r1"))["workflow"] == found["workflow"]
        here.shoal("server", "start")


@pytest.mark.parametrize(
    ("words", "changes", "told"),
    [
        ((), {"schemaVersion": "1.4"}, "flow.json: schemaVersion: it is '1.4' (version 1.5 is read"),
        (("--replay",), {"workflow": {}}, "flow.json: workflow: specification is missing"),
        (("--speed", "5"), {}, "--speed is for a replay (write --replay, too)"),
        (("--cores", "2"), {}, "--cores does not go with a workflow file"),
        (("--replay", "--speed", "0"), {}, "--speed"),
        ((), {}, "there is no file 'text'"),
    ],
)
def test_a_wrong_workflow_submits_nothing(
    tmp_path: Path, words: tuple[str, ...], changes: dict[str, Any], told: str
) -> None:
    (tmp_path / "flow.json").write_text(json.dumps(diamond(**changes)))
    here = Here(tmp_path)
    answer = here.shoal("run", "flow.json", *words, status=2)
    assert told in answer and len(answer.splitlines()) == 1
    assert not list(tmp_path.glob("*.replay"))


def test_shoal_dag_shows_the_shape_of_a_recorded_workflow_and_runs_it(tmp_path: Path) -> None:
    (tmp_path / "diamond.json").write_text(json.dumps(diamond()))
    (tmp_path / "work.toml").write_text('[[tasks]]\nshell = "true"\n')
    with embedded(tmp_path) as here:
        assert "4 tasks would be submitted" in here.shoal("dag", "diamond.json", "--replay", "--dry-run")
        assert not (tmp_path / "diamond.replay").exists()
        told = here.shoal("dag", "diamond.json", "--replay", "--speed", "50", errors=True)
        assert "diamond.json: 4 tasks, 4 edges, 3 levels, widest 2" in told
        assert sorted(path.name for path in (tmp_path / "diamond.replay").iterdir()) == [
            "one", "one.n", "sum", "text", "two", "two.n",
        ]  # fmt: skip
        assert "--rescue-from is for DAGMan files" in here.shoal("dag", "diamond.json", "--rescue-from", "1", status=2)
        assert "--speed is for workflows in WfFormat" in here.shoal("run", "work.toml", "--speed", "5", status=2)


def test_arrays_are_exported_task_by_task_and_what_never_ran_has_no_times(tmp_path: Path) -> None:
    (tmp_path / "work.toml").write_text(
        '[[tasks]]\nname = "make it"\ncommand = ["sh", "-c", "echo {i} > {i}.txt", ""]\narray = "1-2"\noutputs = ["{i}.txt"]\n'
        '[[tasks]]\ncommand = ["false"]\nafter = ["make it"]\nname = "bad"\n[[tasks]]\nshell = "true"\nafter = ["bad"]\n'
    )
    with embedded(tmp_path) as here:
        here.shoal("run", "-q", "work.toml", status=1)
        text = here.shoal("export")
    assert complaints(json.loads(text)) == []
    found = {task.id: task for task in read(text, "export").tasks}
    assert list(found) == ["make_it.1", "make_it.2", "bad", "r1.4"]
    assert found["bad"].parents == ("make_it.1", "make_it.2") and found["make_it.2"].outputs == ("2.txt",)
    assert found["make_it.1"].program == "sh -c 'echo 1 > 1.txt' ''" and found["bad"].seconds is not None
    assert found["r1.4"].seconds is None
