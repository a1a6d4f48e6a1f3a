"""The disk reserve: a file whose space is released when the disk is full.

With that space the reports of running work are still committed, the log is written and requests are answered. New work
is refused until the file could be made again [promise I10].
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

from shoal.model.file_names import RESERVE
from shoal.model.limits import MAX_RESERVE, RESERVE_SHARE
from shoal.model.quantities import show_size

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The file, allocated or released. Its methods may be called from any thread."""

    def __init__(self, folder: Path, most: int = MAX_RESERVE) -> None:
        self.path = folder / RESERVE
        self._lock = threading.Lock()
        disk = os.statvfs(folder)
        self.size = min(most, disk.f_blocks * disk.f_frsize // RESERVE_SHARE)
        self._is_possible = True  # False: this file system keeps no space for a file
        self._is_kept = False

    def open(self) -> str:
        """Allocate the space at a start, or release it at once on a disk that is full already; returns what is wrong."""
        if self.free() < self.size // 2:
            self.give_up()
        return "" if self.keep() else self.trouble()

    def free(self) -> int:
        """Bytes that are free beside the reserve."""
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize

    def has_space(self, wanted: int = 0) -> bool:
        """True if so many more bytes may be accepted and leave some for their consequences."""
        return self.free() - wanted >= self.size // 2

    def trouble(self) -> str:
        """The error text while the reserve is released."""
        return f"the disk is full, or nearly: {show_size(self.free())} are free"

    def keep(self) -> bool:
        """Allocate the space if there is enough for others, too; True if it is allocated now."""
        with self._lock:
            if self._is_kept or not self._is_possible:
                return True
            has = self._allocated()
            if has < self.size and self.free() + has < self.size * 3 // 2:
                return False
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    os.posix_fallocate(descriptor, 0, self.size)
                    os.ftruncate(descriptor, self.size)
                finally:
                    os.close(descriptor)
            except OSError as error:
                if error.errno in _FULL:
                    self._truncate()
                    return False
                self._is_possible = False
            self._is_kept = True
            return True

    def give_up(self) -> bool:
        """Release the space; True if there was some to release."""
        with self._lock:
            had = self._allocated()
            self._is_kept = False
            self._truncate()
            return had > 0 and self._is_possible

    def _allocated(self) -> int:
        try:
            return self.path.stat().st_blocks * 512
        except OSError:
            return 0

    def _truncate(self) -> None:
        with contextlib.suppress(OSError):  # there is no such file, or the disk fails
            os.truncate(self.path, 0)


def is_full(folder: Path) -> bool:
    """True if no file can grow there: SQLite reports some full disks and all quotas as plain I/O errors."""
    probe = folder / f"{RESERVE}.probe"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, b"x" * 65_536)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError as error:
        return error.errno in _FULL
    return False
