"""Workflows in WfFormat as vertices: recorded commands, and stand-ins that replay them."""

from __future__ import annotations

import pytest

from shoal.flow.formats.wfformat import Instance, Task
from shoal.flow.formats.wfformat_vertices import Replay, files_to_make, local_name, vertices
from shoal.model.errors import BadInput
from shoal.wire.task import parse_spec

MAKE = Task("a", "make", (), ("/abs/in.txt",), ("out/x", "y z"), 250.0, "make", ("-j", "{x}"), cores=1.5, priority=7)
FLOW = Instance("two", (MAKE, Task("b", "b", ("a",), ("out/x",), ())), {"out/x": 1_005, "/abs/in.txt": 400})


def test_recorded_commands_are_taken_word_for_word() -> None:
    vertex = vertices(FLOW._replace(tasks=(MAKE,)), "flow.json")[0]
    assert vertex.table == {
        "command": ["make", "-j", "{x}"], "inputs": ["/abs/in.txt"], "outputs": ["out/x", "y z"],
        "labels": {"category": "make"}, "cores": 2, "priority": 7,
    }  # fmt: skip
    assert vertex.where == "flow.json: workflow.specification.tasks[0]"
    assert parse_spec({"name": vertex.name, **vertex.table}).command == ("make", "-j", "{x}")


def test_a_recorded_script_is_one() -> None:
    script = MAKE._replace(program="sort x\nuniq x", arguments=())
    assert vertices(FLOW._replace(tasks=(script,)), "flow.json")[0].table["shell"] == "sort x\nuniq x"


@pytest.mark.parametrize("name", ["/abs/out", "../out", "a/../../out"])
def test_recorded_commands_write_nowhere_else(name: str) -> None:
    with pytest.raises(BadInput, match=r"flow\.json: workflow\.specification\.tasks\[0\]: task a writes") as caught:
        vertices(FLOW._replace(tasks=(MAKE._replace(outputs=(name,)),)), "flow.json")
    assert "--replay" in caught.value.hint


def test_what_was_not_recorded_is_neither_run_nor_replayed() -> None:
    with pytest.raises(BadInput, match=r"tasks\[1\]: task b has no command"):
        vertices(FLOW, "flow.json")
    with pytest.raises(BadInput, match=r"tasks\[1\]: task b has no recorded run time"):
        vertices(FLOW, "flow.json", Replay())


def test_a_stand_in_sleeps_and_writes_what_was_recorded_scaled() -> None:
    table = vertices(FLOW._replace(tasks=(MAKE,)), "flow.json", Replay(100.0, 10.0, "led ger"))[0].table
    note = "echo \"$(date +%s.%N) {}\" a >> 'led ger'"
    steps = ["sleep 2.500000", "mkdir -p out", "head -c 100 /dev/zero > ./out/x", "head -c 0 /dev/zero > './y z'"]
    assert table["shell"] == " && ".join([note.format("start"), *steps, note.format("end")])
    assert (table["inputs"], table["outputs"]) == (["abs/in.txt"], ["out/x", "y z"])


def test_only_what_no_task_makes_is_made_before() -> None:
    assert files_to_make(FLOW, Replay(1.0, 100.0)) == {"abs/in.txt": 4}


@pytest.mark.parametrize(
    ("name", "local"),
    [("x", "x"), ("/a//b", "a/b"), ("../../x", "_/_/x"), ("./a/./b", "a/b"), ("/", "_"), ("-n", "-n")],
)
def test_every_recorded_name_has_a_place_below_the_replay(name: str, local: str) -> None:
    assert local_name(name) == local
