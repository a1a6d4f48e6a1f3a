"""Addresses of our server that were left in directories of the site: by a provisioner when the server woke up elsewhere, or by a
pilot that reached it. They are for pilots whose own addresses of it do not answer any more.

An address that was left is a hint and nothing more: who answers there has to show a certificate of the CA that our join string
names [protocol 9], so a wrong one costs a connection. A directory of a site may hang for minutes: it is looked at on a thread of
its own, and what was found last is what counts.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import Callable

from shoal.pilot.uplink import left_files
from shoal.wire.join import MAX_ADDRESSES, Join, address_file, parse_place

log = logging.getLogger(__name__)


class LeftAddresses:
    """What was left of one server. May be used by several threads."""

    def __init__(self, join: Join, folder: str = "", shared: str = "") -> None:
        """`folder`: of a provisioner, read only; `shared`: all hosts of the site see it, and pilots write to it."""
        self._join, self._name = join, address_file(join.fingerprint)
        self._shared = left_files.folder_in(shared) if shared else ""
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
        if address not in left:
            kept = Join((address, *left)[:MAX_ADDRESSES], self._join.fingerprint, "")
            left_files.write(self._shared, self._name, f"{kept.place}\n")

    def _read(self, folder: str) -> tuple[str, ...]:
        return parse_place(left_files.read(folder, self._name), self._join)
