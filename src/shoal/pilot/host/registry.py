"""The registry of this user's pilots on this host: one file per pilot, in which pilot and guard hold a lock while they live.

The kernel drops a lock with its process, however that ends, so a lock that can be taken proves that its holder is dead.
A pilot that is dead is reported to its server, which then need not wait until the lease has run out; what a dead pilot
with a dead guard left is cleaned up (`cleanup`). Pilot and guard lock one byte each, so that one can outlive the other.
Where no such folder can be had, a pilot does without. The guard imports this module, so it imports little.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from shoal.model.credentials import alias
from shoal.model.lazy_dataclass import dataclass
from shoal.pilot.guard import proctree

MARK = "SHOAL_GUARD"  # the variable that identifies the processes of a pilot's tasks
KEPT = 3600.0  # seconds for which the file of a dead pilot stays, so that every other pilot can report it
MARK_FORM = re.compile(r"[0-9a-f]{12}:[0-9a-f-]*\.[0-9]*:[0-9]{1,10}\.[0-9]{1,20}:[0-9]{1,10}\.[0-9]{1,20}", re.ASCII)
_PILOT, _GUARD = 0, 1  # the byte that each of them locks
_FLOCK = struct.Struct("hhqqi4x")
_OWN_MODE = 0o700
_LIMIT = 1 << 16


@dataclass(frozen=True)
class Record:
    """What the file of a pilot holds. Processes are given by number and start time, since numbers are reused."""

    boot: str  # of the host's kernel: what was written by another one is not reported
    namespace: str  # in which the process numbers count
    pilot: str
    guard: str
    server: str = ""  # a digest, once it has joined
    session: str = ""  # not the digest that the server has: tasks may read this, and seals are made of that one
    work: str = ""  # its directory; empty: cleaned up
    groups: tuple[str, ...] = ()  # its cgroups

    @property
    def mark(self) -> str:
        """The value of MARK in the environment of its tasks; the name of a work directory ends with that of its pilot."""
        return ":".join((self.work[-12:], f"{self.boot}.{self.namespace}", self.pilot, self.guard))

    def encode(self) -> bytes:
        """The content of the file."""
        fields = (self.boot, self.namespace, self.pilot, self.guard, self.server, self.session, self.work, *self.groups)
        return os.fsencode("\0".join(fields))

    @classmethod
    def decode(cls, data: bytes) -> Optional[Record]:
        """The record in a file; None: it holds none."""
        try:
            boot, namespace, pilot, guard, server, session, work, *groups = os.fsdecode(data).split("\0")
        except ValueError:
            return None
        record = cls(boot, namespace, pilot, guard, server, session, work, tuple(groups))
        return record if MARK_FORM.fullmatch(replace(record, work="0" * 12).mark) else None


def describe(work: str, guard: int, groups: tuple[str, ...] = ()) -> Record:
    """The record of this very process and its guard."""
    return Record(boot(), namespace("self"), _process(os.getpid()), _process(guard), work=work, groups=groups)


def find_folder(base: str = "/tmp") -> str:
    """The folder of this user's pilots on this host; empty if it is not safely ours.

    It is never below TMPDIR, which batch systems set to another directory for each job.
    """
    folder = os.path.join(base, f".shoal-registry-{os.getuid()}")
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, _OWN_MODE)
        found = os.lstat(folder)
    except OSError:
        return ""
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == _OWN_MODE
    return folder if ours else ""


def server_digest(address: str) -> str:
    """Identifies a server among those that the pilots of this host serve."""
    return hashlib.sha256(address.encode()).hexdigest()[:16]


class Entry:
    """Our own file, while this process lives."""

    def __init__(self) -> None:
        self.path = ""
        self._fd = -1
        self._record: Optional[Record] = None

    def write(self, folder: str, record: Record) -> str:
        """Enter the registry, if there is one; returns what went wrong."""
        if not folder:
            return ""
        path = os.path.join(folder, record.work[-12:])
        part = os.path.join(folder, f".{record.work[-12:]}")  # nobody may find it before it is locked
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                self._fd = os.open(part, flags, 0o600)
            except FileNotFoundError:  # another pilot was the last one, and removed the folder
                os.mkdir(folder, _OWN_MODE)
                self._fd = os.open(part, flags, 0o600)
            if not _lock(self._fd, _PILOT, fcntl.F_WRLCK):
                raise BlockingIOError(errno.EAGAIN, "its file is locked by another process")
            os.write(self._fd, record.encode())
            os.rename(part, path)
        except OSError as error:
            _unlink(part)
            self.remove()
            return f"this pilot is not in the registry {folder}: {error.strerror}"
        self.path, self._record = path, record
        return ""

    def join(self, server: str, session: str) -> None:
        """Add which pilot we are to which server. Others read it only when we are dead, so never half of it."""
        if self._record is not None:
            self._record = replace(self._record, server=server, session=alias(session))
            data = self._record.encode()
            with contextlib.suppress(OSError):
                os.pwrite(self._fd, data, 0)
                os.ftruncate(self._fd, len(data))

    def remove(self) -> None:
        """Leave in order: our end is not reported. The last pilot removes the folder."""
        if self.path:
            _unlink(self.path)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self.path))
        if self._fd >= 0:
            os.close(self._fd)
        self.path, self._fd, self._record = "", -1, None


def hold(path: str) -> None:
    """In the guard: lock its byte of the pilot's file for as long as this process lives."""
    with contextlib.suppress(OSError):
        _lock(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW), _GUARD, fcntl.F_WRLCK)


class DeadPilot:
    """The file of a pilot that is dead, while it is open."""

    def __init__(self, path: str, fd: int, record: Record) -> None:
        self.path, self._fd, self.record = path, fd, record

    @property
    def is_reported_long_ago(self) -> bool:
        """True when every other pilot had the time to report it, or it never joined a server."""
        return not self.record.session or time.time() - os.fstat(self._fd).st_mtime > KEPT

    def take(self) -> bool:
        """Take the guard's lock, so that nobody else cleans up; False: the guard lives, or somebody does it already."""
        return _lock(self._fd, _GUARD, fcntl.F_WRLCK) and os.fstat(self._fd).st_nlink > 0

    def set_cleaned(self) -> None:
        """Note that nothing is left to be cleaned up, and when."""
        self.record = replace(self.record, work="", groups=())
        data = self.record.encode()
        os.ftruncate(self._fd, os.pwrite(self._fd, data, 0))

    def remove(self) -> None:
        """Delete the file."""
        _unlink(self.path)


def dead_pilots(folder: str) -> Iterator[DeadPilot]:
    """The files of pilots that are dead, one after another; what is no record is removed."""
    try:
        names = sorted(os.listdir(folder)) if folder else []
    except OSError:
        names = []
    for name in names:
        path, fd = os.path.join(folder, name), -1
        try:
            if name.startswith(".") and time.time() - os.lstat(path).st_mtime <= KEPT:
                continue  # a pilot is about to lock it: a look at it must not be in the way
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            if not _lock(fd, _PILOT, fcntl.F_RDLCK):  # shared: several pilots may look at once
                continue
            record = None if name.startswith(".") else Record.decode(os.pread(fd, _LIMIT, 0))
            if record is not None:
                yield DeadPilot(path, fd, record)
            elif not name.startswith(".") or time.time() - os.fstat(fd).st_mtime > KEPT:
                _unlink(path)
        except OSError:
            continue
        finally:
            if fd >= 0:
                os.close(fd)


def _lock(fd: int, byte: int, kind: int) -> bool:
    """Lock one byte for as long as this open file lives; False: somebody else has it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


# --- processes and hosts by what cannot be reused
def _process(pid: int) -> str:
    """A process by its number and its start time, in ticks since the machine started."""
    return f"{pid}.{proctree.began(pid)}"


def process_state(process: str) -> str:
    """The state letter of a process; empty if it is gone, or only waits to be reaped."""
    number, _, began = process.partition(".")
    if not number.isdigit() or not began.isdigit() or proctree.began(int(number)) != int(began):
        return ""
    state = proctree.state(int(number))
    return "" if state in ("Z", "X") else state


def namespace(pid: str) -> str:
    """The PID namespace of a process; empty if it is unknown."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid").partition("[")[2].rstrip("]")
    except OSError:
        return ""


def boot() -> str:
    """The kernel's name of this boot; empty if it is unknown."""
    return proctree.read_text("/proc/sys/kernel/random/boot_id").strip()
