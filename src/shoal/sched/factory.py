"""How many pilots to ask for, and where: the agent factories of [DIANE 4.7]. Nothing is submitted here; a provisioner asks
these functions again and again and does what they say.

The simple factory fills the pool up to a size. The heuristic one also chooses the computing element: at random, in
proportion to how many of the pilots sent there lately run or ended well, with one generic slot by which the grid's own
broker chooses, so that new and recovered elements are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from shoal.model.lazy_dataclass import dataclass

GENERIC = 1.0  # fitness of the generic slot [DIANE 4.7.3]
PENDING, RUNNING, COMPLETED, FAILED = "pending", "running", "completed", "failed"


@dataclass(frozen=True)
class FactoryRule:
    """The bounds of a factory."""

    pool: int  # pilots that run, at most
    max_pending: int  # submissions that wait at once, at most
    seconds_each: float = 0.0  # that a submission takes; the next one begins after it
    memory: float = 86_400.0  # seconds after which a submission that ended is forgotten


class SentPilot(NamedTuple):
    """A pilot that was submitted, as the factory remembers it."""

    element: str  # the computing element that it went to
    status: str
    changed: float  # when it got this status


def missing(rule: FactoryRule, running: int, pending: int) -> int:
    """How many pilots to submit now: to fill the pool, as far as the bound of waiting ones allows."""
    return max(0, min(rule.pool - running - pending, rule.max_pending - pending))


def next_submission(
    rule: FactoryRule, running: int, pending: int, latest: Optional[float], now: float
) -> Optional[float]:
    """When the next pilot is submitted, one after another; None if none is wanted. `latest`: when the one before began."""
    if missing(rule, running, pending) == 0:
        return None
    return now if latest is None else max(now, latest + rule.seconds_each)


def remembered(rule: FactoryRule, sent: Iterable[SentPilot], now: float) -> list[SentPilot]:
    """What still counts: pilots that wait or run, and those that ended not longer ago than the memory."""
    return [one for one in sent if one.status in (PENDING, RUNNING) or now - one.changed <= rule.memory]


def fitness(sent: Iterable[SentPilot]) -> dict[str, float]:
    """For each element, the part of its pilots that run or completed [DIANE 4.7.3, U7]: from 0 to 1."""
    good: dict[str, int] = {}
    total: dict[str, int] = {}
    for one in sent:
        total[one.element] = total.get(one.element, 0) + 1
        good[one.element] = good.get(one.element, 0) + (one.status in (RUNNING, COMPLETED))
    return {element: good[element] / count for element, count in total.items()}


def choose_element(fit: Mapping[str, float], draw: float) -> Optional[str]:
    """The element that a draw from [0, 1) falls on, with probability in proportion to fitness [DIANE 4.7.3, U7]; None is
    the generic slot, whose probability is never 0."""
    left = draw * (GENERIC + sum(fit.values()))
    for element in sorted(fit):  # an order of its own, so that the same draw is the same element
        left -= fit[element]
        if left < 0:
            return element
    return None
