"""Files that a command writes whole or not at all, where a person named them.

A regular file is replaced; of a symbolic link the file that it leads to, so that the link stays. A device or a pipe is
written to: a file put in its place would take it away from everybody who uses it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def write_whole(path: str, data: str | bytes, mode: int | None = None) -> None:
    """Write a file under another name beside it first: a full disk leaves no part of it."""
    content = data.encode("utf-8") if isinstance(data, str) else data
    place = file_to_replace(path)
    if place is None:
        with open(path, "wb") as special:
            special.write(content)
        return
    beside = Path(place).parent / f".shoal-{os.getpid()}.part"
    try:
        with beside.open("wb") as file:
            file.write(content)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def file_to_replace(path: str) -> str | None:
    """The file that may be replaced to write to a path; None if what is there must be written to. A directory is an error."""
    place = os.path.realpath(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return place
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    # What /dev/stdout leads to may have no name any more, or none in this mount namespace.
    has_name = os.path.exists(place) and os.path.samestat(found, os.stat(place))
    return place if stat.S_ISREG(found.st_mode) and has_name else None
