"""`u.oversubmission`: the share of submitted jobs that late binding does not need [DIANE 3.4]."""

from __future__ import annotations

import numpy as np

from shoal.sched.vector.binding import late_flow
from shoal.sim.papers.agreement import AtMost
from shoal.sim.papers.diane.queue_waits import MIDDLE, UPPER, waits_for, waits_parameter
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Parameter, Plot, Source, Value

HOUR = 3600.0
WORKLOADS = {"small": (100.0, 100), "medium": (1_000.0, 1_000), "large": (24_000.0, 1_000)}  # figures 3.5 to 3.7
PER_JOB = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 24.0)  # hours of work for each job, of the plot


def measure(inputs: Inputs) -> Measured:
    """Draw waits, and count the jobs that come after the work is done."""
    waits, draws, rng = waits_for(inputs), int(inputs.settings["draws"]), inputs.rng("oversubmission")
    values, data = dict[str, float](), list[tuple[Value, ...]]()
    for name, (hours, jobs) in WORKLOADS.items():
        drawn = waits.sample(rng, (draws, jobs))
        if not inputs.settings["tailed"]:
            drawn = drawn.clip(max=float(waits.at(np.array([0.75]))[0]))
        values[name] = 100.0 * (1.0 - float(late_flow(drawn, hours * HOUR).used.mean()) / jobs)
        for each in PER_JOB:
            used = late_flow(drawn, each * jobs * HOUR)
            data.append((name, each, jobs, 100.0 * (1.0 - float(used.used.mean()) / jobs), used.end.mean() / HOUR))
        inputs.tick()
    values["decrease"] = values["large"] - values["small"]
    return Measured(values, data)


EXPERIMENT = Experiment(
    id="u.oversubmission",
    title="jobs that come too late to be used",
    section="DIANE 3.4.3",
    seconds=2.0,
    parameters=(
        waits_parameter("LHCb"),
        MIDDLE,
        UPPER,
        Parameter("tailed", True, Source.PAPER, "3.3: heavy tails"),
        Parameter("draws", 400, Source.CHOSEN, "deviation of the mean below a tenth of a per cent", varied=False),
    ),
    claims=(
        Claim(
            "small",
            "W = 100 CPU-hours, K = 100: share not used",
            AtMost(10.0, "< 10 %"),
            "%",
            "A few tenths of a per cent above the bound: it is the share of waits beyond 1.2 h, between two rebuilt quantiles.",
        ),
        Claim("medium", "W = 1,000 CPU-hours, K = 1,000", AtMost(10.0, "< 10 %"), "%", "As for the small workload."),
        Claim("large", "W = 24,000 CPU-hours, K = 1,000", AtMost(10.0, "< 10 %"), "%"),
        Claim("decrease", "the large less the small workload", AtMost(0.0, "decreases with the makespan"), "%"),
    ),
    measure=measure,
    columns=("workload", "hours_per_job", "jobs", "unused_percent", "makespan_h"),
    plot=Plot("hours_per_job", "unused_percent", "workload", "work for each job, hours", "jobs not used, %", True),
    watched=("small", "large"),
    ablations=(Ablation("no waits beyond the upper quartile", {"tailed": False}, "small", AtMost(1.0), "%"),),
    steps=len(WORKLOADS),
    modelled="Model U0, a bound.",
    takes_waits=True,
)
