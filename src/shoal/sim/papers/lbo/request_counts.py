"""`d.requests`: how many requests the task queue gets for each task: figure 2 [LBO IV.A]."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from shoal.sim.papers.agreement import AtLeast, AtMost, NotJudged, Printed
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
    BEAT_S,
    BETWEEN_AS_FITTED,
    KINDS,
    MODELLED,
    NOTICES,
    SCAN_AS_FITTED,
    SIZES,
    SMALL,
    WORLD,
    outcome,
    sizes_of,
)
from shoal.sim.papers.lbo.as_it_is import COLUMN, SHOAL, run_shoal
from shoal.sim.papers.lbo.overlay import CENTRAL, DISTRIBUTED, TRACKED
from shoal.sim.papers.lbo.requests import FILE, HEARTBEAT, LINES, MAPPING, TASK_LIST

PRINTED = {TRACKED: 12.0, CENTRAL: 9.0, DISTRIBUTED: 5.0}


def measure(inputs: Inputs) -> Measured:
    """Count the requests of all workflows in all architectures."""
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    sizes = sizes_of(inputs)
    for size in sizes:
        for architecture in ARCHITECTURES:
            found = [outcome(inputs.settings, architecture, kind, size, inputs.seed) for kind in KINDS]
            values[f"{architecture}.{size}"] = fmean(one.requests.total() / one.tasks for one in found)
            for name in LINES:
                values[f"{name}.{architecture}.{size}"] = fmean(one.requests[name] / one.tasks for one in found)
            data.append((SIZES[size].tasks, architecture, values[f"{architecture}.{size}"]))
            inputs.tick()
        if inputs.engine:
            values[f"shoal.{size}"] = run_shoal(inputs.settings, size, inputs.seed).requests
            data.append((SIZES[size].tasks, "Shoal as it is", values[f"shoal.{size}"]))
    for architecture in ARCHITECTURES:
        some = [values[f"{architecture}.{size}"] for size in sizes]
        values[f"linear.{architecture}"] = max(some) / min(some)
    return Measured(values, data)


_FEW = "Each pilot registers and ends once: 0.67 requests per task where it runs three of them, 0.3 where it runs nearly seven."


def _claims() -> tuple[Claim, ...]:
    claims = []
    for architecture, printed in PRINTED.items():
        for size in SIZES:
            claim = Claim(
                f"{architecture}.{size}",
                f"requests per task, {architecture}, {SIZES[size].tasks:,} tasks",
                Printed(printed),
            )
            if architecture == DISTRIBUTED:
                note = _FEW if size == SMALL else ""
                claim = replace(claim, note=note, as_it_is=AsItIs(f"shoal.{size}", claim.key))
            claims.append(claim)
    claims += [
        Claim(f"linear.{architecture}", f"most over least of these, {architecture}", AtMost(1.3, "almost linear"))
        for architecture in ARCHITECTURES
    ]
    claims += [
        Claim(
            f"{FILE}.{TRACKED}.10k",
            f"of them {FILE}, tracked, 10,000 tasks",
            AtLeast(1.0, "file tracking"),
            note=LINES[FILE],
        ),
        Claim(f"{FILE}.{CENTRAL}.10k", f"of them {FILE}, central, 10,000 tasks", AtMost(0.0, "none")),
        Claim(
            f"{HEARTBEAT}.{DISTRIBUTED}.10k",
            f"of them {HEARTBEAT}, distributed, 10,000 tasks",
            AtMost(0.1, "of the masters only"),
        ),
    ]
    for name, where in LINES.items():
        architecture = DISTRIBUTED if name in (TASK_LIST, MAPPING) else TRACKED
        if name != FILE:
            rule = NotJudged("its share is not printed")
            claims.append(
                Claim(f"{name}.{architecture}.10k", f"of them {name}, {architecture}, 10,000 tasks", rule, note=where)
            )
    return tuple(claims)


EXPERIMENT = Experiment(
    id="d.requests",
    title="requests at the task queue for each task",
    section="LBO IV.A, figure 2",
    seconds=60.0,
    parameters=(
        *WORLD, SCAN_AS_FITTED, BETWEEN_AS_FITTED, *SHOAL,
        Parameter("notices", NOTICES, Source.FITTED,
                  "messages on each task beside those that the paper names, the same in all three", f"{DISTRIBUTED}.10k"),
        Parameter("beat_s", BEAT_S, Source.FITTED,
                  "between two heart-beats, the same in all three; in a first run with 60 s, and 10 s between the requests of a "
                  "pilot that gets nothing, tracked had 17 to 27 requests per task", f"{CENTRAL}.1.5k"),
    ),
    claims=_claims(),
    measure=measure,
    columns=("tasks", "architecture", "requests_per_task"),
    plot=Plot("tasks", "requests_per_task", "architecture", "tasks", "requests per task", x_log=True),
    watched=("tracked.1.5k", "central.1.5k", "distributed.1.5k"),
    ablations=(
        Ablation("pilots send no heart-beats", {"beat_s": 1e9}, f"{HEARTBEAT}.central.1.5k", AtMost(0.0)),
    ),
    steps=len(SIZES) * len(ARCHITECTURES),
    modelled=MODELLED + COLUMN,
)  # fmt: skip
