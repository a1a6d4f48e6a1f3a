"""A run as a workflow in WfFormat: ids, edges, files, commands and what was measured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shoal.flow.formats.wfformat import document, read
from shoal.flow.formats.wfformat_vertices import vertices
from shoal.model import limits
from shoal.model.errors import Refused
from shoal.model.task.kept_files import KeptFile, pack
from shoal.report.workflows import trace
from shoal.report.workflows.trace import Trace, read_trace
from tests.unit.report.fake_source import FakeSource, Json, run_info, task_row
from tests.wfformat_rules import complaints

PILOT = {"host": "laptop", "cores": 4, "memory": 1 << 30, "tags": {"arch": "x86_64", "kernel": "6.1", "cpu_mhz": 2400}}


def made(
    tables: list[Json], rows: list[Json] | None = None, sizes: Mapping[str, int] | None = None, **info: Any
) -> Trace:
    """The trace of a run; it is a valid file, and reads back equal."""
    found = run_info(tables, **info)
    source = FakeSource(found, rows or [], pilots=[PILOT])
    got = read_trace(source, "r1", (sizes or {}).get, "1.0", 1_000.0)
    text = json.dumps(document(got.instance))
    assert read(text, "export") == got.instance
    assert complaints(json.loads(text)) == []
    return got


def test_times_use_and_host_are_those_of_the_rows() -> None:
    row = task_row(1, started=110.0, ended=114.0, duration=4.0, cpu=6.0, max_rss=5_000)
    got = made([{"name": "a", "command": ["sim", "-x"], "cores": 2, "priority": 3}], [row], finished=120.0, name="flow")
    (task,) = got.instance.tasks
    assert (task.id, task.name, task.program, task.arguments) == ("a", "a", "sim", ("-x",))
    assert (task.seconds, task.cores, task.avg_cpu, task.memory, task.priority) == (4.0, 2.0, 150.0, 5_000, 3.0)
    assert task.started == "1970-01-01T00:01:50+00:00" and task.machines == ("laptop",)
    (machine,) = got.instance.machines
    assert (machine.cores, machine.mhz, machine.architecture, machine.release) == (4, 2400, "x86_64", "6.1")
    assert (got.instance.name, got.instance.makespan, got.unmeasured) == ("flow", 20.0, 0)


def test_tasks_of_arrays_and_without_names_have_ids_of_their_own() -> None:
    got = made([{"name": "a b", "command": ["x"], "array": "1-2"}, {"command": ["x"]}, {"name": "a_b.1", "shell": "x"}])
    assert [task.id for task in got.instance.tasks] == ["a_b.1", "a_b.2", "r1.3", "a_b.1_4"]
    assert got.unmeasured == 4


def test_every_task_waits_for_all_of_its_parents_tables() -> None:
    tables: list[Json] = [
        {"name": "a", "command": ["x"], "array": "1-2"},
        {"name": "b", "command": ["x"], "array": "1-2", "after": ["a", "r9"]},
        {"command": ["x"], "after_any": ["b"]},
    ]
    assert [task.parents for task in made(tables).instance.tasks] == [
        (), (), ("a.1", "a.2"), ("a.1", "a.2"), ("b.3", "b.4"),
    ]  # fmt: skip


def test_files_are_seen_from_the_run_and_have_their_sizes() -> None:
    table: Json = {
        "command": ["x", "{i}"], "array": "7", "cwd": "d", "inputs": ["in.txt", "/abs"], "outputs": ["{i}.o"], "stdin": "s",
        "stdout": "logs/{i} out",
    }  # fmt: skip
    got = made([table], [task_row(1)], sizes={"/there/d/in.txt": 5, "/abs": 6, "/there/d/7.o": 7}, cwd="/there")
    (task,) = got.instance.tasks
    assert task.inputs == ("d/in.txt", "/abs", "d/s") and task.outputs == ("d/7.o", "logs/7_out")
    assert dict(got.instance.sizes) == {"d/in.txt": 5, "/abs": 6, "d/s": 0, "d/7.o": 7, "logs/7_out": 0}
    assert got.unseen == 2 and task.program == "mkdir -p logs && x 7 <d/s >logs/7_out"


def test_outputs_that_a_host_kept_have_the_sizes_that_it_told() -> None:
    result = pack({"o": KeptFile("sha256:" + "0" * 64, 77, 0o644)})
    got = made([{"command": ["x"], "outputs": ["o"]}], [task_row(1, result=result)])
    assert dict(got.instance.sizes) == {"o": 77} and got.unseen == 0


def test_scripts_functions_and_empty_arguments_are_one_program() -> None:
    tables: list[Json] = [
        {"shell": "echo {x} | wc", "params": {"x": ["a;b"]}},
        {"command": ["sh", "-c", "", "it's"]},
        {"function": "AA==", "calls": ["AA=="], "labels": {"function": "fit"}},
    ]
    tasks = made(tables, [task_row(number) for number in (1, 2, 3)]).instance.tasks
    assert [(task.program, task.arguments) for task in tasks] == [
        ("echo 'a;b' | wc", ()), ("sh -c '' 'it'\"'\"'s'", ()), ("fit", ()),
    ]  # fmt: skip


def test_files_of_streams_are_written_by_the_exported_command(tmp_path: Path) -> None:
    """They are outputs of the task, which a run of the export would not write."""
    (tmp_path / "in").write_text("in\n")
    streams: Json = {"stdin": "in", "stdout": "logs/{x}.out", "stderr": "{x}.err", "params": {"x": ["it's"]}}
    tables: list[Json] = [
        {"command": ["/bin/sh", "-c", "cat; echo e >&2"], **streams},
        {"shell": "cat; echo e >&2 # all", **streams},
        {"command": ["/bin/sh", "-c", "cat; echo e >&2"], "stdin": "in", "stdout": "both", "stderr": "both"},
    ]
    found = made(tables, [task_row(number) for number in (1, 2, 3)])
    assert found.incomplete == 0
    wanted = [["logs/it_s.out", "it_s.err"]] * 2 + [["both"]]
    for vertex, names in zip(vertices(found.instance, "export"), wanted, strict=True):
        assert vertex.table["outputs"] == names
        subprocess.run(["/bin/sh", "-c", vertex.table["shell"]], cwd=tmp_path, check=True)
        assert [(tmp_path / name).read_text() for name in names] == (["in\n", "e\n"] if len(names) > 1 else ["in\ne\n"])
        for name in names:
            (tmp_path / name).unlink()


def test_devices_are_no_files_of_a_task() -> None:
    (task,) = made([{"command": ["x"], "stdin": "/dev/zero", "stdout": "/dev/null"}], [task_row(1)]).instance.tasks
    assert (task.program, task.inputs, task.outputs) == ("x </dev/zero >/dev/null", (), ())


def test_a_graph_with_too_many_edges_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[Json] = [
        {"name": "a", "command": ["x"], "array": "1-30"},
        {"command": ["x"], "array": "1-30", "after": ["a"]},
    ]
    assert limits.MAX_EDGES > 900
    made(tables)
    monkeypatch.setattr(trace, "MAX_EDGES", 899)
    with pytest.raises(Refused, match="more than 899 edges"):
        made(tables)


def test_a_program_whose_name_has_a_space_is_no_script() -> None:
    row = task_row(1, started=110.0, ended=114.0, duration=4.0)
    (task,) = made([{"command": ["./it works"]}], [row]).instance.tasks
    (vertex,) = vertices(made([{"command": ["./it works"]}], [row]).instance, "export")
    assert (task.program, vertex.table["shell"]) == ("'./it works'", "'./it works'")


@pytest.mark.parametrize(
    "more", [{"stdin_data": "aGk="}, {"cwd": "own"}, {"env": {"A": "1"}}, {"setup": "true"}, {"container": "debian:12"}]
)
def test_what_the_format_does_not_know_of_a_task_is_counted(more: Json) -> None:
    row = task_row(1, started=110.0, ended=114.0, duration=4.0)
    tables = [{"command": ["sim"], "array": "1-3", **more}, {"command": ["sim"]}]
    assert made(tables, [row]).incomplete == 3
