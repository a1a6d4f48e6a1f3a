"""The location of a database: file system check, locks for a single writer, and errors about its file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import shlex
import sqlite3
import struct
from collections.abc import Iterator

from shoal.model.errors import Refused
from shoal.model.file_systems import file_system, is_network

MOUNTS = "/proc/self/mountinfo"
BACKUPS = "backups"
LOCK_BYTE = 0x4000_1000  # SQLite locks 0x40000000 to 0x400001ff; locking reads and writes nothing


def check_location(path: str, mountinfo: str | None = None) -> None:
    """Refuse a directory that is missing or on a network file system."""
    folder = os.path.dirname(path)
    try:
        os.stat(folder)  # also makes an automounter mount it, so that the table below has it
    except OSError as error:
        raise unwritable(path, error) from None
    if mountinfo is None:
        try:
            with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
                mountinfo = file.read()
        except OSError:
            return  # not Linux: nothing to check
    kind = file_system(os.path.realpath(folder), mountinfo)
    if is_network(kind):
        hint = "a database needs a disk of this host; name a directory on one, such as /var/tmp"
        raise Refused(f"{path} is on a network file system ({kind})", code="network_fs", hint=hint)


def unwritable(path: str, error: Exception) -> Refused:
    """The refusal of a file that cannot be opened."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Refused(f"cannot open {path}: {why}", code="unwritable", hint="name a directory that exists and is yours")


class Lock:
    """The lock of a database: one on the file `<path>.lock`, and one on the database's own inode.

    The first is found by name and contains the process id. The second holds where the first was deleted, and where the
    database is reached by another name or mount. It is an open-file-description lock on a byte that SQLite never locks
    (its locks are the 512 bytes from 1 GiB on), so it neither meets SQLite's own locks nor ends when SQLite closes a
    file. The system releases both however the process ends. The lock file stays: otherwise two servers could lock two
    files.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._named = _lock_name(path)
        self._file: int | None = None
        try:
            if os.path.exists(path):
                self.hold_inode()
        except BaseException:
            self.close()
            raise

    def hold_inode(self) -> None:
        """Lock the database file itself, which must exist by now. Idempotent."""
        if self._file is not None:
            return
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise unwritable(self.path, error) from None
        if not hasattr(fcntl, "F_OFD_SETLK"):
            return  # not Linux: the lock file must do
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, LOCK_BYTE, 1, 0)
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, wanted)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise in_use(self.path) from None

    def stat(self) -> os.stat_result | None:
        """The database file that is open here, whichever file has its name by now."""
        return os.fstat(self._file) if self._file is not None else None

    def close(self) -> None:
        """Release the locks. Idempotent. To be called when no connection of this process is left: closing any descriptor
        of a file drops all POSIX locks that the process has on it."""
        for descriptor in (self._file, self._named):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._named = None


def _lock_name(path: str) -> int | None:
    try:
        lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise in_use(path, pid) from None
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass  # a full disk: the lock holds without the process id
    return lock


def in_use(path: str, pid: str = "") -> Refused:
    """The refusal of a database that a server has."""
    whose = f" (process {pid})" if pid else ""
    return Refused(f"{path} is in use by another server{whose}", code="in_use", hint="stop that one first, or use it")


def make_private(path: str) -> None:
    """Create an empty database file that only its owner can read; SQLite gives -wal and -shm the same mode.

    A file that exists is left alone: opening and closing it would drop the POSIX locks that this process has on it.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise unwritable(path, error) from None


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a directory durable: they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newest_backup(path: str) -> str:
    """The newest copy in the directory of backups or rescued; empty if there is none."""
    found = glob.glob(f"{glob.escape(os.path.dirname(path))}/{BACKUPS}/*.db") + rescued(path)
    return max(found, key=os.path.getmtime, default="")


def rescued(path: str) -> list[str]:
    """Copies that servers saved when their database was removed under them."""
    return sorted(name for name in glob.glob(f"{glob.escape(path)}.rescue-*") if not name.endswith(".part"))


def way_out(path: str) -> str:
    """What to do about a database that cannot be used."""
    state, copy = shlex.quote(os.path.dirname(path)), newest_backup(path)
    if copy:
        return f"put the newest copy in its place: `shoal server restore --state {state} {shlex.quote(copy)}`"
    return f"put a backup in its place: `shoal server restore --state {state} FILE`, or move it away to begin anew"


@contextlib.contextmanager
def explained(path: str, hint: str = "") -> Iterator[None]:
    """Turn SQLite's errors about the file itself into refusals of one line; others pass. `hint`: what to do if it is
    damaged, instead of restoring a backup."""
    try:
        yield
    except sqlite3.Error as error:
        refusal = refusal_of(path, error, hint)
        if refusal is None:
            raise
        raise refusal from error


def refusal_of(path: str, error: sqlite3.Error, hint: str = "") -> Refused | None:
    """The refusal for an error of SQLite about its file; None for other errors."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extended code
    if code == sqlite3.SQLITE_NOTADB:
        return Refused(f"{path} is not a database", code="not_a_database", hint=hint or way_out(path))
    if code == sqlite3.SQLITE_CORRUPT:
        return Refused(f"{path} is damaged: {error}", code="corrupt", hint=hint or way_out(path))
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return unwritable(path, error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Refused(f"{path} is held by another program", code="in_use", hint="close it there first")
    if code == sqlite3.SQLITE_FULL:
        return Refused(f"no space left for {path}", code="disk_full", hint="free some; nothing of it was written")
    if code == sqlite3.SQLITE_IOERR:
        return Refused(
            f"the disk of {path} gives errors: {error}", code="disk_error", hint="see what the system's log says of it"
        )
    return None
