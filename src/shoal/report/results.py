"""The results of a run: one row per element, in order, with its parameters and the last line it printed.

A run has rows only for elements that were leased or differ, and spans for those that became final together; an element
with neither is `ready` or `waiting`. They are merged as a stream, so a million elements are never held in memory.

`result` is the last line of standard output; parsed, if it is JSON. In the flat form (CSV, pandas) a JSON object
stays the line it was and its members become columns of their own, as `result_NAME` where NAME is taken.
A parameter that has the name of a fixed column is shown as `param_NAME`.

Calls of an executor have a `call` instead of parameters, the times at which they `started` and `ended`, and as `result`
the value that they returned, if it is small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shoal.client.config import find_target
from shoal.client.console import say
from shoal.model.ids import parse_run, run_text
from shoal.model.task.spec import Spec
from shoal.model.task.sweep import Axis, Steps
from shoal.report.call_values import Unreadable, as_json, call_text, read_value
from shoal.report.data_source import OUTCOME, Json, Source, source_of, waits_for
from shoal.report.run_names import find_run
from shoal.wire.task import parse_spec

BEFORE = ("task",)
AFTER = ("state", "exit_code", "duration", "host", "cause", "attempts", "result")
TIMES = ("started", "ended")  # of calls, in seconds since 1970
CALL = ("call", *TIMES)  # columns that calls have instead of parameters
FIXED = frozenset((*BEFORE, *AFTER))
Values = tuple[list[str], tuple[Any, ...]]  # columns and values of a row
_DIGITS = 18  # of a number that is read as such without further look
_JSON_STARTS = frozenset('{["-0123456789tfn')


def results(run: str | int, server: str | None = None) -> list[dict[str, Any]]:
    """The rows of a run as flat dicts, ready for `pandas.DataFrame`: `shoal.results("r12")`, or by the run's name."""
    if not isinstance(run, (str, int)):
        raise TypeError(f'{run!r} is not a run (give its id, as in shoal.results("r12"); see `shoal ps`)')
    with source_of(find_target(server)) as source:
        named = run_text(run) if isinstance(run, int) else find_run(source, run, say)
        return list(iterate(source, named, flat=True, raw=True))


def iterate(source: Source, run: str, flat: bool = False, raw: bool = False) -> Iterator[Json]:
    """One row per element of a run, in element order: task, parameters, state, ..., result; `flat`: without nesting.

    `raw`: values of calls are Python's own, else what JSON has of them.
    """
    return (dict(zip(columns, values, strict=True)) for columns, values in value_rows(source, run, flat, raw))


def value_rows(source: Source, run: str, flat: bool = False, raw: bool = False) -> Iterator[Values]:
    """The same rows as columns and values: a hundred thousand dicts cost more than what is in them."""
    parse_run(run)
    info = source.run(run)
    arrays = sorted(info["arrays"], key=_first)
    spans = iter(sorted(info["spans"], key=lambda span: int(span["low"])))
    rows = source.outcomes(run, values=any(array["task"].get("function") for array in arrays))
    row, span = next(rows, None), next(spans, None)
    waits = waits_for(source, info)
    for array in arrays:
        spec, first = parse_spec(array["task"]), _first(array)
        columns = [*BEFORE, *(CALL if spec.function else param_columns(spec).values()), *AFTER]
        default: tuple[Any, ...] | None = None
        for element, params in enumerate(each_element(spec), first):
            while row is not None and row[0] < element:
                row = next(rows, None)
            while span is not None and span["high"] <= element:
                span = next(spans, None)
            if row is not None and row[0] == element:
                found = row
            elif span is not None and span["low"] <= element:
                found = tuple([span.get(name) for name in OUTCOME])
            else:
                if default is None:
                    default = tuple([{"state": "waiting" if waits(spec) else "ready"}.get(name) for name in OUTCOME])
                found = default
            task = f"{run}.{element}"
            if spec.function:
                yield _call_row(columns, task, spec, spec.calls[element - first], found, flat, raw)
            else:
                yield _task_row(columns, task, params, found, flat)


def _first(array: Mapping[str, Any]) -> int:
    return int(array["first"])


def each_element(spec: Spec) -> Iterator[tuple[Any, ...]]:
    """The parameters' values element by element: the last axis turns fastest."""
    sweep = spec.sweep
    if sweep is None:
        yield from [()] * spec.count  # as many as a function has calls; one of a command
        return
    if sweep.rows is not None:
        names = sweep.names
        yield from (tuple(row[name] for name in names) for row in sweep.rows)
        return
    yield from _combinations(sweep.axes)


def _combinations(axes: Sequence[Axis]) -> Iterator[tuple[Any, ...]]:
    if not axes:
        yield ()
        return
    for slower in _combinations(axes[:-1]):
        for value in axis_values(axes[-1]):
            yield (*slower, value)


def axis_values(axis: Axis) -> Iterator[Any]:
    """The values of one parameter in order; whole numbers are counted, which is much quicker than Axis.at."""
    for piece in axis.pieces:
        if not isinstance(piece, Steps):
            yield from piece
        elif piece.width or not piece.is_whole:
            yield from map(piece.at, range(piece.count))
        else:
            start, step = int(piece.start), int(piece.step)
            yield from range(start, start + piece.count * step, step)


def _task_row(columns: list[str], task: str, params: tuple[Any, ...], found: tuple[Any, ...], flat: bool) -> Values:
    """A row with the parsed last line as `result`; `flat`: members of a result that is an object become columns."""
    _, state, exit_code, duration, host, cause, attempt, line, *_ = found
    value: Any = parse_line(line) if line else None
    is_nested = flat and isinstance(value, (dict, list))
    values = (
        task, *params, state, exit_code, duration if duration is None else round(duration, 3), host or None,
        cause or None, attempt or 0, line if is_nested else value,
    )  # fmt: skip
    if not is_nested or isinstance(value, list):
        return columns, values
    members = {
        name: json.dumps(member, ensure_ascii=False) if isinstance(member, (dict, list)) else member
        for name, member in value.items()
    }
    return _with_members(columns, values, members)


def _call_row(
    columns: list[str], task: str, spec: Spec, call: str, found: tuple[Any, ...], flat: bool, raw: bool
) -> Values:
    """A row of a call, with the value that it returned as `result`; `flat`: members of a dict become columns, too."""
    _, state, exit_code, duration, host, cause, attempt, _, started, ended, text = found
    value: Any = None
    if state == "succeeded":
        value = read_value(text) if text else Unreadable("large")  # rows have no larger ones
    if not raw or isinstance(value, Unreadable):
        value = as_json(value)
    values = (
        task, call_text(spec.labels.get("function", "call"), call), _moment(started), _moment(ended), state, exit_code,
        duration if duration is None else round(duration, 3), host or None, cause or None, attempt or 0, value,
    )  # fmt: skip
    return _with_members(columns, values, value) if flat and isinstance(value, dict) else (columns, values)


def _with_members(columns: list[str], values: tuple[Any, ...], members: Mapping[Any, Any]) -> Values:
    """A row to which the members of its result are added."""
    row = dict(zip(columns, values, strict=True))
    for name, member in members.items():
        row[f"result_{name}" if name in row else str(name)] = member
    return [*row], tuple(row.values())


def _moment(seconds: Any) -> float | None:
    return round(seconds, 3) if seconds else None


def param_columns(spec: Spec) -> dict[str, str]:
    """Each parameter's name and the column it is shown in."""
    names = spec.sweep.names if spec.sweep is not None else ()
    return {name: f"param_{name}" if name in FIXED else name for name in names}


def columns_of(info: Mapping[str, Any]) -> list[str]:
    """The columns of a run's rows: those of all its arrays, in order."""
    params: dict[str, None] = {}
    for array in sorted(info["arrays"], key=_first):
        spec = parse_spec(array["task"])
        params.update(dict.fromkeys(CALL if spec.function else param_columns(spec).values()))
    return [*BEFORE, *params, *AFTER]


def parse_line(line: str) -> Any:
    """The value of a line of JSON; the line itself if it is not JSON."""
    if line.isdigit() and line.isascii() and line[0] != "0" and len(line) <= _DIGITS:
        return int(line)
    text = line.strip()
    if text[:1] in _JSON_STARTS:
        try:
            value, end = _read(text)
        except (ValueError, RecursionError):
            return line
        if end == len(text):
            return value
    return line


def _refuse(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are not JSON, and would make our own JSON unreadable


_read = json.JSONDecoder(parse_constant=_refuse).raw_decode  # `decode` looks for blanks around it, too
