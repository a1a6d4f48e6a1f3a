"""Orphans: children of the guard that it did not start, and the attempt that left each of them."""

from __future__ import annotations

import signal
from collections.abc import Container, Iterable
from typing import NamedTuple, Union

from shoal.pilot.guard import proctree

# The owner of an orphan: one attempt, or any of those that lived when it was first seen.
Owner = Union[str, frozenset[str]]


class ProcessMarks(NamedTuple):
    """What identifies the processes of an attempt."""

    attempt: str
    pid: int
    mark: str
    container: str = ""


class Orphans:
    """The orphans by owner. All that is left of ended main processes is among them or below them."""

    def __init__(self) -> None:
        self._child_list = proctree.ChildList()
        self._owners: dict[int, Owner] = {}
        self._heirs: dict[int, Owner] = {}  # descendants of an orphan that was killed have the same owner

    def find(self, started: Container[int], marks: Iterable[ProcessMarks]) -> dict[int, Owner]:
        """Our children by owner, without those that were `started` here."""
        pids = [pid for pid in self._child_list.pids() if pid not in started]
        if not pids:
            self._owners, self._heirs = {}, {}
            return self._owners
        attempts, known = list(marks), self._owners
        self._owners = {pid: known[pid] if pid in known else self._find_owner(pid, attempts) for pid in pids}
        return self._owners

    def of(self, attempt: str) -> list[int]:
        """Those known to be one attempt's, as of the last `find`."""
        return [pid for pid, owner in self._owners.items() if owner == attempt]

    def forget(self, pid: int) -> None:
        """Forget a process that was reaped."""
        self._owners.pop(pid, None)

    def kill(self, pids: Iterable[int]) -> None:
        """Kill them. Their descendants become our children, and are recognized then."""
        for pid in pids:
            for heir in proctree.descend(pid)[1:]:
                self._heirs[heir] = self._owners[pid]
            proctree.signal_group(pid, signal.SIGKILL)

    def _find_owner(self, pid: int, attempts: list[ProcessMarks]) -> Owner:
        if pid in self._heirs:
            return self._heirs[pid]
        session, mark = proctree.session(pid), proctree.mark(pid)
        for one in attempts:
            if session == one.pid or (mark and mark == one.mark):
                return one.attempt
            # Podman's own process beside a container has an environment of its own, but names the container.
            if one.container and one.container in proctree.command_line(pid):
                return one.attempt
        return frozenset(one.attempt for one in attempts)
