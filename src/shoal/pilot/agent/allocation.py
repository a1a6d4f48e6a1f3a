"""The end of the allocation that a pilot runs in: some time before it, tasks are asked to end. Pure, like `agent`.

What cannot keep a checkpoint by then is given back: that the time was over is never the task's fault.
"""

from __future__ import annotations

from typing import Optional

MARGIN = 30.0  # seconds beside the grace of the tasks: to bring checkpoints away and to say goodbye


class Allocation:
    """So many seconds are left at `now`; None: there is no end."""

    def __init__(self, left: Optional[float], now: float) -> None:
        self._left = left
        self.ends = now + left if left is not None else None

    def leave_at(self, grace: float) -> Optional[float]:
        """When to leave. A short allocation is used for its first half at least."""
        if self.ends is None or self._left is None:
            return None
        return self.ends - min(grace + MARGIN, self._left / 2)

    def why(self, now: float) -> str:
        """What is said on leaving."""
        return f"the allocation ends in {max(0.0, (self.ends or now) - now):.0f} s"
