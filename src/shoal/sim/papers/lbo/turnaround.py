"""`d.turnaround`: how long workflows take: figure 4 [LBO IV.A]."""

from __future__ import annotations

from statistics import fmean

from shoal.sim.papers.agreement import AtLeast, AtMost
from shoal.sim.papers.experiment import Ablation, AsItIs, Claim, Experiment, Inputs, Measured, Plot, Value
from shoal.sim.papers.lbo.architectures import (
    ARCHITECTURES,
    BETWEEN_AS_FITTED,
    KINDS,
    MESSAGES_AS_FITTED,
    MODELLED,
    SCAN_AS_FITTED,
    SIZES,
    WORLD,
    outcome,
    sizes_of,
)
from shoal.sim.papers.lbo.as_it_is import COLUMN, FOR_COMPARISON, SHOAL, run_shoal
from shoal.sim.papers.lbo.overlay import CENTRAL, DISTRIBUTED, TRACKED
from shoal.sim.planning.workloads import SERIAL

MINUTE = 60.0


def measure(inputs: Inputs) -> Measured:
    """The mean turnaround of all workflows in all architectures."""
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    for size in sizes_of(inputs):
        for architecture in ARCHITECTURES:
            seconds = fmean(
                outcome(inputs.settings, architecture, kind, size, inputs.seed).turnaround for kind in KINDS
            )
            values[f"{architecture}.{size}"] = seconds / MINUTE
            data.append((SIZES[size].tasks, architecture, seconds))
            inputs.tick()
        values[f"best.{size}"] = min(
            outcome(inputs.settings, architecture, SERIAL, size, inputs.seed).turnaround / MINUTE
            for architecture in ARCHITECTURES
        )
        if inputs.engine:
            seconds = run_shoal(inputs.settings, size, inputs.seed).turnaround
            values[f"shoal.{size}"] = seconds / MINUTE
            data.append((SIZES[size].tasks, "Shoal as it is, serial", seconds))
        some = [values[f"{architecture}.{size}"] for architecture in ARCHITECTURES]
        values[f"differ.{size}"] = max(some) / min(some)
        for architecture in (TRACKED, CENTRAL):
            values[f"worse.{architecture}.{size}"] = values[f"{architecture}.{size}"] / values[f"{DISTRIBUTED}.{size}"]
    return Measured(values, data)


EXPERIMENT = Experiment(
    id="d.turnaround",
    title="turnaround of workflows",
    section="LBO IV.A, figure 4",
    seconds=60.0,
    parameters=(*WORLD, SCAN_AS_FITTED, BETWEEN_AS_FITTED, *MESSAGES_AS_FITTED, *SHOAL),
    claims=(
        Claim("differ.300", "slowest over fastest architecture, 300 tasks", AtMost(1.25, "softer differences")),
        Claim("differ.1.5k", "the same, 1,500 tasks", AtMost(1.25, "softer differences")),
        Claim("worse.tracked.5k", "tracked over distributed, 5,000 tasks", AtLeast(1.1, "worsens")),
        Claim("worse.central.5k", "central over distributed, 5,000 tasks", AtLeast(1.1, "worsens")),
        Claim("worse.tracked.10k", "tracked over distributed, 10,000 tasks", AtLeast(1.25, "worsens quickly")),
        Claim("worse.central.10k", "central over distributed, 10,000 tasks", AtLeast(1.25, "worsens quickly")),
        *(Claim(f"best.{size}", f"serial workflow, fastest of the three, {SIZES[size].tasks:,} tasks", FOR_COMPARISON, "min",
                as_it_is=AsItIs(f"shoal.{size}", f"best.{size}")) for size in SIZES),
    ),
    measure=measure,
    columns=("tasks", "architecture", "turnaround_s"),
    plot=Plot("tasks", "turnaround_s", "architecture", "tasks", "turnaround, s", x_log=True),
    watched=("worse.tracked.1.5k", "differ.300"),
    ablations=(
        Ablation("the queue looks at tasks in no time", {"scan_s": 0.0}, "worse.tracked.1.5k", AtMost(1.0)),
    ),
    steps=len(SIZES) * len(ARCHITECTURES),
    modelled=MODELLED + COLUMN,
)  # fmt: skip
