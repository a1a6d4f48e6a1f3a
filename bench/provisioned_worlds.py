"""Random planning worlds in which a provisioner has to get machines, each from one number, and the cost of what happened.

    world = draw_world(17)              sites, their queues and limits, and bags of tasks
    run_world(world, "shoal", 0)        a Result: makespan, waste, cost

The cost was fixed before any policy was tuned: makespan x (1 + WEIGHT x waste), where waste is the part of the pilots' core
hours in which no task ran that succeeded then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from shoal.sched.demand import DemandRule
from shoal.sim.distributions import Choice, Constant, Distribution, Exponential, LogNormal, Normal
from shoal.sim.planning.description import Background, Description, PilotLimits, Provision, Site
from shoal.sim.planning.outcome import Outcome
from shoal.sim.planning.workloads import Bag
from shoal.sim.planning.world import PlanningWorld

WEIGHT = 0.25  # of waste in the cost
INTERVAL = 60.0  # seconds between two looks of the provisioner
HOUR = 3_600.0
SHORTEST, LONGEST = 10.0, HOUR  # seconds of a task at speed 1
FEWEST, MOST = 100, 300  # tasks of a bag
BUSIEST = 12 * HOUR  # seconds that the work takes on all cores of all sites at least: above that there are fewer tasks
HORIZON = 30 * 24 * HOUR
VALUES = 200  # durations of which those of a bag are drawn
RETRIES = 20  # more than any task needs, so that each policy does the same work


class World(NamedTuple):
    """Sites and work."""

    number: int
    sites: tuple[Site, ...]
    bags: tuple[Bag, ...]


class Result(NamedTuple):
    """What a policy made of a world. Infinite: the work did not end."""

    makespan: float
    waste: float
    core_hours: float
    pilots: int

    @property
    def cost(self) -> float:
        """What is compared."""
        return self.makespan * (1.0 + WEIGHT * self.waste)


def draw_world(number: int) -> World:
    """The world of this number."""
    rng = Random(f"world {number}")
    sites = [_site(rng, f"site{at}") for at in range(1, rng.randint(1, 5) + 1)]
    # Any task fits at the first site, so that all work can end: no policy is judged by tasks that nobody can run.
    sites[0] = _roomy(rng, sites[0])
    kinds = [1, rng.choice((2, 3, 4))] if rng.random() < 0.3 else [rng.choice((1, 1, 1, 1, 2, 4))]
    bags = [_bag(rng, sites, cores, len(kinds), at) for at, cores in enumerate(kinds)]
    return World(number, tuple(sites), tuple(bags))


def _log_uniform(rng: Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _site(rng: Random, name: str) -> Site:
    """A quick one, one with a long wait, or one whose hosts are shared with other people's jobs."""
    slots, pilots = rng.choice((1, 2, 4, 8, 16)), int(_log_uniform(rng, 2.0, 40.0))
    hosts, background = 0, None
    kind = rng.choice(("quick", "slow", "shared"))
    wait: Distribution = LogNormal(_log_uniform(rng, 20.0, 300.0), rng.uniform(0.2, 0.8))
    if kind == "slow":
        wait = LogNormal(_log_uniform(rng, 600.0, 3 * HOUR), rng.uniform(0.3, 1.0))
    elif kind == "shared":
        hosts, mean = rng.randint(4, 24), _log_uniform(rng, 900.0, 4 * HOUR)
        background = Background(rng.uniform(0.5, 0.97) * hosts * HOUR / mean, Exponential(mean))
    speed = _log_uniform(rng, 0.5, 1.6)
    failing = rng.random() < 0.2
    dying = rng.random() < 0.15
    return Site(
        name,
        hosts,
        slots,
        Normal(speed, 0.1 * speed),
        wait=wait,
        background=background,
        wall=rng.choice((1.0, 2.0, 4.0, 12.0, 24.0)) * HOUR,
        start=LogNormal(rng.uniform(5.0, 60.0), 0.3),
        start_failure=rng.uniform(0.3, 0.9) if failing else 0.0,
        lifetime=Exponential(_log_uniform(rng, 2 * HOUR, 12 * HOUR)) if dying else None,
        task_failure=rng.uniform(0.02, 0.15) if rng.random() < 0.15 else 0.0,
        limits=PilotLimits(pilots, rng.choice((2, 4, 10, 20, 40)), rank=round(speed, 1)),
    )


def _roomy(rng: Random, site: Site) -> Site:
    slots = max(4, site.slots)
    return replace(site, slots=slots, wall=rng.choice((4.0, 12.0, 24.0)) * HOUR, start_failure=0.0, lifetime=None)


def _bag(rng: Random, sites: Sequence[Site], cores: int, kinds: int, at: int) -> Bag:
    values = _durations(rng)
    mean = sum(values) / len(values)
    room = sum(site.limits.max_pilots * (site.slots // cores) for site in sites)
    most = BUSIEST * room / mean / kinds
    tasks = int(_log_uniform(rng, FEWEST, max(2 * FEWEST, min(MOST, most))))
    arrives = rng.uniform(0.0, 2 * HOUR) if at and rng.random() < 0.5 else 0.0
    seconds: Distribution = Constant(values[0]) if len(set(values)) == 1 else Choice(tuple(values))
    return Bag(tasks, seconds, cores, at=arrives, retries=RETRIES)


def _durations(rng: Random) -> list[float]:
    """Durations of tasks: all alike, skewed, or of two lengths."""
    middle, kind = _log_uniform(rng, SHORTEST, LONGEST), rng.choice(("constant", "skewed", "bimodal"))
    if kind == "constant":
        return [round(middle, 1)] * VALUES
    if kind == "skewed":
        spread = rng.uniform(0.3, 1.2)
        values = [middle * math.exp(rng.gauss(0.0, spread)) for _ in range(VALUES)]
    else:
        other, part = _log_uniform(rng, SHORTEST, LONGEST), rng.uniform(0.05, 0.5)
        values = [(other if rng.random() < part else middle) * rng.uniform(0.9, 1.1) for _ in range(VALUES)]
    return [round(min(LONGEST, max(SHORTEST, value)), 1) for value in values]


def run_world(world: World, policy: str | DemandRule, repetition: int) -> Result:
    """Let a policy get the machines; the draws of a repetition are alike for all policies."""
    rule = DemandRule(policy) if isinstance(policy, str) else policy
    description = Description(world.sites, provision=Provision(rule, INTERVAL), horizon=HORIZON)
    outcome = PlanningWorld(description, world.bags, 1_000 * world.number + repetition).run()
    return _judge(outcome)


def _judge(outcome: Outcome) -> Result:
    record = outcome.record
    total = sum(one.slots * (min(one.ended, record.end) - one.joined) for one in record.pilots)
    useful = sum(one.slots * (one.end - one.start) for one in record.attempts if one.outcome == "succeeded")
    makespan = math.inf if outcome.stuck or outcome.failed else outcome.makespan
    return Result(makespan, 1.0 - useful / total if total else 0.0, total / HOUR, outcome.asked)
