"""`d.delay`: from the end of a task to the begin of the next one of its pilot: figure 3 [LBO IV.A]."""

from __future__ import annotations

from statistics import fmean, pstdev

from shoal.sim.papers.agreement import AtLeast, AtMost, Between, Printed
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
    ARCHITECTURES,
    BETWEEN_S,
    KINDS,
    LARGE,
    MEDIUM,
    MESSAGES_AS_FITTED,
    MODELLED,
    SCAN_AS_FITTED,
    SIZES,
    SMALL,
    WORLD,
    outcome,
    sizes_of,
)
from shoal.sim.papers.lbo.as_it_is import COLUMN, FOR_COMPARISON, SHOAL, run_shoal
from shoal.sim.papers.lbo.overlay import CENTRAL, DISTRIBUTED, TRACKED
from shoal.sim.planning.workloads import SERIAL


def measure(inputs: Inputs) -> Measured:
    """The mean delay of all workflows in all architectures, and how it spreads."""
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    sizes = sizes_of(inputs)
    for size in sizes:
        for architecture in ARCHITECTURES:
            each = {kind: outcome(inputs.settings, architecture, kind, size, inputs.seed).delays for kind in KINDS}
            delays = [delay for some in each.values() for delay in some]
            values[f"serial.{architecture}.{size}"] = fmean(each[SERIAL])
            values[f"{architecture}.{size}"], spread = fmean(delays), pstdev(delays)
            values[f"spread.{architecture}.{size}"] = spread
            data.append((SIZES[size].tasks, architecture, fmean(delays), spread))
            inputs.tick()
        values[f"best.{size}"] = min(values[f"serial.{architecture}.{size}"] for architecture in ARCHITECTURES)
        if inputs.engine:
            values[f"shoal.{size}"] = run_shoal(inputs.settings, size, inputs.seed).delay
    flat = [values[f"{DISTRIBUTED}.{size}"] for size in sizes]
    values["flat"] = max(flat) / min(flat)
    values["smaller"] = values[f"{DISTRIBUTED}.{SMALL}"] / values[f"{TRACKED}.{SMALL}"]
    if inputs.engine:
        for size in LARGE:
            for architecture in (TRACKED, CENTRAL):
                values[f"rise.{architecture}.{size}"] = (
                    values[f"{architecture}.{size}"] / values[f"{architecture}.{MEDIUM}"]
                )
                values[f"larger.{architecture}.{size}"] = (
                    values[f"{architecture}.{size}"] / values[f"{DISTRIBUTED}.{size}"]
                )
                values[f"dispersion.{architecture}.{size}"] = (
                    values[f"spread.{architecture}.{size}"] / values[f"spread.{architecture}.{MEDIUM}"]
                )
    return Measured(values, data)


def _claims() -> tuple[Claim, ...]:
    claims = [
        Claim(
            f"{architecture}.{size}",
            f"delay between tasks, {architecture}, {SIZES[size].tasks:,} tasks",
            Printed(5.0),
            "s",
        )
        for architecture in (TRACKED, CENTRAL)
        for size in (SMALL, MEDIUM)
    ]
    claims += [
        Claim(f"{DISTRIBUTED}.{size}", f"delay between tasks, distributed, {SIZES[size].tasks:,} tasks",
              Between(10.0, 30.0, "consistent with the period, 20 s"), "s")
        for size in SIZES
    ]  # fmt: skip
    claims.append(Claim("flat", "the longest of these over the shortest", AtMost(1.5, "almost constant")))
    claims.append(Claim("smaller", "distributed over tracked, 300 tasks", AtLeast(1.0, "somewhat longer")))
    for size in LARGE:
        for architecture in (TRACKED, CENTRAL):
            what = f"{architecture}, {SIZES[size].tasks:,} tasks"
            claims += [
                Claim(f"rise.{architecture}.{size}", f"delay over that of 1,500 tasks, {what}", AtLeast(2.0, "worse")),
                Claim(f"dispersion.{architecture}.{size}", f"its spread over that of 1,500 tasks, {what}",
                      AtLeast(2.0, "much higher")),
                Claim(f"larger.{architecture}.{size}", f"delay over that of distributed, {what}", AtLeast(1.0, "longer")),
            ]  # fmt: skip
    claims += [
        Claim(f"best.{size}", f"serial workflow, shortest of the three, {SIZES[size].tasks:,} tasks", FOR_COMPARISON, "s",
              as_it_is=AsItIs(f"shoal.{size}", f"best.{size}"))
        for size in SIZES
    ]  # fmt: skip
    return tuple(claims)


EXPERIMENT = Experiment(
    id="d.delay",
    title="delay between two tasks of a pilot",
    section="LBO IV.A, figure 3",
    seconds=60.0,
    parameters=(
        *WORLD, SCAN_AS_FITTED, *MESSAGES_AS_FITTED, *SHOAL,
        Parameter("between_s", BETWEEN_S, Source.FITTED, "a pilot's own time after a task", f"{TRACKED}.{SMALL}"),
    ),
    claims=_claims(),
    measure=measure,
    columns=("tasks", "architecture", "delay_s", "spread_s"),
    plot=Plot("tasks", "delay_s", "architecture", "tasks", "delay between tasks, s", x_log=True, y_log=True),
    watched=("tracked.1.5k", "central.1.5k", "distributed.1.5k"),
    ablations=(
        Ablation("rounds every second", {"list_s": 1.0}, "distributed.1.5k", AtMost(10.0), "s"),
    ),
    steps=len(SIZES) * len(ARCHITECTURES),
    modelled=MODELLED + COLUMN,
)  # fmt: skip
