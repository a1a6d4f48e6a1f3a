"""A piece of short commands in a simulated guard: what runs of it, and what the pilot was not told yet [ADR 0033]."""

from __future__ import annotations

from shoal.wire.chunk import names, single
from shoal.wire.messages import Batch, Lease, Report


class CommandPiece:
    """Commands that a guard runs one after another, of whose plain successes it tells later, and all at once."""

    def __init__(self, lease: Lease) -> None:
        self.name, self._lease = lease.attempt, lease
        self.count, self.begun, self._told = lease.count, 0, 0
        self._names = names(lease)
        self.stopped: set[str] = set()
        self._rows: list[Report] = []

    def has(self, attempt: str) -> bool:
        """True if this is one of it that was not told of."""
        return attempt in self._names[self._told : self.count]

    def next(self) -> Lease | None:
        """The next command; None: there is none."""
        if self.begun >= self.count:
            return None
        self.begun += 1
        return single(self._lease, self.begun - 1)

    def shorten(self) -> int:
        """Begin no more; returns how many are left in it."""
        self.count = min(self.count, self.begun)
        return self.count

    def add(self, report: Report) -> None:
        """The one that ran has succeeded."""
        self._rows.append(report)

    def tell(self) -> Batch | None:
        """The successes that the pilot was not told of."""
        rows, self._rows = self._rows, []
        self._told += len(rows)
        if not rows:
            return None
        started, lines = [row.started or 0.0 for row in rows], [row.last_line for row in rows]
        return Batch(rows[0].attempt, len(rows), started, [row.duration for row in rows], last_line=lines)

    def tell_one(self) -> None:
        """The pilot is told of one by itself."""
        self._told += 1

    @property
    def untold(self) -> list[str]:
        """Those that the pilot was not told of."""
        return self._names[self._told : self.count]
