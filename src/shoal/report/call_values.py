"""Calls of executor runs as people read them: what was called with which arguments, and the value that came back.

Payloads are pickles, and a pickle can run code. Whoever looks at a run did not necessarily make it, so everything is
loaded by the rules for results of other people's pilots: plain data, numpy and pandas values. What they refuse is
shown by its name only.
"""

from __future__ import annotations

import math
import reprlib
from typing import Any

from shoal.wire.payload import of_text, resolve

DESCRIPTION = 200  # characters of a call
_REF = (resolve.__module__, resolve.__qualname__)  # a large argument that was sent once: shown as such, not fetched
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


class Unreadable:
    """Stands for a value that is not shown; its text says why."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"<{self.why}>"


def read_value(text: str) -> Any:
    """The object of a payload text; Unreadable if it is large, or not plain data."""
    if text.startswith("sha256:"):
        return Unreadable("large")
    from shoal.client.unpickle.restricted import load_restricted  # loaded only where there are calls
    from shoal.client.unpickle.rules import UntrustedResult

    try:
        return load_restricted(of_text(text), [_REF])
    except UntrustedResult:
        return Unreadable("not plain data")


def call_text(function: str, text: str) -> str:
    """A call as a person would write it: `fit(3, alpha=0.5)`; `fit(...)` if its arguments cannot be shown."""
    value = read_value(text)
    if not (
        isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], tuple) and isinstance(value[1], dict)
    ):
        return f"{function}(...)"
    args, kwargs = value
    arguments = [*map(_short.repr, args), *(f"{name}={_short.repr(one)}" for name, one in kwargs.items())]
    shown = f"{function}({', '.join(arguments)})"
    return shown if len(shown) <= DESCRIPTION else f"{shown[: DESCRIPTION - 3]}..."


def as_json(value: Any) -> Any:
    """The value as JSON has it; what JSON has not is shown by its short description."""
    try:
        return _as_json(value)
    except RecursionError:  # nested a thousand times
        return _short.repr(value)


def _as_json(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if type(value) in (list, tuple):
        return [_as_json(item) for item in value]
    if type(value) is dict and all(type(name) is str for name in value):
        return {name: _as_json(item) for name, item in value.items()}
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a single number of numpy
        return _as_json(value.item())
    return _short.repr(value)
