"""Fields of a task that say where, when and in which surroundings it runs [protocol 3; GWP G5, G10; DIANE U10].

Expressions are only bounded here; the server reads them, with the names it knows (`sched.expr`).
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any, Callable, Optional

from shoal.model.errors import BadInput, echo
from shoal.model.limits import (
    MAX_CHECKPOINT,
    MAX_EXPR_BYTES,
    MAX_LICENCES,
    MAX_ORDERED,
    MAX_SETUP,
    MIN_CHECKPOINT_EVERY,
)
from shoal.model.quantities import parse_duration
from shoal.model.spec import Spec
from shoal.model.states import Rerun
from shoal.wire.checks import did_you_mean, paths, short_text, whole

_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./:@+-]{0,1023}")
_LICENCE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_LICENCES = whole(1, 1_000_000)


def _expression(field: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if isinstance(value, str) and len(value.encode("utf-8", "replace")) > MAX_EXPR_BYTES:
            raise BadInput(
                f"longer than {MAX_EXPR_BYTES} bytes", code="expression_too_complex", field=field,
                hint="let tasks publish a tag that says the same (`$SHOAL_TAGS`)",
            )  # fmt: skip
        return short_text(value, field, MAX_EXPR_BYTES).strip()

    return check


def _deadline(value: Any) -> tuple[Optional[float], Optional[float]]:
    """`"2h"` from the submission on, or a time such as `"2026-11-16T08:00+01:00"` (without a zone: UTC)."""
    if isinstance(value, str) and "T" in value:
        try:
            at = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            at = None
        if at is not None:
            at = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
            seconds = at.timestamp()
            if 0 < seconds < 1e10:
                return None, seconds
        raise BadInput(
            f"{echo(value)!r} is not a time", code="bad_duration", field="deadline",
            hint='write for example "2026-11-16T08:00+01:00", or "2h" from now on',
        )  # fmt: skip
    return parse_duration(value, "deadline"), None


def _setup(value: Any) -> tuple[str, ...]:
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list) or not 1 <= len(lines) <= MAX_SETUP:
        raise BadInput(
            f"expected 1 to {MAX_SETUP} lines of shell", code="wrong_type", field="setup",
            hint='e.g. ["module load gcc", ". env/bin/activate"]',
        )  # fmt: skip
    found = tuple(short_text(line, "setup", 4096) for line in lines)
    if not any(line.strip() for line in found):
        raise BadInput("the lines are empty", code="empty_command", field="setup", hint="leave the field out")
    return found


def _container(value: Any) -> str:
    text = short_text(value, "container", 1024)
    if not _IMAGE.fullmatch(text) or ".." in text.split("/"):
        raise BadInput(
            f"{echo(text)!r} is not an image", code="bad_container", field="container",
            hint='e.g. "docker://python:3.12", "debian:12" or the path of a .sif file',
        )  # fmt: skip
    return text


def _licences(value: Any) -> tuple[tuple[str, int], ...]:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        value = dict.fromkeys(value, 1)
    if not isinstance(value, dict) or not 1 <= len(value) <= MAX_LICENCES:
        raise BadInput(
            f"expected 1 to {MAX_LICENCES} names with numbers", code="wrong_type", field="licences",
            hint="e.g. {matlab = 1}",
        )  # fmt: skip
    for name, count in value.items():
        if not isinstance(name, str) or not _LICENCE.fullmatch(name):
            raise BadInput(f"{echo(name)!r} is not the name of a licence", code="bad_name", field="licences")
        _LICENCES(count, f"licences.{name}")
    return tuple(sorted(value.items()))


def _every(value: Any) -> float:
    """Seconds between checkpoints that travel; 0 stands for never while the task runs."""
    if value in (0, "0", "0s") and not isinstance(value, bool):
        return 0.0
    seconds = parse_duration(value, "checkpoint_every")
    if seconds < MIN_CHECKPOINT_EVERY:
        raise BadInput(
            f"{echo(value)!r} is too often", code="range", field="checkpoint_every",
            hint=f"at least {MIN_CHECKPOINT_EVERY:g} s; 0: only when the task ends",
        )  # fmt: skip
    return seconds


# Field -> how it is read; part of the table in `task`.
PLACING: dict[str, Callable[[Any], Any]] = {
    "require": _expression("require"),
    "rank": _expression("rank"),
    "deadline": _deadline,
    "order": lambda v: short_text(v, "order", 65),
    "setup": _setup,
    "container": _container,
    "licences": _licences,
    "checkpoint": lambda v: paths(v, "checkpoint", MAX_CHECKPOINT),
    "checkpoint_every": _every,
}


def check_placing(spec: Spec) -> None:
    """What these fields ask of each other."""
    if spec.order:
        name = spec.order[1:] if spec.order[0] == "-" else spec.order
        if spec.sweep is None or name not in spec.sweep.names:
            known = list(spec.sweep.names) if spec.sweep is not None else []
            raise BadInput(
                f"{echo(name)!r} is not a parameter", code="unknown_param", field="order",
                hint=did_you_mean(name, known) if known else "only tasks with params have an order",
            )  # fmt: skip
        if spec.count > MAX_ORDERED:
            raise BadInput(
                f"{spec.count} tasks are too many to be put in order", code="bad_array", field="order",
                hint=f"at most {MAX_ORDERED}; write the parameters in the order you want",
            )  # fmt: skip
    if spec.checkpoint_every != Spec.checkpoint_every and not spec.checkpoint:
        raise BadInput(
            "which files?",
            code="required",
            field="checkpoint",
            hint="checkpoint_every goes with the files in checkpoint",
        )
    if spec.checkpoint and spec.rerun is Rerun.NEVER:
        raise BadInput(
            "a task that is never re-run cannot go on later", code="range", field="checkpoint", hint="leave it out"
        )
