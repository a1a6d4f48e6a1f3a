"""Whether tasks and this pilot can write to their folders: a full disk is the host's failure, not the task's.

A task writes to its streams itself, so nobody here sees the error that it got, and many programs check none. What can
be known is whether the folder is full: a trial writes one page and is certain, also where a quota and not the disk
is used up. It costs little, but not nothing, so its result holds for a moment while much is left.

A folder that was full only between two trials, and has space again when the attempt ends, is not noticed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable

TRUST = 0.1  # seconds for which a good trial holds
PLENTY = 16 * 1024 * 1024  # bytes: with less left, every call is a trial
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE})
_PAGE = b"\0" * 4096


def is_full(error: OSError) -> bool:
    """True if this error is the host's, which has no space or a broken disk, and not of whoever wrote."""
    return error.errno in FULL


def no_space(folder: str, number: int, doing: str) -> str:
    """The message on a folder that is full."""
    what = "no space left" if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else os.strerror(number).lower()
    return f"{what} in {folder} of {socket.gethostname()} while {doing}"


def free(folder: str) -> int:
    """Bytes that may be written there."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


class Space:
    """Tries folders, each as often as needed."""

    def __init__(self) -> None:
        self._good: dict[str, float] = {}  # folder -> until when its last trial holds

    def reason(self, folders: Iterable[str], now: float, doing: str) -> str:
        """Why nothing can be written to one of these folders now; empty while it can."""
        for folder in folders:
            number = self.trouble(folder, now)
            if number:
                return no_space(folder, number, doing)
        return ""

    def trouble(self, folder: str, now: float) -> int:
        """The number of the error that whoever writes in this folder gets now; 0: none."""
        try:
            space = os.statvfs(folder)
        except FileNotFoundError:
            return 0  # nobody has written there yet
        except OSError as error:
            return error.errno if error.errno in FULL else 0
        if now < self._good.get(folder, 0.0) and space.f_bavail * space.f_frsize >= PLENTY:
            return 0
        number = _try(folder)
        if number:
            self._good.pop(folder, None)
        else:
            if len(self._good) > 64:
                self._good.clear()
            self._good[folder] = now + TRUST
        return number


def _try(folder: str) -> int:
    """Write a page to a file, without a name where that is possible, and remove it."""
    path = ""
    try:
        try:
            fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            path = os.path.join(folder, f".trial-{os.getpid()}")
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, _PAGE)
        finally:
            os.close(fd)  # over a network the error may come only here
    except OSError as error:
        return error.errno if error.errno in FULL else 0
    finally:
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)
    return 0
