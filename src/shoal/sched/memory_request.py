"""The memory that tasks of which none is stated are expected to take, from what tasks like them took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

MARGIN = 1.25  # over the largest that was seen: the next one may take a little more
LEAST = 256 << 20  # bytes: below this, what a pilot has for each core suffices anyway
STEP = 64 << 20  # bytes: the request of a run does not change with every task


def learned_request(peaks: Iterable[int]) -> Optional[int]:
    """Bytes to ask for, from the resident memory of the last tasks that succeeded; None if nothing is known.

    A task that runs out of memory all the same is tried again with more [`sched/retry.py`], which then counts here.
    """
    largest = max(peaks, default=0)
    if largest <= 0:
        return None
    return -(-int(max(LEAST, largest * MARGIN)) // STEP) * STEP
