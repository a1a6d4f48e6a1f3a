"""`u.imaging`: a simulation of 20 million events with 100 jobs, dynamic beside static splitting [DIANE 5.2.2].

Early: each job has a hundredth of the events, and what a job that fails had is missing in the result. Late: workers simulate
until together they have reported as many events as are wanted; one that fails leaves behind what it reported. A run is
repeated many times with other waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

import numpy as np
from numpy.typing import NDArray

from shoal.sim.distributions import Constant
from shoal.sim.network import Link
from shoal.sim.papers.agreement import AtLeast, AtMost, NotJudged, Printed
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
from shoal.sim.planning.description import Description, Pilots, ServerTimes, Site
from shoal.sim.planning.workloads import Batch, Given, Job
from shoal.sim.planning.world import PlanningWorld

Floats = NDArray[np.float64]
HOUR = 3_600.0
NEVER = 1e9
SHARES = tuple(range(5, 101, 5))  # of the events, of the plot
SURPLUS = 1.2  # pieces that are submitted over those that are wanted


class InOrder:
    """A distribution that gives known values one after another: the same waits and ends for Shoal as for the thesis' run."""

    def __init__(self, values: Iterable[float]) -> None:
        self._values = iter(values)

    def draw(self, rng: Random) -> float:
        """The next value."""
        return next(self._values)


def late_ends(starts: Floats, ends: Floats, work: float, update: float) -> Floats:
    """When each piece of the work is reported, in order. Workers report every `update` seconds from their start on; what
    was done after the last report of one that ends is lost."""
    pieces = math.ceil(work / update)
    number = np.arange(1, pieces + 1)
    reports = starts[:, None] + update * number[None, :]
    return np.sort(reports[reports <= ends[:, None]])[:pieces]


def measure(inputs: Inputs) -> Measured:
    """Both ways, and Shoal itself, with the same waits and failures."""
    settings, waits, rng = inputs.settings, waits_for(inputs), inputs.rng("imaging")
    jobs, work, update = int(settings["jobs"]), float(settings["cpu_h"]) * HOUR, float(settings["update_s"])
    share, latency = work / jobs, float(settings["idle_s"]) / 2.0
    lates, earlies, results, shoal, complete = [], [], [], [], []
    for number in range(int(settings["runs"])):
        starts = np.sort(waits.sample(rng, jobs))
        if not settings["dispersed"]:
            starts[:] = waits.at(np.array([0.5]))[0]
        fails = rng.random(jobs) < settings["failure"]
        died = starts + share * rng.random(jobs)
        # A worker registers and asks before it begins, and its report takes its time, too.
        begun = starts + 3.0 * latency
        lates.append(late_ends(begun, np.where(fails, died, NEVER), work, update) + latency)
        earlies.append(np.sort(np.where(fails, died, starts + share)))
        results.append(100.0 * float(1.0 - fails.mean()))
        if inputs.engine:
            end, done = run_shoal(inputs, starts, np.where(fails, died - starts, NEVER), 1_000 * inputs.seed + number)
            shoal.append(end)
            complete.append(done)
        inputs.tick()
    late, early = np.array(lates), np.array(earlies)
    values = {
        "late_h": float(late[:, -1].mean()) / HOUR, "early_h": float(early[:, -1].mean()) / HOUR,
        "early_results": float(np.mean(results)), "late_results": 100.0,
    }  # fmt: skip
    values["ratio"] = values["early_h"] / values["late_h"]
    if shoal:
        values["shoal_h"], values["shoal_results"] = float(np.mean(shoal)) / HOUR, float(np.mean(complete))
    data: list[tuple[Value, ...]] = []
    for name, ends in (("late binding", late), ("early binding, jobs that ended", early)):
        for percent in SHARES:
            done_at = ends[:, max(0, round(percent * ends.shape[1] / 100) - 1)]
            data.append((name, percent, float(done_at.mean()) / HOUR, float(done_at.std()) / HOUR))
    return Measured(values, data)


def run_shoal(inputs: Inputs, starts: Floats, lives: Floats, seed: int) -> tuple[float, float]:
    """The same by the product's engine and agents, each report a task of its own and more of them than are wanted: when
    enough have succeeded, and how much of what is wanted that is, in per cent."""
    settings = inputs.settings
    update = float(settings["update_s"])
    wanted = math.ceil(float(settings["cpu_h"]) * HOUR / update)
    site = Site(name="grid", wait=InOrder(starts.tolist()), lifetime=InOrder(lives.tolist()))
    description = Description(
        sites=(site,), pilots=Pilots(count=len(starts)), link=Link(Constant(float(settings["idle_s"]) / 2.0)),
        server=ServerTimes(Constant(settings["shoal_commit_s"]), settings["shoal_service_s"]),
        task_start=Constant(settings["shoal_task_start_s"]),
    )  # fmt: skip
    jobs = [Job(update)] * math.ceil(SURPLUS * wanted)
    found = PlanningWorld(description, [Given(Batch(jobs))], seed).run()
    ends = sorted(one.time for one in found.record.endings)
    return (ends[wanted - 1] if len(ends) >= wanted else math.inf), 100.0 * min(1.0, len(ends) / wanted)


EXPERIMENT = Experiment(
    id="u.imaging",
    title="a simulation for medical imaging, late beside early binding",
    section="DIANE 5.2.2",
    seconds=15.0,
    parameters=(
        waits_parameter("LHCb"),
        MIDDLE,
        UPPER,
        Parameter("jobs", 100, Source.PAPER, "5.2.2: jobs of early binding, and workers of late binding"),
        Parameter("cpu_h", 8.5, Source.PAPER, "5.2.2: of a PC of 2008, for 20 million events"),
        Parameter("failure", 0.22, Source.PAPER, "5.2.2: of the workers; early jobs are taken to fail as often"),
        Parameter("idle_s", 1.0, Source.PAPER, "3.4.2: idle time between two tasks, most of it latency"),
        Parameter("update_s", 60.0, Source.CHOSEN, "between two reports of a worker, 5.2.1: periodically"),
        Parameter("dispersed", True, Source.PAPER, "3.3: waits differ from job to job"),
        Parameter("runs", 5, Source.CHOSEN, "repetitions of each seed", varied=False),
        *TIMES,
    ),
    claims=(
        Claim("late_h", "late: until all events are there", Printed(1.75), "h",
              "Half of the waits taken here are below 6 minutes, so that 100 workers do 8.5 hours of work in a quarter of an "
              "hour; 1.75 h need waits of well over an hour for most workers. Shoal itself is 1.4 % later: a report is a task "
              "there, and the next one begins a round trip later, while the thesis' worker computes on.",
              as_it_is=AsItIs("shoal_h", "late_h")),
        Claim("early_h", "early: until all jobs ended", Printed(24.0), "h",
              "The longest of 100 rebuilt waits, on average; the thesis says up to 24 h, and prints no waits of that grid."),
        Claim("ratio", "the second over the first", AtLeast(2.0, "24 h against 1.75 h"), "x"),
        Claim("late_results", "late: results", NotJudged("100 % are printed; the run goes on until then"), "%",
              as_it_is=AsItIs("shoal_results", "late_results", lower_is_better=False)),
        Claim("early_results", "early: results", NotJudged("78 % are printed, which is what failures leave"), "%"),
    ),
    measure=measure,
    columns=("series", "percent_done", "hours", "deviation_h"),
    plot=Plot("hours", "percent_done", "series", "hours", "events reported, or jobs ended, %", x_log=True),
    watched=("late_h", "early_h"),
    ablations=(Ablation("waits all alike", {"dispersed": False}, "ratio", AtMost(1.2), "x"),),
    steps=5,
    modelled=(
        "Waits in queues, workers and jobs are a model; the thesis prints no wait of the organisation that ran this, so that "
        "those of LHCb are taken. `Shoal as it is`: the product's engine and agents with the same waits and failures; each "
        "report is a task, and the user's code ends the run when enough are there. All hosts are as fast as the PC. "
        "Changed after the first run: the thesis' workers pay for registration and the last report, as in other experiments; "
        "5 repetitions instead of 20."
    ),
    takes_waits=True,
)  # fmt: skip
