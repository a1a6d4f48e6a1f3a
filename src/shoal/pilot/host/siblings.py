"""Which other pilots of this user on this host are dead: each holds a lock on a file as long as it lives.

The kernel drops the lock with the process, however that ends, so a lock that can be taken proves that its holder is dead.
The server then need not wait until the dead pilot's lease has run out. Only files of this boot count, and a file that
is not there says nothing. Where no such folder can be had, nobody is told anything: it is only about being sooner.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import time
from typing import Optional

from shoal.model.credentials import digest
from shoal.model.limits import MAX_SIBLINGS

FOLDER = "/tmp"  # the same for all pilots of a host, whatever their TMPDIR
KEPT = 3600.0  # seconds that a dead pilot's file is left for others to see
_LOCKS = "pilots-"  # begins the names of the folders, one for each server
_DEAD = " dead"
_NAME = re.compile(r"[0-9a-f]{64}")


class Siblings:
    """Our lock among those of the other pilots of one server."""

    def __init__(self, server: str, folder: str = FOLDER, boot: Optional[str] = None) -> None:
        self._folder = os.path.join(folder, f"shoal-{os.getuid()}")
        self._locks = os.path.join(self._folder, f"{_LOCKS}{hashlib.sha256(server.encode()).hexdigest()[:16]}")
        self._boot = _boot() if boot is None else boot
        self._held: Optional[int] = None
        self._name = ""
        self._told: set[str] = set()

    def hold(self, session: str) -> None:
        """From here on we are the pilot with this session."""
        name = digest(session)
        if name == self._name or not self._boot:
            return
        self.close()
        with contextlib.suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            os.makedirs(self._locks, mode=0o700, exist_ok=True)
            if not (_is_ours(self._folder) and _is_ours(self._locks)):
                return
            early = os.path.join(self._locks, f".{name}")  # nobody may find it before it is locked
            fd = os.open(early, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(fd, self._boot.encode())
                os.rename(early, os.path.join(self._locks, name))
            except OSError:
                os.close(fd)
                raise
            self._held, self._name = fd, name
            self._sweep()

    def ended(self, is_sure: bool = True) -> list[str]:
        """Pilots that are dead and were not told of yet, by the digest of their session; `is_sure`: they will be told."""
        try:
            names = sorted(os.listdir(self._locks)) if self._boot and _is_ours(self._locks) else []
        except OSError:
            return []
        found = [
            name
            for name in names
            if _NAME.fullmatch(name) and name != self._name and self._is_dead(os.path.join(self._locks, name))
        ]
        new = [name for name in found if name not in self._told][:MAX_SIBLINGS]
        if is_sure:
            self._told = (self._told & set(found)) | set(new)
        return new

    def _is_dead(self, path: str) -> bool:
        """Can its lock be taken? A file that was found so an hour ago is removed."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            said = os.read(fd, 256).decode("ascii", "replace")
            if not said.endswith(_DEAD):
                os.pwrite(fd, f"{said}{_DEAD}".encode(), 0)  # which also tells when
            elif time.time() - os.fstat(fd).st_mtime > KEPT:
                os.unlink(path)
            return said in (self._boot, f"{self._boot}{_DEAD}")
        except OSError:
            return False  # it is held, or gone
        finally:
            os.close(fd)

    def _sweep(self) -> None:
        """Remove what dead pilots of other servers left."""
        for folder in sorted(name for name in os.listdir(self._folder) if name.startswith(_LOCKS))[:MAX_SIBLINGS]:
            path = os.path.join(self._folder, folder)
            if path != self._locks and _is_ours(path):
                for name in os.listdir(path)[:MAX_SIBLINGS]:
                    self._is_dead(os.path.join(path, name))
                with contextlib.suppress(OSError):  # some live, or died lately
                    os.rmdir(path)

    def close(self) -> None:
        """We end, or are another pilot from here on: our death is nobody's news."""
        if self._held is None:
            return
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._locks, self._name))
        os.close(self._held)
        self._held, self._name = None, ""
        with contextlib.suppress(OSError):  # others are there
            os.rmdir(self._locks)
            os.rmdir(self._folder)


def _is_ours(path: str) -> bool:
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _boot() -> str:
    """What the kernel calls this boot; empty if it does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
