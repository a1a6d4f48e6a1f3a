"""`u.docking`: the screening against avian flu, late binding beside jobs of 40 dockings (table 5.1) [DIANE 5.4].

Late: a pool of workers is kept filled, a docking is a task, and what a worker loses is one docking. Early (WISDOM): a job is
a batch of 40 dockings, one that fails or whose output is lost is repeated as a whole, and people fill up the pool.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import numpy as np

from shoal.sched.demand import DemandRule
from shoal.sched.provisioning.view import SHOAL, SIMPLE
from shoal.sim.distributions import Constant, Quantiles
from shoal.sim.network import Link
from shoal.sim.papers.agreement import AtLeast, AtMost, NotJudged, Printed
from shoal.sim.papers.diane.failing_workers import Life, most_at_once, process_with_losses
from shoal.sim.papers.diane.overlay import Master
from shoal.sim.papers.diane.queue_waits import MIDDLE, UPPER, waits_for, waits_parameter
from shoal.sim.papers.experiment import (
    Ablation,
    AsItIs,
    Claim,
    Experiment,
    Inputs,
    Measured,
    Parameter,
    Plot,
    Source,
    Value,
)
from shoal.sim.papers.product import TIMES
from shoal.sim.planning.description import Description, PilotLimits, Provision, ServerTimes, Site
from shoal.sim.planning.workloads import Batch, Given, Job
from shoal.sim.planning.world import PlanningWorld

HOUR, DAY, YEAR = 3_600.0, 86_400.0, 365.25 * 86_400.0
NEVER = 1e9
RETRIES = 100
STEPS = 28  # points of a curve
NO_FAILURES: dict[str, Value] = {"job_failure": 0.0, "output_failure": 0.0}
ALWAYS_WATCHED: dict[str, Value] = {"manual_hours": 1.0 / 60.0}


class Campaign(NamedTuple):
    """A whole screening."""

    seconds: float  # until the last docking is there
    work: float  # seconds of one processor
    lives: list[Life]  # of jobs while they run

    @property
    def crunching(self) -> float:
        """The thesis' crunching factor: work over duration."""
        return self.work / self.seconds

    @property
    def efficiency(self) -> float:
        """The thesis' distribution efficiency, in per cent: crunching factor over the most processors at once."""
        return 100.0 * self.crunching / most_at_once(self.lives)

    @property
    def job_hours(self) -> float:
        """How long a job runs, on average."""
        return sum(one.end - one.start for one in self.lives) / len(self.lives) / HOUR


class Grid:
    """Jobs of a seed: how long they wait, and what becomes of them."""

    def __init__(self, inputs: Inputs, stream: str) -> None:
        self._waits, self._rng = waits_for(inputs), inputs.rng(stream)
        self._drawn: deque[float] = deque()
        self._chances = Random(f"{inputs.seed}/{stream}")
        self._job_failure = float(inputs.settings["job_failure"])
        self._output_failure = float(inputs.settings["output_failure"])

    def wait(self) -> float:
        """Seconds in the queue."""
        if not self._drawn:
            self._drawn.extend(self._waits.sample(self._rng, 4_096).tolist())
        return self._drawn.popleft()

    def survives(self, seconds: float) -> float:
        """For how many seconds of its life a job runs: all of them, unless it fails, which is as likely at any time."""
        return seconds * self._chances.random() if self._chances.random() < self._job_failure else seconds

    def loses_output(self) -> bool:
        """True if an output does not arrive."""
        return self._chances.random() < self._output_failure

    def workers(self, life: float) -> Iterator[Life]:
        """The workers of one place of a pool, one after another."""
        now = 0.0
        while True:
            start = now + self.wait()
            now = start + self.survives(life)
            yield Life(start, now)


def durations_of(inputs: Inputs, stream: str, count: int, mean: float) -> list[float]:
    """Seconds of each docking, of which only the mean is printed."""
    spread = float(inputs.settings["spread"])
    drawn = np.exp(spread * inputs.rng(stream).standard_normal(count) - 0.5 * spread**2)
    found: list[float] = (mean * drawn / drawn.mean()).tolist()
    return found


def late(inputs: Inputs) -> Campaign:
    """One task for each docking, on a pool that is kept filled."""
    settings, grid = inputs.settings, Grid(inputs, "late")
    count = int(settings["late_dockings"])
    durations = durations_of(inputs, "late dockings", count, settings["late_years"] * YEAR / count)
    pool = [grid.workers(settings["life_h"] * HOUR) for _ in range(int(settings["late_cpus"]))]
    master = Master(float(settings["idle_s"]) / 2.0, 1.0 / float(settings["master_hz"]))
    run = process_with_losses(pool, durations, master, float(settings["missed_s"]), grid.loses_output)
    return Campaign(run.end, sum(durations), run.lives)


def early(inputs: Inputs) -> Campaign:
    """Jobs of many dockings; those that give nothing are sent again when people look, who also fill up the pool then."""
    settings, grid = inputs.settings, Grid(inputs, "early")
    count, batch = int(settings["early_dockings"]), int(settings["batch"])
    durations = durations_of(inputs, "early dockings", count, settings["early_years"] * YEAR / count)
    every = float(settings["manual_hours"]) * HOUR
    waiting = deque(sum(durations[at : at + batch]) for at in range(0, count, batch))
    free = int(settings["early_cpus"])
    running: list[tuple[float, float]] = []  # ends of jobs, and the work that is to be repeated then
    lives: list[Life] = []
    now = end = 0.0
    while waiting or running:
        while running and running[0][0] <= now:
            lost = heapq.heappop(running)[1]
            free += 1
            if lost:
                waiting.append(lost)
        while free and waiting:
            seconds = waiting.popleft()
            free -= 1
            start = now + grid.wait()
            lived = grid.survives(seconds)
            fails = lived < seconds or grid.loses_output()
            heapq.heappush(running, (start + lived, seconds if fails else 0.0))
            lives.append(Life(start, start + lived))
            end = max(end, start + lived)
        now += every
    return Campaign(end, sum(durations), lives)


def run_policy(inputs: Inputs, policy: str) -> float:
    """A part of the late campaign by the product's engine and agents and a demand policy; its efficiency in per cent."""
    settings = inputs.settings
    pilots = max(1, int(settings["late_cpus"]) // int(settings["part_cpus"]))
    count = int(settings["late_dockings"]) // int(settings["part_dockings"])
    mean = settings["late_years"] * YEAR / int(settings["late_dockings"])
    jobs = [Job(seconds) for seconds in durations_of(inputs, "part", count, mean)]
    life, failure = float(settings["life_h"]) * HOUR, float(settings["job_failure"])
    site = Site(
        name="grid", wait=waits_for(inputs), wall=life, task_failure=float(settings["output_failure"]),
        lifetime=Quantiles((0.0, failure, failure, 1.0), (0.0, life, NEVER, NEVER)),
        limits=PilotLimits(max_pilots=pilots, max_queued=pilots),
    )  # fmt: skip
    description = Description(
        sites=(site,), link=Link(Constant(float(settings["idle_s"]) / 2.0)),
        server=ServerTimes(Constant(settings["shoal_commit_s"]), settings["shoal_service_s"]),
        task_start=Constant(settings["shoal_task_start_s"]),
        provision=Provision(DemandRule(policy=policy, pool=pilots), float(settings["part_minutes"]) * 60.0),
    )  # fmt: skip
    found = PlanningWorld(description, [Given(Batch(jobs, retries=RETRIES))], inputs.seed).run()
    if found.succeeded < count or math.isinf(found.makespan):
        return 0.0
    lives = [Life(one.joined, min(one.ended, found.makespan)) for one in found.record.pilots]
    return Campaign(found.makespan, sum(job.seconds for job in jobs), lives).efficiency


def measure(inputs: Inputs) -> Measured:
    """Both campaigns, and a part of the late one by the product's own engine."""
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    for name, campaign in (("late", late(inputs)), ("early", early(inputs))):
        values |= {
            f"{name}.efficiency": campaign.efficiency, f"{name}.crunching": campaign.crunching,
            f"{name}.days": campaign.seconds / DAY, f"{name}.jobs": float(len(campaign.lives)),
            f"{name}.job_h": campaign.job_hours,
        }  # fmt: skip
        data += _curve(name, campaign)
        inputs.tick()
    values["ratio"] = values["late.efficiency"] / values["early.efficiency"]
    if inputs.engine:
        for policy in (SIMPLE, SHOAL):
            values[f"part.{policy}"] = run_policy(inputs, policy)
            inputs.tick()
    return Measured(values, data)


def _curve(name: str, campaign: Campaign) -> list[tuple[Value, ...]]:
    """Processors that are used, in per cent of the most, over the campaign."""
    most, points = most_at_once(campaign.lives), np.linspace(0.0, 1.0, STEPS, endpoint=False) * campaign.seconds
    starts = np.sort([one.start for one in campaign.lives])
    ends = np.sort([one.end for one in campaign.lives])
    up = np.searchsorted(starts, points, "right") - np.searchsorted(ends, points, "right")
    return [
        (name, 100.0 * at / STEPS, float(point) / DAY, 100.0 * int(count) / most)
        for at, (point, count) in enumerate(zip(points, up, strict=True))
    ]


EXPERIMENT = Experiment(
    id="u.docking",
    title="the screening against avian flu, late beside early binding",
    section="DIANE 5.4",
    seconds=10.0,
    parameters=(
        waits_parameter("LHCb"),
        MIDDLE,
        UPPER,
        Parameter("late_dockings", 308_585, Source.PAPER, "table 5.1"),
        Parameter("late_years", 16.7, Source.PAPER, "table 5.1: on one processor; 28.5 minutes a docking"),
        Parameter("late_cpus", 240, Source.PAPER, "table 5.1: at once, at most"),
        Parameter("early_dockings", 2_000_000, Source.PAPER, "table 5.1"),
        Parameter("early_years", 88.3, Source.PAPER, "table 5.1; 23.2 minutes a docking"),
        Parameter("early_cpus", 2_000, Source.PAPER, "table 5.1: at once, at most"),
        Parameter("batch", 40, Source.PAPER, "5.4: dockings of a job of WISDOM"),
        Parameter("job_failure", 0.17, Source.PAPER, "5.4: 83 % of the jobs completed, of both systems"),
        Parameter("output_failure", 0.157, Source.PAPER, "5.4: of these 83 %, 70 % gave useful output: file transfers failed"),
        Parameter("idle_s", 1.0, Source.PAPER, "3.4.2: idle time between two tasks, most of it latency"),
        Parameter("master_hz", 115.0, Source.PAPER, "6.4: peaks of 110 to 120 Hz"),
        Parameter("missed_s", 900.0, Source.PAPER, "4.5.3: a heartbeat in half of the duration of a task"),
        Parameter("spread", 0.5, Source.CHOSEN, "of the logarithm of durations; only their mean is printed"),
        Parameter(
            "life_h", 73.7, Source.FITTED, "limit of a late worker: printed years over the useful share over printed jobs",
            fitted_to="late.jobs",
        ),
        Parameter(
            "manual_hours", 12.0, Source.CHOSEN,
            "until people look after the early jobs: as in `u.factory`, fitted there to another figure; not printed for WISDOM",
        ),
        Parameter("part_cpus", 80, Source.CHOSEN, "of the pilots one in so many, for Shoal itself", varied=False),
        Parameter("part_dockings", 500, Source.CHOSEN, "of the dockings one in so many, for Shoal itself", varied=False),
        Parameter("part_minutes", 5.0, Source.CHOSEN, "between two looks of the provisioner, for both policies", varied=False),
        *TIMES,
    ),
    claims=(
        Claim("late.efficiency", "late: distribution efficiency", Printed(84.0), "%"),
        Claim("early.efficiency", "early: distribution efficiency", Printed(46.0), "%",
              "By failures alone it would be 65 %; the rest is how long processors stay free until people look, which is chosen "
              "and not monotone: with exact 12 h a job of 15.5 h holds its place for 24 h, with 18 h for 18 h. The thesis' own "
              "figures give 38 % if the run took the 6 weeks that are printed."),
        Claim("ratio", "efficiency, late over early", AtLeast(1.5, "doubled"), "x"),
        Claim("late.crunching", "late: crunching factor", NotJudged("203 is printed, the efficiency times the processors")),
        Claim("early.crunching", "early: crunching factor", NotJudged("912 is printed, the efficiency times the processors")),
        Claim("late.days", "late: duration", Printed(28.0), "days"),
        Claim("early.days", "early: duration", Printed(42.0), "days"),
        Claim("late.jobs", "late: jobs", Printed(2_585.0)),
        Claim("early.jobs", "early: jobs", Printed(54_000.0), "",
              "The printed figures do not fit together: of 54,000 jobs of 40 dockings, 70 % with useful output give 1.5 million "
              "dockings, and 2 million are printed."),
        Claim("late.job_h", "late: mean duration of a job", Printed(120.0), "h",
              "120 is how many dockings a printed job did; of half an hour each, that is 60 h."),
        Claim("early.job_h", "early: mean duration of a job", Printed(20.0), "h",
              "20 h are 40 dockings of 30 minutes; table 5.1 has 23.2 minutes a docking, and jobs that fail end early."),
        Claim("part.simple", "a part of the late run on the product's engine, simple factory: efficiency", NotJudged(), "%",
              "Worse by about 1 % of itself, presumably since Shoal's first pilots, with which it learns how long a docking "
              "takes, are asked for an hour only: each place of the pool waits in the queue once more.",
              as_it_is=AsItIs("part.shoal", "part.simple", lower_is_better=False)),
    ),
    measure=measure,
    columns=("series", "percent_of_run", "days", "cpus_percent"),
    plot=Plot("percent_of_run", "cpus_percent", "series", "time, % of the run", "processors in use, % of the most"),
    watched=("late.efficiency", "early.efficiency"),
    ablations=(
        Ablation("failures of jobs and outputs", NO_FAILURES, "late.efficiency", AtLeast(95.0), "%"),
        Ablation("people: somebody looks every minute", ALWAYS_WATCHED, "early.efficiency", AtLeast(55.0), "%"),
        Ablation("both", {**NO_FAILURES, **ALWAYS_WATCHED}, "ratio", AtMost(1.15), "x"),
    ),
    steps=4,
    modelled=(
        "Both campaigns are models in full size: the thesis' master with workers that end, and jobs of a fixed batch. The part "
        "runs on the product's engine, agents and provisioner, once with the policy `simple` (the thesis' factory) and once with "
        "Shoal's own. All hosts have one speed. By how often people look, reckoned on paper, the early efficiency would be "
        "near what is printed; that was known before the first run."
    ),
    takes_waits=True,
)  # fmt: skip
