"""Workflows as they are built in Python: names, files, edges, and what is refused before anything is sent."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import shoal
from shoal.client.workflows.workflow import WorkflowTask
from shoal.flow.file_edges import tie
from shoal.model.errors import BadInput


def tables(*tasks: WorkflowTask) -> list[dict[str, Any]]:
    """What would be submitted."""
    return tie([task.table for task in tasks], [task.spec for task in tasks])


def test_vertices_are_named_after_their_programs_unless_told_otherwise() -> None:
    wf = shoal.Workflow()
    made = [wf.task(["/bin/sort", "x"]), wf.task("sort -r y | uniq"), wf.task(["x"], name="fit"), wf.call(max, 1, 2)]
    assert [vertex.name for vertex in made] == ["sort", "sort-2", "fit", "max"] and len(wf) == 4


def test_an_output_that_is_an_input_makes_an_edge() -> None:
    wf = shoal.Workflow(retries=2)
    a = wf.task(["a"], outputs=["x"], cwd="d")
    b = wf.task(["b"], inputs=[a.out("x")])
    c = wf.task(["c"], inputs=[a.out("x"), "own"], cwd="d", after=[b, "r18"])
    assert [table.get("after") for table in tables(a, b, c)] == [None, ["a"], ["b", "r18", "a"]]
    assert (b.table["inputs"], c.table["inputs"], c.table["retries"]) == (["d/x"], ["x", "own"], 2)


def test_sweeps_are_tied_task_by_task_or_gathered() -> None:
    wf = shoal.Workflow()
    a = wf.task(["a", "{i}"], array="1-2", outputs=["{i}.a"])
    b = wf.task(["b", "{i}"], array="1-2", inputs=[a.out("{i}.a")])
    c = wf.task(["c"], inputs=[a.out("{i}.a")])
    assert {table["name"]: table.get("after") for table in tables(a, b, c)} == {
        "a.1": None, "a.2": None, "b.1": ["a.1"], "b.2": ["a.2"], "c": ["a.1", "a.2"],
    }  # fmt: skip


def test_calls_wait_for_the_vertices_among_their_arguments() -> None:
    wf = shoal.Workflow()
    a, b = wf.call(abs, -1), wf.task(["b"])
    c = wf.call(sum, [a, (b, {"x": a})], start=b, after=[b])
    assert sorted(c.after) == ["abs", "b"]


def test_what_is_wrong_is_said_where_it_is_written() -> None:
    wf, other = shoal.Workflow(), shoal.Workflow()
    a = wf.task(["a"], outputs=["data.txt"], name="a")
    with pytest.raises(BadInput, match="a declares no output") as caught:
        a.out("dtaa.txt")
    assert caught.value.hint == "did you mean data.txt"
    with pytest.raises(BadInput, match="two vertices are named 'a'"):
        wf.task(["b"], name="a")
    with pytest.raises(BadInput, match="a is a vertex of another workflow"):
        other.task(["b"], after=[a])
    with pytest.raises(BadInput, match="unknown field 'crores'"):
        wf.task(["b"], crores=2)
    with pytest.raises(TypeError, match=r"give it to wf\.call as an argument"):
        pickle.dumps(a)
    with pytest.raises(RuntimeError, match="was not submitted yet"):
        a.result()
    with pytest.raises(BadInput, match="there is no vertex in it"):
        other.submit()
    assert len(wf) == 1


def test_a_workflow_with_calls_has_no_sweeps() -> None:
    wf = shoal.Workflow()
    wf.task(["a", "{i}"], array="1-2", name="many")
    wf.call(abs, 1)
    with pytest.raises(BadInput, match="many has array, which no vertex of a workflow with calls may have"):
        wf.submit()
