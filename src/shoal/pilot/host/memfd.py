"""Files that are only in memory: what must reach a library or a program by a path, and never a disk
[security S7, S12]."""

from __future__ import annotations

import errno
import os


def hold(data: bytes, inherit: bool = False) -> int:
    """A file that holds `data`, open and at its beginning; `inherit`: a program we become has it too."""
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, "this Python cannot make files in memory")
    fd = os.memfd_create("shoal", 0 if inherit else os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def path_of(fd: int) -> str:
    """The path by which this process reaches an open file."""
    return f"/proc/self/fd/{fd}"
