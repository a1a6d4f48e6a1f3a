"""What goes to the terminal: notes to the person in front of it, and results, whose loss is told."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from shoal.model.errors import ShoalError, printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def say(text: str) -> None:
    """Write a note to standard error, so that standard output can be piped."""
    with contextlib.suppress(OSError, ValueError):  # a closed standard error is no reason to lose results
        print(f"shoal: {printable(text)}", file=sys.stderr, flush=True)


class OutputLost(ShoalError):
    """What a command prints could not be written: the person's disk is full, which is no defect of Shoal."""

    code = "output_lost"


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as error:
            # What is still in buffers would fail again, in whatever tells of this and when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            message = f"cannot write to standard output: {error.strerror}"
            raise OutputLost(message, code="output_lost") from None


def telling(stream: TextIO) -> TextIO:
    """A stream to the same file that raises `OutputLost`; any that is not a file's is left as it is."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        raw = _Output(stream.fileno(), "wb", closefd=False)
    except OSError:
        return stream
    by_line = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, stream.errors, newline="\n", line_buffering=by_line
    )
