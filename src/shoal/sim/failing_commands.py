"""A poisonous command: an exception at a chosen line of the engine's rules, so that a command ends half-way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_RULES = ("shoal.engine.", "shoal.sched.")


class FailingCommands(Exception):
    """The defect that no rule expects."""


def poisoned(do: Callable[[], T], line: int) -> T:
    """Call `do`, and raise Poison from inside it before this many lines of the rules have run; shorter calls end well."""
    left = line

    def on_line(frame: FrameType, event: str, arg: Any) -> Any | None:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise FailingCommands(f"{frame.f_code.co_name} line {frame.f_lineno}")
        return on_line

    def on_call(frame: FrameType, event: str, arg: Any) -> Any | None:
        return on_line if str(frame.f_globals.get("__name__", "")).startswith(_RULES) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        return do()
    finally:
        sys.settrace(before)
