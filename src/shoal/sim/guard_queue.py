"""The commands that a simulated guard has queued behind running ones."""

from __future__ import annotations

from shoal.wire.chunk import names
from shoal.wire.messages import Lease


class GuardQueue:
    """Which command begins when another one ends."""

    def __init__(self) -> None:
        self._next: dict[str, Lease] = {}  # attempt -> the command behind it

    def __contains__(self, attempt: str) -> bool:
        return any(lease.attempt == attempt for lease in self._next.values())

    def add(self, lease: Lease, after: str) -> None:
        """Queue a command behind another one."""
        self._next[after] = lease

    def remove(self, attempt: str) -> bool:
        """Take a command out before it began; the one behind it moves up. False if it is not queued."""
        before = next((name for name, lease in self._next.items() if lease.attempt == attempt), None)
        if before is None:
            return False
        del self._next[before]
        if attempt in self._next:
            self._next[before] = self._next.pop(attempt)
        return True

    def is_piece(self, attempt: str) -> bool:
        """True if a piece of this name is queued."""
        return any(lease.attempt == attempt and lease.count > 1 for lease in self._next.values())

    def holding(self, attempt: str) -> Lease | None:
        """The queued piece that an attempt is one of."""
        return next((lease for lease in self._next.values() if lease.count > 1 and attempt in names(lease)), None)

    def clear(self) -> list[Lease]:
        """Take everything out."""
        leases, self._next = [*self._next.values()], {}
        return leases

    def pop(self, ended: str) -> Lease | None:
        """The command that begins now that another one ended."""
        return self._next.pop(ended, None)
