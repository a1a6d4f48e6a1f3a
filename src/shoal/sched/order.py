"""In which order an owner's tasks go: fixed priority, waiting time and deadline, strict or as a weighted sum [GWP 4.3].

Share is the fourth term: in the strict order it decides between owners before anything else (`share`); in the weighted
one it is added for each owner when a pilot asks.
"""

from __future__ import annotations

from shoal.model.policy import OrderRule

HOUR = 3600.0
DEADLINE_HALF = 3600.0  # seconds before its deadline at which a task has half of what the deadline can give it


def place(rule: OrderRule, priority: float, since: float, due: float, now: float) -> tuple[float, float]:
    """Where a task that is ready since then stands; smaller goes first. In the strict order `now` does not matter."""
    if rule.policy == "strict":
        return -priority, due
    waited = max(0.0, now - since) / HOUR
    left = max(0.0, due - now)
    urgency = DEADLINE_HALF / (DEADLINE_HALF + left)
    return -(rule.priority * priority + rule.waiting * waited + rule.deadline * urgency), due


def share_term(rule: OrderRule, due: float, used: float) -> float:
    """What an owner's share adds in the weighted order: how much of what is due to them they do not have."""
    return rule.share * (due - used)
