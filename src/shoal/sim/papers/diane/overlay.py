"""The thesis' own overlay: one master that serves workers first come, first served, a request after another [DIANE U4, 6.4].

A worker registers and then asks, the master answers with the task at the head of its queue, and each result is the next
request. The master takes the time of one service for each task; the network takes its latency each way.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

from shoal.report.anatomy import Anatomy, dissect
from shoal.report.history import Attempt, Ending, PilotLife, RunRecord, Timeline


class Master(NamedTuple):
    """The times of a master."""

    latency: float  # seconds, one way
    service: float  # seconds for a request


def process(arrivals: Sequence[float], durations: Sequence[float], master: Master) -> RunRecord:
    """The record of a run: workers that come at these times, and tasks in this order."""
    requests = [(at + 3.0 * master.latency, worker) for worker, at in enumerate(arrivals)]  # registered, then asked
    heapq.heapify(requests)
    record = RunRecord(0.0, 0.0, len(durations))
    free = 0.0
    for task, seconds in enumerate(durations):
        at, worker = heapq.heappop(requests)
        free = max(free, at) + master.service
        start = free + master.latency
        end = start + seconds
        record.attempts.append(Attempt(task, 1, f"w{worker}", start, end, 1, "succeeded"))
        record.endings.append(Ending(end, 1, 1))
        heapq.heappush(requests, (end + master.latency, worker))
    record.end = max(attempt.end for attempt in record.attempts) + master.latency + master.service  # the master knows
    record.pilots = [PilotLife(f"w{worker}", "", 1, at, math.inf) for worker, at in enumerate(arrivals)]
    return record


class Shares(NamedTuple):
    """What the thesis tells of a run [DIANE 6.5], in per cent."""

    missing: float  # the area between the target and the pool
    missing_first: float  # of it, in the submission phase
    missing_main: float  # and in the main phase
    overhead: float  # busy workers less the pool, in both phases before the tail
    overhead_first: float
    overhead_main: float
    tail: float  # its length
    tail_use: float  # busy workers in it


def shares(history: Timeline, target: int) -> Shares:
    """The three-phase anatomy in the thesis' figures."""
    found: Anatomy = dissect(history, target)
    first, main, tail = found.phases
    had = [phase.areas.total - phase.areas.missing for phase in found.phases]
    whole, makespan = had[0] + had[1], history.times[-1] - history.times[0]
    return Shares(
        100.0 * found.share(found.areas.missing), 100.0 * found.share(first.areas.missing),
        100.0 * found.share(main.areas.missing),
        100.0 * (first.areas.overhead + main.areas.overhead) / whole if whole else 0.0,
        100.0 * first.areas.overhead / had[0] if had[0] else 0.0,
        100.0 * main.areas.overhead / had[1] if had[1] else 0.0,
        100.0 * (tail.end - tail.start) / makespan, 100.0 * tail.areas.useful / had[2] if had[2] else 0.0,
    )  # fmt: skip
