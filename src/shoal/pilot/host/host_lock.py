"""What the guard needs of `leftovers`: the name of the mark in a task's environment, and the lock by which others see that
the guard lives. It is apart so that the guard stays small."""

from __future__ import annotations

import contextlib
import fcntl
import os

MARK = "SHOAL_GUARD"


def hold(path: str) -> None:
    """Keep a line of the registry locked for as long as this process lives."""
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), fcntl.LOCK_SH | fcntl.LOCK_NB)


def forget(path: str) -> None:
    """Remove a line of the registry."""
    if path:
        with contextlib.suppress(OSError):
            os.unlink(path)
