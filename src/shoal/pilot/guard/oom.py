"""How often the kernel killed a process for want of memory: the evidence behind a SIGKILL that was not sent here.

The counter is that of our own cgroup; that of the whole host where none can be read, and for containers, which have
cgroups of their own. It is read now and then, so that a rise that is long past is not taken for a new one.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Optional

from shoal.pilot.guard.cgroup import memberships

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
        """Read the counter."""
        found = _read(self._fd) if self._fd >= 0 else None
        if found is not None and found != self._count:
            self._risen_at = now if found > self._count else self._risen_at
            self._count = found

    def is_recent(self, now: float) -> bool:
        """True if it rose in the last moments."""
        return self._risen_at is not None and now - self._risen_at <= RECENT


def _files(root: str) -> list[str]:
    """The files that may have the counter of our cgroup, best first: v2, then v1."""
    mount = os.path.join(root, "sys/fs/cgroup")
    found: list[str] = []
    for names, path in memberships(root):
        folders = (path.strip("/"), "")  # in a container only the end of the host's path is mounted
        if not names:
            found = [os.path.join(mount, folder, "memory.events") for folder in folders] + found
        elif "memory" in names:
            found += [os.path.join(mount, "memory", folder, "memory.oom_control") for folder in folders]
    return found


def _read(fd: int) -> Optional[int]:
    try:
        count = _COUNT.search(os.pread(fd, _READ, 0))
    except OSError:
        return None
    return int(count[1]) if count is not None else None
