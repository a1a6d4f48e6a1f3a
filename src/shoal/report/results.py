"""The results of a run: one row per element, in order, with its parameters and the last line it printed.

A run keeps rows only for elements that were leased or differ, and spans for those that became final together; what
has neither is `ready` or `waiting`. Merged here as a stream, so a million elements are never held at once.

`result` is the last line of standard output; parsed, if it is JSON. In the flat form (CSV, pandas) a JSON object
stays the line it was and its members become columns of their own, as `result_NAME` where NAME is taken.
A parameter that has the name of a fixed column is shown as `param_NAME`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shoal.model.ids import parse_run, run_text
from shoal.model.spec import Spec
from shoal.report.source import Json, Source, open_source, waits_for
from shoal.wire.task import parse_spec

BEFORE = ("task",)
AFTER = ("state", "exit_code", "duration", "host", "cause", "attempts", "result")
FIXED = frozenset((*BEFORE, *AFTER))
_JSON_STARTS = frozenset('{["-0123456789tfn')


def results(run: str | int, server: str | None = None) -> list[dict[str, Any]]:
    """The rows of a run as flat dicts, ready for `pandas.DataFrame`: `shoal.results("r12")`."""
    with open_source(server) as source:
        return list(iterate(source, run_text(run) if isinstance(run, int) else run, flat=True))


def iterate(source: Source, run: str, flat: bool = False) -> Iterator[Json]:
    """One row per element of a run, in element order: task, parameters, state, ..., result; `flat`: without nesting."""
    parse_run(run)
    info = source.run(run)
    arrays = sorted(info["arrays"], key=_first)
    spans = iter(sorted(info["spans"], key=lambda span: int(span["low"])))
    rows = source.rows(run)
    row, span = next(rows, None), next(spans, None)
    waits = waits_for(source, info)
    make = flat_row if flat else nested_row
    for array in arrays:
        spec, first = parse_spec(array["task"]), _first(array)
        columns = list(param_columns(spec).values())
        default: Json | None = None
        for element, params in enumerate(each_element(spec), first):
            while row is not None and row["element"] < element:
                row = next(rows, None)
            while span is not None and span["high"] <= element:
                span = next(spans, None)
            found: Json
            if row is not None and row["element"] == element:
                found = row
            elif span is not None and span["low"] <= element:
                found = span
            else:
                if default is None:
                    default = {"state": "waiting" if waits(spec) else "ready"}
                found = default
            yield make(f"{run}.{element}", zip(columns, params, strict=True), found)


def _first(array: Mapping[str, Any]) -> int:
    return int(array["first"])


def each_element(spec: Spec) -> Iterator[tuple[Any, ...]]:
    """The parameters' values element by element: the last axis turns fastest, and only what turns is worked out."""
    sweep = spec.sweep
    if sweep is None:
        yield ()
        return
    if sweep.rows is not None:
        names = sweep.names
        yield from (tuple(row[name] for name in names) for row in sweep.rows)
        return
    axes, counts = sweep.axes, [axis.count for axis in sweep.axes]
    places = [0] * len(axes)
    values = [axis.at(0) for axis in axes]
    turning = len(axes) - 1
    while turning >= 0:
        yield tuple(values)
        turning = len(axes) - 1
        while turning >= 0:
            places[turning] = (places[turning] + 1) % counts[turning]
            values[turning] = axes[turning].at(places[turning])
            if places[turning]:
                break
            turning -= 1


def nested_row(task: str, params: Iterable[tuple[str, Any]], found: Mapping[str, Any]) -> Json:
    """A row whose `result` is what the last line stands for."""
    line = found.get("last_line")
    return _row(task, params, found, parse_line(line) if line else None)


def flat_row(task: str, params: Iterable[tuple[str, Any]], found: Mapping[str, Any]) -> Json:
    """A row without nesting: members of a result that is an object become columns."""
    line = found.get("last_line")
    value = parse_line(line) if line else None
    if not isinstance(value, (dict, list)):
        return _row(task, params, found, value)
    row = _row(task, params, found, line)
    if isinstance(value, dict):
        for name, member in value.items():
            column = f"result_{name}" if name in row else str(name)
            row[column] = json.dumps(member, ensure_ascii=False) if isinstance(member, (dict, list)) else member
    return row


def _row(task: str, params: Iterable[tuple[str, Any]], found: Mapping[str, Any], result: Any) -> Json:
    get = found.get
    return {
        "task": task,
        **dict(params),
        "state": found["state"],
        "exit_code": get("exit_code"),
        "duration": get("duration"),
        "host": get("host") or None,
        "cause": get("cause") or None,
        "attempts": get("attempt") or 0,
        "result": result,
    }


def param_columns(spec: Spec) -> dict[str, str]:
    """Each parameter's name and the column it is shown in."""
    names = spec.sweep.names if spec.sweep is not None else ()
    return {name: f"param_{name}" if name in FIXED else name for name in names}


def columns_of(info: Mapping[str, Any]) -> list[str]:
    """The columns of a run's rows: those of all its arrays, in order."""
    params: dict[str, None] = {}
    for array in sorted(info["arrays"], key=_first):
        params.update(dict.fromkeys(param_columns(parse_spec(array["task"])).values()))
    return [*BEFORE, *params, *AFTER]


def parse_line(line: str) -> Any:
    """The value that a line of JSON stands for; the line itself if it is not JSON."""
    text = line.strip()
    if text[:1] in _JSON_STARTS:
        try:
            return _decode(text)
        except (ValueError, RecursionError):
            pass
    return line


def _refuse(word: str) -> None:
    raise ValueError(word)  # NaN and Infinity are not JSON, and would make our own JSON unreadable


_decode = json.JSONDecoder(parse_constant=_refuse).decode
