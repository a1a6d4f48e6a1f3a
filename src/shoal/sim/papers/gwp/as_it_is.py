"""Shoal as it is on the long multiplications: the product's engine and agents, with the pilots that the paper's best system
had in the same test and seed.

A pilot comes when it came there, and dies when it was dropped there for a failed task. Pilots that ended there because they
were idle go on here, and the one that replaced them does not come, so that there are never more. All tasks are submitted at
once: the script that keeps 1,000 of them in a system is the paper's, not Shoal's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.model.policy import Policy
from shoal.sim.distributions import Constant, Uniform
from shoal.sim.network import Link
from shoal.sim.papers.gwp.pilots import GridTest, Life
from shoal.sim.papers.gwp.workload import MACHINES, is_long, output_bytes, seconds_of
from shoal.sim.planning.description import Arrival, Description, Pilots, ServerTimes, Site, Storage
from shoal.sim.planning.outcome import Outcome
from shoal.sim.planning.workloads import Batch, Given, Job
from shoal.sim.planning.world import PlanningWorld

FASTER = "X5365"


class Latencies(NamedTuple):
    """What Shoal's own parts take, and what the network between them takes: seconds."""

    network: float  # one way
    service: float  # of the server for a message
    commit: float
    start: float  # of a process
    transfer: float  # of the files of a task, beside their bytes
    bandwidth: float  # bytes a second; 0: nothing is transferred


class AsItIs(NamedTuple):
    """What came out."""

    makespan: float  # seconds
    filling: float  # per cent, until as many tasks are left as in the paper's measure


def arrivals(lives: Sequence[Life], long_tasks: bool) -> list[Arrival]:
    """The pilots of a system as Shoal has them."""
    found, spare = [], 0
    ends = sorted(life.end for life in lives if not life.was_dropped and not math.isinf(life.end))
    for life in sorted(lives):
        while ends and ends[0] <= life.start:
            ends.pop(0)
            spare += 1
        if spare:
            spare -= 1  # it replaces one that is still there
            continue
        speed = MACHINES[FASTER][long_tasks] / MACHINES[life.machine][long_tasks]
        found.append(Arrival(life.start, 1, speed, life.end if life.was_dropped else None))
    return found


def run_shoal(
    grid: GridTest, lives: Sequence[Life], latencies: Latencies, seed: int, policy: Policy | None = None,
    pulling: tuple[float, float] = (0.0, 0.0),
) -> AsItIs:  # fmt: skip
    """Run the test with the product's engine and agents. `pulling`: from when to when after its lease a pilot asks for the task,
    as the paper's pilots do; Shoal's have their task with the lease."""
    long_tasks = is_long(grid.test)
    megabytes = 1e-6 if latencies.bandwidth else 0.0
    jobs = tuple(
        Job(seconds_of(grid.test, number, FASTER), output_mb=megabytes * output_bytes(grid.test, number))
        for number in range(grid.tasks)
    )
    before = latencies.start + latencies.transfer
    storage = Storage(latencies.bandwidth / 1e6) if latencies.bandwidth else None
    description = Description(
        sites=(Site(storage=storage),),
        pilots=Pilots(arrivals=tuple(arrivals(lives, long_tasks))),
        link=Link(Constant(latencies.network)),
        server=ServerTimes(Constant(latencies.commit), latencies.service),
        task_start=Uniform(pulling[0] + before, pulling[1] + before) if any(pulling) else Constant(before),
        policy=policy,
    )
    outcome = PlanningWorld(description, (Given(Batch(jobs)),), seed).run()
    return AsItIs(outcome.makespan, filling(outcome, grid.managed, sum(pulling) / 2))


def filling(outcome: Outcome, left: int, idle_each: float = 0.0) -> float:
    """The part of their time in which pilots had a task, in per cent, until so many tasks are left. `idle_each`: seconds of
    an attempt in which its pilot had not asked for it yet."""
    ends = sorted(one.time for one in outcome.record.endings)
    until = ends[-left] if len(ends) >= left else outcome.makespan
    busy = _within(((one.start + idle_each, one.end) for one in outcome.record.attempts), until)
    up = _within(((one.joined, one.ended) for one in outcome.record.pilots), until)
    return 100.0 * busy / up if up else 0.0


def _within(spans: Iterable[tuple[float, float]], until: float) -> float:
    return sum(max(0.0, min(end, until) - start) for start, end in spans)
