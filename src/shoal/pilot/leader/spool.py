"""Copies of reports on a disk: those of pilots of this host, and those that other members of the mesh gave us to keep
[promise I18; ADR 0062].

One file for each copy, written whole or not at all. The folder outlives the pilots: whichever comes next delivers what is in it.
Who could alter a file has our account; the seal shows it to the server.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Iterable
from typing import Optional

from shoal.model.errors import ShoalError
from shoal.model.limits import COPY_KEPT, MAX_COPIES, MAX_COPIES_BYTES, MAX_SEALED_FRAME
from shoal.wire import codec
from shoal.wire.messages import Sealed

log = logging.getLogger(__name__)

_NAME = re.compile(r"([0-9a-f]{16})-(p[0-9a-f]{1,16})-([0-9a-f]{64})", re.ASCII)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
COUNT_EVERY = 10.0  # seconds between two looks at how much there is


def folder_in(base: str) -> str:
    """The folder for copies below `base`. It is made with the first of them, and goes with the last."""
    return os.path.join(base, f"shoal-reports-{os.getuid()}")


def _is_ours(folder: str, make: bool = False) -> bool:
    """True if the folder is there, and safely ours."""
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        found = os.lstat(folder)
    except OSError as error:
        if make:
            log.warning("no copies of reports are kept in %s: %s", folder, error.strerror)
        return False
    # A folder below one with the set-group-ID bit has that bit, too.
    is_ours = (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) & 0o777 == 0o700
    )
    if make and not is_ours:
        log.warning("no copies of reports are kept in %s: it is not ours alone", folder)
    return is_ours


class Spool:
    """The copies in one folder that are meant for one server. May be used by several threads."""

    def __init__(self, folder: str, server: str) -> None:
        self._folder, self._server = folder, server
        self._mutex = threading.Lock()
        self._count = self._bytes = 0
        self._counted_at = float("-inf")

    def put(self, copy: Sealed) -> bool:
        """Keep a copy; False: there is no space, or it cannot be written."""
        name = f"{self._server}-{copy.pilot}-{copy.seal}"
        if _NAME.fullmatch(name) is None or not _is_ours(self._folder, make=True):
            return False
        data, path = codec.encode(copy), os.path.join(self._folder, name)
        with self._mutex:
            self._measure()
            if os.path.exists(path):
                return True
            if self._count >= MAX_COPIES or self._bytes + len(data) > MAX_COPIES_BYTES:
                return False
            part = os.path.join(self._folder, f".{copy.seal}.{os.getpid()}")
            try:
                fd = os.open(part, _WRITE, 0o600)
                try:
                    with os.fdopen(fd, "wb") as file:
                        file.write(data)
                        file.flush()
                        os.fsync(file.fileno())
                    os.rename(part, path)
                except OSError:
                    _remove(part)
                    raise
            except OSError as error:
                log.error("a copy of reports cannot be kept: %s", error.strerror)
                return False
            self._count, self._bytes = self._count + 1, self._bytes + len(data)
        return True

    def drop(self, pilot: str, seals: Iterable[str]) -> None:
        """These copies of a pilot are not needed any more."""
        for seal in seals:
            name = f"{self._server}-{pilot}-{seal}"
            if _NAME.fullmatch(name) is not None and _is_ours(self._folder):
                _remove(os.path.join(self._folder, name))
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)  # which only an empty folder lets us do

    def copies(self, but: str, most: int, most_bytes: int, not_these: Iterable[str] = ()) -> list[Sealed]:
        """Some of the copies here, without those of one pilot and those with these seals; too old ones are deleted."""
        found: list[Sealed] = []
        size, barred, oldest = 0, set(not_these), time.time() - COPY_KEPT
        for name in self._names():
            match = _NAME.fullmatch(name)
            if match is None or match[1] != self._server or match[2] == but or match[3] in barred:
                continue
            path = os.path.join(self._folder, name)
            copy = _read(path, oldest)
            if copy is None or (copy.pilot, copy.seal) != (match[2], match[3]):
                _remove(path)
                continue
            size += len(copy.body)
            if found and (len(found) >= most or size > most_bytes):
                break
            found.append(copy)
        return found

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._folder)) if _is_ours(self._folder) else []
        except OSError:
            return []

    def _measure(self) -> None:
        """Count what is here: other pilots of this host write here, too. What is too old is deleted, whichever server it is for,
        and so are parts that a killed pilot left."""
        if time.monotonic() < self._counted_at + COUNT_EVERY:
            return
        self._counted_at = time.monotonic()
        self._count = self._bytes = 0
        oldest = time.time() - COPY_KEPT
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_mtime < oldest:
                        os.unlink(entry.path)
                        continue
                    self._bytes += status.st_size
                    self._count += 1


def _read(path: str, oldest: float) -> Optional[Sealed]:
    """The copy in a file; None if it is none, or too old."""
    try:
        with os.fdopen(os.open(path, _READ), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_mtime < oldest:
                return None
            data = file.read(MAX_SEALED_FRAME + 1)
        return codec.decode(Sealed, data) if len(data) <= MAX_SEALED_FRAME else None
    except (OSError, ShoalError):
        return None


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
