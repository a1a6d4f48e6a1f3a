"""Edges by files between the tables of a task file: whole tables, and task by task where names match one to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shoal.flow.file_edges import passed_on, tie
from shoal.model.errors import BadInput
from shoal.model.limits import MAX_TIED
from shoal.model.task.spec import Spec
from shoal.wire.submission import parse_submission

Tables = list[dict[str, Any]]


def specs_of(tables: Sequence[dict[str, Any]]) -> tuple[Spec, ...]:
    return parse_submission({"tasks": list(tables)}).specs


def tied(*tables: dict[str, Any]) -> Tables:
    """The tables after their files were compared; what comes out is a submission again."""
    given_tables = [{"command": ["x"], **table} for table in tables]
    found = tie(given_tables, specs_of(given_tables))
    specs_of(found)
    return found


def edges(tables: Tables) -> dict[str, list[str]]:
    return {table.get("name", ""): table.get("after", []) for table in tables}


def test_who_reads_a_file_waits_for_who_writes_it() -> None:
    found = tied({"name": "b", "inputs": ["x"]}, {"name": "a", "outputs": ["x"]}, {"name": "c", "inputs": ["other"]})
    assert edges(found) == {"b": ["a"], "a": [], "c": []}


def test_edges_by_files_come_to_those_that_are_named() -> None:
    found = tied({"name": "a", "outputs": ["x"]}, {"name": "b"}, {"name": "c", "inputs": ["./x"], "after": ["b", "a"]})
    assert edges(found)["c"] == ["b", "a"]


def test_streams_are_files_too_and_directories_count() -> None:
    found = tied(
        {"name": "a", "cwd": "d", "outputs": ["x"], "stdout": "a.log"},
        {"name": "b", "stdin": "a.log"},
        {"name": "c", "inputs": ["d/x"]},
        {"name": "e", "inputs": ["x"]},
    )
    assert edges(found) == {"a": [], "b": ["a"], "c": ["a"], "e": []}


def test_a_writer_without_a_name_gets_one() -> None:
    assert edges(tied({"outputs": ["x"]}, {"name": "b", "inputs": ["x"]}, {})) == {
        "table1": [],
        "b": ["table1"],
        "": [],
    }


def test_sweeps_whose_names_match_one_to_one_are_tied_task_by_task() -> None:
    found = tied(
        {"name": "make", "params": {"x": "1..2", "y": ["a", "b"]}, "outputs": ["out/{x}{y}"]},
        {"name": "fit", "params": {"k": [2, 1]}, "inputs": ["out/{k}b"]},
        {"name": "sum", "after": ["fit"]},
    )
    assert edges(found) == {
        "make.1": [], "make.2": [], "make.3": [], "make.4": [],
        "fit.1": ["make.4"], "fit.2": ["make.2"], "sum": ["fit.1", "fit.2"],
    }  # fmt: skip
    assert [table.get("params") for table in found][-3:] == [[{"k": 2}], [{"k": 1}], None]


def test_an_array_keeps_its_parameter() -> None:
    found = tied({"name": "a", "array": "08-09", "outputs": ["{i}"]}, {"name": "b", "array": "8-9", "inputs": ["{i}"]})
    specs = specs_of(found)
    assert [spec.sweep.at(0) for spec in specs if spec.sweep is not None] == [{"i": 8}, {"i": 9}] * 2
    assert edges(found)["b.2"] == ["a.2"]


def test_who_reads_all_of_a_sweep_waits_for_all_of_it() -> None:
    found = tied(
        {"name": "a", "params": {"x": "1..3"}, "outputs": ["{x}"]}, {"name": "b", "inputs": ["1", "2", "3"]},
    )  # fmt: skip
    assert edges(found) == {"a": [], "b": ["a"]}


def test_one_reader_of_a_sweep_that_is_split_waits_for_its_tasks() -> None:
    found = tied(
        {"name": "a", "params": {"x": "1..3"}, "outputs": ["{x}"]},
        {"name": "b", "params": {"x": "1..3"}, "inputs": ["{x}"]},
        {"name": "c", "inputs": ["2"]},
    )
    assert edges(found)["c"] == ["a.2"]


@pytest.mark.parametrize("field", [{"array": "1-3%2"}, {"array": f"1-{MAX_TIED + 1}"}, {"array": "1-3", "order": "i"}])
def test_what_holds_between_the_tasks_of_a_table_is_kept(field: dict[str, Any]) -> None:
    found = tied({"name": "a", "outputs": ["{i}"], **field}, {"name": "b", "array": "1-3", "inputs": ["{i}"]})
    assert edges(found) == {"a": [], "b": ["a"]}


def test_two_writers_of_a_file_are_refused() -> None:
    with pytest.raises(BadInput, match=r"tasks\[1\] \(b\)\.outputs: 'x' is written by tasks\[0\] \(a\), too"):
        tied({"name": "a", "outputs": ["x"]}, {"name": "b", "stdout": "./x", "outputs": ["y"]})
    with pytest.raises(BadInput, match="'1' is written by"):
        tied({"name": "a", "params": {"x": [1, 1]}, "outputs": ["{x}"]})


def test_what_reads_its_own_table_task_by_task_is_a_chain() -> None:
    rows = [{"x": 1, "p": "start"}, {"x": 2, "p": "1"}, {"x": 3, "p": "2"}]
    found = tied({"name": "a", "params": rows, "inputs": ["{p}"], "outputs": ["{x}"]})
    assert edges(found) == {"a.1": [], "a.2": ["a.1"], "a.3": ["a.2"]}


def test_files_that_go_from_one_table_to_another_are_known() -> None:
    specs = specs_of([{"command": ["x"], "outputs": ["a", "b"]}, {"command": ["x"], "inputs": ["b", "c"]}])
    assert passed_on(specs) == {"b"} and passed_on(specs[:1]) == frozenset()


def test_who_reads_a_directory_waits_for_all_who_write_in_it() -> None:
    found = tied(
        {"name": "p", "outputs": ["parts/{x}"], "params": {"x": "1..3"}},
        {"name": "deep", "outputs": ["parts/of/more"], "stdout": "log/deep"},
        {"name": "q", "inputs": ["parts"], "outputs": ["parts/all"]},
        {"name": "r", "inputs": ["./parts/of/"]},
        {"name": "s", "inputs": ["part"]},
        {"name": "t", "inputs": ["log"]},
    )
    waits = {name: set(after) for name, after in edges(found).items()}
    assert waits == {"p": set(), "deep": set(), "q": {"p", "deep"}, "r": {"deep"}, "s": set(), "t": {"deep"}}
    everything = edges(tied({"name": "p", "outputs": ["a/b"]}, {"name": "q", "inputs": ["."]}))
    assert everything == {"p": [], "q": ["p"]}


def test_who_reads_a_file_in_a_directory_waits_for_who_writes_the_directory() -> None:
    found = tied(
        {"name": "p", "cwd": "/abs", "outputs": ["d"]}, {"name": "q", "inputs": ["/abs/d/e/f"]}, {"inputs": ["/abs/dd"]}
    )
    assert edges(found) == {"p": [], "q": ["p"], "": []}
    sweeps = tied(
        {"name": "p", "outputs": ["d.{x}"], "params": {"x": "1..2"}},
        {"name": "q", "inputs": ["d.{x}/f"], "params": {"x": "1..2"}},
    )
    assert edges(sweeps) == {"p.1": [], "p.2": [], "q.1": ["p.1"], "q.2": ["p.2"]}


def test_tasks_that_read_a_directory_and_write_in_it_do_not_wait_for_themselves() -> None:
    assert edges(tied({"name": "a", "inputs": ["d"], "outputs": ["d/{x}"], "params": {"x": "1..2"}})) == {"a": []}


def test_several_tasks_of_one_sweep_that_write_one_output_are_two_writers() -> None:
    for sweep in ({"params": {"x": "1..2"}}, {"array": "1-2"}):
        with pytest.raises(BadInput, match="is written by 2 tasks of") as caught:
            tied({"name": "a", "outputs": ["o"], **sweep}, {"inputs": ["o"]})
        assert caught.value.code == "duplicate_output"
    tied({"name": "a", "outputs": ["o.{x}"], "params": {"x": "1..2"}})
    tied({"name": "a", "outputs": ["o"], "params": {"x": "1"}})


def test_what_is_in_a_directory_that_another_table_writes_is_passed_on() -> None:
    specs = specs_of([{"command": ["x"], "outputs": ["d"]}, {"command": ["x"], "inputs": ["d/a", "d", "e"]}])
    assert passed_on(specs) == {"d/a", "d"}
