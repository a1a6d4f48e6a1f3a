"""Rows of results: every element once, in order, whatever it has: a row, a span, or nothing."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from shoal.report.results import columns_of, each_element, iterate, parse_line
from shoal.wire.task import parse_spec
from tests.unit.report.fake_source import FakeSource, run_info, task_row

SWEEP = {"name": "sim", "command": ["./sim", "{x}", "{mode}"], "params": {"x": "1..2", "mode": "a,b"}}


def rows_of(source: FakeSource) -> list[dict[str, Any]]:
    return list(iterate(source, "r1"))


def test_every_element_has_one_row_with_its_parameters() -> None:
    source = FakeSource(run_info([SWEEP]), [task_row(2, last_line="0.5"), task_row(4, state="running", host="")])
    rows = rows_of(source)
    assert [(row["task"], row["x"], row["mode"], row["state"]) for row in rows] == [
        ("r1.1", 1, "a", "ready"),
        ("r1.2", 1, "b", "succeeded"),
        ("r1.3", 2, "a", "ready"),
        ("r1.4", 2, "b", "running"),
    ]
    assert rows[1]["result"] == 0.5
    assert rows[1]["attempts"] == 1
    assert rows[3]["host"] is None
    assert list(rows[0]) == columns_of(source.info)


def test_durations_are_given_to_the_millisecond() -> None:
    rows = rows_of(
        FakeSource(run_info([SWEEP]), [task_row(1, duration=0.12345678901234567), task_row(2, duration=None)])
    )
    assert [row["duration"] for row in rows] == [0.123, None, None, None]


def test_spans_fill_the_elements_that_never_had_a_row() -> None:
    span = {"low": 2, "high": 5, "state": "cancelled", "cause": "cancelled", "message": "enough", "ended": 3.0}
    source = FakeSource(run_info([SWEEP], spans=[span]), [task_row(1), task_row(3, state="failed", cause="task_error")])
    assert [(row["state"], row["cause"]) for row in rows_of(source)] == [
        ("succeeded", None),
        ("cancelled", "cancelled"),
        ("failed", "task_error"),
        ("cancelled", "cancelled"),
    ]


def test_children_wait_until_all_parents_succeeded() -> None:
    child = {"name": "merge", "command": ["merge"], "after": ["sim"]}
    some = FakeSource(run_info([SWEEP, child]), [task_row(1), task_row(2), task_row(3)])
    assert [row["state"] for row in rows_of(some)][3:] == ["ready", "waiting"]
    everything = FakeSource(run_info([SWEEP, child]), [task_row(n) for n in range(1, 5)])
    assert rows_of(everything)[4]["state"] == "ready"


def test_parents_may_stand_behind_their_children() -> None:
    child = {"name": "merge", "command": ["merge"], "after": ["sim"]}
    source = FakeSource(run_info([child, SWEEP]), [task_row(n) for n in range(2, 6)])
    assert rows_of(source)[0]["state"] == "ready"


def test_parents_are_not_counted_when_nobody_waits() -> None:
    source = FakeSource(run_info([SWEEP]), [task_row(1)])
    rows_of(source)
    assert source.asked == [("tasks", "r1", ())]


def test_a_million_elements_are_streamed() -> None:
    many = {"command": ["./sim", "{i}"], "array": "1-1000000"}
    source = FakeSource(run_info([many]), [task_row(1)])
    stream = iterate(source, "r1")
    first = list(itertools.islice(stream, 3))
    assert [row["i"] for row in first] == [1, 2, 3]


def test_a_parameter_named_like_a_fixed_column_moves_aside() -> None:
    task = {"command": ["./sim", "{state}"], "params": {"state": "solid,liquid"}}
    rows = rows_of(FakeSource(run_info([task])))
    assert rows[0]["param_state"] == "solid"
    assert rows[0]["state"] == "ready"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("3.14", 3.14), ("-2", -2), ("true", True), ('"a"', "a"), ("[1, 2]", [1, 2]), ('{"a": 1}', {"a": 1}),
        ("hello", "hello"), ("007", "007"), ("NaN", "NaN"), ('{"a": NaN}', '{"a": NaN}'), ("{broken", "{broken"),
        ("[" * 100_000, "[" * 100_000), ("1" * 5000, "1" * 5000),
    ],
)  # fmt: skip
def test_the_last_line_is_parsed_if_it_is_json(line: str, value: object) -> None:
    assert parse_line(line) == value


def test_members_of_an_object_become_columns_unless_the_name_is_taken() -> None:
    line = '{"pi": 3.1, "x": 7, "host": "evil", "deep": {"a": 1}}'
    source = FakeSource(run_info([SWEEP]), [task_row(1, last_line=line)])
    flat = next(iterate(source, "r1", flat=True))
    assert flat["pi"] == 3.1
    assert (flat["x"], flat["result_x"]) == (1, 7)
    assert (flat["host"], flat["result_host"]) == ("laptop", "evil")
    assert json.loads(flat["deep"]) == {"a": 1}
    assert flat["result"] == line
    assert all(not isinstance(value, (dict, list)) for value in flat.values())


@pytest.mark.parametrize(
    "task",
    [
        {"command": ["x"]},
        {"command": ["x"], "params": {"a": "1..3"}},
        {"command": ["x"], "params": {"a": "1..3,7", "b": "x,y", "c": "0..1:0.5"}},
        {"command": ["x"], "params": [{"a": 1, "b": 2}, {"b": 4, "a": 3}]},
        {"command": ["x"], "array": "3,5-9:2"},
        {"command": ["x"], "params": {"a": "9..1:-4", "b": "-2..2:2,x", "c": [True, 1.5, "t"]}},
    ],
)
def test_elements_are_counted_as_the_sweep_counts_them(task: dict[str, Any]) -> None:
    spec = parse_spec(task)
    expected = [spec.sweep.at(k) for k in range(spec.count)] if spec.sweep is not None else [{}]
    names = spec.sweep.names if spec.sweep is not None else ()
    assert [dict(zip(names, values, strict=True)) for values in each_element(spec)] == expected
