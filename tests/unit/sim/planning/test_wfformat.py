"""Workflows in WfFormat as jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.sim.planning.wfformat import read_wfformat


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named as people name them: a long path would be cut in a message."""
    monkeypatch.chdir(tmp_path)


def document(**changes: Any) -> dict[str, Any]:
    """A workflow of two tasks."""
    tasks = [
        {"id": "a", "parents": [], "children": ["b"], "inputFiles": [], "outputFiles": ["x"]},
        {"id": "b", "parents": ["a"], "children": [], "inputFiles": ["x"], "outputFiles": []},
    ]
    ran = [{"id": "a", "runtimeInSeconds": 2.5}, {"id": "b", "runtimeInSeconds": 4, "coreCount": 2}]
    specification = {"tasks": tasks, "files": [{"id": "x", "sizeInBytes": 3_000_000}]}
    return {
        "schemaVersion": "1.5",
        "workflow": {"specification": specification, "execution": {"tasks": ran}, **changes},
    }


def test_run_times_parents_cores_and_sizes() -> None:
    path = Path("flow.json")
    path.write_text(json.dumps(document()))
    first, second = read_wfformat(str(path)).batch.jobs
    assert (first.seconds, first.output_mb, first.after) == (2.5, 3.0, ())
    assert (second.seconds, second.input_mb, second.after, second.cores) == (4.0, 3.0, (0,), 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "is no workflow in WfFormat"),
        ("{}", "is no workflow in WfFormat"),
        (json.dumps(document(execution={"tasks": []})), "task a has no recorded run time"),
        (
            json.dumps(document(execution={"tasks": [{"id": "a", "runtimeInSeconds": -1}]})),
            "task a has the run time -1.0",
        ),
        (
            json.dumps(document(execution={"tasks": [{"id": "a", "runtimeInSeconds": "x"}]})),
            "is no workflow in WfFormat",
        ),
    ],
)
def test_a_wrong_file_is_one_line(text: str, words: str) -> None:
    path = Path("flow.json")
    path.write_text(text)
    with pytest.raises(BadInput, match=r"flow\.json") as caught:
        read_wfformat(str(path))
    assert words in str(caught.value)


def test_a_parent_that_is_not_there() -> None:
    made = document()
    made["workflow"]["specification"]["tasks"][1]["parents"] = ["z"]
    path = Path("flow.json")
    path.write_text(json.dumps(made))
    with pytest.raises(BadInput, match="task b waits for z"):
        read_wfformat(str(path))
