"""Control groups, where this host lets us make some: a memory limit that the kernel enforces, and a way to end everything
that a task ever started, whatever it does to its environment.

A pilot has one group in each hierarchy that can be written, beside or below its own; tasks with a memory limit have one
each below that. What is permitted is found by trying it. Version 2 has `cgroup.kill` and `memory.max`; version 1 has the
freezer and `memory.limit_in_bytes`; most hosts have one of them, some both.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator

from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.guard.proctree import read_text

PATIENCE = 5.0  # seconds until killed processes are gone
PAUSE = 0.01
_SLACK_PART, _LEAST_SLACK = 20, 8 << 20  # what the kernel lets a task have over its limit: a part of it, and bytes
_REUSABLE = 1 << 20  # bytes at most that a group which is used again may account for
_KEPT = 32  # groups that wait to be used again
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Groups:
    """The groups of one pilot; empty: not permitted here."""

    kill: str = ""  # in which its guard lives, and so all its tasks
    memory: str = ""  # below which tasks with a memory limit get groups of their own

    @property
    def all(self) -> tuple[str, ...]:
        """Those that exist."""
        return tuple(dict.fromkeys(path for path in (self.kill, self.memory) if path))


def make(name: str, root: str = "/", may_kill: bool = True) -> Groups:
    """Make the groups of a pilot, as far as this host permits."""
    unified, memory, freezer = _find(root)
    kill = ""
    if may_kill:
        kill = _make(unified, name, "cgroup.procs") or _make(freezer, name, "freezer.state")
    limit = _make(memory, name, "memory.limit_in_bytes")
    if not limit and _delegates_memory(unified):
        limit = _make(unified, f"{name}-memory", "memory.max")
        if limit and not _write(limit, "cgroup.subtree_control", "+memory"):
            remove(limit)
            limit = ""
    return Groups(kill, limit)


def _delegates_memory(unified: str) -> bool:
    """True if groups below ours can have a memory limit. Most often not: a group with processes cannot delegate it."""
    enabled = _read(unified, "cgroup.subtree_control").split() if unified else []
    return "memory" in enabled or (bool(unified) and _write(unified, "cgroup.subtree_control", "+memory"))


def join(group: str, pid: int) -> bool:
    """Put a process, and what it starts from now on, into a group."""
    return _write(group, "cgroup.procs", str(pid))


def leave(group: str) -> None:
    """Put this very process into the group above, so that its own can be removed."""
    join(os.path.dirname(group), os.getpid())


# --- memory of tasks
class MemoryLimits:
    """Groups with a memory limit, one for each task that runs with one.

    To make and remove a group takes a millisecond, as long as a short task, so groups are used again.
    """

    def __init__(self, parent: str) -> None:
        self._parent, self._made = parent, 0
        self._free: list[str] = []

    def take(self, limit: int, pid: int) -> str:
        """Limit a process, and what it starts from now on, to so many bytes; returns its group, empty if there is none.

        The kernel counts its own pages for the task as well, so it gets a little more than it may hold itself.
        """
        group = self._free.pop() if self._free else self._new()
        bound = str(limit + max(_LEAST_SLACK, limit // _SLACK_PART))
        if group and _write(group, _limit_file(group), bound):
            # Else it would swap instead; where there is no swap there may be no such file.
            swap = ("memory.swap.max", "0") if _is_v2(group) else ("memory.memsw.limit_in_bytes", bound)
            _write(group, *swap)
            if join(group, pid):
                return group
        if group:
            _remove_folder(group)
        return ""

    def _new(self) -> str:
        self._made += 1
        group = os.path.join(self._parent, str(self._made))
        try:
            os.mkdir(group)
        except OSError:
            return ""
        return group

    def give_back(self, group: str) -> None:
        """Release the group of an ended task. What it left in memory is accounted to the pilot's own group."""
        used = _read(group, "memory.current" if _is_v2(group) else "memory.usage_in_bytes").strip()
        is_reusable = used.isdigit() and int(used) < _REUSABLE and not has_killed(group) and not _pids(group)
        if is_reusable and len(self._free) < _KEPT and _lift(group):
            self._free.append(group)
            return
        for pid in _pids(group):
            join(self._parent, pid)
        _remove_folder(group)


def has_killed(group: str) -> bool:
    """True if the kernel killed a process of this group for its limit."""
    for name in ("memory.events", "memory.oom_control"):
        found = _COUNT.search(_read(group, name))
        if found is not None:
            return int(found[1]) > 0
    return False


def _lift(group: str) -> bool:
    """Remove a limit: the one on memory must never be above that on memory and swap, in whichever order they are set."""
    if _is_v2(group):
        return True
    _write(group, "memory.memsw.limit_in_bytes", "-1")
    return _write(group, "memory.limit_in_bytes", "-1")


def _is_v2(group: str) -> bool:
    return os.path.exists(os.path.join(group, "memory.max"))


def _limit_file(group: str) -> str:
    return "memory.max" if _is_v2(group) else "memory.limit_in_bytes"


# --- end
def end(group: str, patience: float = PATIENCE) -> int:
    """Kill everything in a group and those below it, and remove them; returns how many processes there were."""
    if not os.path.isdir(group) or not os.path.basename(group).startswith("shoal-"):
        return 0
    until, seen = time.monotonic() + patience, set[int]()
    while True:
        folders = [folder for folder, _, _ in os.walk(group, topdown=False)]
        living = {pid for folder in folders for pid in _pids(folder)}
        seen |= living
        if not living or time.monotonic() > until:
            break
        if not _write(group, "cgroup.kill", "1"):
            _write(group, "freezer.state", "FROZEN")  # nothing is started while we count
            for pid in living:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            _write(group, "freezer.state", "THAWED")
        time.sleep(PAUSE)
    remove(group)
    return len(seen)


def remove(group: str) -> None:
    """Remove a group and those below it, if they are empty."""
    for folder, _, _ in os.walk(group, topdown=False):
        _remove_folder(folder)


# --- files
def _find(root: str) -> tuple[str, str, str]:
    """Where our own groups are: of version 2, and of version 1 those for memory and for the freezer."""
    mount = os.path.join(root, "sys/fs/cgroup")
    found = {"": "", "memory": "", "freezer": ""}
    for names, path in memberships(root):
        for name in names:
            if name in ("memory", "freezer"):
                found[name] = _own([os.path.join(mount, name), os.path.join(mount, ",".join(names))], path)
        if not names:
            tops = [mount, os.path.join(mount, "unified")]
            found[""] = _own([top for top in tops if os.path.exists(os.path.join(top, "cgroup.procs"))], path)
    return found[""], found["memory"], found["freezer"]


def memberships(root: str = "/") -> Iterator[tuple[list[str], str]]:
    """The groups that this process is in: controllers and path; the one of version 2 has no controllers here."""
    for line in read_text(os.path.join(root, "proc/self/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names or number == "0":
            yield names.split(",") if names else [], path


def _own(tops: list[str], path: str) -> str:
    """The folder of our group; in a container the path may be that of the host, of which only the end is mounted."""
    for folder in [*(os.path.join(top, path.strip("/")) for top in tops), *tops]:
        if os.path.isdir(folder):
            return folder.rstrip("/")
    return ""


def _make(parent: str, name: str, needs: str) -> str:
    if not parent or not os.access(parent, os.W_OK):
        return ""
    group = os.path.join(parent, f"shoal-{name}")
    try:
        os.mkdir(group)
    except OSError:
        return ""
    if os.path.exists(os.path.join(group, needs)):
        return group
    _remove_folder(group)
    return ""


def _remove_folder(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return False
    return True


def _pids(group: str) -> list[int]:
    return [int(pid) for pid in _read(group, "cgroup.procs").split() if pid.isdigit() and pid != "0"]


def _read(folder: str, name: str) -> str:
    return read_text(os.path.join(folder, name))


def _write(folder: str, name: str, text: str) -> bool:
    try:
        # Without O_CREAT: it is a file of the kernel's, or does not exist.
        fd = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(fd, text.encode()) == len(text)
    except OSError:
        return False
    finally:
        os.close(fd)
