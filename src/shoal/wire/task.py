"""The one table of task fields for TOML, HTTP and Python [protocol 3]: plain data in, checked Spec out.

Client and server both call this, so a wrong task is refused with the same words on either side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Callable, Optional

from shoal.model.blobs import is_digest
from shoal.model.errors import BadInput, echo
from shoal.model.limits import (
    MAX_ARGV_BYTES,
    MAX_ARGV_ITEMS,
    MAX_CALLS,
    MAX_CORES,
    MAX_ENV_BYTES,
    MAX_ENV_ITEMS,
    MAX_FILES,
    MAX_INLINE,
    MAX_LABELS,
    MAX_PARENTS,
    MAX_PRIORITY,
    MAX_RETRIES,
)
from shoal.model.quantities import parse_duration, parse_size
from shoal.model.spec import Needs, Spec
from shoal.model.states import Rerun
from shoal.model.sweep import Axis, Sweep, Value, check_count, check_name, holes, parse_array, parse_values
from shoal.wire.checks import carried, did_you_mean, paths, short_text, texts_of, whole
from shoal.wire.placement import PLACING, check_placing

# What an executor tells its runners: its Python's version and path, and whether to seed random numbers for each call.
FUNCTION_ENV = ("SHOAL_PYTHON_VERSION", "SHOAL_PYTHONPATH", "SHOAL_RESEED")
MAX_TEXT = 4 * ((MAX_INLINE + 2) // 3)  # of a payload inside a message
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_RESERVED = ("LD_PRELOAD", "LD_AUDIT")


def _argv(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise BadInput(
            "command is one text", code="wrong_type", field="command",
            hint='write a list such as ["./sim", "--seed", "1"], or use the field `shell`',
        )  # fmt: skip
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadInput("expected a list of texts", code="wrong_type", field="command")
    if not value or not value[0].strip():
        raise BadInput("the command is empty", code="empty_command", field="command", hint='e.g. ["echo", "hi"]')
    if len(value) > MAX_ARGV_ITEMS or sum(len(word.encode("utf-8", "replace")) + 1 for word in value) > MAX_ARGV_BYTES:
        raise BadInput(
            "the command is too long", code="argv_too_long", field="command",
            hint=f"at most {MAX_ARGV_ITEMS} words and {MAX_ARGV_BYTES} bytes; pass large data in a file",
        )  # fmt: skip
    return tuple(carried(word, f"command[{at}]") for at, word in enumerate(value))


def _shell(value: Any) -> str:
    text = short_text(value, "shell", MAX_ARGV_BYTES)
    if not text.strip():
        raise BadInput("the command is empty", code="empty_command", field="shell", hint="e.g. 'sort a | uniq > b'")
    return text


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_ENV_ITEMS:
        raise BadInput(f"expected at most {MAX_ENV_ITEMS} names with texts", code="wrong_type", field="env")
    for name, text in value.items():
        ours = name.startswith("SHOAL_") and name not in FUNCTION_ENV
        if not _ENV_NAME.fullmatch(name) or name in _ENV_RESERVED or ours:
            raise _bad_env(name)
        short_text(text, f"env.{echo(name)}", MAX_ENV_BYTES)
    return dict(value)


def _bad_env(name: str) -> BadInput:
    hint = "letters, digits and _; not SHOAL_*, LD_PRELOAD, LD_AUDIT"
    return BadInput(f"{echo(name)!r} cannot be set", code="bad_env_name", field="env", hint=hint)


def _priority(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) <= MAX_PRIORITY:
        raise BadInput(
            f"{echo(value)!r} is not a priority", code="range", field="priority",
            hint=f"a number from -{MAX_PRIORITY:g} to {MAX_PRIORITY:g}; higher goes first",
        )  # fmt: skip
    return float(value)


def _rerun(value: Any) -> Rerun:
    if value not in [r.value for r in Rerun]:
        raise BadInput(
            f"{echo(value)!r} is not a re-run class",
            code="range",
            field="rerun",
            hint="safe, exclusive or never",
        )
    return Rerun(value)


def labels(value: Any) -> dict[str, str]:
    """A few names with texts."""
    if not isinstance(value, dict) or len(value) > MAX_LABELS:
        raise BadInput(f"expected at most {MAX_LABELS} names with texts", code="wrong_type", field="labels")
    return {short_text(k, "labels"): short_text(v, f"labels.{echo(k)}") for k, v in value.items()}


def _params(value: Any) -> Sweep:
    """`{x = "1..10", mode = ["a", "b"]}`: all combinations; a list of tables: one element each."""
    if isinstance(value, list):
        return _table(value)
    if not isinstance(value, dict) or not value:
        raise BadInput("expected names with values", code="bad_param", field="params", hint='e.g. {x = "1..10"}')
    axes = []
    for name, values in value.items():
        check_name(name)
        if isinstance(values, str):
            axes.append(Axis(name, parse_values(values, name)))
        elif isinstance(values, list) and values:
            axes.append(Axis(name, (tuple(_param_value(v, name) for v in values),)))
        else:
            raise BadInput("no values", code="bad_array", field=name, hint='"1..10", "a,b" or a list that is not empty')
    return check_count(Sweep(tuple(axes)))


def _table(rows: list[Any]) -> Sweep:
    if not rows or not all(isinstance(row, dict) and row for row in rows):
        raise BadInput("expected rows of names with values", code="bad_param", field="params")
    for at, row in enumerate(rows):
        if set(row) != set(rows[0]):
            raise BadInput(f"row {at + 1} has other names than row 1", code="bad_param", field="params")
        for name, value in row.items():
            _param_value(value, check_name(name))
    return check_count(Sweep(rows=tuple(dict(row) for row in rows)))


def _param_value(value: Any, name: str) -> Value:
    if isinstance(value, str):
        return short_text(value, name, 4096)
    if isinstance(value, bool) or (isinstance(value, (int, float)) and abs(value) < 1e300):
        return value
    raise BadInput(f"{echo(value)!r} is not a value", code="bad_param", field=name, hint="text, number or true/false")


def payload_text(value: Any, field: str) -> str:
    """A pickled object: base64, or the name of the blob that holds it. Nobody looks inside."""
    if not isinstance(value, str):
        raise BadInput(f"expected a payload, found {echo(value)!r}", code="wrong_type", field=field)
    if not is_digest(value) and not (len(value) <= MAX_TEXT and _BASE64.fullmatch(value)):
        raise BadInput(
            "expected base64 of at most 64 KiB, or sha256:HEX of a blob", code="bad_payload", field=field,
            hint="put what is larger as a blob",
        )  # fmt: skip
    return value


def _calls(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CALLS:
        raise BadInput(f"expected 1 to {MAX_CALLS} calls", code="wrong_type", field="calls")
    return tuple(payload_text(call, "calls") for call in value)


_CORES, _GPUS, _RETRIES = whole(1, MAX_CORES), whole(0, 1024), whole(0, MAX_RETRIES)
# Field -> how it is read. The keys are the table of task fields; docs/reference prints them from here.
FIELDS: dict[str, Callable[[Any], Any]] = {
    "name": lambda v: short_text(v, "name"),
    "command": _argv,
    "shell": _shell,
    "cwd": lambda v: short_text(v, "cwd", 4096),
    "env": _env,
    "stdin": lambda v: short_text(v, "stdin", 4096),
    "inputs": lambda v: texts_of(v, "inputs", MAX_FILES),
    "outputs": lambda v: paths(v, "outputs", MAX_FILES),
    "cores": lambda v: _CORES(v, "cores"),
    "memory": lambda v: parse_size(v, "memory"),
    "disk": lambda v: parse_size(v, "disk"),
    "gpus": lambda v: _GPUS(v, "gpus"),
    "time": lambda v: parse_duration(v, "time"),
    "retries": lambda v: _RETRIES(v, "retries"),
    "rerun": _rerun,
    "priority": _priority,
    "labels": labels,
    "params": _params,
    "array": parse_array,
    "after": lambda v: texts_of(v, "after", MAX_PARENTS),
    "function": lambda v: payload_text(v, "function"),
    "calls": _calls,
    "initializer": lambda v: payload_text(v, "initializer"),
    "python": lambda v: short_text(v, "python", 4096),
    **PLACING,
}


def parse_spec(data: Any) -> Spec:
    """One task table, checked."""
    if not isinstance(data, Mapping):
        raise BadInput("expected a table of task fields", code="want_object")
    got: dict[str, Any] = {}
    for field, value in data.items():
        if field not in FIELDS:
            raise BadInput(
                f"unknown field {echo(field)!r}",
                code="unknown_field",
                hint=did_you_mean(str(field), list(FIELDS)),
            )
        got[field] = FIELDS[field](value)
    ways = [way for way in ("command", "shell", "function") if way in got]
    if len(ways) > 1:
        raise BadInput(f"{ways[0]} and {ways[1]} together", code="required", field=ways[1], hint="give one of them")
    if "function" in got:
        _check_function(got)
    elif ours := next((name for name in got.get("env", ()) if name in FUNCTION_ENV), ""):
        raise _bad_env(ours)
    elif "calls" in got or "initializer" in got or "python" in got:
        raise BadInput("only a function has calls, initializer and python", code="required", field="function")
    elif not ways:
        raise BadInput("the command is missing", code="required", field="command", hint='e.g. command = ["echo", "hi"]')
    if "params" in got and "array" in got:
        raise BadInput("params and array together", code="bad_array", field="array", hint="give one of them")
    needs = Needs(**{k: got.pop(k) for k in ("cores", "memory", "disk", "gpus", "licences") if k in got})
    due_in, due_at = got.pop("deadline", (None, None))
    sweep: Optional[Sweep] = got.pop("params", None)
    throttle: Optional[int] = None
    if "array" in got:
        sweep, throttle = got.pop("array")
    if got.get("rerun", Rerun.SAFE) is Rerun.NEVER and got.get("retries"):
        raise BadInput("a task that is never re-run has no retries", code="range", field="retries", hint="leave it out")
    spec = Spec(needs=needs, sweep=sweep, throttle=throttle, due_in=due_in, due_at=due_at, **got)
    _check_holes(spec)
    check_placing(spec)
    return spec


def _check_function(got: Mapping[str, Any]) -> None:
    """A function is called, not swept, and moves no files."""
    if "calls" not in got:
        raise BadInput("the calls are missing", code="required", field="calls", hint="one for each task")
    for field in (
        "params",
        "array",
        "stdin",
        "inputs",
        "outputs",
        "setup",
        "container",
        "checkpoint",
        "checkpoint_every",
    ):
        if field in got:
            raise BadInput(
                "a function has no such field", code="unknown_field", field=field, hint="give it in its arguments"
            )


def _check_holes(spec: Spec) -> None:
    """In a sweep every `{placeholder}` must be a parameter; a plain task is taken as it stands."""
    if spec.sweep is None:
        return
    for text in texts(spec):
        for hole in holes(text):
            if hole not in spec.sweep.names:
                raise BadInput(
                    f"{{{echo(hole)}}} is not a parameter", code="unknown_param", field="command",
                    hint=f"{did_you_mean(hole, list(spec.sweep.names))}; write {{{{{echo(hole)}}}}} for the braces themselves",
                )  # fmt: skip


def texts(spec: Spec) -> list[str]:
    """Every text of a spec that may hold placeholders."""
    found = [spec.name, *spec.command, *spec.env.values(), *spec.inputs, *spec.outputs, *spec.setup, *spec.checkpoint]
    found += [text for text in (spec.shell, spec.cwd, spec.stdin) if text is not None]
    return found
