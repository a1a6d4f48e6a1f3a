"""Starts that wait in the guard for the end of another attempt, whose room they take over.

A pilot that has many short tasks hands them out ahead, so that a slot is filled the moment it is free, without a word
between two processes.
"""

from __future__ import annotations

from typing import Any, Optional

Order = dict[str, Any]


class QueuedStarts:
    """`start` orders by the attempt that they come after."""

    def __init__(self) -> None:
        self._behind: dict[str, list[Order]] = {}
        self._before: dict[str, str] = {}  # attempt that waits -> the one it waits for

    def __len__(self) -> int:
        return len(self._before)

    def __contains__(self, attempt: str) -> bool:
        return attempt in self._before

    def add(self, order: Order) -> None:
        """An order waits."""
        self._before[order["attempt"]] = order["after"]
        self._behind.setdefault(order["after"], []).append(order)

    def follow(self, attempt: str) -> list[Order]:
        """An attempt is over: what may begin now."""
        orders = self._behind.pop(attempt, [])
        for order in orders:
            del self._before[order["attempt"]]
        return orders

    def drop(self, attempt: str) -> Optional[Order]:
        """One shall not begin any more; what waits for it waits for the one before it."""
        before = self._before.pop(attempt, None)
        if before is None:
            return None
        row = self._behind[before]
        at = next(at for at, order in enumerate(row) if order["attempt"] == attempt)
        dropped, heirs = row[at], self._behind.pop(attempt, [])
        row[at : at + 1] = heirs
        for order in heirs:
            self._before[order["attempt"]] = before
        if not row:
            del self._behind[before]
        return dropped
