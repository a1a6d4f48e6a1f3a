"""`u.speedup`: how much sooner work is done with late binding than with early binding [DIANE 3.4.1, table 3.3]."""

from __future__ import annotations

import numpy as np

from shoal.sched.vector.binding import early, late_flow
from shoal.sim.papers.agreement import AtLeast, AtMost, Between, Printed, Rule
from shoal.sim.papers.diane.queue_waits import MIDDLE, NAMES, UPPER, published, waits_for, waits_parameter
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Parameter, Plot, Source, Value
from shoal.sim.papers.waits import Waits

HOUR = 3600.0
WORK = {"4 CPU-days": 100.0, "40 CPU-days": 1_000.0, "3 CPU-years": 24_000.0}  # hours of one processor
JOBS = (10, 20, 40, 60, 100, 200, 320, 600, 1_200, 2_400, 4_800, 9_600)
# Table 3.3: work in hours, jobs submitted, speed-up. Of the largest work with few jobs a bound is printed.
PRINTED = (
    (100, 10, 1.6), (100, 60, 11.3), (100, 100, 21.3), (100, 9_600, 1_000.0),
    (1_000, 10, 1.06), (1_000, 60, 2.11), (1_000, 320, 9.7), (1_000, 9_600, 214.0),
    (24_000, 320, 1.4), (24_000, 1_200, 2.8), (24_000, 9_600, 16.0),
)  # fmt: skip
FEW = 100  # jobs, of the row with the bound
SIZES = {"small": (100.0, 100), "large": (24_000.0, 1_000)}  # figures 3.5 and 3.7
ORDER = 10**0.5  # "of the order of" is within a factor of this


def measure(inputs: Inputs) -> Measured:
    """Draw the waits of many submissions, and take the mean makespans of both ways."""
    waits, cells, rng = waits_for(inputs), int(inputs.settings["cells"]), inputs.rng("speedup")
    if not inputs.settings["dispersed"]:
        middle = float(waits.at(np.array([0.5]))[0])
        waits = Waits(waits.name, np.zeros(1), np.array([middle]))
    values, data = dict[str, float](), list[tuple[Value, ...]]()
    few, deviations = 0.0, []
    for jobs in JOBS:
        drawn = waits.sample(rng, (max(400, cells // jobs), jobs))
        for label, hours in WORK.items():
            bound, free = early(drawn, hours * HOUR), late_flow(drawn, hours * HOUR).end
            speedup = float(bound.mean() / free.mean())
            deviation = float(bound.std() / free.std()) if free.std() > 0 else 1.0
            values[f"w{hours:.0f}_k{jobs}"] = speedup
            if hours == 24_000 and jobs <= FEW:
                few = max(few, speedup)
            if (hours, jobs) in {(row[0], row[1]) for row in PRINTED}:
                deviations.append(deviation)
            data.append((label, hours, jobs, bound.mean() / HOUR, free.mean() / HOUR, speedup, deviation))
        inputs.tick()
    values |= {"few": few, "deviation_least": min(deviations), "deviation_most": max(deviations)}
    for name in NAMES:
        own = inputs.waits if inputs.waits is not None else published(name)
        for size, (hours, jobs) in SIZES.items():
            drawn = own.sample(rng, (max(400, cells // jobs), jobs))
            values[f"dispersion_{name}_{size}"] = _dispersion(own.at(np.array([0.25, 0.75]))) / _dispersion(
                np.quantile(late_flow(drawn, hours * HOUR).end, (0.25, 0.75))
            )
        inputs.tick()
    return Measured(values, data)


def _dispersion(quartiles: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """The quartile coefficient of dispersion, equation 3.12."""
    low, high = quartiles
    return float((high - low) / (high + low))


def _rows() -> tuple[Claim, ...]:
    rows = [
        Claim(f"w{hours}_k{jobs}", f"W = {hours:,} CPU-hours, K = {jobs:,} jobs", Printed(speedup), "x")
        for hours, jobs, speedup in PRINTED
    ]
    rows.insert(8, Claim("few", "W = 24,000 CPU-hours, K at most 100 jobs: the largest", AtMost(1.1), "x"))
    rows.append(
        Claim(
            "deviation_least",
            "standard deviation, early over late: the least of these cases",
            AtLeast(10.0, "one to four orders of magnitude"),
            "x",
        )  # fmt: skip
    )
    rows.append(
        Claim("deviation_most", "the same, the most", AtMost(1e4, "one to four orders of magnitude"), "x")
    )  # fmt: skip
    for size, (hours, jobs) in SIZES.items():
        about = {"small": 25.0, "large": 250.0}[size]
        rule: Rule = Between(about / ORDER, about * ORDER, f"of the order of {about:.0f}")
        rows += [
            Claim(
                f"dispersion_{name}_{size}",
                f"quartile dispersion of the waits over that of late binding, {name}, W = {hours:,.0f}, K = {jobs:,}",
                rule,
                "x",
            )  # fmt: skip
            for name in NAMES
        ]
    return tuple(rows)


EXPERIMENT = Experiment(
    id="u.speedup",
    title="late over early binding",
    section="DIANE 3.4.1, table 3.3",
    seconds=6.0,
    parameters=(
        waits_parameter("LHCb"),
        MIDDLE,
        UPPER,
        Parameter("dispersed", True, Source.PAPER, "3.3: waits differ from job to job"),
        Parameter("cells", 2_000_000, Source.CHOSEN, "waits drawn for each K, at least 400 submissions", varied=False),
    ),
    claims=_rows(),
    measure=measure,
    columns=("work", "work_h", "jobs", "early_h", "late_h", "speedup", "deviation_ratio"),
    plot=Plot("jobs", "speedup", "work", "jobs submitted, K", "makespan of G0 over U0", True, True),
    watched=("w100_k100", "w100_k9600", "w1000_k320"),
    ablations=(
        Ablation("all jobs wait equally long", {"dispersed": False}, "w100_k100", AtMost(1.05), "x"),
        Ablation("the same, more jobs", {"dispersed": False}, "w100_k9600", AtMost(1.05), "x"),
    ),
    steps=len(JOBS) + len(NAMES),
    modelled="Models: G0 is the environment without an overlay, U0 a bound that no system reaches.",
    takes_waits=True,
)
