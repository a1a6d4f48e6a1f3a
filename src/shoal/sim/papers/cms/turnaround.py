"""`c.turnaround`: how much sooner workflows end with a cache, by the condition of the storage element: figures 9 and 11
[CMS V]."""

from __future__ import annotations

from shoal.sim.papers.agreement import AtLeast, AtMost, Between
from shoal.sim.papers.cms.conditions import (
    AS_FITTED,
    C1,
    DELAYED,
    HIGH,
    HOST_AS_FITTED,
    LOW,
    MODELLED,
    MODERATE,
    NONE,
    W1,
    W2,
    W3,
    WORLD,
    figures,
    reduction,
)
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Parameter, Plot, Source, Value

CONDITIONS = {LOW: 1, MODERATE: 2, DELAYED: 3, HIGH: 4}
CASES = (*((W1, condition) for condition in CONDITIONS), (W2, HIGH), (W3, HIGH))
MINUTE = 60.0


def measure(inputs: Inputs) -> Measured:
    """Run the serial workflow in all conditions, the others under high load, with and without the cache."""
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    for name, condition in CASES:
        cached = NONE if not inputs.settings["caches"] else C1
        case = condition if name == W1 else name
        for how, scheme in (("cache", cached), ("none", NONE)):
            seconds = figures(inputs.settings, name, scheme, condition, inputs.seed).turnaround
            values[f"{how}.{case}"] = seconds / MINUTE
            data.append((CONDITIONS[condition], name, f"{name}, {how}", seconds))
        values[f"less.{case}"] = reduction(values[f"none.{case}"], values[f"cache.{case}"])
        inputs.tick()
    for how in ("cache", "none"):
        worse = min(values[f"{how}.{MODERATE}"], values[f"{how}.{HIGH}"])
        values[f"failures.{how}"] = values[f"{how}.{DELAYED}"] / worse
    return Measured(values, data)


EXPERIMENT = Experiment(
    id="c.turnaround",
    title="turnaround of workflows, with and without a cache",
    section="CMS V, figures 9 and 11",
    seconds=4.0,
    parameters=(
        *WORLD, HOST_AS_FITTED, *AS_FITTED,
        Parameter("caches", True, Source.PAPER, "IV.C: pilots keep files"),
    ),
    claims=(
        Claim("less.d1f1", "turnaround of W1 less by the cache, low load", Between(-5.0, 5.0, "no better"), "%"),
        Claim("less.d2f2", "the same, moderate load", AtLeast(0.0, "better"), "%"),
        Claim("less.d3f1", "the same, delayed without failures", Between(17.0, 20.0), "%"),
        Claim("less.d3f3", "the same, high load", Between(16.0, 27.0), "%"),
        Claim("less.W2", "turnaround of W2 less by the cache, high load", Between(4.0, 17.0), "%",
              "Its jobs save more here than in the paper, see c.stagein."),
        Claim("less.W3", "turnaround of W3 less by the cache, high load", Between(1.0, 16.0), "%",
              "A job that reads two files from the storage element fails nearly twice as often as one that reads one, and the "
              "longest chain of failures decides; so it differs much from seed to seed."),
        Claim("failures.cache", "W1 with cache: delayed without failures over the shorter of moderate and high load",
              AtMost(1.0, "less than both")),
        Claim("failures.none", "W1 without: the same", AtMost(1.0, "less than both"),
              note="Three accesses with the highest delay cost about as much as a job that runs twice at the moderate load."),
    ),
    measure=measure,
    columns=("condition", "workflow", "series", "turnaround_s"),
    plot=Plot("condition", "turnaround_s", "series", "load: 1 is d1f1, 2 d2f2, 3 d3f1, 4 d3f3", "turnaround, s"),
    watched=("less.d3f1", "less.d3f3", "less.W2", "less.W3"),
    ablations=(
        Ablation("pilots keep no files", {"caches": False}, "less.d3f3", AtMost(0.0), "%"),
    ),
    steps=len(CASES),
    modelled=MODELLED,
)  # fmt: skip
