"""The standard input of a task that is submitted from a pipe: taken only when asked for, never lost without a word.

A command in a `while read` loop has the loop's input, which it must not take; `echo x | shoal run -- cat` means the
task. Only the person knows which: `--stdin -` sends it, and without it input that nobody would get is refused [ADR 0028].
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import hashlib
import mmap
import os
import select
import stat
import termios
from typing import BinaryIO

from shoal.client.config import echo_path
from shoal.model.blobs import Bytes
from shoal.model.errors import BadInput, TooLarge
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_INLINE, MAX_STDIN
from shoal.model.quantities import show_size
from shoal.wire.payload import to_text

STDIN = "-"  # as a file name: what is piped into this command
PIECE = 1 << 20


@dataclass(frozen=True)
class SentInput:
    """Standard input that travels with a task: the text of the task field, and the bytes of its blob if it has one."""

    text: str
    blob: Bytes = b""


def check_unread() -> bool:
    """Refuse to leave input behind that was meant for the task; True if more may still come through a pipe."""
    with contextlib.suppress(OSError):
        mode = os.fstat(0).st_mode
        if stat.S_ISREG(mode) and os.fstat(0).st_size > os.lseek(0, 0, os.SEEK_CUR):
            raise _unread()
        if stat.S_ISFIFO(mode):
            waiting = array.array("i", [0])
            fcntl.ioctl(0, termios.FIONREAD, waiting)
            if waiting[0]:
                raise _unread()
            poll = select.poll()
            poll.register(0, select.POLLIN)
            return not poll.poll(0)  # else its writer has ended
    return False


def _unread() -> BadInput:
    return BadInput(
        "what is on standard input would not reach the task", code="unread_input", field="stdin",
        hint="--stdin - sends it, </dev/null leaves it out",
    )  # fmt: skip


def read_standard_input() -> SentInput:
    """All of our own standard input."""
    if os.isatty(0):
        hint = "pipe something into it, or name a file: --stdin FILE"
        raise BadInput("standard input is a terminal", code="terminal", field="stdin", hint=hint)
    with open(0, "rb", closefd=False) as file:
        return _take(file, "standard input")


def read_file(path: str, name: str) -> SentInput:
    """A file as standard input, for hosts that do not see it."""
    try:
        with open(path, "rb") as file:
            return _take(file, echo_path(name))
    except OSError as error:
        hint = "name a file that you can read"
        message = f"cannot read {echo_path(name)}: {error.strerror}"
        raise BadInput(message, code="no_such_file", field="stdin", hint=hint) from None


def _take(file: BinaryIO, name: str) -> SentInput:
    """Read it to its end: into memory if it is short, else into a file without a name."""
    head = file.read(MAX_INLINE + 1)
    if len(head) <= MAX_INLINE:
        return SentInput(to_text(head))
    digest, size = hashlib.sha256(), 0
    import tempfile  # most commands send no standard input

    with tempfile.TemporaryFile() as copy:
        piece = head
        while piece:
            size += len(piece)
            if size > MAX_STDIN:
                hint = f"at most {show_size(MAX_STDIN)}; put it into a file that the task reads"
                raise TooLarge(f"{name} is too long to be sent", code="too_large", field="stdin", hint=hint)
            digest.update(piece)
            copy.write(piece)
            piece = file.read(PIECE)
        copy.flush()
        return SentInput(f"sha256:{digest.hexdigest()}", memoryview(mmap.mmap(copy.fileno(), 0, prot=mmap.PROT_READ)))
