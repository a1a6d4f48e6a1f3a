"""The tables of a run as a new submission."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.model.rangeset import RangeSet
from shoal.wire.copy_tables import copy_tables, parse_only
from shoal.wire.submission import parse_submission


def copied(*tables: dict[str, Any], only: str = "", **changes: Any) -> list[dict[str, Any]]:
    """The tables of a run of these, of the elements that are named; they make a submission."""
    arrays, first = [], 1
    for table in ({"command": ["x"], **table} if "function" not in table else table for table in tables):
        arrays.append((first, table))
        first += parse_submission({"tasks": [{**table, "after": []}]}).count
    chosen = RangeSet(parse_only(only, first - 1)[1]) if only else None
    made = copy_tables(arrays, chosen, changes)
    parse_submission({"tasks": made})
    return made


def test_all_of_it_with_changes_in_every_table_and_variables_added() -> None:
    assert copied({"name": "a", "env": {"A": "1"}}, {"name": "b", "after": ["a"]}, memory="1G", env={"B": "2"}) == [
        {"command": ["x"], "name": "a", "env": {"A": "1", "B": "2"}, "memory": "1G"},
        {"command": ["x"], "name": "b", "after": ["a"], "memory": "1G", "env": {"B": "2"}},
    ]


def test_what_files_were_like_then_is_left_out() -> None:
    evidence, content = {"/ann": f"want dir {'a' * 16} 12 -"}, {"in": f"sha256:{'a' * 64} 644"}
    assert copied({"inputs": ["in"], "visible": evidence, "content": content}) == [{"command": ["x"], "inputs": ["in"]}]


def test_some_elements_of_sweeps_arrays_and_calls_keep_their_parameters() -> None:
    (sweep,) = copied({"command": ["x", "{a}", "{b}"], "params": {"a": "1..3", "b": "u,v"}}, only="2,5-6")
    assert sweep["params"] == [{"a": 1, "b": "v"}, {"a": 3, "b": "u"}, {"a": 3, "b": "v"}]
    (array,) = copied({"command": ["x", "{i}"], "array": "10-100:10%3"}, only="1-2,9")
    assert array["array"] == "10,20,90%3"
    (range_,) = copied({"command": ["x", "{i}"], "array": "1-2000%50"}, only="7-9,11")
    assert range_["array"] == "7-9,11%50"
    (calls,) = copied({"function": "AA==", "calls": ["AAAA", "AAAB", "AAAC"]}, only="3")
    assert calls["calls"] == ["AAAC"]


def test_pieces_of_divisible_work_are_joined_again_where_they_are_neighbours() -> None:
    pieces = [{"first": 0, "count": 3, "cut": True}, {"first": 3, "count": 4, "cut": True}, {"first": 7, "count": 93}]
    tables = [{"name": "sim", "units": units} for units in pieces]
    tables.insert(1, {"name": "merge", "after": ["sim"]})
    assert [(table["name"], table.get("units")) for table in copied(*tables)] == [("sim", 100), ("merge", None)]
    some = copied(*tables, only="1,4")
    assert [table["units"] for table in some] == [3, {"first": 7, "count": 93, "cut": False}]
    (one,) = copied(*tables, only="3")
    assert one["units"] == {"first": 3, "count": 4, "cut": False}


def test_what_waited_for_a_table_that_is_left_out_waits_for_it_no_longer() -> None:
    tables = ({"name": "a"}, {"name": "b", "array": "1-3", "after": ["a"]}, {"name": "c", "after": ["a", "b"]})
    assert [(table["name"], table["after"]) for table in copied(*tables, only="3,5")] == [("b", []), ("c", ["b"])]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("bad", "only: 'bad' is neither a state nor a number"),
        ("failed,x", "only: 'x' is neither"),
        ("0", "only: there are no tasks 0 in the run (its tasks are 1 to 9)"),
        ("3-2", "only: there are no tasks 3-2"),
        ("8-10", "only: there are no tasks 8-10"),
        ("", "only: '' is neither"),
    ],
)
def test_what_names_no_task_is_refused(text: str, line: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_only(text, 9)
    assert refusal.value.line.startswith(line)


def test_states_and_numbers_may_be_mixed() -> None:
    assert parse_only("failed, lost,1-3,9", 9) == (["failed", "lost"], [(1, 4), (9, 10)])
