"""The end of the batch allocation that a pilot runs in, or of its own lifetime: some time before it the pilot stops its
tasks.

A task that cannot write a checkpoint by then is given back: the end of the allocation is never the task's fault.
"""

from __future__ import annotations

from typing import Optional

MARGIN = 30.0  # seconds beside the grace of the tasks: to upload checkpoints and to report
OWN_MARGIN = 5.0  # the same before the end of its own lifetime, when nobody kills it


class Allocation:
    """An allocation with `left` seconds left at `now`; None: it has no end. `own`: the same for the lifetime that the
    pilot was given; the one that ends first counts."""

    def __init__(self, left: Optional[float], now: float, own: Optional[float] = None) -> None:
        self._is_own = own is not None and (left is None or own < left)
        self._left = own if self._is_own else left
        self.ends = now + self._left if self._left is not None else None

    def leave_at(self, grace: float) -> Optional[float]:
        """When to leave; at least the first half of a short allocation is used."""
        if self.ends is None or self._left is None:
            return None
        return self.ends - min(grace + (OWN_MARGIN if self._is_own else MARGIN), self._left / 2)

    def left(self, now: float, grace: float) -> Optional[float]:
        """Seconds that tasks have here, for the registration. Of a lifetime they end when the pilot leaves, so that what
        is leased by its time limit can end; of an allocation with the allocation."""
        ends = self.leave_at(grace) if self._is_own else self.ends
        return max(0.0, ends - now) if ends is not None else None

    def why(self, now: float) -> str:
        """The reason for leaving."""
        what = "its lifetime" if self._is_own else "the allocation"
        return f"{what} ends in {max(0.0, (self.ends or now) - now):.0f} s"
