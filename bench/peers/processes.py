"""Processes by their ids, from /proc: whose children, how large, how busy; and the end of those that we left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
TRACKER = "multiprocessing.resource_tracker"
TIDY = 2.0  # seconds that a resource tracker gets
TICKS = os.sysconf("SC_CLK_TCK")


def adopt_orphans() -> None:
    """From now on, a process whose parent ends becomes our child: nothing that a case starts gets out of sight."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(text: str = "") -> list[int]:
    """All processes below this one, the oldest first; with a text in their command line if one is given."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, ahead = [], [os.getpid()]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return sorted(pid for pid in found if not text or text in command_line(pid))


def command_line(pid: int) -> str:
    """The command line of a process, empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


def end_descendants(patience: float = 20.0) -> None:
    """End everything below this process, each by its own id, and reap it.

    Python's resource trackers end by themselves when the others have, and remove what those left in shared memory.
    """
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        left = descendants()
        if not left:
            return
        tidying = descendants(TRACKER) if time.monotonic() < limit - patience + TIDY else []
        for pid in set(left) - set(tidying):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def resident_mb(pid: int | str) -> float:
    """Resident memory of a process (or "self") now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"{pid} has ended")


def settled_mb(pid: int, patience: float = 30.0) -> float:
    """Resident memory once it has stopped growing for two seconds."""
    limit = time.monotonic() + patience
    size, still = resident_mb(pid), 0
    while still < 4 and time.monotonic() < limit:
        time.sleep(0.5)
        last, size = size, resident_mb(pid)
        still = still + 1 if size <= last * 1.005 else 0
    return size


def machine_busy() -> float:
    """CPU seconds that all processes of this machine have used."""
    ticks = [int(item) for item in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / TICKS  # without idle and waiting for disks


def own_busy() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
