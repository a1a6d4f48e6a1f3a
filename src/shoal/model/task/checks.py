"""Checks of single values that callers send, so that a wrong value is refused in the same way whoever sends it."""

from __future__ import annotations

from typing import Any, Callable

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_NAME


def short_text(value: Any, field: str, limit: int = MAX_NAME) -> str:
    """Text of a bounded length."""
    if not isinstance(value, str):
        raise BadInput(f"expected text, found {echo(value)!r}", code="wrong_type", field=field, hint="put it in quotes")
    if len(value.encode("utf-8", "replace")) > limit:
        raise BadInput(f"longer than {limit} bytes", code="too_long", field=field, hint="shorten it, or use a file")
    return carried(value, field)


def carried(text: str, field: str) -> str:
    """Text that a process and a message can carry."""
    if "\0" in text:
        raise BadInput("holds a NUL character", code="nul_in_argument", field=field, hint="no program can be given one")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(
            f"is not UTF-8 at character {error.start}",
            code="bad_utf8",
            field=field,
            hint="rename the file, or pass a pattern",
        ) from None
    return text


def whole(low: int, high: int) -> Callable[[Any, str], int]:
    """A check for whole numbers of a range."""

    def check(value: Any, field: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadInput(
                f"{echo(value)!r} is out of range",
                code="range",
                field=field,
                hint=f"a whole number from {low} to {high}",
            )
        return value

    return check


def texts_of(value: Any, field: str, most: int) -> tuple[str, ...]:
    """A bounded list of texts that are not empty."""
    if not isinstance(value, list) or len(value) > most:
        raise BadInput(f"expected a list of at most {most} texts", code="wrong_type", field=field)
    found = tuple(short_text(item, field, 4096) for item in value)
    if any(not item for item in found):
        raise BadInput("an empty name", code="wrong_type", field=field)
    return found


def texts_by_name(value: Any, field: str, most: int, limit: int) -> dict[str, str]:
    """A bounded table of short texts."""
    if not isinstance(value, dict) or len(value) > most:
        raise BadInput(f"expected at most {most} names with texts", code="wrong_type", field=field)
    return {short_text(name, field): short_text(text, f"{field}.{echo(name)}", limit) for name, text in value.items()}


def paths(value: Any, field: str, most: int) -> tuple[str, ...]:
    """Names of files below the task's directory."""
    names = texts_of(value, field, most)
    for name in names:
        parts = name.split("/")
        if name[0] in "/-" or ".." in parts or "." in parts or "" in parts:
            raise BadInput(
                f"{echo(name)!r} is not a path below the task's directory", code="bad_path", field=field,
                hint="relative, without .., not ending in /",
            )  # fmt: skip
    if len(set(names)) < len(names):
        raise BadInput("one file is named twice", code="duplicate_output", field=field)
    return names
