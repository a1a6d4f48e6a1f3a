"""When will a run finish? The distribution of its makespan by Monte Carlo [DIANE U11].

The thesis' model of late binding with discrete tasks, extended by what it leaves as future work: slots of different speeds,
and attempts that have to be repeated. How long tasks take is not assumed but taken from those of the run
that have ended, and from those that run: a task that has run for a minute without an end says something, too (the estimator
of Kaplan and Meier). Each draw takes a sample of its own of what was observed, so that few observations give a wide forecast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.sched.vector.pool_changes import Pool, change_ends
from shoal.sched.vector.slots import Counts, Floats, Slots, flow_end, one_by_one
from shoal.sched.vector.tail import SHORTEST, Tail

DRAWS = 200
MOST_OBSERVED = 1_000  # durations that are used; more say little more
# The last tasks are simulated one by one: so many, or so many for each slot. What comes before is a flow of work.
TAIL_TASKS, TAIL_ROUNDS = 1_000, 4
MOST_FAILING = 0.95
MOMENT_DRAWS = 256  # durations in each draw that stand for their mean and deviation

MODEL_ERROR = 0.045  # by which real ends differ from those of the model even where all durations are equal
WIDER = 0.5  # by how much draws are moved from their median with one observation; with more by its root
LONG_IDLE = 0.95  # share of idle times; longer ones count as the longest of these, since the slot had another reason

_NONE = np.empty(0)


class Work(NamedTuple):
    """What is known of a run at one moment. Durations and ages are seconds of a slot of speed 1."""

    waiting: int  # tasks that have not begun
    ended: Floats  # how long the tasks took that have ended
    ages: Floats  # how long those that run have run, one for each of the first slots; NaN where it is not known
    speeds: Floats  # of the slots there are: 2.0 works through a second's work in half a second
    arrivals: Floats = _NONE  # seconds until further slots of speed 1 are there
    failing: float = 0.0  # share of the attempts that have to be repeated
    idle: Floats = _NONE  # seconds that a slot was idle before a task, observed (its section 3.4.2)
    later: int = 0  # tasks that begin when all others have ended
    error: float = 0.0  # relative deviation of real ends from those of this model
    pool: Pool | None = None  # its pilots, where some may be lost and others may come; None: it stays as it is


class Forecast(NamedTuple):
    """Seconds from now until the end, by probability."""

    p10: float
    p50: float
    p90: float


class Seen(NamedTuple):
    """What was seen of a run: places (0 and up) are hosts or pilots whose speeds may differ."""

    ended: Sequence[tuple[int, float]]  # place and duration of each task that ended, as it was there
    running: Sequence[tuple[int, float]]  # place and age of each that runs; place -1: none ended there; NaN: not known
    waiting: int  # tasks that have not begun
    later: int  # tasks that begin when all others have ended
    idle: Sequence[float]  # seconds that a slot was idle before a task
    failing: float  # share of the attempts that had to be repeated
    pool: Pool | None = None  # its pilots, where they may change


def ends_seen(seen: Seen) -> Floats | None:
    """Seconds until the end of a run in each draw, by what was seen of it; None while it is not known. They are the same each
    time: what is shown does not jump by chance."""
    at, durations = [place for place, _ in seen.ended], np.array([duration for _, duration in seen.ended])
    speeds = np.append(estimate_speeds(at, durations, max(at, default=-1) + 1), 1.0)  # the last: where none ended
    here = speeds[[place for place, _ in seen.running]]
    idle = np.array(seen.idle)
    work = Work(
        waiting=seen.waiting, ended=durations * speeds[at], ages=np.array([age for _, age in seen.running]) * here,
        speeds=here, failing=seen.failing, later=seen.later, error=MODEL_ERROR, pool=seen.pool,
        idle=np.minimum(idle, np.quantile(idle, LONG_IDLE)) if len(idle) else idle,
    )  # fmt: skip
    return _ends(work, np.random.default_rng(0), DRAWS)


def forecast(work: Work, rng: np.random.Generator, draws: int = DRAWS) -> Forecast | None:
    """The forecast of a run's end; None while it is not known: no task has ended, or there is no slot."""
    ends = _ends(work, rng, draws)
    return quantiles(ends) if ends is not None else None


def quantiles(ends: Floats) -> Forecast:
    """Draws of an end as a forecast."""
    low, middle, high = np.quantile(ends, (0.1, 0.5, 0.9))
    return Forecast(float(low), float(middle), float(high))


def _ends(work: Work, rng: np.random.Generator, draws: int) -> Floats | None:
    if not (work.waiting or len(work.ages) or work.later):
        return np.zeros(1)
    if not len(work.ended) or not len(work.speeds) + len(work.arrivals):
        return None
    return makespans(work, rng, draws)


def makespans(work: Work, rng: np.random.Generator, draws: int = DRAWS) -> Floats:
    """Seconds until the end in each of the draws."""
    durations = Durations(work, rng, draws)
    speeds = np.concatenate((work.speeds, np.ones(len(work.arrivals))))
    here = len(work.speeds)
    running = min(len(work.ages), here)
    slots = Slots(speeds, np.zeros((draws, len(speeds))), np.zeros((draws, len(speeds)), bool))
    slots.free[:, here:] = work.arrivals
    slots.free[:, :running] = durations.rest(work.ages[:running]) / speeds[:running]
    slots.is_used[:, :running] = True
    failing = min(work.failing, MOST_FAILING)
    tasks = work.waiting + len(work.ages)
    slots = _process(slots, _repeat(tasks, failing, rng, draws) - running, durations, rng)
    end = slots.end()
    if work.later:
        slots = Slots(speeds, np.maximum(slots.free, end[:, None]), np.zeros(slots.free.shape, bool))
        end = _process(slots, _repeat(work.later, failing, rng, draws), durations, rng).end()
    end = _widen(end, 1.0 + WIDER / math.sqrt(min(len(work.ended), MOST_OBSERVED)))
    if work.pool is not None:
        end = change_ends(end, work.pool, rng)
    return end * np.exp(work.error * rng.standard_normal(draws))


def _widen(ends: Floats, factor: float) -> Floats:
    """Draws further from their median: a sample of few observations is narrower than what they were taken from."""
    middle = max(float(np.median(ends)), SHORTEST)
    return np.where(ends > middle, middle + (ends - middle) * factor, middle * (ends / middle) ** factor)


def _repeat(tasks: int, failing: float, rng: np.random.Generator, draws: int) -> Counts:
    """How many attempts so many tasks need: each repetition may fail again, which is a geometric number of them."""
    counts = np.full(draws, tasks)
    return counts + rng.negative_binomial(tasks, 1.0 - failing, draws) if failing > 0 and tasks else counts


def estimate_speeds(places: Sequence[int], durations: Floats, count: int) -> Floats:
    """The speeds of places 0 to `count` - 1 from the durations of tasks that ended there, relative to their mean.

    A mean of few tasks is drawn towards the mean of all, as far as the spread between places may be chance (variance
    components by moments): equal places with skewed tasks get equal speeds.
    """
    at, logs = np.asarray(places, np.intp), np.log(np.maximum(durations, SHORTEST))
    seen = np.bincount(at, minlength=count).astype(float)
    known = seen > 0
    if len(logs) <= known.sum() or known.sum() < 2:
        return np.ones(count)
    centre = float(logs.mean())
    means = np.where(known, np.bincount(at, logs, count) / np.maximum(seen, 1.0), centre)
    within = float(((logs - means[at]) ** 2).sum() / (len(logs) - known.sum()))
    between = float((seen * (means - centre) ** 2).sum()) - (float(known.sum()) - 1.0) * within
    between = max(0.0, between / (len(logs) - float((seen**2).sum()) / len(logs)))
    weight = between / np.maximum(between + within / np.maximum(seen, 1.0), 1e-30)
    return np.where(known, np.exp(-weight * (means - centre)), 1.0)


class Durations:
    """The distribution of task durations, another one in each draw: observations are drawn with replacement, and those
    that have not ended count as longer than they are now. With n ends, the next one is as likely in each of the n + 1 gaps
    around them; beyond the longest a fitted distribution goes on (`tail`)."""

    def __init__(self, work: Work, rng: np.random.Generator, draws: int) -> None:
        # Streams of their own, task by task: with more tasks the first ones are drawn as with fewer.
        self._chance, self._longer, self._shorter = rng.spawn(3)
        ended, ages = _some(work.ended, rng), work.ages[~np.isnan(work.ages)]
        seen = np.maximum(np.concatenate((ended, ages)), SHORTEST)
        is_end = np.arange(len(seen)) < len(ended)
        order = np.lexsort((~is_end, seen))  # of equal ones those that ended come first
        self._times, is_end = seen[order], is_end[order]
        # Of those that reached a moment at which one ended, that share is Beta distributed: -log(1 - share) is exponential.
        at_risk = np.arange(len(seen), 0.0, -1.0)
        hazard = np.where(is_end, rng.standard_exponential((draws, len(seen))) / at_risk, 0.0)
        self._reached = -np.expm1(-np.cumsum(hazard, axis=1))  # probability of an end until then
        self._tail = Tail(seen[: len(ended)], seen[len(ended) :], rng, draws)
        self._idle = rng.choice(work.idle, (draws, len(work.idle))).mean(axis=1) if len(work.idle) else np.zeros(draws)
        self._samples = self._at(self._chances(MOMENT_DRAWS))
        self.mean, self.deviation = self._samples.mean(axis=1) + self._idle, self._samples.std(axis=1)

    def sample(self, count: int) -> Floats:
        """`count` durations in each draw, each with the idle time before it."""
        return self._at(self._chances(count)) + self._idle[:, None]

    def _chances(self, count: int) -> Floats:
        return self._chance.random((count, len(self._reached))).T

    def rest(self, ages: Floats) -> Floats:
        """What is left of attempts that have run for so long, in each draw."""
        if not len(ages):
            return np.empty((len(self._reached), 0))
        is_known = ~np.isnan(ages)
        ages = np.where(is_known, ages, 0.0)
        before = np.array([np.interp(ages, self._times, row, left=0.0) for row in self._reached])
        longer = self._at(before + (1.0 - before) * self._chances(len(ages)), ages)
        return np.where(is_known, longer - ages, self.residual(len(ages)))

    def residual(self, count: int) -> Floats:
        """What is left of a task that a slot is found working at, `count` times in each draw: it is more likely found in a
        long one, by its length."""
        reached = np.cumsum(self._samples, axis=1)
        wanted = self._chances(count) * reached[:, -1:]
        found = np.array([np.searchsorted(row, some) for row, some in zip(reached, wanted, strict=True)])
        lengths = np.take_along_axis(self._samples, np.minimum(found, MOMENT_DRAWS - 1), axis=1)
        return lengths * self._chances(count)

    def _at(self, probability: Floats, least: Floats | None = None) -> Floats:
        """The duration at each probability, but longer than `least`."""
        pairs = zip(self._reached, probability, strict=True)
        found: Floats = np.array([np.interp(wanted, row, self._times) for row, wanted in pairs])
        longest = np.full(found.shape[1], self._times[-1])
        bound = longest if least is None else np.maximum(longest, least)
        is_beyond = probability >= self._reached[:, -1:]
        found = np.where(is_beyond, self._beyond(np.broadcast_to(bound, found.shape)), found)
        if least is not None:
            longer: Floats = np.maximum(found, least)
            return longer
        # The logarithm of a normal variable that is beyond most others exceeds them by about half a deviation.
        shorter = np.exp(-0.5 * self._tail.spread[:, None] * self._shorter.standard_exponential(found.T.shape).T)
        return np.where(probability < self._reached[:, :1], found * shorter, found)

    def _beyond(self, bound: Floats) -> Floats:
        """Durations of the fitted distributions that are longer than this."""
        return self._tail.longer(bound, self._longer.standard_exponential(bound.T.shape).T)


def _some(values: Floats, rng: np.random.Generator) -> Floats:
    return values if len(values) <= MOST_OBSERVED else rng.choice(values, MOST_OBSERVED, replace=False)


def _process(slots: Slots, counts: Counts, durations: Durations, rng: np.random.Generator) -> Slots:
    """The slots after so many tasks."""
    tail = np.minimum(counts, max(TAIL_TASKS, TAIL_ROUNDS * len(slots.speeds)))
    flowed = _flow(slots, counts - tail, durations, rng)
    return one_by_one(flowed, tail, durations.sample(int(tail.max(initial=0))))


def _flow(slots: Slots, counts: Counts, durations: Durations, rng: np.random.Generator) -> Slots:
    """The slots after so many tasks, without looking at each task: all slots work until the work is done, and are then in
    the middle of a task."""
    if not counts.any():
        return slots
    noise = rng.standard_normal(len(counts)) * np.sqrt(counts) * durations.deviation
    work = np.maximum(0.0, counts * durations.mean + noise)
    end = flow_end(slots.free, slots.speeds, work)
    # At that moment each slot is somewhere in a task, so the flow ends with as much work undone as is begun too much.
    left = durations.residual(len(slots.speeds)) / slots.speeds
    end = np.maximum(end - left.mean(axis=1), 0.0)
    takes_part = (counts > 0)[:, None] & (slots.free < end[:, None])
    free = np.where(takes_part, end[:, None] + left, slots.free)
    return slots._replace(free=free, is_used=slots.is_used | takes_part)
