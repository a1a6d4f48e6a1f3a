"""`d.hit-ratio` and `d.local-hit`: reads that find their file in any cache, and on the disk of their host: figures 7 and 8
[LBO IV.B]."""

from __future__ import annotations

from statistics import fmean

from shoal.sim.papers.agreement import AtLeast, AtMost, NotJudged
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Plot, Value
from shoal.sim.papers.lbo.architectures import (
    ARCHITECTURES,
    BETWEEN_AS_FITTED,
    KINDS,
    MESSAGES_AS_FITTED,
    MODELLED,
    SCAN_AS_FITTED,
    SIZES,
    SMALL,
    WORLD,
    outcome,
    sizes_of,
)
from shoal.sim.papers.lbo.overlay import CENTRAL, DISTRIBUTED, LOCAL, STORAGE, TRACKED, Overlay
from shoal.sim.papers.lbo.table_replay import FileEvent, replay
from shoal.sim.planning.workloads import MERGING

PARAMETERS = (*WORLD, SCAN_AS_FITTED, BETWEEN_AS_FITTED, *MESSAGES_AS_FITTED)
STEPS = len(SIZES) * len(ARCHITECTURES)


def _ratios(inputs: Inputs, local_only: bool) -> tuple[dict[str, float], list[tuple[Value, ...]]]:
    """By architecture and size the mean of the workflows, by kind as well."""
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    for size in sizes_of(inputs):
        for architecture in ARCHITECTURES:
            for kind in KINDS:
                reads = outcome(inputs.settings, architecture, kind, size, inputs.seed).reads
                hits = reads[LOCAL] if local_only else reads.total() - reads[STORAGE]
                values[f"{architecture}.{kind}.{size}"] = hits / reads.total()
            values[f"{architecture}.{size}"] = fmean(values[f"{architecture}.{kind}.{size}"] for kind in KINDS)
            data.append((SIZES[size].tasks, architecture, values[f"{architecture}.{size}"]))
            inputs.tick()
    return values, data


def measure(inputs: Inputs) -> Measured:
    """Reads from any cache over all reads."""
    values, data = _ratios(inputs, local_only=False)
    some = [values[f"{TRACKED}.{size}"] for size in sizes_of(inputs)]
    if inputs.engine:
        journal: list[FileEvent] = []
        run = Overlay(inputs.settings, CENTRAL, MERGING, *SIZES[SMALL], f"{inputs.seed}/{MERGING}/{SMALL}", journal)
        run.run()
        values["table"] = replay(journal, run.pilots, inputs.seed).ratio
    values["rises"] = some[-1] - some[0]
    return Measured(values, data)


def measure_local(inputs: Inputs) -> Measured:
    """Reads from the disk of the host over all reads."""
    values, data = _ratios(inputs, local_only=True)
    sizes = sizes_of(inputs)
    for size in sizes:
        tracked, central, distributed = (values[f"{architecture}.{size}"] for architecture in ARCHITECTURES)
        values[f"best.{size}"] = distributed - max(tracked, central)
        values[f"alike.{size}"] = abs(central - tracked)
    flat = [values[f"{DISTRIBUTED}.{size}"] for size in sizes]
    values["flat"] = max(flat) - min(flat)
    for architecture in ARCHITECTURES:
        by_kind = {kind: fmean(values[f"{architecture}.{kind}.{size}"] for size in sizes) for kind in KINDS}
        others = [by_kind[kind] for kind in KINDS if kind != MERGING]
        values[f"merging.{architecture}"] = by_kind[MERGING] - min(others)
    return Measured(values, data)


def _bars() -> tuple[Claim, ...]:
    rule = NotJudged("a bar without a number")
    return tuple(
        Claim(f"{architecture}.{size}", f"local hit ratio, {architecture}, {SIZES[size].tasks:,} tasks", rule)
        for architecture in ARCHITECTURES
        for size in SIZES
    )  # fmt: skip


EXPERIMENT = Experiment(
    id="d.hit-ratio",
    title="reads that find their file in a cache",
    section="LBO IV.B, figure 7",
    seconds=60.0,
    parameters=PARAMETERS,
    claims=(
        *(Claim(f"{architecture}.{size}", f"hit ratio, {architecture}, {SIZES[size].tasks:,} tasks",
                AtLeast(0.97, "almost perfect"))
          for architecture in (CENTRAL, DISTRIBUTED) for size in SIZES),
        *(Claim(f"{TRACKED}.{size}", f"hit ratio, tracked, {SIZES[size].tasks:,} tasks",
                AtMost(0.9, "considerably lower"))
          for size in SIZES),
        Claim("table", "lookups that name a holder at once, merging, central, 300 tasks, by the product's own peers",
              AtLeast(0.97, "almost perfect")),
        Claim("rises", "hit ratio, tracked: 10,000 tasks less 300", AtLeast(0.02, "rises with the size")),
    ),
    measure=measure,
    columns=("tasks", "architecture", "hit_ratio"),
    plot=Plot("tasks", "hit_ratio", "architecture", "tasks", "hit ratio", x_log=True),
    watched=("tracked.300", "tracked.1.5k", "distributed.1.5k"),
    ablations=(
        Ablation("pilots do not find each other's files", {"peers": False}, "central.1.5k", AtMost(0.9)),
    ),
    steps=STEPS,
    modelled=MODELLED + " The table by which pilots find files is taken as faultless in central and distributed; one row "
    "replays the files of a run on peers of `dht/`.",
)  # fmt: skip

LOCAL_EXPERIMENT = Experiment(
    id="d.local-hit",
    title="reads that find their file on the disk of their host",
    section="LBO IV.B, figure 8",
    seconds=60.0,
    parameters=PARAMETERS,
    claims=(
        *_bars(),
        *(Claim(f"best.{size}", f"distributed less the better of the others, {SIZES[size].tasks:,} tasks",
                AtLeast(0.0, "much better")) for size in SIZES),
        *(Claim(f"alike.{size}", f"tracked and central differ by, {SIZES[size].tasks:,} tasks",
                AtMost(0.1, "similar")) for size in SIZES),
        Claim("flat", "distributed: most over all sizes less the least", AtMost(0.1, "does not vary significantly")),
        *(Claim(f"merging.{architecture}", f"{architecture}: merging less the lower of the others",
                AtMost(0.0, "lower")) for architecture in ARCHITECTURES),
    ),
    measure=measure_local,
    columns=("tasks", "architecture", "local_hit_ratio"),
    plot=Plot("tasks", "local_hit_ratio", "architecture", "tasks", "local hit ratio", x_log=True),
    watched=("tracked.1.5k", "central.1.5k", "distributed.1.5k"),
    ablations=(
        Ablation("pilots rank all tasks as equal", {"ranks": False}, "best.1.5k", AtMost(0.0)),
    ),
    steps=STEPS,
    modelled=MODELLED,
)  # fmt: skip
