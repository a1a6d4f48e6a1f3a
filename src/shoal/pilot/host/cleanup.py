"""What pilots left on this host that were killed together with their guards: processes and directories. Whoever comes
next removes it: the next pilot of this user as it starts, and living ones now and then.

Every pilot has a line in the registry of its user, a file that pilot and guard hold locked while they live. Every task
process has a mark in its environment that names both processes and the namespace they live in. A mark or line is judged
only by pilots of the same PID namespace, in which a process number means the same; a number alone proves nothing, so the
moment at which the process began goes with it.

The mark reaches what a task starts, unless that is given another environment and detaches itself as well. So this
sweep is the last means: where there is a PID namespace nothing is left to be swept but directories, and where a cgroup
can be made (`cgroup`) nothing escapes by its environment.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple, Optional

from shoal.pilot.commands.files import remove_tree
from shoal.pilot.guard import cgroup, proctree
from shoal.pilot.host import host_lock

log = logging.getLogger(__name__)

ROUNDS = 100  # of killing, until nothing is left
PAUSE = 0.02  # seconds between two rounds
SWEEP_EVERY = 20.0  # seconds
SWEEP_SHARE = 0.002  # of a processor's time that sweeps may take
_MARK = host_lock.MARK.encode() + b"="
_STOPPED = ("T", "t")
_LINE = re.compile(r"[0-9a-f]{12}")
_MARKED = re.compile(r"[0-9a-f]{12}:[0-9a-f-]*\.[0-9]*:[0-9]{1,10}\.[0-9]{1,20}:[0-9]{1,10}\.[0-9]{1,20}", re.ASCII)
_OWN_MODE = 0o700


class Swept(NamedTuple):
    """What a sweep found."""

    processes: int = 0
    folders: tuple[str, ...] = ()

    @property
    def is_worth_telling(self) -> bool:
        """Was there anything?"""
        return bool(self.processes or self.folders)

    def __str__(self) -> str:
        return (
            f"swept what pilots left here that were killed with their guards: {self.processes} processes ended, "
            f"{len(self.folders)} directories removed"
        )


@dataclass(frozen=True)
class RegistryLine:
    """One pilot in the registry."""

    name: str
    work: str
    boot: str
    namespace: str
    pilot: str  # its process: number and beginning
    guard: str
    groups: tuple[str, ...] = ()  # its cgroups

    @property
    def mark(self) -> str:
        """What the environment of its tasks says."""
        return ":".join((self.name, f"{self.boot}.{self.namespace}", self.pilot, self.guard))


def describe(work: str, guard: int, groups: tuple[str, ...] = ()) -> RegistryLine:
    """The line of this very process and its guard; the name of a work directory ends with that of its pilot."""
    return RegistryLine(
        work[-12:], work, _boot(), _namespace("self"), _process(os.getpid()), _process(guard), groups,
    )  # fmt: skip


def registry(base: str = "/tmp") -> str:
    """The folder of this user's lines on this host; empty if it is not safely ours.

    It is never below TMPDIR, which batch systems set to another place for each job.
    """
    folder = os.path.join(base, f".shoal-pilots-{os.getuid()}")
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, _OWN_MODE)
        found = os.lstat(folder)
    except OSError:
        return ""
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == _OWN_MODE
    return folder if ours else ""


class Entry:
    """Our own line while we live. Others see by its lock that we do."""

    def __init__(self) -> None:
        self.path = ""
        self._fd = -1

    def write(self, folder: str, line: RegistryLine) -> None:
        """Enter the registry, if there is one."""
        if not folder:
            return
        path = os.path.join(folder, line.name)
        part = f"{path}.{os.getpid()}.part"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                self._fd = os.open(part, flags, 0o600)
            except FileNotFoundError:  # another pilot was the last one, and took the folder along
                os.mkdir(folder, _OWN_MODE)
                self._fd = os.open(part, flags, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.write(self._fd, json.dumps(asdict(line)).encode())
            os.rename(part, path)  # nobody ever sees it unlocked or half written
        except OSError as error:
            log.warning("this pilot is not in the registry %s: %s", folder, error.strerror)
            host_lock.forget(part)
            return
        self.path = path

    def remove(self) -> None:
        """We end, and leave nothing; the last one takes the folder along."""
        host_lock.forget(self.path)
        if self.path:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self.path))
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# --- the sweep
class Sweeper(threading.Thread):
    """Sweeps now and then while a pilot lives, for those of its siblings that nobody replaced."""

    def __init__(self, folder: str, say: Callable[[str], None]) -> None:
        super().__init__(name="sweeper", daemon=True)
        self._folder, self._say = folder, say

    def run(self) -> None:
        """For ever: the process ends without asking."""
        took = 0.0
        while True:
            time.sleep(max(SWEEP_EVERY, took / SWEEP_SHARE))
            began = time.monotonic()
            try:
                swept = sweep(self._folder)
            except Exception:  # whatever somebody left there, sweeping goes on
                log.exception("sweep failed")
                continue
            took = time.monotonic() - began
            if swept.is_worth_telling:
                self._say(str(swept))


def sweep(folder: str) -> Swept:
    """End what dead pilots of this user left running on this host, then remove their directories."""
    killed = _end_marked()
    removed = []
    for path, line in _dead_lines(folder):
        killed += sum(cgroup.end(group) for group in line.groups)
        if _is_theirs(line):
            remove_tree(line.work)
            removed.append(line.work)
        with contextlib.suppress(OSError):
            os.unlink(path)
    return Swept(killed, tuple(removed))


def _is_theirs(line: RegistryLine) -> bool:
    """Is this the directory that a pilot made for itself? A file that is wrong must not cost a person theirs."""
    try:
        found = os.lstat(line.work)
    except OSError:
        return False
    is_named = _LINE.fullmatch(line.name) is not None and os.path.basename(line.work) in (
        line.name,
        f"shoal-{line.name}",
    )
    return is_named and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _dead_lines(folder: str) -> Iterator[tuple[str, RegistryLine]]:
    """Lines that nobody holds. Their locks are ours until they are removed: two sweeps at once do not meet."""
    try:
        names = os.listdir(folder) if folder else []
    except OSError:
        names = []
    for name in names:
        path, fd = os.path.join(folder, name), -1
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            line = _read_line(fd, name)
            if not _is_free(fd, path):
                _end_stopped_guard(line)
            elif line is not None:
                yield path, line
            elif not name.endswith(".part"):
                os.unlink(path)
        except OSError:
            continue
        finally:
            if fd >= 0:
                os.close(fd)


def _is_free(fd: int, path: str) -> bool:
    """Is a line held by nobody, so that its pilot and guard are dead, and still in its place? Then it is ours now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return os.fstat(fd).st_ino == os.stat(path).st_ino


def _end_stopped_guard(line: Optional[RegistryLine]) -> None:
    """A guard without a pilot that somebody stopped watches nobody, and cannot end: the next sweep finds it dead."""
    is_ours = line is not None and line.namespace == _namespace("self")
    if line is not None and is_ours and not _state(line.pilot) and _state(line.guard) in _STOPPED:
        _kill(int(line.guard.partition(".")[0]), "")


def _read_line(fd: int, name: str) -> Optional[RegistryLine]:
    try:
        told = json.loads(os.pread(fd, 1 << 16, 0))
        line = RegistryLine(**{**told, "groups": tuple(told["groups"])})
        parts = (
            *(getattr(line, field) for field in ("name", "work", "boot", "namespace", "pilot", "guard")),
            *line.groups,
        )
        is_sound = all(isinstance(part, str) for part in parts) and _MARKED.fullmatch(line.mark)
        return line if is_sound and line.name == name else None
    except (ValueError, TypeError, KeyError):
        return None


def is_abandoned(mark: str) -> bool:
    """Does nobody watch the tasks that have this mark?

    Without a guard they must end: a pilot that runs does it itself, one that is stopped or dead cannot. With a guard
    they are watched, unless the pilot is dead and the guard stopped.
    """
    pilot, guard = (_state(process) for process in mark.split(":")[2:4])
    if not guard:
        return not pilot or pilot in _STOPPED
    return not pilot and guard in _STOPPED


def _end_marked() -> int:
    """Kill every process with the mark of an abandoned pilot, and all below it, until there is none; how many."""
    killed: set[int] = set()
    for _ in range(ROUNDS):
        found = _marked()
        if not found:
            break
        for pid in found:
            _kill(pid, found[pid])
        killed |= found.keys()
        time.sleep(PAUSE)
    return len(killed)


def _marked() -> dict[int, str]:
    """Processes that nobody watches, with their mark; empty for those that are known only by whom they came from."""
    space, us, judged = _namespace("self"), {os.getpid(), os.getppid(), 1}, dict[str, bool]()
    here = (
        f"{_boot()}.{space}"  # the first namespace has one number on all hosts, and marks travel with srun and the like
    )
    found: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in us:
            continue
        mark = mark_of(int(name))
        words = mark.split(":")
        if (
            not _MARKED.fullmatch(mark)
            or words[1] != here
            or _namespace(name) != space
            or proctree.is_zombie(int(name))
        ):
            continue
        if mark not in judged:
            judged[mark] = is_abandoned(mark)
        if judged[mark]:
            found[int(name)] = mark
            guard = int(words[3].partition(".")[0])
            if _state(words[3]):  # it is stopped
                found[guard] = ""
    for pid in list(found):
        for below in proctree.descend(pid)[1:]:
            if below not in us and mark_of(below) in ("", found[pid]):
                found.setdefault(below, "")
    return found


def mark_of(pid: int) -> str:
    """The mark that the environment of a process has; empty: none, or it is another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return ""
            data = file.read()
    except OSError:
        return ""
    at = data.find(_MARK)
    if at > 0 and data[at - 1] != 0:
        at = data.find(b"\0" + _MARK) + 1
    return os.fsdecode(data[at + len(_MARK) :].partition(b"\0")[0]) if at >= 0 and data[at:].startswith(_MARK) else ""


def _kill(pid: int, mark: str) -> None:
    """Kill a process if it is still the one that was looked at."""
    if not hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        return
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if not mark or mark_of(pid) == mark:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(fd)


# --- processes and hosts by what cannot be reused
def _process(pid: int) -> str:
    """A process by its number and the moment it began, in ticks since the machine started."""
    return f"{pid}.{proctree.began(pid)}"


def _state(process: str) -> str:
    """The state letter of a process; empty if it is gone, or only waits to be reaped."""
    number, _, began = process.partition(".")
    if not number.isdigit() or not began.isdigit() or proctree.began(int(number)) != int(began):
        return ""
    state = proctree.state(int(number))
    return "" if state in ("Z", "X") else state


def _namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid").partition("[")[2].rstrip("]")
    except OSError:
        return ""


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
