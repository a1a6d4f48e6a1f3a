"""What a task writes: where its two streams go, how they stay bounded, and what of them travels in a report.

The files are open for appending only, so they may be cut under a process that writes [E51].
"""

from __future__ import annotations

import contextlib
import os

from shoal.model.ids import parse_attempt
from shoal.model.layout import log_name
from shoal.model.limits import MAX_LINE, MAX_STREAM

_MARK_ROOM = 80
_HALF = (MAX_STREAM - _MARK_ROOM) // 2
# A running task's file may grow so far beyond the bound: else each small write after the first cut would cost
# half a stream of copying.
SLACK = MAX_STREAM // 2


def log_paths(folder: str, attempt: str) -> tuple[str, str]:
    """Files of stdout and stderr below a log folder."""
    which = parse_attempt(attempt)
    out, err = (log_name(which.run, which.element, which.number, stream) for stream in ("stdout", "stderr"))
    return os.path.join(folder, out), os.path.join(folder, err)


def open_stream(path: str) -> int:
    """A file descriptor that appends; folders are made as needed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, flags, 0o600)


class Bound:
    """One stream file that is kept under its bound. Bytes left out are counted over all cuts."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._left_out = 0
        self._mark = b""

    @property
    def is_cut(self) -> bool:
        """Has it lost its middle?"""
        return bool(self._mark)

    def look(self, slack: int = SLACK) -> bool:
        """Cut the file if it is over; was it?"""
        # A disk that fails here must not take the guard with it: the file is then longer than promised.
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_size > MAX_STREAM + slack:
                self._cut()
                return True
        return False

    def finish(self) -> None:
        """Nothing writes any more: cut for the last time, and leave no empty file."""
        self.look(slack=0)
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_size == 0:
                os.unlink(self.path)

    def _cut(self) -> None:
        """Head, a mark of what is missing, tail. What is written meanwhile may be lost."""
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            kept = _HALF + len(self._mark)  # the head, and the mark of the last cut: not the task's bytes
            tail = os.pread(fd, _HALF, max(kept, os.fstat(fd).st_size - _HALF))
            self._left_out += os.fstat(fd).st_size - kept - len(tail)
            self._mark = b"\n[... %d bytes left out by shoal ...]\n" % self._left_out
            os.ftruncate(fd, _HALF)
            os.write(fd, self._mark + tail)
        finally:
            os.close(fd)


def tail(path: str, limit: int) -> str:
    """The last `limit` bytes as text."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            text = file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""
    # A byte that is no text becomes three: count again.
    return text.encode("utf-8")[-limit:].decode("utf-8", "ignore")


def last_line(path: str) -> str:
    """The last line that is not empty, or its end where it is long."""
    for line in reversed(tail(path, 2 * MAX_LINE).splitlines()):
        if line.strip():
            return line.encode("utf-8")[-MAX_LINE:].decode("utf-8", "ignore")
    return ""


def remove(path: str) -> None:
    """Delete a file, if it is there."""
    with contextlib.suppress(OSError):
        os.unlink(path)
