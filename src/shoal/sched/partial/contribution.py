"""Contributions: what one attempt emitted, reduced; and the sum of many of them. As text they travel with exchanges and
reports, and rest in the database.

The text is a JSON object: name -> reducer -> state, and under the empty name how much was left out. A name usually has one
reducer; it has two where some tasks emitted numbers under it and others texts, and no reducer was chosen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_CONTRIBUTION, MAX_EMITTED_NAME, MAX_EMITTED_NAMES, MAX_RUN_NAMES, MAX_WHOLE
from shoal.sched.partial.reducers import DEFAULT_NUMBER, DEFAULT_TEXT, Answer, State, Value, reducer_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
LEFT_OUT = ""
_RESERVED = ("and", "or", "not", "in", "true", "false")
NAME_RULE = (
    f"letters, digits and _ with dots between, no digit first, at most {MAX_EMITTED_NAME} characters, and none of "
    f"{', '.join(_RESERVED)}"
)


def is_name(text: str) -> bool:
    """True if values can be emitted under this name; expressions can hold every such name."""
    return len(text) <= MAX_EMITTED_NAME and _NAME.fullmatch(text) is not None and text not in _RESERVED


def values_of(line: bytes) -> Optional[list[tuple[str, Value]]]:
    """The values in a line that a task emitted: `name=value`, or a JSON object of names to values or lists of values;
    None if it is neither."""
    text = line.decode("utf-8", "replace").strip()
    if text.startswith("{"):
        return _of_object(text)
    name, equals, rest = text.partition("=")
    name = name.strip()
    if not equals or not is_name(name):
        return None
    return [(name, _number_or_text(rest.strip()))]


def _number_or_text(text: str) -> Value:
    if text in ("true", "false"):
        return float(text == "true")
    try:
        return float(text) if "_" not in text else text
    except ValueError:
        return text


def _of_object(text: str) -> Optional[list[tuple[str, Value]]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    values: list[tuple[str, Value]] = []
    for name, value in found.items():
        if not is_name(name):
            return None
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, (bool, int, float)):
                try:
                    values.append((name, float(one)))
                except OverflowError:
                    values.append((name, float("inf")))  # is counted as left out
            elif isinstance(one, str):
                values.append((name, one))
            else:
                return None
    return values


class Contribution:
    """Reduced values by name. `reduce` says which reducers were chosen; other names get a default one by their values."""

    def __init__(self, states: Optional[dict[tuple[str, str], State]] = None, left_out: int = 0) -> None:
        self.states: dict[tuple[str, str], State] = {} if states is None else states  # by name and reducer
        self.left_out = left_out  # lines that could not be read, and values of names that were too many

    def __bool__(self) -> bool:
        return bool(self.states or self.left_out)

    def copy(self) -> Contribution:
        """Another one, to which more can be merged."""
        return Contribution(dict(self.states), self.left_out)

    def add(self, values: Iterable[tuple[str, Value]], element: int, reduce: Mapping[str, str]) -> None:
        """Take values of one task in; those of names that are too many are left out."""
        by_key: dict[tuple[str, str], list[Value]] = {}
        for name, value in values:
            chosen = reduce.get(name) or (DEFAULT_TEXT if isinstance(value, str) else DEFAULT_NUMBER)
            by_key.setdefault((name, chosen), []).append(value)
        for key, found in by_key.items():
            reducer = reducer_of(key[1])
            if key not in self.states and len(self.states) >= MAX_EMITTED_NAMES:
                self.left_out += len(found)
            else:
                reducer.take(self.states.setdefault(key, reducer.new()), found, element)

    def merge(self, other: Contribution) -> None:
        """Take another one in, whole or (if this raises) not at all; of a run with too many names, some are left out."""
        left_out, names = other.left_out, len(self.states)
        merged: dict[tuple[str, str], State] = {}
        for key, state in other.states.items():
            mine = self.states.get(key)
            if mine is None and names >= MAX_RUN_NAMES:
                left_out += state[0]
                continue
            names += mine is None
            reducer = reducer_of(key[1])
            merged[key] = reducer.merge(reducer.new() if mine is None else mine, state)
        self.states.update(merged)
        self.left_out += left_out

    def text(self) -> str:
        """As it travels and rests; empty if there is nothing in it."""
        if not self:
            return ""
        found: dict[str, Any] = {LEFT_OUT: self.left_out} if self.left_out else {}
        for (name, reducer), state in self.states.items():
            found.setdefault(name, {})[reducer] = state
        return json.dumps(found, separators=(",", ":"))

    def travelling_text(self) -> str:
        """The text within the bound of a message: names are left out from the last one on until it fits."""
        text = self.text()
        while len(text) > MAX_CONTRIBUTION:
            self.left_out += self.states.popitem()[1][0]
            text = self.text()
        return text

    def answers(self) -> Iterator[tuple[str, Answer]]:
        """The current answer of each name, in order of names."""
        for (name, reducer), state in sorted(self.states.items(), key=lambda item: item[0]):
            yield name, reducer_of(reducer).answer(state)


def read(text: str) -> Contribution:
    """The contribution in a text; what is not sound in it is left out, since it may come from any pilot."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = {}
    states: dict[tuple[str, str], State] = {}
    left_out = found.get(LEFT_OUT, 0) if isinstance(found, dict) else 0
    for name, by_reducer in found.items() if isinstance(found, dict) else ():
        if is_name(name) and isinstance(by_reducer, dict):
            states.update(
                ((name, reducer), state) for reducer, state in by_reducer.items() if _is_sound(reducer, state)
            )
    return Contribution(states, left_out if type(left_out) is int and 0 <= left_out <= MAX_WHOLE else 0)


def _is_sound(text: str, state: Any) -> bool:
    try:
        reducer = reducer_of(text)
        return reducer.text == text and type(state) is list and reducer.is_sound(state)
    except (BadInput, TypeError, ValueError, LookupError):
        return False
