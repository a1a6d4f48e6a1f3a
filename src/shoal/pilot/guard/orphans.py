"""Children of the guard that it did not start: what tasks left behind, and whose each of them is."""

from __future__ import annotations

import signal
from collections.abc import Container, Iterable
from typing import NamedTuple, Union

from shoal.pilot.guard import proctree

# Whose a stray process is: one attempt, or any of those that lived when it was first seen.
Owner = Union[str, frozenset[str]]


class ProcessMarks(NamedTuple):
    """By what the processes of an attempt are known."""

    attempt: str
    pid: int
    mark: str
    container: str = ""


class Orphans:
    """All that is left of ended main processes is among these or below them."""

    def __init__(self) -> None:
        self._child_list = proctree.ChildList()
        self._owners: dict[int, Owner] = {}
        self._heirs: dict[int, Owner] = {}  # below a stray that was killed: its owner's as well

    def find(self, started: Container[int], claims: Iterable[ProcessMarks]) -> dict[int, Owner]:
        """Our children by owner, without those that were `started` here."""
        pids = [pid for pid in self._child_list.pids() if pid not in started]
        if not pids:
            self._owners, self._heirs = {}, {}
            return self._owners
        everyone = list(claims)
        known = self._owners
        self._owners = {pid: known[pid] if pid in known else self._judge(pid, everyone) for pid in pids}
        return self._owners

    def of(self, attempt: str) -> list[int]:
        """Those known to be one attempt's, as of the last `find`."""
        return [pid for pid, owner in self._owners.items() if owner == attempt]

    def forget(self, pid: int) -> None:
        """It was reaped."""
        self._owners.pop(pid, None)

    def kill(self, pids: Iterable[int]) -> None:
        """End them. What was below them comes up to us, and is known then."""
        for pid in pids:
            for heir in proctree.descend(pid)[1:]:
                self._heirs[heir] = self._owners[pid]
            proctree.signal_group(pid, signal.SIGKILL)

    def _judge(self, pid: int, everyone: list[ProcessMarks]) -> Owner:
        if pid in self._heirs:
            return self._heirs[pid]
        session, mark = proctree.session(pid), proctree.mark(pid)
        for claim in everyone:
            if session == claim.pid or (mark and mark == claim.mark):
                return claim.attempt
            # Podman's own process beside a container has an environment of its own, but names the container.
            if claim.container and claim.container in proctree.words(pid):
                return claim.attempt
        return frozenset(claim.attempt for claim in everyone)
