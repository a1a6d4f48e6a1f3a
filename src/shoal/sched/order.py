"""The order of an owner's tasks: priority, waiting time and deadline, strict or as a weighted sum [GWP 4.3].

Share is the fourth term: in the strict order it decides between owners before anything else (`share`); in the weighted
one it is added for each owner at each request of a pilot.
"""

from __future__ import annotations

from shoal.model.policy import OrderRule

HOUR = 3600.0
DEADLINE_HALF = 3600.0  # seconds before its deadline at which a task has half of what the deadline can give it


def position(rule: OrderRule, priority: float, since: float, due: float, now: float) -> tuple[float, float]:
    """The position of a task that is ready since then; smaller goes first. In the strict order `now` does not matter.

    Positions are compared only if they were computed for the same `now`, which may be a little before `since`: then the
    waiting time is below zero, so that the task that waits for longer is first also then.
    """
    if rule.policy == "strict":
        return -priority, due
    return -rule.priority * priority - rule.waiting * (now - since) / HOUR - rule.deadline * _urgency(due, now), due


def position_inside(rule: OrderRule, since: float, due: float, now: float) -> tuple[float, float]:
    """The same among tasks of one class, which have one priority. Where the weight of deadlines is 0, or the task has no
    deadline, it does not depend on `now`."""
    if rule.policy == "strict":
        return due, 0.0
    return rule.waiting * since / HOUR - rule.deadline * _urgency(due, now), due


def _urgency(due: float, now: float) -> float:
    """How near a deadline is: from 0 (there is none) to 1 (it is over)."""
    return DEADLINE_HALF / (DEADLINE_HALF + max(0.0, due - now))


def share_term(rule: OrderRule, due: float, used: float) -> float:
    """What an owner's share adds in the weighted order: how much of what is due to them they do not have."""
    return rule.share * (due - used)
