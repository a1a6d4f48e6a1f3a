"""What calls write, inside a runner: each call that writes something has files of its own.

Descriptors 1 and 2 are files opened for appending, so C code and child processes write there too. After a call that
wrote, they become new files, and the pilot takes the old ones away: a child that a call left behind goes on writing
into that call's file and into no other's. Threads of the interpreter itself cannot be distinguished.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from collections.abc import MutableSequence
from typing import Any

STREAMS = ((1, "out"), (2, "err"))


class Output:
    """The two streams of this process. `numbers[first + n]` is, for the pilot, the number of the present file."""

    def __init__(self, folder: str, numbers: MutableSequence[int], first: int) -> None:
        self._folder, self._numbers, self._first = folder, numbers, first
        self._streams: tuple[Any, Any] = (sys.stdout, sys.stderr)
        for fd, name in STREAMS:
            self._turn(fd, name)
        for stream in self._streams:
            # A line at a time: it can be followed while the call runs, and is there when the call crashes.
            stream.reconfigure(line_buffering=True)
        _unbuffer_c()
        with contextlib.suppress(Exception):
            faulthandler.enable()  # where in the Python code a crash was, in the call's own stderr

    def wrote(self) -> bool:
        """True if something was written to a stream since the last `take`. Cheap, since it runs after every call."""
        out, err = self._streams
        try:
            out.flush()
            err.flush()
            if sys.stdout is not out or sys.stderr is not err:
                self._flush_others()
            return os.lseek(1, 0, os.SEEK_END) + os.lseek(2, 0, os.SEEK_END) > 0
        except (OSError, ValueError):
            return True  # the function closed one

    def _flush_others(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            # Whatever a function has put there.
            with contextlib.suppress(Exception):
                stream.flush()

    def take(self, is_shared: bool) -> dict[str, list[int]]:
        """Put away what was written: number and size of the file by stream. `is_shared`: children may still write."""
        taken: dict[str, list[int]] = {}
        for fd, name in STREAMS:
            try:
                size = os.lseek(fd, 0, os.SEEK_END)
            except OSError:
                size = -1
            number = self._numbers[self._first + fd - 1]
            if size > 0:
                taken[name] = [number, size]
            elif is_shared:
                with contextlib.suppress(OSError):
                    os.unlink(f"{self._folder}/{name}{number}")
            if size or is_shared:
                self._turn(fd, name)
        return taken

    def _turn(self, fd: int, name: str) -> None:
        number = self._numbers[self._first + fd - 1] + 1
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        new = os.open(f"{self._folder}/{name}{number}", flags, 0o600)
        os.dup2(new, fd)
        if new != fd:
            os.close(new)
        self._numbers[self._first + fd - 1] = number


def _unbuffer_c() -> None:
    """What C code prints must not wait in a buffer until another call runs."""
    with contextlib.suppress(Exception):
        import ctypes

        libc = ctypes.CDLL(None)
        unbuffered = 2  # _IONBF
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, unbuffered, ctypes.c_size_t(0))
