"""Processes as the kernel shows them: who descends from whom, how much memory they hold, how all of them end.

Only children of the caller are ever signalled here. A child keeps its number until its parent waits for it,
so none can be mistaken for another process; what a killed child leaves behind becomes a child of the caller, which is a
subreaper, and is found in the next round.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Collection, Iterable
from typing import Optional

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HAS_CHILDREN_FILES = os.path.exists("/proc/thread-self/children")  # CONFIG_PROC_CHILDREN
_MARK = b"SHOAL_ATTEMPT="
_SHORT = 4096
_IN_MEMORY = ("/memfd:", "/dev/shm/")


def now() -> float:
    """Seconds of a clock that goes on while the machine sleeps [promise R2]."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_text(path: str) -> str:
    """A file of the kernel; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _prctl(option: int, value: object) -> None:
    try:
        import ctypes
    except ImportError:
        return  # `probe.check` reports it
    libc = ctypes.CDLL(None, use_errno=True)
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(int(str(value)))
    zero = ctypes.c_ulong(0)
    libc.prctl(ctypes.c_int(option), argument, zero, zero, zero)


def become_subreaper() -> None:
    """Orphans among our descendants become our children, not those of process 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def become_private() -> None:
    """No other process of this user may trace us or read our memory and environment [security S7]."""
    _prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent() -> None:
    """The kernel kills us when our parent dies, whatever killed it."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def set_name(name: str) -> None:
    """What `ps` and `top` show."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def children(pid: int) -> list[int]:
    """Direct children, zombies too."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(child) for child in file.read().split()]
        except FileNotFoundError:
            if not _HAS_CHILDREN_FILES:
                return _children_by_scan(pid)
        except OSError:
            continue
    return found


class ChildList:
    """Our own direct children, zombies too, read from one file that stays open.

    It belongs to the thread that made it. Nobody else reaps our children, so none can vanish while it is read.
    """

    def __init__(self) -> None:
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)

    def pids(self) -> list[int]:
        """All of them."""
        if self._fd >= 0:
            data = os.pread(self._fd, _SHORT, 0)
            if len(data) < _SHORT // 2:  # the kernel gives no more than a page at a time
                return [int(child) for child in data.split()]
        return children(os.getpid())


def _children_by_scan(pid: int) -> list[int]:
    return [child for child in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(child) == pid]


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/pid/stat from the third on; the second, a name, may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def parent(pid: int) -> int:
    """The parent's number, 0 if there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def is_zombie(pid: int) -> bool:
    """True if it has ended and only waits to be reaped, or is gone already."""
    return state(pid) in ("", "Z", "X")


def state(pid: int) -> str:
    """R, S, D, T, Z, ...; empty if there is no such process."""
    fields = _stat(pid)
    return fields[0].decode() if fields else ""


def began(pid: int) -> int:
    """The start time of a process, in ticks since the machine started; 0 if there is no such process."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def descend(pid: int) -> list[int]:
    """`pid` and everything below it, parents first."""
    found, seen = [pid], {pid}
    for one in found:
        for child in children(one):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def resident(pids: Iterable[int]) -> int:
    """Bytes resident, pages shared between the processes counted each time: an upper bound."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
            total += int(file.read().split()[1]) * _PAGE
    return total


def proportional(pids: Iterable[int], without: Collection[tuple[int, int]] = ()) -> Optional[int]:
    """Bytes resident, each shared page divided by its users; None where the kernel does not show that.

    `without` are files, by device and inode, whose pages are counted elsewhere.
    """
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/{'smaps' if without else 'smaps_rollup'}", "rb") as file:
                counts = True
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024 if counts else 0
                    elif without and b"-" in line.partition(b" ")[0]:
                        counts = _mapped_file(line) not in without
        except ProcessLookupError:
            continue
        except OSError:
            if is_zombie(pid):
                continue
            return None
    return total


def _mapped_file(line: bytes) -> tuple[int, int]:
    """Device and inode of a mapping, as the first line of its entry in smaps has them."""
    fields = line.split()
    major, _, minor = fields[3].partition(b":")
    return os.makedev(int(major, 16), int(minor, 16)), int(fields[4])


def memory_files(pids: Iterable[int]) -> dict[tuple[int, int], int]:
    """Bytes of files that exist only in memory and that these processes have open, by device and inode: what is written
    to one, and not mapped, is resident in no process."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            with contextlib.suppress(OSError):
                path = f"/proc/{pid}/fd/{name}"
                if os.readlink(path).startswith(_IN_MEMORY):
                    file = os.stat(path)
                    if stat.S_ISREG(file.st_mode):
                        found[file.st_dev, file.st_ino] = file.st_blocks * 512
    return found


def mark(pid: int) -> str:
    """The attempt named in the environment of a process, or nothing."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(_MARK):
                return os.fsdecode(entry[len(_MARK) :])
    return ""


def command_line(pid: int) -> list[str]:
    """The command line of a process, or nothing."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return [os.fsdecode(argument) for argument in file.read().split(b"\0")]
    return []


def session(pid: int) -> int:
    """The session of a process, 0 if it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def signal_group(pid: int, number: int) -> None:
    """Signal the process group that `pid` is in; only `pid` itself if that group is ours."""
    with contextlib.suppress(OSError):
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, number)
        else:
            os.kill(pid, number)


def kill_children(patience: float, spare: Iterable[int] = ()) -> bool:
    """Kill and reap all our descendants; False if some were still there after `patience` seconds."""
    end, spared = now() + patience, set(spare)
    while True:
        left = [pid for pid in children(os.getpid()) if pid not in spared]
        for pid in left:
            signal_group(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not left:
            return True
        if now() > end:
            return False
        time.sleep(0.005)
