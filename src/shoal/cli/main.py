"""The `shoal` command: runs one command line and turns every error into one line and an exit status.

0 all succeeded, 1 a task did not or standard output cannot be written, 2 the command line or a file is wrong, 3 refused,
4 no answer, 130 Ctrl-C. `shoal run` of one command has its exit status, and 125 instead of 3, 4 and lost output.

Everything large is imported inside `invoke`, so that Ctrl-C is handled while it is imported, too.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from shoal.client.console import OutputLost, telling
from shoal.model.errors import BadInput, ShoalError, Unreachable

OK, FAILED, USAGE, REFUSED, UNREACHABLE, INTERRUPTED, INTERNAL = 0, 1, 2, 3, 4, 130, 70
GARBAGE = (50_000, 20, 100)  # what a command imports, and the rows that it prints, are hardly ever garbage
OWN_FAILURE = 125  # of `shoal run` with one command, whose own exit status it has otherwise


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit status and never raises."""
    try:
        return _invoke(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def _invoke(arguments: Sequence[str] | None) -> int:
    import click

    from shoal.cli.commands import cli, line_of
    from shoal.cli.session import say

    told: list[str] = []  # notes that are printed when the command has succeeded
    try:
        status = cli.main(
            args=list(arguments) if arguments is not None else None, prog_name="shoal", standalone_mode=False, obj=told
        )
        if sys.stdout is not None:
            sys.stdout.flush()  # what cannot be written is told now, not when the interpreter ends
        for note in told:
            say(note)
        return status if isinstance(status, int) else OK
    except ShoalError as error:
        say(error.line)
        return status_of(error)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        say(line_of(error))
        return USAGE
    except BrokenPipeError:
        # The reader of the output has ended (`| head`): there is nothing to say, and nothing more to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if isinstance(error, OSError) and (lost := _lost_directory()) is not None:
            say(lost.line)
            return USAGE
        if os.environ.get("SHOAL_DEBUG"):
            raise
        say(f"internal error: {type(error).__name__}: {error}; please report it (SHOAL_DEBUG=1 shows where)")
        return INTERNAL


def _lost_directory() -> BadInput | None:
    """The error if the current directory was deleted under us, which any access to files may have met."""
    from shoal.client.working_directory import working_directory

    try:
        working_directory()
    except BadInput as error:
        return error
    return None


def status_of(error: ShoalError) -> int:
    """The exit status of an error [input E0]."""
    if isinstance(error, BadInput):
        return USAGE
    if isinstance(error, OutputLost):
        return FAILED
    return UNREACHABLE if isinstance(error, Unreachable) else REFUSED


def main() -> None:
    """The entry point of the `shoal` command."""
    gc.set_threshold(*GARBAGE)
    for stream in (sys.stdout, sys.stderr):
        # A name in another alphabet must not end a command on a terminal that cannot show it.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    if sys.stdout is not None:
        sys.stdout = telling(sys.stdout)
    sys.exit(invoke())
