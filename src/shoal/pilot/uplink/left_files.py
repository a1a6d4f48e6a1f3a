"""Small files that are left in directories of a site, for pilots that cannot ask the server: read only where nobody else can
write, and written whole or not at all.

What is in them is a hint: whoever it leads to has to prove who they are.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from typing import Callable

log = logging.getLogger(__name__)

MAX_FILE = 1 << 13
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def folder_in(base: str) -> str:
    """The folder of this account in a directory that others may write to, too."""
    return os.path.join(base, f"shoal-addresses-{os.getuid()}")


def read(folder: str, name: str) -> str:
    """A file in a folder of ours; empty if there is none, or somebody else could change it."""
    try:
        if not _is_ours(os.lstat(folder), stat.S_ISDIR):
            return ""
        with os.fdopen(os.open(os.path.join(folder, name), _READ), "rb") as file:
            return (
                file.read(MAX_FILE).decode("utf-8", "replace")
                if _is_ours(os.fstat(file.fileno()), stat.S_ISREG)
                else ""
            )
    except OSError:
        return ""


def write(folder: str, name: str, text: str) -> None:
    """Replace a file in a folder of ours, which is made if it is not there."""
    part = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        if not _is_ours(os.lstat(folder), stat.S_ISDIR):
            raise PermissionError(0, "it is not ours alone")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        with os.fdopen(os.open(part, _WRITE, 0o600), "wb") as file:
            file.write(text.encode())
        os.rename(part, os.path.join(folder, name))
    except OSError as error:
        log.warning("nothing is left for other pilots in %s: %s", folder, error.strerror)


def _is_ours(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """True if it is of that kind and of our account, and nobody else may change it."""
    return is_kind(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
