"""How many tasks travel at once (A8): enough that talking costs little, few enough that the tail stays short [U8]."""

from __future__ import annotations

from typing import Optional

from shoal.model.limits import MAX_LEASES

AHEAD = 0.5  # seconds of work a pilot may hold beyond what its slots run
SHORT = 0.5  # mean seconds above which nothing is fetched ahead


def ahead(mean: Optional[float], slots: int, ready: int, all_slots: int) -> int:
    """How many short tasks a pilot may hold beyond its free slots.

    Never more than half of its share of what is ready, so that at the tail single tasks go to whoever is free.
    """
    if mean is None or mean > SHORT or slots < 1:
        return 0
    by_time = int(slots * AHEAD / max(mean, 0.0005))
    by_share = ready * slots // (2 * max(all_slots, slots))
    return max(0, min(by_time, by_share, MAX_LEASES))
