"""The end of the batch allocation that a pilot runs in: some time before it the pilot stops its tasks.

A task that cannot write a checkpoint by then is given back: the end of the allocation is never the task's fault.
"""

from __future__ import annotations

from typing import Optional

MARGIN = 30.0  # seconds beside the grace of the tasks: to upload checkpoints and to report


class Allocation:
    """An allocation with `left` seconds left at `now`; None: it has no end."""

    def __init__(self, left: Optional[float], now: float) -> None:
        self._left = left
        self.ends = now + left if left is not None else None

    def leave_at(self, grace: float) -> Optional[float]:
        """When to leave; at least the first half of a short allocation is used."""
        if self.ends is None or self._left is None:
            return None
        return self.ends - min(grace + MARGIN, self._left / 2)

    def why(self, now: float) -> str:
        """The reason for leaving."""
        return f"the allocation ends in {max(0.0, (self.ends or now) - now):.0f} s"
