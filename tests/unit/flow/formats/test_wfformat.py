"""WfFormat: what is read of a file, what is refused and where, and that what is written reads back."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from shoal.flow.formats.wfformat import Machine, Task, document, read
from shoal.model.errors import BadInput

FLOW: dict[str, Any] = {
    "name": "two",
    "schemaVersion": "1.5",
    "createdAt": "2026-01-01T00:00:00+00:00",
    "runtimeSystem": {"name": "Pegasus", "version": "5.0"},
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "make", "id": "a", "parents": [], "children": ["b"], "outputFiles": ["x"]},
                {"name": "b", "id": "b", "parents": ["a"], "children": [], "inputFiles": ["x", "/abs/in.txt"]},
            ],
            "files": [{"id": "x", "sizeInBytes": 3_000_000}, {"id": "/abs/in.txt", "sizeInBytes": 0}],
        },
        "execution": {
            "makespanInSeconds": 7,
            "executedAt": "2026-01-01T00:00:00+00:00",
            "tasks": [
                {
                    "id": "a",
                    "runtimeInSeconds": 2.5,
                    "machines": ["n1"],
                    "command": {"program": "make", "arguments": ["x"]},
                },
                {"id": "b", "runtimeInSeconds": 4, "coreCount": 2, "avgCPU": 160.2, "memoryInBytes": 5, "priority": -3},
            ],
            "machines": [{"nodeName": "n1", "system": "linux", "cpu": {"coreCount": 4, "speedInMHz": 2400}}],
        },
    },
}


def changed(path: str, value: Any) -> str:
    """The workflow with another value at a place such as `workflow.specification.tasks.0.id`; `...` takes it out."""
    found = deepcopy(FLOW)
    at: Any = found
    *way, last = [int(word) if word.isdecimal() else word for word in path.split(".")]
    for word in way:
        at = at[word]
    if value is ...:
        del at[last]
    elif isinstance(last, int) and last == len(at):
        at.append(value)
    else:
        at[last] = value
    return json.dumps(found)


def test_tasks_have_what_both_parts_say_of_them() -> None:
    found = read(json.dumps(FLOW), "flow.json")
    first, second = found.tasks
    assert first == Task("a", "make", (), (), ("x",), 2.5, "make", ("x",), machines=("n1",))
    assert second == Task("b", "b", ("a",), ("x", "/abs/in.txt"), (), 4, cores=2, avg_cpu=160.2, memory=5, priority=-3)
    assert found.sizes == {"x": 3_000_000, "/abs/in.txt": 0}
    assert found.machines == (Machine("n1", "linux", cores=4, mhz=2400),)
    assert (found.name, found.makespan, found.system) == ("two", 7, ("Pegasus", "5.0", ""))


def test_a_workflow_that_never_ran_has_no_times() -> None:
    found = read(changed("workflow.execution", ...), "flow.json")
    assert [task.seconds for task in found.tasks] == [None, None]
    assert "execution" not in document(found)["workflow"]


def test_an_edge_counts_from_whichever_end_it_is_named() -> None:
    found = read(changed("workflow.specification.tasks.1.parents", []), "flow.json")
    assert found.tasks[1].parents == ("a",)
    found = read(changed("workflow.specification.tasks.0.children", []), "flow.json")
    assert found.tasks[1].parents == ("a",)


SPEC, RAN = "workflow.specification", "workflow.execution"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schemaVersion", "1.4", "schemaVersion: it is '1.4' (version 1.5 is read"),
        ("schemaVersion", ..., "is no workflow in WfFormat"),
        ("workflow", [], "workflow: expected an object"),
        ("name", "", "name: expected a text that is not empty"),
        (SPEC, ..., "workflow: specification is missing"),
        (f"{SPEC}.tasks", [], f"{SPEC}.tasks: there is no task in it"),
        (f"{SPEC}.tasks", {}, f"{SPEC}.tasks: expected a list"),
        (f"{SPEC}.tasks.1", 7, f"{SPEC}.tasks[1]: expected an object"),
        (f"{SPEC}.tasks.1.id", "a", f"{SPEC}.tasks[1].id: 'a' is there twice (the first is {SPEC}.tasks[0])"),
        (f"{SPEC}.tasks.1.parents", ["z"], f"{SPEC}.tasks[1].parents[0]: task b waits for z, which is not in it"),
        (f"{SPEC}.tasks.1.children", ["z"], f"{SPEC}.tasks[1].children[0]: task b has the child z, which is not in it"),
        (f"{SPEC}.tasks.1.parents", ["a b"], f"{SPEC}.tasks[1].parents[0]: 'a b' is none of"),
        (f"{SPEC}.tasks.0.parents", ["b"], "tasks wait for each other: "),
        (f"{SPEC}.tasks.0.parents", ["a"], "tasks wait for each other: a -> a"),
        (f"{SPEC}.tasks.0.outputFiles", ["y"], f"{SPEC}.tasks[0].outputFiles[0]: 'y' is not among {SPEC}.files"),
        (f"{SPEC}.files.1.id", "x", f"{SPEC}.files[1].id: 'x' is there twice"),
        (f"{SPEC}.files.0.sizeInBytes", -1, f"{SPEC}.files[0].sizeInBytes: -1 is not a whole number from 0 on"),
        (f"{SPEC}.files.0.sizeInBytes", 1.5, f"{SPEC}.files[0].sizeInBytes: 1.5 is not a whole number from 0 on"),
        (f"{SPEC}.files.0.sizeInBytes", ..., f"{SPEC}.files[0]: sizeInBytes is missing"),
        (f"{RAN}.tasks.1.id", "z", f"{RAN}.tasks[1].id: task z is not in {SPEC}.tasks"),
        (f"{RAN}.tasks.1.id", "a", f"{RAN}.tasks[1].id: 'a' is there twice"),
        (f"{RAN}.tasks.1.runtimeInSeconds", -1, f"{RAN}.tasks[1].runtimeInSeconds: -1 is not a number from 0 on"),
        (f"{RAN}.tasks.1.runtimeInSeconds", "4", f"{RAN}.tasks[1].runtimeInSeconds: 4 is not a number"),
        (f"{RAN}.tasks.1.runtimeInSeconds", float("nan"), f"{RAN}.tasks[1].runtimeInSeconds: nan is not a number"),
        (f"{RAN}.tasks.1.coreCount", True, f"{RAN}.tasks[1].coreCount: True is not a number from 1 on"),
        (f"{RAN}.tasks.0.machines", ["n2"], f"{RAN}.tasks[0].machines[0]: 'n2' is not among {RAN}.machines"),
        (f"{RAN}.tasks.0.command", "make x", f"{RAN}.tasks[0].command: expected an object"),
        (f"{RAN}.tasks.0.command.arguments", [3], f"{RAN}.tasks[0].command.arguments[0]: '3' is none of the texts"),
        (f"{RAN}.machines.0.system", "plan9", f"{RAN}.machines[0].system: it is 'plan9'"),
        (f"{RAN}.executedAt", ..., f"{RAN}: executedAt is missing"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_file_and_place(path: str, value: Any, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(changed(path, value), "flow.json")
    assert caught.value.message.startswith("flow.json") and words in caught.value.line, caught.value.line


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '"x"', "{}", "[" * 100_000, "1" * 5_000])
def test_what_is_no_workflow_is_one_line(text: str) -> None:
    with pytest.raises(BadInput, match=r"^flow\.json is no (JSON|workflow)") as caught:
        read(text, "flow.json")
    assert "\n" not in caught.value.line
