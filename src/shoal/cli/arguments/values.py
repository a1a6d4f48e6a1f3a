"""Values of parameters that are not written out: lines of a file or of standard input, and names of files by a pattern.

`x=@list.txt` (one value a line), `x=@-` or `x=-` (standard input), `f=*.txt` (files, sorted). They may stand in a list with
others: `f=*.txt,@more`. `x==TEXT` is one value, the text as it stands. The server gets the values, not the patterns.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from shoal.client.config import echo_path
from shoal.client.console import say
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_BULK_BODY
from shoal.model.task.sweep import Axis, Value, check_name, literal, parse_values, sweep_of

_PATTERN = re.compile(r"[*?]|\[[^]]+\]")


class ValueReader:
    """Reads the values of the parameters of one submission, seen from its directory; standard input is read once."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._stdin_of = ""  # the parameter that standard input was read for

    def expand(self, name: str, text: str) -> str | list[Value]:
        """The values that a text describes; the text itself where nothing has to be looked up."""
        if text.startswith("="):
            return [text[1:]]
        items = ["@-"] if text == "-" else text.split(",")
        if not any(item.startswith("@") or _PATTERN.search(item) for item in items):
            return text
        found: list[Value] = []
        for item in items:
            if item.startswith("@"):
                found += self._lines(name, item[1:])
            elif _PATTERN.search(item):
                found += self._files(name, item)
            else:
                axis = Axis(name, parse_values(item, name))
                found += [axis.at(k) for k in range(axis.count)]
        return found

    def _files(self, name: str, pattern: str) -> list[Value]:
        found = sorted(glob.glob(os.path.expanduser(pattern), root_dir=self._directory, recursive=True))
        if not found:
            raise BadInput(
                f"{echo(pattern)!r} matches no file", code="no_such_file", field=name,
                hint=f"check the pattern; for the text itself write {name}=={echo(pattern)}",
            )  # fmt: skip
        return list(found)

    def _lines(self, name: str, file: str) -> list[Value]:
        data, where = self._read(name, file)
        if len(data) > MAX_BULK_BODY:
            raise BadInput(f"{where} is too large", code="too_large", field=name, hint=f"at most {MAX_BULK_BODY} bytes")
        try:
            lines = data.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{where} is not UTF-8 at byte {error.start}", code="bad_utf8", field=name, hint="save it as UTF-8"
            ) from None
        found = [literal(line) for line in lines if line.strip()]
        if not found:
            raise BadInput(f"{where} has no values", code="bad_array", field=name, hint="write one value a line")
        return found

    def _read(self, name: str, file: str) -> tuple[bytes, str]:
        """The bytes of a file or of standard input, and its name for messages."""
        if file == "-":
            if self._stdin_of:
                raise BadInput(
                    f"standard input is read for {self._stdin_of} already", code="bad_array", field=name,
                    hint=f"put the values of {name} into a file: {name}=@FILE",
                )  # fmt: skip
            self._stdin_of = name
            if sys.stdin.isatty():
                say(f"reading the values of {name}, one a line, until Ctrl-D")
            return sys.stdin.buffer.read(MAX_BULK_BODY + 1), "standard input"
        try:
            with open(os.path.join(self._directory, os.path.expanduser(file)), "rb") as opened:
                return opened.read(MAX_BULK_BODY + 1), echo_path(file)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no such name"
            raise BadInput(
                f"cannot read {echo_path(file)!r}: {why}", code="no_such_file", field=name,
                hint=f"name a file with one value a line; for the text itself write {name}==@{echo(file)}",
            ) from None  # fmt: skip


def params_of(axes: Sequence[str], directory: str) -> dict[str, str | list[Value]]:
    """The parameters that arguments such as `x=1..10` and `f=*.txt` give; an error names the argument."""
    reader = ValueReader(directory)
    found: dict[str, str | list[Value]] = {}
    for axis in axes:
        name, _, text = axis.partition("=")
        if check_name(name) in found:
            raise BadInput(f"{name} is given twice", code="bad_param", field="params", hint="name each once")
        found[name] = reader.expand(name, text)
    sweep_of([axis for axis in axes if isinstance(found[axis.partition("=")[0]], str)])
    return found


def expand_tables(tables: Any, directory: str) -> Any:
    """The tables of a task file with the values looked up; what is not of the right form is left for the parser."""
    if not isinstance(tables, list):
        return tables
    reader = ValueReader(directory)
    found = []
    for table in tables:
        params = table.get("params") if isinstance(table, dict) else None
        if isinstance(params, dict):
            looked_up = {k: reader.expand(k, v) if isinstance(v, str) else v for k, v in params.items()}
            table = {**table, "params": looked_up}
        found.append(table)
    return found
