"""`d.timeline`: one serial workflow of 10,000 tasks over time, tracked and distributed: figures 5 and 6 [LBO IV.A]."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, pstdev

from shoal.sim.papers.agreement import AtLeast, AtMost, Printed
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
from shoal.sim.papers.lbo.architectures import (
    BETWEEN_AS_FITTED,
    MESSAGES_AS_FITTED,
    MODELLED,
    SCAN_S,
    SIZES,
    WORLD,
    outcome,
)
from shoal.sim.papers.lbo.as_it_is import COLUMN, SHOAL, run_shoal
from shoal.sim.papers.lbo.overlay import DISTRIBUTED, TRACKED
from shoal.sim.planning.workloads import SERIAL

SIZE = "10k"
MINUTE = 60.0
VARIED = ("request_s", "beat_s", "create_s", "task_spread")  # the others are varied by the other experiments


def measure(inputs: Inputs) -> Measured:
    """What happens when."""
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    for architecture in (TRACKED, DISTRIBUTED):
        found = outcome(inputs.settings, architecture, SERIAL, SIZE, inputs.seed)
        values[f"begun.{architecture}"] = found.all_begun / MINUTE
        values[f"queue.{architecture}"] = fmean(sample.waiting for sample in found.samples)
        values[f"peak.{architecture}"] = max(sample.waiting for sample in found.samples)
        values[f"spread.{architecture}"] = pstdev(found.delays)
        middle = [sample.running for sample in found.samples if found.all_begun <= sample.at <= found.turnaround / 2]
        values[f"occupied.{architecture}"] = 100.0 * fmean(middle) / SIZES[SIZE].pilots if middle else 0.0
        data += [(sample.at, architecture, sample.running, sample.waiting, sample.requests) for sample in found.samples]
        inputs.tick()
    if inputs.engine:
        values["shoal"] = run_shoal(inputs.settings, SIZE, inputs.seed).all_begun / MINUTE
    values["regular"] = values[f"spread.{TRACKED}"] / values[f"spread.{DISTRIBUTED}"]
    return Measured(values, data)


EXPERIMENT = Experiment(
    id="d.timeline",
    title="10,000 tasks of a serial workflow on 1,500 pilots over time",
    section="LBO IV.A, figures 5 and 6",
    seconds=10.0,
    parameters=(
        *(replace(one, varied=one.name in VARIED) for one in (*WORLD, BETWEEN_AS_FITTED, *MESSAGES_AS_FITTED)), *SHOAL,
        Parameter("scan_s", SCAN_S, Source.FITTED,
                  "of the server for each task that it looks at; in all 0.4 s for a pilot of 1,500 that begin together",
                  f"begun.{TRACKED}"),
    ),
    claims=(
        Claim(f"begun.{TRACKED}", "until all pilots have a first task, tracked", Printed(10.0), "min"),
        Claim(f"begun.{DISTRIBUTED}", "the same, distributed", AtMost(1.0, "much more regular"), "min",
              as_it_is=AsItIs("shoal", f"begun.{DISTRIBUTED}")),
        Claim(f"peak.{TRACKED}", "requests that wait, at most, tracked", AtLeast(1_000.0, "of all pilots")),
        Claim(f"queue.{DISTRIBUTED}", "requests that wait, in mean, distributed", AtMost(5.0, "almost empty")),
        Claim("regular", "spread of the delay between tasks, tracked over distributed", AtLeast(3.0, "regular")),
        Claim(f"occupied.{DISTRIBUTED}", "pilots that run a task in the first half, distributed",
              AtLeast(80.0, "regular and healthy"), "%"),
    ),
    measure=measure,
    columns=("seconds", "architecture", "running", "waiting", "requests"),
    plot=Plot("seconds", "running", "architecture", "seconds", "tasks that run"),
    watched=(f"begun.{TRACKED}", f"queue.{DISTRIBUTED}", "regular"),
    ablations=(
        Ablation("the queue looks at tasks in no time", {"scan_s": 0.0}, f"begun.{TRACKED}", AtMost(1.0), "min"),
    ),
    steps=2,
    modelled=MODELLED + COLUMN,
)  # fmt: skip
