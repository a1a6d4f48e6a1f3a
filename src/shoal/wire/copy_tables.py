"""The tables of a run as a new submission: the same tasks, or some of them, with other values of fields [DIANE U5]."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from shoal.model.errors import BadInput, echo
from shoal.model.rangeset import RangeSet
from shoal.model.states import FINAL
from shoal.model.task.units import Units, read_units
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.task import parse_spec

_NUMBERS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_MERGED = ("env", "labels")  # what is given is added to what is there


def parse_only(text: str, total: int) -> tuple[list[str], list[tuple[int, int]]]:
    """States, and ranges low .. high - 1 of elements, of a text such as `failed`, `lost,cancelled` or `1-20,33`."""
    states: list[str] = []
    ranges: list[tuple[int, int]] = []
    known = sorted(state.value for state in FINAL)
    for part in text.split(","):
        numbers = _NUMBERS.fullmatch(part.strip())
        if part.strip() in known:
            states.append(part.strip())
        elif numbers:
            low, high = int(numbers[1]), int(numbers[2] or numbers[1])
            if not 1 <= low <= high <= total:
                hint = f"its tasks are 1 to {total}"
                raise BadInput(
                    f"there are no tasks {echo(part.strip())} in the run", code="range", field="only", hint=hint
                )
            ranges.append((low, high + 1))
        else:
            hint = f"{did_you_mean(part.strip(), known)}; or numbers of tasks: 1-20,33"
            raise BadInput(
                f"{echo(part)!r} is neither a state nor a number", code="unknown_state", field="only", hint=hint
            )
    return states, ranges


def copy_tables(
    arrays: Sequence[tuple[int, Mapping[str, Any]]], chosen: Optional[RangeSet], changes: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The tables of arrays, each given by its first element, for the chosen elements (None: all) and with changes. What
    waited for a table of which nothing is left waits for it no longer."""
    found: list[dict[str, Any]] = []
    for first, table in _joined(arrays, chosen):
        copied = dict(table) if chosen is None else _some(table, first, chosen)
        if copied is not None:
            for field in ("visible", "content"):  # of files as they were then; they may have changed since
                copied.pop(field, None)
            for name, value in changes.items():
                is_added = name in _MERGED and isinstance(value, Mapping)
                copied[name] = {**copied.get(name, {}), **value} if is_added else value
            found.append(copied)
    names = {table["name"] for table in found if table.get("name")}
    for copied in found:
        if copied.get("after"):
            copied["after"] = [name for name in copied["after"] if name in names]
    return found


def _joined(
    arrays: Sequence[tuple[int, Mapping[str, Any]]], chosen: Optional[RangeSet]
) -> list[tuple[int, Mapping[str, Any]]]:
    """The arrays, but of divisible work those with the chosen pieces, joined where they are neighbours: they are cut anew."""
    found: list[tuple[int, Mapping[str, Any]]] = []
    pieces: dict[str, list[tuple[Units, int, Mapping[str, Any]]]] = {}
    for first, table in arrays:
        if table.get("units") is None:
            found.append((first, table))
        elif chosen is None or first in chosen:
            pieces.setdefault(table.get("name", ""), []).append((read_units(table["units"], "units"), first, table))
    for parts in pieces.values():
        parts.sort(key=lambda part: part[0])
        at = 0
        while at < len(parts):
            units, first, table = parts[at]
            end = units.first + units.size
            at += 1
            while at < len(parts) and parts[at][0].first == end:
                end += parts[at][0].size
                at += 1
            found.append((first, {**table, "units": Units(units.first, end - units.first).table()}))
    return sorted(found, key=lambda one: one[0])


def _some(table: Mapping[str, Any], first: int, chosen: RangeSet) -> Optional[dict[str, Any]]:
    """The table with the chosen ones of its elements; None if none is."""
    spec = parse_spec(table)
    offsets = [at for at in range(spec.count) if first + at in chosen]
    if not offsets:
        return None
    copied = dict(table)
    if len(offsets) == spec.count:
        return copied
    if spec.function:
        copied["calls"] = [table["calls"][at] for at in offsets]
    elif spec.array is not None:
        at_once = f"%{spec.throttle}" if spec.throttle is not None else ""
        copied["array"] = _ranges(int(spec.array[0].at(at)["i"]) for at in offsets) + at_once
    elif spec.sweep is not None:
        copied["params"] = [spec.sweep.at(at) for at in offsets]
    return copied


def _ranges(numbers: Iterable[int]) -> str:
    """`1-3,7` for 1, 2, 3, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
