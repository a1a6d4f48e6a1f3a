"""Scripts with `#SHOAL` lines, in the manner of `#SBATCH`: `shoal run [OPTIONS] job.sh [ARGUMENTS]`.

Lines that begin with `#SHOAL` and stand before the first command of the script are options of the command line, which itself
comes behind them: of an option that takes one value the command line's counts. A script begins with `#!`.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import NamedTuple

import click

from shoal.client.config import echo_path
from shoal.client.console import say
from shoal.model.errors import ShoalError

MAX_HEAD = 1 << 20  # bytes of a script that are looked at for directives
_DIRECTIVE = re.compile(r"#SHOAL(?:[ \t]+(.*))?")
_SHELL_SUFFIXES = (".sh", ".bash")


class Directive(NamedTuple):
    """One `#SHOAL` line."""

    line: int
    words: list[str]


def is_script(name: str) -> bool:
    """True if an argument is a file that begins with `#!`."""
    return not name.endswith(".toml") and os.path.isfile(name) and _head(name, 2).startswith("#!")


def lacks_interpreter(name: str) -> bool:
    """True if an argument is a file that looks like a script for a shell, but does not begin with `#!`."""
    return name.endswith(_SHELL_SUFFIXES) and os.path.isfile(name) and not is_script(name)


def command_of(name: str) -> list[str]:
    """The command that runs a script: itself, or its interpreter if it may not be executed."""
    path = name if "/" in name else f"./{name}"
    if os.access(path, os.X_OK):
        return [path]
    first = _head(name, 4096).splitlines()[0]
    return [*first[2:].strip().split(None, 1), path]


def options_of(command: click.Command, context: click.Context, name: str) -> list[str]:
    """The options that a script's directives give, each line checked; an error names the line."""
    found: list[str] = []
    for line, words in directives(name):
        try:
            _check(command, context, words)
        except click.UsageError as error:
            from shoal.cli.commands import line_of

            raise click.UsageError(f"{echo_path(name)}:{line}: {line_of(error)}") from None
        except ShoalError as error:
            text = type(error)(error.message, code=error.code, field=error.field).line
            raise type(error)(f"{echo_path(name)}:{line}: {text}", code=error.code, hint=error.hint) from None
        found += words
    return found


def directives(name: str) -> list[Directive]:
    """The `#SHOAL` lines before a script's first command; notes for those behind it, and for `#SBATCH` lines."""
    found: list[Directive] = []
    in_head, slurm = True, 0
    for line, text in enumerate(_head(name, MAX_HEAD).splitlines(), 1):
        match = _DIRECTIVE.fullmatch(text.rstrip())
        if match is None:
            slurm = slurm or (line if in_head and text.startswith("#SBATCH") else 0)
            in_head = in_head and (not text.strip() or text.lstrip().startswith("#"))
        elif not in_head:
            say(f"note: {echo_path(name)}:{line}: this #SHOAL line is not read: it stands behind the first command")
        else:
            try:
                found.append(Directive(line, shlex.split(match[1] or "", comments=True)))
            except ValueError as error:
                what = str(error)[:1].lower() + str(error)[1:]
                raise click.UsageError(f"{echo_path(name)}:{line}: {what} (close the quotes)") from None
    if slurm and not found:
        say(f"note: {echo_path(name)}:{slurm}: #SBATCH lines are not read; write #SHOAL with options of `shoal run`")
    return found


def _check(command: click.Command, context: click.Context, words: list[str]) -> None:
    """Raise what is wrong with one line: an unknown option, a wrong value, a word that is no option."""
    from shoal.cli.tasks.submission import field_value, given_fields

    if {"-h", "--help"} & set(words):
        raise click.UsageError("--help is not for scripts (leave it out)", context)
    probe = click.Context(command, parent=context.parent, info_name=context.info_name)
    click.Command.parse_args(command, probe, list(words))
    if probe.params.get("arguments"):
        extra = probe.params["arguments"][0]
        raise click.UsageError(f"{echo_path(extra)!r} is no option (a #SHOAL line has options only)", context)
    for field in given_fields(probe.params):
        field.read(field_value(field, probe.params[field.name]), field.name)


def _head(name: str, most: int) -> str:
    """The beginning of a file; empty if it cannot be read."""
    try:
        with open(name, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
