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
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

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
Outcome = tuple[Any, ...]  # what became of a task, as `OUTCOME` names it
PAGE = 1_000  # rows that are made together
_LINE = OUTCOME.index("last_line")
_DIGITS = 18  # of a number that is read as such without further look
_JSON_STARTS = frozenset('{["-0123456789tfn')


class Page(NamedTuple):
    """Rows that follow each other and have the same columns."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


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
    pages = value_pages(source, run, flat, raw)
    return (dict(zip(columns, values, strict=True)) for columns, rows in pages for values in rows)


def value_pages(source: Source, run: str, flat: bool = False, raw: bool = False) -> Iterator[Page]:
    """The same rows as columns and values: a hundred thousand dicts, made one by one, cost more than what is in them."""
    parse_run(run)
    info = source.run(run)
    arrays = sorted(info["arrays"], key=_first)
    rows = source.outcomes(run, values=any(array["task"].get("function") for array in arrays))
    outcomes = _Outcomes(rows, sorted(info["spans"], key=lambda span: int(span["low"])))
    waits = waits_for(source, info)
    for array in arrays:
        spec, first = parse_spec(array["task"]), _first(array)
        columns = [*BEFORE, *(CALL if spec.function else param_columns(spec).values()), *AFTER]
        each = each_element(spec)

        while params := list(islice(each, PAGE)):
            found = outcomes.take(first, len(params), lambda spec=spec: waits(spec))  # type: ignore[misc]
            if spec.function:
                for element, outcome in enumerate(found, first):
                    call = spec.calls[element - _first(array)]
                    yield _call_row(columns, f"{run}.{element}", spec, call, outcome, flat, raw)
            else:
                yield from _task_pages(columns, _task_rows(run, first, params, found), found, flat)
            first += len(params)


class _Outcomes:
    """What became of the elements of a run, from first to last: rows and spans as one."""

    def __init__(self, rows: Iterator[Outcome], spans: Sequence[Mapping[str, Any]]) -> None:
        self._rows, self._spans = rows, iter(spans)
        self._ahead: list[Outcome] = []  # rows that were read, of elements that were not asked for yet
        self._span = next(self._spans, None)

    def take(self, low: int, count: int, waits: Callable[[], bool]) -> list[Outcome]:
        """What became of so many elements; `waits`: is one with neither row nor span waiting?"""
        rows, high = self._ahead, low + count
        while not rows or rows[-1][0] < high - 1:
            more = list(islice(self._rows, count))
            if not more:
                break
            rows = rows + more
        if len(rows) == count and rows[0][0] == low and rows[-1][0] == high - 1:  # rows are in order: these are all
            self._ahead = []
            return rows
        by_element = {row[0]: row for row in rows if row[0] < high}
        self._ahead = [row for row in rows if row[0] >= high]
        found, unknown = [], None
        for element in range(low, high):
            outcome = by_element.get(element) or self._in_span(element)
            if outcome is None:
                unknown = unknown or _outcome_of({"state": "waiting" if waits() else "ready"})
                outcome = unknown
            found.append(outcome)
        return found

    def _in_span(self, element: int) -> Outcome | None:
        while self._span is not None and self._span["high"] <= element:
            self._span = next(self._spans, None)
        return _outcome_of(self._span) if self._span is not None and self._span["low"] <= element else None


def _outcome_of(known: Mapping[str, Any]) -> Outcome:
    return tuple([known.get(name) for name in OUTCOME])


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


def _task_rows(
    run: str, first: int, params: Sequence[tuple[Any, ...]], found: Sequence[Outcome]
) -> list[tuple[Any, ...]]:
    """Rows with the parsed last line as `result`."""
    return [
        (f"{run}.{element}", *given, state, exit_code, duration if duration is None else round(duration, 3),
            host or None, cause or None, attempt or 0, parse_line(line) if line else None)
        for element, given, (_, state, exit_code, duration, host, cause, attempt, line, _, _, _)
        in zip(range(first, first + len(params)), params, found, strict=True)
    ]  # fmt: skip


def _task_pages(
    columns: list[str], rows: list[tuple[Any, ...]], found: Sequence[Outcome], flat: bool
) -> Iterator[Page]:
    """The rows; `flat`: a nested result stays the line it was, and members of one that is an object become columns."""
    if not flat or not any(isinstance(row[-1], (dict, list)) for row in rows):
        yield Page(columns, rows)
        return
    for (*row, value), outcome in zip(rows, found, strict=True):
        if isinstance(value, dict):
            members = {
                name: json.dumps(member, ensure_ascii=False) if isinstance(member, (dict, list)) else member
                for name, member in value.items()
            }
            yield _with_members(columns, (*row, outcome[_LINE]), members)
        else:
            yield Page(columns, [(*row, outcome[_LINE] if isinstance(value, list) else value)])


def _call_row(
    columns: list[str], task: str, spec: Spec, call: str, found: tuple[Any, ...], flat: bool, raw: bool
) -> Page:
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
    return _with_members(columns, values, value) if flat and isinstance(value, dict) else Page(columns, [values])


def _with_members(columns: list[str], values: tuple[Any, ...], members: Mapping[Any, Any]) -> Page:
    """A row to which the members of its result are added."""
    row = dict(zip(columns, values, strict=True))
    for name, member in members.items():
        row[f"result_{name}" if name in row else str(name)] = member
    return Page([*row], [tuple(row.values())])


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
