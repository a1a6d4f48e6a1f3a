"""How long work takes with early and with late binding, in many draws at once [DIANE 3.4, U11].

With early binding (`G`) the work is cut into as many equal jobs as are submitted, and each is bound to its job then. With late
binding (`U`) slots take work when they come, as a flow (`U0`) or task by task with idle time before each (`U1`). The thesis'
future work: slots of different speeds (`G2`, `U2`) and attempts that fail (`G3`, `U3`). With early binding a failed job is
submitted again and waits again; with late binding its task goes to the next free slot. Work is in seconds of a slot of speed 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shoal.sched.vector.slots import Counts, Floats, flow_end

Draw = Callable[[int], Floats]  # so many new waits
MOST_TRIES = 1_000  # of one job; whoever fails so often has no distribution
HALVINGS = 64


class Late(NamedTuple):
    """The end of the work in each draw, and how many slots took part in it."""

    end: Floats
    used: Counts


def early(
    waits: Floats, work: float, speeds: Floats | float = 1.0, failing: float = 0.0,
    again: Draw | None = None, rng: np.random.Generator | None = None,
) -> Floats:  # fmt: skip
    """The makespan of early binding (`G0`, `G2`, `G3`): of each draw the last of its jobs. `failing`: the share of the attempts
    that fail, at their end; `again` draws the waits of those that are submitted again."""
    job = work / waits.shape[1] / np.broadcast_to(speeds, waits.shape)
    ends = waits + job
    if failing > 0.0:
        if again is None or rng is None:
            raise ValueError("failing jobs wait again, so waits and randomness are needed")
        failed = rng.random(ends.shape) < failing
        for _ in range(MOST_TRIES):
            count = int(failed.sum())
            if not count:
                break
            ends[failed] += again(count) + job[failed]
            failed[failed] = rng.random(count) < failing
    last: Floats = ends.max(axis=1)
    return last


def late_flow(waits: Floats, work: Floats | float, speeds: Floats | float = 1.0) -> Late:
    """The makespan of late binding if work can be shared at will (`U0`, and with speeds the bound of `U2`)."""
    power = np.broadcast_to(np.asarray(speeds, np.float64), waits.shape)
    end = flow_end(waits, power, np.broadcast_to(np.asarray(work, np.float64), len(waits)))
    return Late(end, (waits < end[:, None]).sum(axis=1))


def late_tasks(
    waits: Floats, work: float, tasks: int, idle: float = 0.0, speeds: Floats | float = 1.0,
    failing: float = 0.0, rng: np.random.Generator | None = None,
) -> Late:  # fmt: skip
    """The makespan of late binding with equal tasks, each taken by the slot that is free first (`U1`, `U2`, `U3`). `idle`:
    seconds that a slot loses with each task; `failing`: the share of the attempts that fail, at their end, and are repeated.

    A slot begins tasks at its wait and then once in each `idle` + its time for a task, so that the n-th task of all begins
    at the n-th of these moments: found by halving, without looking at each task.
    """
    each = idle + work / tasks / np.broadcast_to(np.asarray(speeds, np.float64), waits.shape)
    counts = np.full(len(waits), tasks)
    if failing > 0.0:
        if rng is None:
            raise ValueError("failing tasks need randomness")
        counts += rng.negative_binomial(tasks, 1.0 - failing, len(waits))
    low, high = waits.min(axis=1), (waits[:, 0] + counts * each[:, 0])
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        is_enough = _begun(waits, each, middle).sum(axis=1) >= counts
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    taken = _begun(waits, each, high)
    ends = np.where(taken > 0, waits + taken * each, 0.0)
    return Late(ends.max(axis=1), (taken > 0).sum(axis=1))


def _begun(waits: Floats, each: Floats, at: Floats) -> Counts:
    """How many tasks each slot has begun until then, if there are always more."""
    rounds = np.floor((at[:, None] - waits) / each)
    return np.where(rounds >= 0.0, rounds + 1.0, 0.0).astype(np.int64)
