"""What pilots that are lost, or come, while a run goes on do to its end.

Nobody tells beforehand that a pilot will be lost. How often it happens is estimated from what was seen of the run: the number
of changes in its length follows a Poisson distribution whose rate has a Gamma distribution. Before anything was seen that is as
if a fifth of a change had been seen in one whole run. Time is counted in lengths of the run: a minute and a night are treated
alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.sched.vector.slots import Floats

PRIOR_CHANGES, PRIOR_RUNS = 0.2, 1.0
MOST_CHANGES = 4  # of each kind in one draw; with more of them nothing is known anyway


class Pool(NamedTuple):
    """The pilots of a run at one moment."""

    pilots: int  # that run its tasks now
    lost: int  # that were lost since it began
    joined: int  # that came since it began
    progress: float  # share of the run that is done


def change_ends(ends: Floats, pool: Pool, rng: np.random.Generator) -> Floats:
    """The ends of draws in which pilots are lost and others come, from those of an unchanged pool. Work is a flow: a pilot takes
    its share of the capacity with it, and one that comes brings as much. The last one is not lost: then nothing could be said."""
    draws, left = len(ends), 1.0 - pool.progress
    lost = _counts(pool.lost, pool, left, rng, draws)
    joined = _counts(pool.joined, pool, left, rng, draws)
    # A row for each draw: the moments of its changes, as shares of the rest, and what each does to the number of pilots.
    moments = rng.random((draws, 2 * MOST_CHANGES))
    steps = np.repeat((-1.0, 1.0), MOST_CHANGES)[None, :] * np.ones((draws, 1))
    number = np.tile(np.arange(MOST_CHANGES), 2)
    moments[number[None, :] >= np.where(steps < 0, lost[:, None], joined[:, None])] = np.inf
    order = np.argsort(moments, axis=1)
    moments, steps = np.take_along_axis(moments, order, axis=1), np.take_along_axis(steps, order, axis=1)
    pilots, done, at, end = np.full(draws, float(pool.pilots)), np.zeros(draws), np.zeros(draws), np.full(draws, np.nan)
    for moment, step in zip(moments.T, steps.T, strict=True):
        speed = pilots / pool.pilots
        ends_before = np.isnan(end) & (done + speed * (moment - at) >= 1.0)
        end = np.where(ends_before, at + (1.0 - done) / speed, end)
        is_open = np.isnan(end)
        done = np.where(is_open, done + speed * np.where(is_open, moment - at, 0.0), done)
        at = np.where(is_open, moment, at)
        pilots = np.where(is_open, np.maximum(1.0, pilots + step), pilots)
    return ends * np.where(np.isnan(end), at + (1.0 - done) * pool.pilots / pilots, end)


def _counts(seen: int, pool: Pool, left: float, rng: np.random.Generator, draws: int) -> Floats:
    rates = rng.gamma(PRIOR_CHANGES + seen, 1.0 / (PRIOR_RUNS + pool.progress), draws)
    return np.minimum(rng.poisson(rates * left), MOST_CHANGES).astype(float)
