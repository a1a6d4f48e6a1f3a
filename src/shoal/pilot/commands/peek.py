"""The files of a running attempt, for somebody who looks from outside: a directory listed, a part of a file read.

Nothing outside the attempt's directory is shown. A path is resolved, and then opened component by component without
following links, so that a link which the task puts there meanwhile leads nowhere.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Optional

from shoal.model.errors import echo
from shoal.model.limits import MAX_ENTRIES, MAX_PEEK
from shoal.wire.messages import FileAnswer, FileEntry, Order


class _NotShown(Exception):
    """Why something is not shown, and the code of that error."""

    def __init__(self, why: str, code: str) -> None:
        super().__init__(why)
        self.code = code


def answer(directory: str, order: Order) -> FileAnswer:
    """The answer to an order to list or read something in the directory of an attempt; never raises."""
    try:
        root = os.path.realpath(directory)
        with _opened(root, order.path, is_directory=order.kind == "list_files") as descriptor:
            if order.kind == "list_files":
                return _list(descriptor, order, directory)
            return _read(descriptor, order, directory)
    except _NotShown as refusal:
        return FileAnswer(order.request, str(refusal), refusal.code, directory=directory)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return FileAnswer(order.request, f"{_name(order.path)}: {why}", "unreadable", directory=directory)


def not_running(order: Order) -> FileAnswer:
    """The answer about an attempt that has not begun, or is over."""
    return FileAnswer(order.request, "it is just being started or ended", "not_running")


def _name(path: str) -> str:
    return echo(path) or "its directory"


@contextlib.contextmanager
def _opened(root: str, path: str, is_directory: bool) -> Iterator[int]:
    """An open file or directory below `root`."""
    if "\0" in path or os.path.isabs(path) or ".." in path.split("/"):
        raise _NotShown(f"{_name(path)} leads out of the task's directory", "leads_out")
    found = os.path.realpath(os.path.join(root, path))
    if found != root and not found.startswith(root.rstrip("/") + "/"):
        raise _NotShown(
            f"{_name(path)} is a link that leads out of the task's directory, to {echo(found)}", "leads_out"
        )
    inside = os.path.relpath(found, root)
    parts = [part for part in inside.split("/") if part != "."]
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for at, part in enumerate(parts):
            is_last = at == len(parts) - 1
            below = _open_below(descriptor, part, path, is_directory or not is_last, is_last)
            os.close(descriptor)
            descriptor = below
        if os.fstat(descriptor).st_dev in _kernels():
            raise _NotShown(f"{_name(path)} belongs to the kernel, not to the task", "leads_out")
        if not is_directory and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _NotShown(f"{_name(path)} is not a regular file", "not_regular_file")
        yield descriptor
    finally:
        os.close(descriptor)


def _kernels() -> set[int]:
    """The devices of file systems that tell about processes: about this one they would tell its secrets."""
    found = set()
    for folder in ("/proc", "/sys"):
        with contextlib.suppress(OSError):
            found.add(os.stat(folder).st_dev)
    return found


def _open_below(folder: int, name: str, path: str, is_directory: bool, is_last: bool) -> int:
    kind = os.O_DIRECTORY if is_directory else os.O_NONBLOCK  # a pipe must not be waited for
    try:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | kind, dir_fd=folder)
    except FileNotFoundError:
        raise _NotShown(f"there is no {_name(path)} in the task's directory", "no_such_file") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _NotShown(f"{_name(path)} is a link that has just changed", "leads_out") from None
        if error.errno == errno.ENOTDIR and is_directory:
            raise _NotShown(f"{_name(path)} is not a directory", "not_directory") from None
        if error.errno == errno.ENXIO and is_last:
            raise _NotShown(f"{_name(path)} is not a regular file", "not_regular_file") from None
        raise


def _list(descriptor: int, order: Order, directory: str) -> FileAnswer:
    names = sorted(os.listdir(descriptor))
    entries = [_entry(descriptor, name) for name in names[:MAX_ENTRIES]]
    return FileAnswer(order.request, size=len(names), entries=[one for one in entries if one], directory=directory)


def _entry(folder: int, name: str) -> Optional[FileEntry]:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None  # removed since
    mode = found.st_mode
    kind = (
        "directory"
        if stat.S_ISDIR(mode)
        else "link"
        if stat.S_ISLNK(mode)
        else "file"
        if stat.S_ISREG(mode)
        else "other"
    )
    shown = name.encode("utf-8", "backslashreplace").decode()
    return FileEntry(shown, kind, found.st_size if kind == "file" else 0, found.st_mtime)


def _read(descriptor: int, order: Order, directory: str) -> FileAnswer:
    size = os.fstat(descriptor).st_size
    offset = max(0, size + order.offset) if order.offset < 0 else order.offset
    data = os.pread(descriptor, max(0, min(order.count, MAX_PEEK)), offset) if offset < size else b""
    return FileAnswer(
        order.request, data=base64.b64encode(data).decode("ascii"), offset=offset, size=size, directory=directory
    )
