"""How often the kernel ended a process for want of memory: the evidence behind a SIGKILL that nobody here sent.

The counter is that of our own cgroup, which the kernel raises whichever limit or lack it was; that of the whole host
where none can be read, and for containers, which have cgroups of their own. It is looked at now and then, so that a rise
that is long past is not taken for a new one.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Optional

RECENT = 5.0  # seconds: a process that held much memory takes a while to end
_READ = 65536
_COUNT = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


class OomKills:
    """The counter, and when it last rose."""

    def __init__(self, root: str = "/", host: bool = False) -> None:
        self._fd, self._count = -1, 0
        self._risen_at: Optional[float] = None
        for path in [*([] if host else _files(root)), os.path.join(root, "proc/vmstat")]:
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                found = _read(fd)
                if found is not None:
                    self._fd, self._count = fd, found
                    return
                os.close(fd)

    def look(self, now: float) -> None:
        """Read it."""
        found = _read(self._fd) if self._fd >= 0 else None
        if found is not None and found != self._count:
            self._risen_at = now if found > self._count else self._risen_at
            self._count = found

    def is_recent(self, now: float) -> bool:
        """Did it rise in the last moments?"""
        return self._risen_at is not None and now - self._risen_at <= RECENT


def _files(root: str) -> list[str]:
    """Where the counter of our cgroup may be, best first: v2, then v1."""
    mount = os.path.join(root, "sys/fs/cgroup")
    found: list[str] = []
    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        for line in lines:
            number, _, rest = line.partition(":")
            names, _, path = rest.partition(":")
            # In a container the path may be that of the host, of which only the end is mounted.
            own, top = path.strip("/"), ""
            if number == "0" and not names:
                found = [os.path.join(mount, at, "memory.events") for at in (own, top)] + found
            elif "memory" in names.split(","):
                found += [os.path.join(mount, "memory", at, "memory.oom_control") for at in (own, top)]
    return found


def _read(fd: int) -> Optional[int]:
    try:
        count = _COUNT.search(os.pread(fd, _READ, 0))
    except OSError:
        return None
    return int(count[1]) if count is not None else None
