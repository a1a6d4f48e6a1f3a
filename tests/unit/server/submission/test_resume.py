"""What `--resume` takes over, on a real database; the signature itself is in tests/unit/model/task/test_task_field.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.model.errors import BadInput
from shoal.model.limits import MAX_FINGERPRINTS
from shoal.server.submission.resume import find_earlier, read_fingerprints, read_renamed, read_written, sign
from shoal.wire.submission import parse_submission
from tests.contract.db.rows import array_row, run_row, task_row

SEEN = {"": "e1", "sim.py": "a1"}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "shoal.db", durability="normal") as database:
        yield database


def enter(
    database: Database, run: int, tables: list[dict[str, Any]], states: list[str], seen: dict[str, str] = SEEN, cwd: str = "",
) -> None:  # fmt: skip
    """Enter a run whose tasks ran one after another."""
    submission = parse_submission({"tasks": tables, "cwd": cwd})
    rows: list[Any] = [run_row(run, signature=sign(submission, seen), total=len(states), cwd=cwd)]
    first = 1
    for table, spec in zip(tables, submission.specs, strict=True):
        rows.append(array_row(run, first, size=spec.count, name=spec.name, task=json.dumps(table)))
        first += spec.count
    for element, state in enumerate(states, 1):
        at = 100.0 * run + element
        rows.append(task_row(run, element, state, leased=at, started=at, ended=at + 0.5, reused=""))
    database.apply(rows)


def resume(
    database: Database, tables: list[dict[str, Any]], seen: dict[str, str] = SEEN
) -> tuple[list[Any], dict[str, int]]:
    """The elements that are taken over with the runs they are from, and how many run for which reason."""
    submission = parse_submission({"tasks": tables})
    with Reader.on(database) as reader:
        _, reused, reruns = find_earlier(reader, "ann", submission, sign(submission, seen))
    return [(element, row.run) for element, row in reused], {row["why"]: row["count"] for row in reruns}


def test_the_newest_success_counts_and_failures_are_told(database: Database) -> None:
    tables = [{"command": ["sim", "{x}"], "params": {"x": "1..3"}}]
    enter(database, 1, tables, ["succeeded", "succeeded", "failed"])
    enter(database, 2, tables, ["failed", "succeeded", "cancelled"])
    assert resume(database, tables) == ([(1, 1), (2, 2)], {"cancelled in r2": 1})
    wider = [{"command": ["sim", "{x}"], "params": {"x": "0..3"}}]
    assert resume(database, wider) == ([(2, 1), (3, 2)], {"not run before": 1, "cancelled in r2": 1})


def test_what_has_changed_is_named(database: Database) -> None:
    tables = [{"command": ["sim"]}]
    enter(database, 1, tables, ["succeeded"])
    assert resume(database, tables)[0] == [(1, 1)]
    assert resume(database, tables, {**SEEN, "sim.py": "b2"})[1] == {"sim.py changed since they ran": 1}
    assert resume(database, tables, {"": "e1"})[1] == {"sim.py changed since they ran": 1}
    assert resume(database, tables, {**SEEN, "": "e2"})[1] == {"the environment changed since they ran": 1}


def test_each_task_is_compared_with_its_own_files_and_one_that_was_not_there_counts_as_made(database: Database) -> None:
    def files(*states: str) -> dict[str, str]:
        return {**SEEN, "\0" + "0": "".join(state * 8 for state in states)}

    tables = [{"command": ["cat", "{x}"], "params": {"x": "1..3"}}]
    enter(database, 1, tables, ["succeeded"] * 3, files("a", "b", "-"))
    changed = "files that their parameters name changed since they ran"
    assert resume(database, tables, files("a", "b", "-")) == ([(1, 1), (2, 1), (3, 1)], {})
    assert resume(database, tables, files("a", "c", "d")) == ([(1, 1), (3, 1)], {changed: 1})
    assert resume(database, tables, SEEN) == ([(3, 1)], {changed: 2})
    shifted = [{"command": ["cat", "{x}"], "params": {"x": "2..3"}}]
    assert resume(database, shifted, files("b", "-")) == ([(1, 1), (2, 1)], {})


def test_a_task_whose_output_is_gone_or_newer_than_its_end_runs_again(database: Database) -> None:
    tables = [{"command": ["sim", "{x}"], "params": {"x": "1..3"}, "outputs": ["o-{x}"]}]
    enter(database, 1, tables, ["succeeded"] * 3)  # they end at 101.5, 102.5, 103.5
    submission = parse_submission({"tasks": tables})
    with Reader.on(database) as reader:
        _, reused, reruns = find_earlier(reader, "ann", submission, sign(submission, SEEN), ((101.4, 150.0, -1.0),))
    assert [element for element, _ in reused] == [1]
    reasons = ["a file that they wrote was altered since", "a file that they wrote is gone"]
    assert [row["why"] for row in reruns] == reasons and all(row["again"] for row in reruns)


def test_a_task_whose_output_was_replaced_by_an_older_file_runs_again(database: Database) -> None:
    tables = [{"command": ["sim", "{x}"], "params": {"x": "1..5"}, "outputs": ["o-{x}"]}]
    enter(database, 1, tables, ["succeeded"] * 5)  # from 101.0 to 101.5, from 102.0 to 102.5, ...
    submission = parse_submission({"tasks": tables})
    dates = (
        (101.0, 101.5, 50.0, 900.0),  # moved here from an earlier run
        (50.0, 102.5),  # copied with its date by the task itself
        (103.2, 900.0),  # its own, which got another name later
        (),
        (104.99, 900.0),  # clocks differ
    )
    with Reader.on(database) as reader:
        found = find_earlier(reader, "ann", submission, sign(submission, SEEN), ((50.0,) * 5,), (dates,))
    assert [element for element, _ in found[1]] == [2, 3, 4, 5]
    assert [row["why"] for row in found[2]] == ["a file that they wrote was altered since"]


@pytest.mark.parametrize(
    "value", [{"renamed": 1}, {"renamed": [[1]]}, {"renamed": [[[1.0]]]}, {"renamed": [[["x", 1.0]]]}, {"renamed": [1]}]
)
def test_wrong_dates_of_files_that_were_renamed_are_refused(value: Any) -> None:
    with pytest.raises(BadInput):
        read_renamed(value)


@pytest.mark.parametrize("value", [{"written": 1}, {"written": [["x"]]}, {"written": [1]}, {"written": [[True]]}])
def test_wrong_dates_of_outputs_are_refused(value: Any) -> None:
    with pytest.raises(BadInput):
        read_written(value)


def test_calls_are_told_apart(database: Database) -> None:
    def calls(*texts: str) -> list[dict[str, Any]]:
        return [{"function": "AA==", "calls": list(texts)}]

    enter(database, 1, calls("AA==", "AB=="), ["succeeded", "succeeded"])
    assert resume(database, calls("AB==", "AC=="))[0] == [(1, 1)]
    assert resume(database, [{"function": "AAAA", "calls": ["AA=="]}])[0] == []


def test_a_result_from_before_what_it_waits_for_ran_again_is_not_taken_over(database: Database) -> None:
    tables = [{"name": "make", "command": ["make"]}, {"name": "join", "command": ["join"], "after": ["make"]}]
    enter(database, 1, tables, ["succeeded", "succeeded"])
    assert resume(database, tables)[0] == [(1, 1), (2, 1)]
    enter(database, 2, tables, ["succeeded", "failed"])
    assert resume(database, tables) == ([(1, 2)], {"tasks that they wait for run": 1})


@pytest.mark.parametrize(
    "value",
    [
        [], "x", {"other": 1}, {"files": []}, {"files": {"a": 1}}, {"files": {"": "x"}}, {"environment": 5},
        {"environment": "x" * 300}, {"files": {"x" * 300: "y"}}, {"files": {str(n): "x" for n in range(MAX_FINGERPRINTS + 1)}},
    ],
)  # fmt: skip
def test_wrong_fingerprints_are_refused(value: Any) -> None:
    with pytest.raises(BadInput) as caught:
        read_fingerprints(value)
    assert caught.value.field == "fingerprints"


def test_divisible_work_is_laid_out_as_it_was_done_with_rests_between(database: Database) -> None:
    sim: dict[str, Any] = {"name": "sim", "command": ["sim", "{first}"], "units": 100}
    merge, log = {"name": "merge", "command": ["merge"], "after": ["sim"]}, {"name": "log", "command": ["log"]}
    tables: list[dict[str, Any]] = [sim, merge, log]
    submission = parse_submission({"tasks": tables})
    cuts = {1: (0, 10), 4: (10, 20), 5: (30, 20), 6: (50, 50)}
    states = {1: "succeeded", 2: "failed", 3: "succeeded", 4: "failed", 5: "succeeded", 6: "cancelled"}
    rows: list[Any] = [run_row(1, signature=sign(submission, SEEN), total=6)]
    for first in range(1, 7):
        table = tables[first - 1] if first in (2, 3) else sim
        if first in cuts:
            table = {**table, "units": {"first": cuts[first][0], "count": cuts[first][1], "cut": first < 6}}
        rows.append(array_row(1, first, size=1, name=table["name"], task=json.dumps(table)))
        at = 100.0 + first
        rows.append(task_row(1, first, states[first], leased=at, started=at, ended=at + 0.5, reused=""))
    database.apply(rows)
    with Reader.on(database) as reader:
        laid_out, reused, _ = find_earlier(reader, "ann", submission, sign(submission, SEEN))
    parts = [(0, 10, True), (10, 20, False), (30, 20, True), (50, 50, False)]
    assert [spec.units for spec in laid_out.specs] == [*parts, None, None]
    assert [table.get("units") for table in laid_out.tables][1] == {"first": 10, "count": 20, "cut": False}
    assert [(element, row.element) for element, row in reused] == [(1, 1), (3, 5), (6, 3)], (
        "log too, though pieces moved it"
    )


# A workflow of three steps: `sum` waits for both others.
STEPS: list[dict[str, Any]] = [
    {"name": "make", "command": ["make"], "outputs": ["x"]},
    {"name": "look", "command": ["look", "{k}"], "params": {"k": [1, 2]}},
    {"name": "sum", "command": ["sum"], "after": ["make", "look"]},
]


def changed(name: str, **fields: Any) -> list[dict[str, Any]]:
    return [{**table, **fields} if table["name"] == name else table for table in STEPS]


def why(database: Database, tables: list[dict[str, Any]], **seen: str) -> tuple[list[int], dict[str, list[str]]]:
    """Elements of a workflow that are taken over, and the tables that run for each reason."""
    submission = parse_submission({"tasks": tables})
    with Reader.on(database) as reader:
        _, reused, reruns = find_earlier(reader, "ann", submission, sign(submission, {**SEEN, **seen}))
    return [element for element, _ in reused], {row["why"]: row["tables"] for row in reruns}


def test_tables_of_a_workflow_are_compared_one_by_one_and_all_below_a_changed_one_runs(database: Database) -> None:
    enter(database, 1, STEPS, ["succeeded"] * 4)
    assert why(database, STEPS) == ([1, 2, 3, 4], {})
    below = {"tasks that they wait for run": ["sum"]}
    assert why(database, changed("make", command=["make", "-k"])) == (
        [2, 3], {"their command changed since they ran": ["make"], **below},
    )  # fmt: skip
    assert why(database, changed("make", env={"A": "1"}, outputs=["y"])) == (
        [2, 3], {"their env and outputs changed since they ran": ["make"], **below},
    )  # fmt: skip
    assert why(database, changed("sum", command=["sum", "-h"])) == (
        [1, 2, 3], {"their command changed since they ran": ["sum"]},
    )  # fmt: skip
    assert why(database, changed("sum", retries=3, priority=4)) == ([1, 2, 3, 4], {})
    wider = changed("look", params={"k": [1, 2, 3]})
    assert why(database, wider) == ([1, 2, 3], {"not run before": ["look"], **below})


def test_of_many_tables_the_first_are_named_and_all_are_counted(database: Database) -> None:
    tables = [{"name": f"t{at}", "command": ["t", str(at)]} for at in range(7)]
    submission = parse_submission({"tasks": [*tables, {"name": "sum", "command": ["s"], "after": ["t0"]}]})
    with Reader.on(database) as reader:
        (row,) = find_earlier(reader, "ann", submission, sign(submission, SEEN))[2]
    assert row["tables"] == ["t0", "t1", "t2", "t3", "t4"] and row["all_tables"] == 8


def test_a_new_table_of_a_workflow_runs_and_the_place_of_the_others_does_not_count(database: Database) -> None:
    enter(database, 1, STEPS, ["succeeded"] * 4)
    more = [{"name": "first", "command": ["first"]}, *STEPS]
    assert why(database, more) == ([2, 3, 4, 5], {"not run before": ["first"]})


def test_what_a_table_of_a_workflow_reads_is_its_own(database: Database) -> None:
    enter(database, 1, STEPS, ["succeeded"] * 4, {**SEEN, "\0" + "0": "a" * 8})
    assert why(database, STEPS, **{"\0" + "0": "a" * 8}) == ([1, 2, 3, 4], {})
    assert why(database, STEPS, **{"\0" + "0": "b" * 8}) == (
        [2, 3], {"files that they read changed since they ran": ["make"], "tasks that they wait for run": ["sum"]},
    )  # fmt: skip


def test_workflows_of_other_directories_and_environments_are_others(database: Database) -> None:
    enter(database, 1, STEPS, ["succeeded"] * 4, cwd="/elsewhere")
    assert why(database, STEPS)[0] == []
    enter(database, 2, STEPS, ["succeeded"] * 4, {**SEEN, "": "e2"})
    assert why(database, STEPS)[1] == {"the environment changed since they ran": ["make", "look", "sum"]}


def test_a_failed_table_of_a_workflow_is_told_with_its_run(database: Database) -> None:
    enter(database, 3, STEPS, ["succeeded", "succeeded", "failed", "failed"])
    assert why(database, STEPS) == ([1, 2], {"failed in r3": ["look", "sum"]})
