"""Inject a defect: raise an exception at a chosen line of the engine's rules, so that a command ends half-way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_RULES = ("shoal.engine.", "shoal.sched.")


class InjectedDefect(Exception):
    """The exception that no rule expects."""


def call_with_defect(do: Callable[[], T], line: int) -> T:
    """Call `do`, and raise InjectedDefect inside it before the given line of the rules, counted as they run; a call that
    runs fewer lines ends normally."""
    left = line

    def on_line(frame: FrameType, event: str, arg: Any) -> Any | None:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise InjectedDefect(f"{frame.f_code.co_name} line {frame.f_lineno}")
        return on_line

    def on_call(frame: FrameType, event: str, arg: Any) -> Any | None:
        return on_line if str(frame.f_globals.get("__name__", "")).startswith(_RULES) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        return do()
    finally:
        sys.settrace(before)
