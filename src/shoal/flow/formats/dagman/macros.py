"""Macros of submit descriptions: `$(name)`, `$(name:default)`, `$ENV(NAME)`, parts of file names.

Some values are known only when an attempt begins, such as how often its task was retried. They become marks in the text,
which the shell that runs the node replaces (`node_script.py`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from shoal.flow.formats.dagman.source import wrong
from shoal.model.errors import echo

MARK = "\x01"  # around the name of a shell variable that is filled in when an attempt begins
LATE = {name: f"{MARK}{variable}{MARK}" for name, variable in (
    ("retry", "retry"), ("dag_status", "dag_status"), ("failed_count", "failed_count"), ("dagmanjobid", "dag_id"),
    ("dagid", "dag_id"),
)}  # fmt: skip
MAX_DEPTH = 32
_MACRO = re.compile(r"\$(\$|[A-Za-z_]+)?\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+]*")


def expand(text: str, macros: Mapping[str, str], env: Mapping[str, str], where: str) -> str:
    """The text with all macros replaced, also those in their values; an unknown one without a default is empty. `macros`:
    by names in small letters."""
    return _expand(text, macros, env, where, 0) if "$" in text else text


def _expand(text: str, macros: Mapping[str, str], env: Mapping[str, str], where: str, depth: int) -> str:
    if depth > MAX_DEPTH:
        raise wrong(where, f"a macro stands for itself: {echo(text)}", "one of them has to have a plain value")

    def value(found: re.Match[str]) -> str:
        function, body = found[1], found[2]
        if function == "$":
            hint = "HTCondor fills it in with what it knows of the machine; use SHOAL_* variables in the program"
            raise wrong(where, f"{echo(found[0])} is not known before a task runs", hint)
        if function is not None:
            return _call(function, _expand(body, macros, env, where, depth + 1), found[0], macros, env, where, depth)
        name, colon, default = body.partition(":")
        name = name.strip()
        known = macros.get(name.lower())
        if known is not None:
            return _expand(known, macros, env, where, depth + 1) if "$" in known else known
        if name.lower() == "dollar":
            return "$"
        if not _NAME.fullmatch(name):
            raise wrong(where, f"{echo(found[0])} is no macro", "write $(NAME)")
        return _expand(default, macros, env, where, depth + 1) if colon else ""

    return _MACRO.sub(value, text)


def _call(
    function: str, body: str, whole: str, macros: Mapping[str, str], env: Mapping[str, str], where: str, depth: int
) -> str:
    """The value of `$FUNCTION(body)`."""
    name, _, rest = body.partition(",")
    if function == "ENV":
        variable, colon, default = body.partition(":")
        return env.get(variable.strip(), default if colon else "")
    if function[0] == "F" and set(function[1:]) <= set("pdnxqaw"):
        return _part_of(function[1:], _of(name, macros, env, where, depth))
    if function in ("INT", "REAL"):
        text = _of(name, macros, env, where, depth)
        try:
            return str(int(float(text))) if function == "INT" else repr(float(text))
        except (ValueError, OverflowError):
            raise wrong(where, f"{echo(whole)}: {echo(text)!r} is no number", "give it one") from None
    if function == "CHOICE":
        items = [one.strip() for one in rest.split(",")]
        index = _of(name, macros, env, where, depth)
        if len(items) == 1 and items[0].lower() in macros:
            items = re.split(r"[,\s]+", _of(items[0], macros, env, where, depth).strip())
        if not index.isdigit() or int(index) >= len(items):
            raise wrong(where, f"{echo(whole)}: there is no item {echo(index)!r}", "they are counted from 0")
        return items[int(index)]
    raise wrong(where, f"{echo(whole)}: this function is not known", "known: ENV, F[pdnxqaw], INT, REAL, CHOICE")


def _of(name: str, macros: Mapping[str, str], env: Mapping[str, str], where: str, depth: int) -> str:
    """The value of a macro by its name, or the text itself."""
    known = macros.get(name.strip().lower())
    return _expand(known, macros, env, where, depth + 1) if known is not None else name.strip()


def _part_of(parts: str, path: str) -> str:
    """Parts of a file name: p path, d its last directory, n name, x extension, q in quotes."""
    folder, base = posixpath.split(path)
    stem, extension = posixpath.splitext(base)
    found = ""
    if "p" in parts:
        found += f"{folder}/" if folder else ""
    elif "d" in parts:
        found += f"{posixpath.basename(folder)}/" if folder else ""
    found += stem if "n" in parts else ""
    found += extension if "x" in parts else ""
    if not set(parts) & set("pdnx"):
        found = path
    return f'"{found}"' if "q" in parts else found
