"""The agent factories and Shoal's own policy where the product's provisioner asks for pilots: elements as sites of a planning
world, half of which cannot run the program [DIANE 4.7, 7.6]."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from shoal.sched.demand import DemandRule
from shoal.sim.distributions import Constant, Exponential
from shoal.sim.papers.experiment import Inputs
from shoal.sim.planning.description import Description, PilotLimits, Provision, ServerTimes, Site
from shoal.sim.planning.workloads import Batch, Given, Job
from shoal.sim.planning.world import PlanningWorld

HOUR = 3_600.0
RETRIES = 100


class PolicyRun(NamedTuple):
    """What a policy gave."""

    hours: float  # until all results were there
    waste: float  # the part of the pilots' time that gave no result, in per cent


def run_policy(inputs: Inputs, policy: str) -> PolicyRun:
    """Have a demand policy get pilots for a bag of results. Each element gives a few pilots at once, those that are unfit
    give none that works; the pool of the factories is what the fit ones give together."""
    settings = inputs.settings
    count, each = int(settings["elements"]), int(settings["part_pilots"])
    numbers = list(range(count))
    Random(f"{inputs.seed}/part").shuffle(numbers)
    unfit = set(numbers[: round(float(settings["unfit_share"]) * count)])
    pool = each * (count - len(unfit))
    fails_after = float(settings["fails_after_minutes"]) * 60.0
    sites = tuple(
        Site(
            name=f"ce{number:03}", wait=Exponential(float(settings["wait_hours"]) * HOUR),
            start=Constant(fails_after if number in unfit else 0.0),
            start_failure=1.0 if number in unfit else float(settings["mishap"]),
            lifetime=Exponential(float(settings["life_hours"]) * HOUR), wall=10.0 * float(settings["life_hours"]) * HOUR,
            limits=PilotLimits(max_pilots=each, max_queued=each),
        )
        for number in range(count)
    )  # fmt: skip
    # With the default of an hour no result would ever end: its duration stays unknown, and the next pilots are as short.
    rule = DemandRule(policy=policy, pool=pool, scout_seconds=float(settings["part_scout_hours"]) * HOUR)
    description = Description(
        sites=sites,
        server=ServerTimes(Constant(settings["shoal_commit_s"]), settings["shoal_service_s"]),
        task_start=Constant(settings["shoal_task_start_s"]),
        provision=Provision(
            rule, float(settings["part_minutes"]) * 60.0, float(settings["memory_hours"]) * HOUR
        ),
    )  # fmt: skip
    seconds = float(settings["first_result_hours"]) * HOUR
    jobs = [Job(seconds)] * (pool * int(settings["part_tasks"]))
    world = PlanningWorld(description, [Given(Batch(jobs, retries=RETRIES))], inputs.seed)
    found = world.run()
    assert world.provisioner is not None
    up = sum(min(one.ended, found.makespan) - one.joined for one in found.record.pilots)
    unfit_names = {sites[number].name for number in unfit}
    up += fails_after * sum(world.provisioner.ended_at[name] for name in unfit_names)
    return PolicyRun(found.makespan / HOUR, 100.0 * (1.0 - found.succeeded * seconds / up))
