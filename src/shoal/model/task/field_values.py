"""How the value of each task field is read: plain data in, the checked value out [protocol 3; GWP G5, G10; DIANE U10].

Every reader takes the value and the name of its field. Expressions are only bounded here; `sched.expr` parses them.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime, timezone
from typing import Any, Callable, NamedTuple, Optional

from shoal.model import limits
from shoal.model.blobs import is_digest
from shoal.model.errors import BadInput, echo
from shoal.model.people import check_name as check_site_name
from shoal.model.quantities import parse_duration, parse_size
from shoal.model.states import Rerun
from shoal.model.task.checks import carried, paths, short_text, texts_of, whole
from shoal.model.task.sweep import Axis, Sweep, Value, check_count, check_name, parse_array, parse_values

Reader = Callable[[Any, str], Any]
# What an executor tells its runners: its Python's version and path, `sys.argv` as JSON, and whether to seed random numbers
# for each call.
FUNCTION_ENV = ("SHOAL_PYTHON_VERSION", "SHOAL_PYTHONPATH", "SHOAL_ARGV", "SHOAL_RESEED")
MAX_TEXT = 4 * ((limits.MAX_INLINE + 2) // 3)  # of a payload inside a message
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_RESERVED = ("LD_PRELOAD", "LD_AUDIT")
_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./:@+-]{0,1023}")
_LICENCE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_LICENCES = whole(1, 1_000_000)
_CATEGORY = re.compile(r"([^%\s]+)%([1-9][0-9]{0,6})")
_CODE = re.compile(r"-?[0-9]{1,3}")
FINAL, SERVICE = "final", "service"  # roles of tasks in their run


def text(limit: int) -> Reader:
    """A reader of texts of at most so many bytes."""
    return lambda value, field: short_text(value, field, limit)


def texts(most: int) -> Reader:
    """A reader of lists of at most so many texts."""
    return lambda value, field: texts_of(value, field, most)


def files(most: int) -> Reader:
    """A reader of lists of at most so many files below the task's directory."""
    return lambda value, field: paths(value, field, most)


def argv(value: Any, field: str) -> tuple[str, ...]:
    """A program and its arguments."""
    if isinstance(value, str):
        raise BadInput(
            "command is one text", code="wrong_type", field=field,
            hint='write a list such as ["./sim", "--seed", "1"], or use the field `shell`',
        )  # fmt: skip
    try:
        line = "\0".join(value) if isinstance(value, list) else None
    except TypeError:
        line = None
    if line is None:
        raise BadInput("expected a list of texts", code="wrong_type", field=field)
    if (
        line.isascii()
        and len(line) < limits.MAX_ARGV_BYTES
        and line.count("\0") + 1 == len(value) <= limits.MAX_ARGV_ITEMS
        and value[0].strip()
    ):  # nearly every command: nothing of it needs a look at each word
        return (sys.intern(value[0]), *value[1:])
    if not value or not value[0].strip():
        raise BadInput("the command is empty", code="empty_command", field=field, hint='e.g. ["echo", "hi"]')
    if (
        len(value) > limits.MAX_ARGV_ITEMS
        or sum(len(word.encode("utf-8", "replace")) + 1 for word in value) > limits.MAX_ARGV_BYTES
    ):
        raise BadInput(
            "the command is too long", code="argv_too_long", field=field,
            hint=f"at most {limits.MAX_ARGV_ITEMS} words and {limits.MAX_ARGV_BYTES} bytes; pass large data in a file",
        )  # fmt: skip
    return tuple(carried(word, f"{field}[{at}]") for at, word in enumerate(value))


def stored_argv(value: list[str], field: str) -> tuple[str, ...]:
    """The same as the database keeps it: it was checked when it was submitted."""
    return (sys.intern(value[0]), *value[1:])


def shell_text(value: Any, field: str) -> str:
    """A script for the shell."""
    found = short_text(value, field, limits.MAX_ARGV_BYTES)
    if not found.strip():
        raise BadInput("the command is empty", code="empty_command", field=field, hint="e.g. 'sort a | uniq > b'")
    return found


def variables(value: Any, field: str) -> dict[str, str]:
    """Environment variables."""
    if not isinstance(value, dict) or len(value) > limits.MAX_ENV_ITEMS:
        raise BadInput(f"expected at most {limits.MAX_ENV_ITEMS} names with texts", code="wrong_type", field=field)
    for name, content in value.items():
        if not isinstance(name, str):
            raise bad_variable(name)
        is_ours = name.startswith("SHOAL_") and name not in FUNCTION_ENV
        if not _ENV_NAME.fullmatch(name) or name in _ENV_RESERVED or is_ours:
            raise bad_variable(name)
        short_text(content, f"{field}.{echo(name)}", limits.MAX_ENV_BYTES)
    return dict(value)


def bad_variable(name: object) -> BadInput:
    """The refusal of a variable that no task may set."""
    hint = "letters, digits and _; not SHOAL_*, LD_PRELOAD, LD_AUDIT"
    return BadInput(f"{echo(name)!r} cannot be set", code="bad_env_name", field="env", hint=hint)


class Category(NamedTuple):
    """Tasks of a run of which only so many run at once."""

    name: str
    most: int


def category(value: Any, field: str) -> Optional[Category]:
    """`io%2`: a name, and how many of those that have it may run at once."""
    found = _CATEGORY.fullmatch(short_text(value, field))
    if found is None:
        hint = "a name and a number, e.g. io%2: at most 2 of these tasks at once"
        raise BadInput(f"{echo(value)!r} is not a category", code="range", field=field, hint=hint)
    return Category(found[1], int(found[2]))


def codes(value: Any, field: str) -> tuple[int, ...]:
    """Exit codes; below 0: the number of a signal."""
    given = value if isinstance(value, list) and len(value) <= limits.MAX_CODES else None
    found = [int(one) if isinstance(one, str) and _CODE.fullmatch(one) else one for one in given or ()]
    if given is None or any(type(one) is not int or not -limits.MAX_SIGNAL <= one <= 255 for one in found):
        hint = f"at most {limits.MAX_CODES} whole numbers from 0 to 255, or -9 for signal 9"
        raise BadInput(f"{echo(value)!r} are no exit codes", code="range", field=field, hint=hint)
    return tuple(found)


def flag(value: Any, field: str) -> bool:
    """Yes or no."""
    if not isinstance(value, bool):
        raise BadInput("expected true or false", code="wrong_type", field=field)
    return value


def role(value: Any, field: str) -> str:
    """What a task is to its run, if it is not simply a part of it."""
    if value not in ("", FINAL, SERVICE):
        raise BadInput(f"{echo(value)!r} is not a role", code="range", field=field, hint=f"one of: {FINAL}, {SERVICE}")
    return str(value)


def priority(value: Any, field: str) -> float:
    """A number of either sign."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) <= limits.MAX_PRIORITY:
        raise BadInput(
            f"{echo(value)!r} is not a priority", code="range", field=field,
            hint=f"a number from -{limits.MAX_PRIORITY:g} to {limits.MAX_PRIORITY:g}; higher goes first",
        )  # fmt: skip
    return float(value)


def rerun_class(value: Any, field: str) -> Rerun:
    """What may happen when the pilot is lost."""
    if value not in [r.value for r in Rerun]:
        hint = "safe, exclusive or never"
        raise BadInput(f"{echo(value)!r} is not a re-run class", code="range", field=field, hint=hint)
    return Rerun(value)


def labels(value: Any, field: str) -> dict[str, str]:
    """A few names with texts."""
    if not isinstance(value, dict) or len(value) > limits.MAX_LABELS:
        raise BadInput(f"expected at most {limits.MAX_LABELS} names with texts", code="wrong_type", field=field)
    return {short_text(k, field): short_text(v, f"{field}.{echo(k)}") for k, v in value.items()}


def sweep(value: Any, field: str) -> Sweep:
    """`{x = "1..10", mode = ["a", "b"]}`: all combinations; a list of tables: one element each."""
    if isinstance(value, list):
        return _rows(value, field)
    if not isinstance(value, dict) or not value:
        raise BadInput("expected names with values", code="bad_param", field=field, hint='e.g. {x = "1..10"}')
    axes = []
    for name, values in value.items():
        check_name(name)
        if isinstance(values, str):
            axes.append(Axis(name, parse_values(values, name)))
        elif isinstance(values, list) and values:
            axes.append(Axis(name, (tuple(_parameter(v, name) for v in values),)))
        else:
            raise BadInput("no values", code="bad_array", field=name, hint='"1..10", "a,b" or a list that is not empty')
    return check_count(Sweep(tuple(axes)))


def _rows(rows: list[Any], field: str) -> Sweep:
    if not rows or not all(isinstance(row, dict) and row for row in rows):
        raise BadInput("expected rows of names with values", code="bad_param", field=field)
    for at, row in enumerate(rows):
        if set(row) != set(rows[0]):
            raise BadInput(f"row {at + 1} has other names than row 1", code="bad_param", field=field)
        for name, value in row.items():
            _parameter(value, check_name(name))
    return check_count(Sweep(rows=tuple(dict(row) for row in rows)))


def _parameter(value: Any, name: str) -> Value:
    if isinstance(value, str):
        return short_text(value, name, limits.MAX_PARAM_BYTES)
    if isinstance(value, bool) or (isinstance(value, (int, float)) and abs(value) < 1e300):
        return value
    raise BadInput(f"{echo(value)!r} is not a value", code="bad_param", field=name, hint="text, number or true/false")


def array(value: Any, field: str) -> tuple[Sweep, Optional[int]]:
    """An array as in Slurm, and how many of its elements may run at once."""
    return parse_array(value)


def stream_file(value: Any, field: str) -> str:
    """The name of a file that a stream is written to."""
    name = short_text(value, field, 4096)
    if not name.strip() or name.endswith("/") or "\0" in name:
        raise BadInput(f"{echo(name)!r} is not a file", code="bad_path_value", field=field, hint="e.g. out/{x}.txt")
    return name


def max_output(value: Any, field: str) -> int:
    """A size that holds more than the mark of what is left out."""
    size = parse_size(value, field)
    if size < limits.MIN_STREAM:
        hint = f"at least {limits.MIN_STREAM} bytes, e.g. 1M"
        raise BadInput(f"{echo(value)!r} is too little", code="range", field=field, hint=hint)
    return size


def payload(value: Any, field: str) -> str:
    """A pickled object: base64, or the name of the blob that holds it. It is never unpickled here."""
    if not isinstance(value, str):
        hint = "base64 of a pickle, or sha256:HEX of a blob"
        raise BadInput(f"expected a payload, found {echo(value)!r}", code="wrong_type", field=field, hint=hint)
    if not is_digest(value) and not (len(value) <= MAX_TEXT and _BASE64.fullmatch(value)):
        raise BadInput(
            "expected base64 of at most 64 KiB, or sha256:HEX of a blob", code="bad_payload", field=field,
            hint="put what is larger as a blob",
        )  # fmt: skip
    return value


def calls(value: Any, field: str) -> tuple[str, ...]:
    """A payload for each call."""
    if not isinstance(value, list) or not 1 <= len(value) <= limits.MAX_CALLS:
        raise BadInput(f"expected 1 to {limits.MAX_CALLS} calls", code="wrong_type", field=field)
    return tuple(payload(call, field) for call in value)


def expression(value: Any, field: str) -> str:
    """An expression over tags, not parsed yet."""
    if isinstance(value, str) and len(value.encode("utf-8", "replace")) > limits.MAX_EXPR_BYTES:
        raise BadInput(
            f"longer than {limits.MAX_EXPR_BYTES} bytes", code="expression_too_complex", field=field,
            hint="let tasks publish a tag that says the same (`$SHOAL_TAGS`)",
        )  # fmt: skip
    return short_text(value, field, limits.MAX_EXPR_BYTES).strip()


def sites(value: Any, field: str) -> str:
    """Names of sites, separated by commas, in one form."""
    names = {part.strip() for part in text(1024)(value, field).split(",")}
    for name in names - {"", "local"}:
        check_site_name(name, field)
    return ",".join(sorted(names - {""}))


def deadline(value: Any, field: str) -> tuple[Optional[float], Optional[float]]:
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
            f"{echo(value)!r} is not a time", code="bad_duration", field=field,
            hint='write for example "2026-11-16T08:00+01:00", or "2h" from now on',
        )  # fmt: skip
    try:
        return parse_duration(value, field), None
    except BadInput as error:
        hint = 'write "2h" from now on, or a time such as "2026-11-16T08:00"'
        raise BadInput(f"{echo(value)!r} is no deadline", code=error.code, field=field, hint=hint) from None


def shell_lines(value: Any, field: str) -> tuple[str, ...]:
    """Lines of shell."""
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list) or not 1 <= len(lines) <= limits.MAX_SETUP:
        raise BadInput(
            f"expected 1 to {limits.MAX_SETUP} lines of shell", code="wrong_type", field=field,
            hint='e.g. ["module load gcc", ". env/bin/activate"]',
        )  # fmt: skip
    found = tuple(short_text(line, field, 4096) for line in lines)
    if not any(line.strip() for line in found):
        raise BadInput("the lines are empty", code="empty_command", field=field, hint="leave the field out")
    return found


def image(value: Any, field: str) -> str:
    """The image of a container."""
    found = short_text(value, field, 1024)
    if not _IMAGE.fullmatch(found) or ".." in found.split("/"):
        raise BadInput(
            f"{echo(found)!r} is not an image", code="bad_container", field=field,
            hint='e.g. "docker://python:3.12", "debian:12" or the path of a .sif file',
        )  # fmt: skip
    return found


def licences(value: Any, field: str) -> tuple[tuple[str, int], ...]:
    """Names with counts, or a list of names for one of each."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        value = dict.fromkeys(value, 1)
    if not isinstance(value, dict) or not 1 <= len(value) <= limits.MAX_LICENCES:
        raise BadInput(
            f"expected 1 to {limits.MAX_LICENCES} names with numbers", code="wrong_type", field=field,
            hint="e.g. {matlab = 1}",
        )  # fmt: skip
    for name, count in value.items():
        if not isinstance(name, str) or not _LICENCE.fullmatch(name):
            raise BadInput(f"{echo(name)!r} is not the name of a licence", code="bad_name", field=field)
        _LICENCES(count, f"{field}.{name}")
    return tuple(sorted(value.items()))


def interval(value: Any, field: str) -> float:
    """Seconds between checkpoints that travel; 0 stands for never while the task runs."""
    if value in (0, "0", "0s") and not isinstance(value, bool):
        return 0.0
    seconds = parse_duration(value, field)
    if seconds < limits.MIN_CHECKPOINT_EVERY:
        raise BadInput(
            f"{echo(value)!r} is too often", code="range", field=field,
            hint=f"at least {limits.MIN_CHECKPOINT_EVERY:g} s; 0: only when the task ends",
        )  # fmt: skip
    return seconds
