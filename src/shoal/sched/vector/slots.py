"""Slots that work through tasks, in many draws at once: as a flow of work, or task by task."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Slots(NamedTuple):
    """The slots in each draw: a row for each, a column for each slot."""

    speeds: Floats
    free: Floats  # seconds until each is free, or there
    is_used: Flags  # those that nothing runs in are not waited for

    def end(self) -> Floats:
        """When the last of those that are used is free."""
        last: Floats = np.where(self.is_used, self.free, 0.0).max(axis=1)
        return last


def flow_end(free: Floats, speeds: Floats, work: Floats) -> Floats:
    """When so much work is done, in each draw, if all slots work at it from when they are free; it can be shared at will."""
    order = np.argsort(free, axis=1, kind="stable")  # fast where they are in order already
    at = np.take_along_axis(free, order, axis=1)
    speed = speeds[order] if speeds.ndim == 1 else np.take_along_axis(speeds, order, axis=1)
    power, start = np.cumsum(speed, axis=1), np.cumsum(speed * at, axis=1)
    # The work that is done when the k-th slot comes grows with k: those that come before the end take part.
    taking = np.maximum(1, (power * at - start < work[:, None]).sum(axis=1)) - 1
    rows = np.arange(len(work))
    end: Floats = (work + start[rows, taking]) / power[rows, taking]
    return end


def one_by_one(slots: Slots, counts: Counts, lengths: Floats) -> Slots:
    """The slots after so many tasks of these lengths, each of which goes to the slot that is free first."""
    free, is_used, rows = slots.free.copy(), slots.is_used.copy(), np.arange(len(slots.free))
    for number in range(lengths.shape[1]):
        slot, is_due = free.argmin(axis=1), number < counts
        free[rows, slot] += np.where(is_due, lengths[:, number] / slots.speeds[slot], 0.0)
        is_used[rows, slot] |= is_due
    return slots._replace(free=free, is_used=is_used)
