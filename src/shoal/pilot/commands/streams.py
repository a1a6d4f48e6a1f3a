"""The streams of a task: their files, how these stay bounded, and what of them is part of a report.

The files are open for appending only, so they may be cut under a process that writes [input E51].
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoal.model.file_names import beside, log_name
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.limits import MAX_LINE, MAX_STREAM
from shoal.pilot.host.disk_space import is_full

if TYPE_CHECKING:  # the guard imports this module, and stays small
    from shoal.wire.messages import Registered

_MARK_ROOM = 80
_TAIL = 512 * 1024  # of a stream that is cut: its head is as long as the bound allows
# A running task's file may grow so far beyond the bound: else each small write after the first cut would cost
# a copy of the tail.
SLACK = 64 * 1024 * 1024
FULL_KEPT = 1024 * 1024  # bytes of a stream that stay where it met a full disk
_BLANK = os.O_TMPFILE | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
_MODE = stat.S_IFREG | 0o600
_LENT = 64  # files without a name at a time: they are kept open, and a process may not open many
_FOLDERS = 8  # whose files without a name are kept


def shared_log_folder(registered: Registered) -> str:
    """The server's log folder where this host sees it, which the server's mark in it proves; else empty."""
    mark = os.path.join(registered.log_dir, registered.log_mark)
    return registered.log_dir if registered.log_mark and os.access(mark, os.R_OK) else ""


def log_paths(folder: str, attempt: str) -> tuple[str, str]:
    """Files of stdout and stderr below a log folder."""
    return log_paths_of(folder, parse_attempt(attempt))


def log_paths_of(folder: str, which: AttemptId) -> tuple[str, str]:
    """The same for an attempt that was parsed before."""
    run, element, number = which.run, which.element, which.number
    out, err = log_name(run, element, number, "stdout"), log_name(run, element, number, "stderr")
    return f"{folder}/{out}", f"{folder}/{err}"


def open_stream(path: str) -> int:
    """A file descriptor that appends; folders are made as needed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, flags, 0o600)


class Bound:
    """One stream file that is kept under its bound. Bytes left out are counted over all cuts.

    While `fd` is open it is what the task writes to; `is_blank`: there is no name for it yet. A bound of 0 is none: the
    file is the submitter's own, and stays as the task wrote it.
    """

    def __init__(self, path: str, fd: int = -1, is_blank: bool = False, most: int = MAX_STREAM) -> None:
        self.path, self.fd, self.is_blank = path, fd, is_blank
        self.error = 0  # the number of the error by which something that was written got lost
        self.left_out = 0  # bytes, over all cuts
        self.size = 0  # of the file, once it is finished
        self._mark, self._why = b"", b""
        self._most, self._slack = most, min(SLACK, most // 2)
        self._set_parts(most)

    def _set_parts(self, most: int) -> None:
        self._tail = min(_TAIL, (most - _MARK_ROOM) // 2)
        self._head = most - _MARK_ROOM - self._tail

    def look(self) -> bool:
        """Cut the file if it is over its bound; True if it was."""
        # A disk that fails here must not take the guard with it: the file is then longer or shorter than promised.
        try:
            if self._most and self._size() > self._most + self._slack:
                self._cut()
                return True
        except OSError as error:
            if is_full(error):
                self.error = error.errno or errno.EIO
        return False

    @property
    def is_large(self) -> bool:
        """True if space comes back when the file is cut as on a full disk."""
        try:
            return bool(self._most) and self._size() > FULL_KEPT
        except OSError:
            return False

    def make_space(self) -> None:
        """Cut the file of an attempt that is given back because the disk is full: what it wrote is not whole anyway, and
        would keep the disk full for whoever comes next."""
        if self.is_large:
            self._why = b": the disk was full"
            self._set_parts(FULL_KEPT)
            with contextlib.suppress(OSError):  # what was cut off made its space; the mark may not have got any
                self._cut()
            with contextlib.suppress(OSError):
                self.size = self._size()

    def name(self) -> None:
        """Give the file its name, and close it."""
        if self.is_blank:
            self.is_blank = False
            link = beside(self.path, str(os.getpid()))
            try:
                # A server that forgot a run in a crash removes the folder of its logs; the run that got its number writes there.
                os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
                # One of this name is of an attempt that the server forgot in a crash, and counts no more.
                os.link(_open_file(self.fd), link, src_dir_fd=self.fd, follow_symlinks=True)
                os.replace(link, self.path)
            except OSError as error:
                self.error = error.errno or errno.EIO
        self.close()

    def settle(self) -> None:
        """Close the file once the task has it, unless it has no name."""
        if not self.is_blank:
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def finish(self) -> bool:
        """Cut the file for the last time, and leave no empty one; True if it holds something."""
        try:
            self.size = self._size()
            if self._most and self.size > self._most:
                self._cut()
                self.size = self._size()
            if self.size > 0:
                self.name()
            elif self._most and not self.is_blank:
                os.unlink(self.path)
        except OSError as error:
            self.size = 1  # whoever reads it will see
            self.error = self.error or error.errno or errno.EIO
        self.close()
        return self.size > 0

    def _size(self) -> int:
        return (os.fstat(self.fd) if self.is_blank else os.stat(self.path)).st_size

    def _cut(self) -> None:
        """Head, a mark of what is missing, tail. What is written meanwhile may be lost."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        if self.is_blank:
            fd = os.open(_open_file(self.fd), flags)
        else:
            fd = os.open(self.path, flags | os.O_NOFOLLOW)
        try:
            kept = self._head + len(self._mark)  # the head, and the mark of the last cut: not the task's bytes
            tail = os.pread(fd, self._tail, max(kept, os.fstat(fd).st_size - self._tail))
            self.left_out += os.fstat(fd).st_size - kept - len(tail)
            self._mark = b"\n[... %d bytes left out by shoal%s ...]\n" % (self.left_out, self._why)
            os.ftruncate(fd, self._head)
            data = memoryview(self._mark + tail)
            while data:
                written = os.write(fd, data)
                if not written:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                data = data[written:]
        finally:
            os.close(fd)


class Blanks:
    """Stream files without a name, for attempts that are over in a moment: most of those never write anything, and
    what nobody wrote to serves the next one. Making and deleting two files took a tenth of the time of a command.
    """

    def __init__(self) -> None:
        self._free: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()  # by folder: (file, when it changed)
        self._lent: dict[int, int] = {}
        self._works = True
        self._tried = False

    def open(self, path: str, most: int = MAX_STREAM) -> Bound:
        """A file to write to, without a name if that can be; OSError if there is none."""
        if not self._works or len(self._lent) >= _LENT:
            return Bound(path, open_stream(path), most=most)
        folder = path.rpartition("/")[0]
        free = self._free.get(folder)
        if free:
            fd, changed = free.pop()
        else:
            fd = self._make(folder)
            if fd < 0:
                return Bound(path, open_stream(path), most=most)
            changed = os.fstat(fd).st_ctime_ns
        self._lent[fd] = changed
        return Bound(path, fd, is_blank=True, most=most)

    def finish(self, bound: Bound) -> bool:
        """As `Bound.finish`; keeps a file that can be used again."""
        changed = self._lent.pop(bound.fd, 0)
        if bound.is_blank:
            found = os.fstat(bound.fd)
            # The clock of the file system is too coarse to prove it alone.
            as_new = found.st_size == 0 and found.st_nlink == 0 and found.st_mode == _MODE
            if as_new and found.st_ctime_ns == changed:
                # The task may have changed how it is written to: the same open file goes to the next one.
                fcntl.fcntl(bound.fd, fcntl.F_SETFL, os.O_APPEND)
                os.lseek(bound.fd, 0, os.SEEK_SET)
                self._keep(bound.path.rpartition("/")[0], bound.fd, changed)
                return False
        return bound.finish()

    def name(self, bound: Bound) -> None:
        """Give the file of a longer attempt its name."""
        self._lent.pop(bound.fd, None)
        bound.name()

    def _keep(self, folder: str, fd: int, changed: int) -> None:
        self._free.setdefault(folder, []).append((fd, changed))
        if len(self._free) > _FOLDERS:
            for old, _ in self._free.popitem(last=False)[1]:
                os.close(old)

    def _make(self, folder: str) -> int:
        for _ in range(3):  # the folder may have to be made, and the first of all is a trial
            try:
                fd = os.open(folder, _BLANK, 0o600)
                if self._tried:
                    return fd
                # Not by our process number: each guard may be process 1 of its namespace.
                self._try(Bound(os.path.join(folder, f".trial-{os.urandom(8).hex()}"), fd, is_blank=True))
            except FileNotFoundError:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                    self._works = False  # this file system has no such files
            if not self._works:
                break
        return -1

    def _try(self, trial: Bound) -> None:
        """Try once whether a file can get a name here: else what a task wrote would be lost."""
        self._tried = True
        trial.name()
        try:
            os.unlink(trial.path)
        except OSError:
            self._works = False


def _open_file(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


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


def not_whole(message: str, left_out: Mapping[str, int], is_full: bool = False) -> str:
    """The message of a report whose streams lost so many bytes."""
    lost = " and ".join(
        f"{count:,} {'byte' if count == 1 else 'bytes'} of its {name}" for name, count in left_out.items()
    )
    why = "removed, to make space" if is_full else "left out: it wrote more than its max_output"
    was = "was" if [*left_out.values()] == [1] else "were"
    return f"{message + '; ' if message else ''}{lost} {was} {why}"


def remove(path: str) -> None:
    """Delete a file, if it is there."""
    with contextlib.suppress(OSError):
        os.unlink(path)
