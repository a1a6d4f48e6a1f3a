"""Will a run meet its deadline, and what would raise the chance? Statements before it starts and while it runs, by the
forecast of its end [SPHINX S6; ADR 0054].

Before a run starts its tasks are taken to last as long as those of earlier runs of the same command, on slots that are all
free: `fresh_ends`. While it runs the forecast of `time_left` is asked. numpy is imported where a forecast is made: to say
whether a chance is a risk needs none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shoal.sched.vector.slots import Floats

GOOD = 0.95  # a chance from which on nothing need be done
RISK, CALM = 0.7, 0.85  # a deadline is at risk below the first, and no more from the second on
MOST_SLOTS = 100_000
DRAWS = 400


class Fresh(NamedTuple):
    """A run that has not begun."""

    tasks: int
    durations: tuple[float, ...]  # of tasks alike, as far as they are known
    slots: int  # for such tasks
    idle: tuple[float, ...] = ()  # seconds that a slot was idle before such a task
    failing: float = 0.0  # share of the attempts that had to be repeated


class Statement(NamedTuple):
    """What is said of a deadline before a run starts."""

    chance: float  # of meeting it
    p50: float  # seconds from its start to its end
    p90: float
    slots: int | None = None  # so many would make the chance good; None: it is, or no number would
    tasks: int | None = None  # so many of its tasks have a good chance; None: all have, or not even one


def fresh_ends(run: Fresh, draws: int = DRAWS) -> Floats:
    """Seconds from the start of a run to its end, in each draw; the same each time. There has to be a slot and a duration."""
    import numpy as np

    from shoal.sched.vector.forecast import MODEL_ERROR, Work, makespans

    work = Work(
        waiting=run.tasks, ended=np.array(run.durations), ages=np.empty(0), speeds=np.empty(0),
        arrivals=np.zeros(min(run.slots, max(1, run.tasks))), failing=run.failing, idle=np.array(run.idle), error=MODEL_ERROR,
    )  # fmt: skip
    return makespans(work, np.random.default_rng(0), draws)


def chance_of(ends: Floats, left: float) -> float:
    """The chance that the end comes within so many seconds; draws never make it certain."""
    return (float((ends <= left).sum()) + 0.5) / (len(ends) + 1.0)


def state_fresh(run: Fresh, left: float) -> Statement | None:
    """What to say of a run that is to be done in so many seconds; None while nothing is known of its tasks, or there is no
    slot for them."""
    if not run.durations or run.slots < 1:
        return None
    import numpy as np

    ends = fresh_ends(run)
    chance = chance_of(ends, left)
    p50, p90 = (float(value) for value in np.quantile(ends, (0.5, 0.9)))
    if chance >= GOOD:
        return Statement(chance, p50, p90)

    def is_good(slots: int, tasks: int) -> bool:
        return tasks < 1 or chance_of(fresh_ends(run._replace(slots=slots, tasks=tasks)), left) >= GOOD

    slots = _least(run.slots, min(MOST_SLOTS, run.tasks), lambda count: is_good(count, run.tasks))
    fitting = _least(0, run.tasks, lambda fewer: is_good(run.slots, run.tasks - fewer))
    tasks = run.tasks - fitting if fitting is not None else 0
    return Statement(chance, p50, p90, slots, tasks or None)


def _least(low: int, high: int, is_enough: Callable[[int], bool]) -> int | None:
    """The least number above `low`, and at most `high`, that is enough; None if none is. Searched by halves, and only as
    exactly as a person can use."""
    if high <= low or not is_enough(high):
        return None
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high


def is_at_risk(chance: float, was_at_risk: bool) -> bool:
    """Is a deadline at risk that is met with this chance?"""
    return chance < (CALM if was_at_risk else RISK)


def chance_text(chance: float) -> str:
    """A chance for people, behind what it is of: `= 98 %`, and never 0 or 100."""
    if chance > 0.99:
        return "> 99 %"
    return "< 1 %" if chance < 0.01 else f"= {math.floor(100.0 * chance + 0.5)} %"
