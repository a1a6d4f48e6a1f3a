"""Signals that people may send to their tasks, by name [GWP G11]. Numbers are those of Linux."""

from __future__ import annotations

from typing import Union

from shoal.model.errors import BadInput, echo

SIGNALS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "ALRM": 14, "TERM": 15, "CONT": 18, "STOP": 19,
    "TSTP": 20, "WINCH": 28,
}  # fmt: skip


def parse_signal(value: Union[str, int]) -> str:
    """The name of a signal: from `USR1`, `SIGUSR1` or 10."""
    text = str(value).upper().removeprefix("SIG") if len(str(value)) < 20 else ""
    for name, number in SIGNALS.items():
        if text in (name, str(number)):
            return name
    raise BadInput(
        f"{echo(value)!r} is not a signal for tasks", code="bad_signal", field="signal", hint=", ".join(SIGNALS)
    )
