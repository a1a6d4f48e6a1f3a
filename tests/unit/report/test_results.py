"""Rows of results: every element once, in order, whatever it has: a row, a span, or nothing."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import numpy
import pytest

from shoal.report.results import AFTER, BEFORE, CALL, columns_of, each_element, iterate, parse_line
from shoal.wire.payload import Ref, to_text
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


@pytest.mark.parametrize("page", [1, 2, 3, 5, 1_000])
@pytest.mark.parametrize("kept", [(1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 9), (4, 5, 6), (9,), ()])
def test_pages_of_rows_may_end_anywhere(page: int, kept: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.report.results.PAGE", page)
    span = {"low": 7, "high": 9, "state": "cancelled", "cause": "cancelled", "message": "enough", "ended": 3.0}
    info = run_info([SWEEP, {"command": ["one"]}, {"command": ["sim", "{i}"], "array": "1-4"}], spans=[span])
    lines = {n: '{"a": 1}' if n == 3 else "[1]" if n == 5 else str(n) for n in kept}
    source = FakeSource(info, [task_row(n, last_line=lines[n]) for n in kept])
    found = list(iterate(source, "r1", flat=True))
    assert [row["task"] for row in found] == [f"r1.{n}" for n in range(1, 10)]
    others = ["ready"] * 6 + ["cancelled"] * 2 + ["ready"]
    assert [row["state"] for row in found] == ["succeeded" if n in kept else others[n - 1] for n in range(1, 10)]
    values = {n: line if n in (3, 5) else n for n, line in lines.items()}
    assert [row["result"] for row in found] == [values.get(n) for n in range(1, 10)]
    assert [row.get("a") for row in found] == [1 if n == 3 and n in kept else None for n in range(1, 10)]


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


# --- calls of an executor


def call(*args: Any, **kwargs: Any) -> str:
    return to_text(pickle.dumps((args, kwargs), 5))


def value(result: Any) -> str:
    return to_text(pickle.dumps(result, 5))


class Opaque:
    """A class that no reader loads."""


def test_every_call_of_an_executor_has_a_row_with_its_arguments_and_its_value() -> None:
    calls = [call(n, scale=0.5) for n in range(100)]
    fit = {"function": value(1), "calls": calls, "labels": {"function": "fit"}}
    merge = {"function": value(2), "calls": [call([1, 2])], "labels": {"function": "merge"}}
    done = [task_row(n, result=value({"loss": n, "state": "x"}), started=7.00049, ended=8.0) for n in range(1, 100)]
    failed = task_row(100, state="failed", cause="task_error", result=value((ValueError("no"), "traceback")))
    source = FakeSource(run_info([fit, merge]), [*done, failed])
    rows = rows_of(source)
    assert [row["task"] for row in rows] == [f"r1.{n}" for n in range(1, 102)]
    assert list(rows[0]) == columns_of(source.info) == [*BEFORE, *CALL, *AFTER]
    assert (rows[6]["call"], rows[6]["result"]) == ("fit(6, scale=0.5)", {"loss": 7, "state": "x"})
    assert (rows[6]["started"], rows[6]["ended"], rows[6]["duration"]) == (7.0, 8.0, 0.5)
    assert (rows[99]["state"], rows[99]["cause"], rows[99]["result"]) == ("failed", "task_error", None)
    assert (rows[100]["call"], rows[100]["state"], rows[100]["started"]) == ("merge([1, 2])", "ready", None)
    flat = next(iterate(source, "r1", flat=True))
    assert (flat["loss"], flat["result_state"], flat["state"]) == (1, "x", "succeeded")


@pytest.mark.parametrize(
    ("given", "shown", "raw"),
    [
        ((1, 2.5, None), [1, 2.5, None], (1, 2.5, None)),
        ({"mean": numpy.float64(2.5), "n": numpy.int64(3)}, {"mean": 2.5, "n": 3}, {"mean": 2.5, "n": 3}),
        ([numpy.arange(2), {"x": b"y"}], ["array([0, 1])", {"x": "b'y'"}], None),
        (float("inf"), "inf", float("inf")),
        ({1: 2}, "{1: 2}", {1: 2}),
        (Opaque(), "<not plain data>", "<not plain data>"),
    ],
)
def test_a_value_is_given_as_it_is_where_that_is_safe_and_possible(given: Any, shown: Any, raw: Any) -> None:
    table = {"function": value(1), "calls": [call(given)], "labels": {"function": "f"}}
    source = FakeSource(run_info([table]), [task_row(1, result=value(given))])
    for row in (rows_of(source)[0], next(iterate(source, "r1", flat=True))):
        assert row["result"] == shown
        json.dumps(row, allow_nan=False)
    if raw is not None:
        assert next(iterate(source, "r1", flat=True, raw=True))["result"] == raw


def test_a_value_nested_a_thousand_times_is_described() -> None:
    deep = to_text(b"\x80\x05" + b"]" * 3_000 + b"a" * 2_999 + b".")
    table = {"function": value(1), "calls": [call()], "labels": {"function": "f"}}
    assert rows_of(FakeSource(run_info([table]), [task_row(1, result=deep)]))[0]["result"].startswith("[[[[")


def test_large_values_and_arguments_are_named_as_such() -> None:
    blob, ref = "sha256:" + 64 * "0", Ref("sha256:" + 64 * "1")
    table = {"function": value(1), "calls": [blob, call(ref, 3), call(Opaque()), call("y" * 999)]}
    rows = rows_of(FakeSource(run_info([table]), [task_row(1, result=blob), task_row(2)]))
    assert [row["call"] for row in rows[:3]] == ["call(...)", "call(Ref(sha256:1111111...), 3)", "call(...)"]
    assert len(rows[3]["call"]) < 100
    assert [row["result"] for row in rows] == ["<large>", "<large>", None, None]
