"""How many tasks are sent at once [ADR 0009]: enough that messages cost little, few enough that the tail stays short
[DIANE U8]."""

from __future__ import annotations

from typing import Optional

AHEAD = 0.5  # seconds of work a pilot may hold beyond what its slots run
SHORT = 0.5  # mean seconds above which nothing is fetched ahead
MOST_AHEAD = 1_000  # tasks, however short they are: what an answer brings in a few exchanges
PIECE = 0.02  # seconds of calls that a runner gets at once: what has begun cannot be taken back
LEAST_PIECE = 0.002  # seconds of calls that are not worth being shared between slots
FIRST_PIECE = 4  # calls, while it is not known how long they take
CHAIN = 0.1  # seconds of calls in a lane of a chain: for so long nobody else gets what becomes ready in it
TURN = 0.1  # seconds of short tasks that an owner gets before it is the next one's turn
SLOW = 3.0  # times the mean that a task runs before it gets a second copy, and
SLOW_LEAST = 2.0  # seconds


def ahead(mean: Optional[float], slots: int, ready: int, all_slots: int) -> int:
    """How many short tasks a pilot may hold beyond its free slots; `mean` is how long they take on this pilot.

    Beside other pilots never more than half of its share of what is ready, so that at the tail single tasks go to any free
    slot; what it holds too much when others join is taken back.
    """
    if mean is None or mean > SHORT or slots < 1:
        return 0
    by_time = int(slots * AHEAD / max(mean, 1e-6))
    by_share = ready * slots // (2 * all_slots) if all_slots > slots else ready
    return max(0, min(by_time, by_share, MOST_AHEAD))


def lane_size(mean: float, ready: int, lanes: int) -> int:
    """How many short calls go to a pilot as one of so many lanes: each is made when the one before it has ended."""
    return max(1, min(int(AHEAD / max(mean, 1e-6)), -(-ready // max(1, lanes)), MOST_AHEAD))


def chain_size(mean: Optional[float], slots: int) -> int:
    """How many calls of a chain a pilot may get at once; `mean` is how long they take on it."""
    if mean is None or slots < 1:
        return 0
    return min(int(slots * CHAIN / max(mean, 1e-6)), MOST_AHEAD)


def chain_lanes(work: float, slots: int) -> int:
    """Into how many lanes a chain of so many seconds is divided: as many as there are slots, but none that is over at once."""
    return max(1, min(slots, int(work / LEAST_PIECE)))


def turn(mean: Optional[float]) -> int:
    """How many tasks an owner gets at once where several wait: one, or as many short ones as end in a moment."""
    return max(1, min(25, int(TURN / max(mean, 1e-6)))) if mean is not None else 1


def piece(mean: Optional[float], calls: int, slots: int) -> int:
    """How many of a chunk's calls a runner gets at once: few at first, then some 20 ms of work, and never so many that
    another slot of the pilot is idle for long."""
    if calls <= 1:
        return calls
    share = -(-calls // max(1, slots))
    if mean is None:
        return max(1, min(FIRST_PIECE, share))
    mean = max(mean, 1e-6)
    return max(1, min(calls, int(PIECE / mean), max(share, int(LEAST_PIECE / mean))))


def give_up_share(held: int, slots: int) -> int:
    """How many of a pilot's attempts that have not begun are taken back for pilots that have nothing to do."""
    return max(0, (held - slots) // 2)


def is_straggler(age: float, mean: Optional[float]) -> bool:
    """True if a task has run for so long that an idle slot is worth a second copy."""
    return mean is not None and age > max(SLOW * mean, SLOW_LEAST)
