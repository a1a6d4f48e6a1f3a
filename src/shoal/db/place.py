"""Where a database may rest, and that only one server writes it: file system check and lock file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
from collections.abc import Iterator

from shoal.model.errors import Refused

# SQLite's WAL needs memory shared between all processes and locks that hold; between hosts there is neither.
# A FUSE file system of the same kin (fuse.sshfs, fuse.glusterfs) is known by the name behind its dot.
NETWORK = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "sshfs", "rclone", "s3fs"),
        *("lustre", "gpfs", "beegfs", "fhgfs", "ceph", "ceph-fuse", "glusterfs", "panfs", "pvfs2", "orangefs"),
        *("wekafs", "mfs", "moosefs", "juicefs"),
    )
)
_ESCAPE = re.compile(r"\\([0-7]{3})")
MOUNTS = "/proc/self/mountinfo"


def file_system(path: str, mountinfo: str) -> str:
    """The type of the file system an absolute path is on, by the text of /proc/self/mountinfo; empty if unknown."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not dash or len(fields) < 5:
            continue
        # Blanks in a mount point are written as \040.
        mount = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4]).rstrip("/")
        inside = path == mount or path.startswith(mount + "/")
        # Of two mounts on one point the later one covers the earlier.
        if inside and len(mount) >= best:
            best, kind = len(mount), rest[0]
    return kind


def is_network(kind: str) -> bool:
    """Is this type of file system one that other hosts write too?"""
    return kind.removeprefix("fuse.") in NETWORK


def check_place(path: str, mountinfo: str | None = None) -> None:
    """Refuse a directory that is missing or on a network file system."""
    folder = os.path.dirname(path)
    try:
        os.stat(folder)  # also makes an automounter mount it, so that the table below is true
    except OSError as error:
        raise unwritable(path, error) from None
    if mountinfo is None:
        try:
            with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
                mountinfo = file.read()
        except OSError:
            return  # not Linux: nothing to read, and nothing to say
    kind = file_system(os.path.realpath(folder), mountinfo)
    if is_network(kind):
        raise Refused(
            f"{path} is on a network file system ({kind})",
            code="network_fs",
            hint="a database needs a disk of this host; name a directory on one, such as /var/tmp",
        )


def unwritable(path: str, error: Exception) -> Refused:
    """The refusal of a file that cannot be opened as it must be."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Refused(f"cannot open {path}: {why}", code="unwritable", hint="name a directory that exists and is yours")


def take_lock(path: str) -> int:
    """Hold `<path>.lock` until the returned descriptor is closed; the system lets go of it however we end.

    The file stays: to delete it would let two servers lock two files of one name.
    """
    try:
        lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise Refused(
            f"{path} is in use by another server" + (f" (process {pid})" if pid else ""),
            code="in_use",
            hint="stop that one first, or use it",
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def make_private(path: str) -> None:
    """Make an empty database file that only its owner can read; SQLite gives -wal and -shm the same mode.

    A file that exists is left alone. To open and close it would also drop the locks that any connection of this
    process has on it: such is POSIX.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise unwritable(path, error) from None


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn SQLite's errors about the file itself into refusals of one line; others pass."""
    try:
        yield
    except sqlite3.Error as error:
        refusal = _refusal(path, error)
        if refusal is None:
            raise
        raise refusal from error


def _refusal(path: str, error: sqlite3.Error) -> Refused | None:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the upper bytes tell more than is needed
    if code == sqlite3.SQLITE_NOTADB:
        return Refused(f"{path} is not a database", code="not_a_database", hint="name another file")
    if code == sqlite3.SQLITE_CORRUPT:
        return Refused(f"{path} is damaged: {error}", code="corrupt", hint="restore the latest backup in its place")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return unwritable(path, error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Refused(f"{path} is held by another program", code="in_use", hint="close it there first")
    if code == sqlite3.SQLITE_FULL:
        return Refused(f"no space left for {path}", code="disk_full", hint="free some; nothing of it was written")
    return None
