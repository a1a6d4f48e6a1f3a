"""Addresses of our server that were left in directories of the site: by a provisioner when the server woke up elsewhere, or by a
pilot that reached it. They are for pilots whose own addresses of it do not answer any more.

An address that was left is a hint and nothing more: who answers there has to show a certificate of the CA that our join string
names [protocol 9], so a wrong one costs a connection. A directory of a site may hang for minutes: it is looked at on a thread of
its own, and what was found last is what counts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from queue import SimpleQueue
from typing import Callable

from shoal.wire.join import MAX_ADDRESSES, Join, address_file, parse_place

log = logging.getLogger(__name__)

_MAX_FILE = 1 << 13
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def folder_in(base: str) -> str:
    """The folder of this account in a directory that others may write to, too."""
    return os.path.join(base, f"shoal-addresses-{os.getuid()}")


class LeftAddresses:
    """What was left of one server. May be used by several threads."""

    def __init__(self, join: Join, folder: str = "", shared: str = "") -> None:
        """`folder`: of a provisioner, read only; `shared`: all hosts of the site see it, and pilots write to it."""
        self._join, self._name = join, address_file(join.fingerprint)
        self._shared = folder_in(shared) if shared else ""
        self._folders = [one for one in (folder, self._shared) if one]
        self.found: tuple[str, ...] = ()
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._is_looking = False
        self._thread = threading.Thread(target=self._run, name="left-addresses", daemon=True)

    def start(self) -> None:
        """Start the thread, if there is a directory to look at."""
        if self._folders:
            self._thread.start()

    def look(self) -> None:
        """The server is not where we know it: see where else it may be, for the next try."""
        if not self._is_looking:  # those of a directory that hangs must not pile up
            self._is_looking = True
            self._jobs.put(self._look)

    def leave(self, address: str) -> None:
        """The server is there: leave that for others."""
        if self._shared:
            self._jobs.put(lambda: self._leave(address))

    def wait(self, within: float) -> None:
        """Return when what was asked for before is done."""
        done = threading.Event()
        self._jobs.put(done.set)
        done.wait(within)

    def _run(self) -> None:
        while True:
            self._jobs.get()()

    def _look(self) -> None:
        self._is_looking = False
        found = dict.fromkeys(one for folder in self._folders for one in self._read(folder))
        after = tuple(one for one in found if one not in self._join.addresses)[:MAX_ADDRESSES]
        if after != self.found:
            log.info("server elsewhere: %d other addresses were left at this site", len(after))
            self.found = after

    def _leave(self, address: str) -> None:
        left = self._read(self._shared)
        if address in left:
            return
        kept = (address, *left)[:MAX_ADDRESSES]
        path, part = os.path.join(self._shared, self._name), os.path.join(self._shared, f".{self._name}.{os.getpid()}")
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._shared, 0o700)
            if not _is_ours(os.lstat(self._shared), stat.S_ISDIR):
                raise PermissionError(0, "it is not ours alone")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            with os.fdopen(os.open(part, _WRITE, 0o600), "wb") as file:
                file.write(f"{Join(kept, self._join.fingerprint, '').place}\n".encode())
            os.rename(part, path)
        except OSError as error:
            log.warning("the server's address is not left in %s: %s", self._shared, error.strerror)

    def _read(self, folder: str) -> tuple[str, ...]:
        try:
            if not _is_ours(os.lstat(folder), stat.S_ISDIR):
                return ()
            with os.fdopen(os.open(os.path.join(folder, self._name), _READ), "rb") as file:
                if not _is_ours(os.fstat(file.fileno()), stat.S_ISREG):
                    return ()
                return parse_place(file.read(_MAX_FILE).decode("utf-8", "replace"), self._join)
        except OSError:
            return ()


def _is_ours(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """True if it is of that kind and of our account, and nobody else may change it."""
    return is_kind(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
