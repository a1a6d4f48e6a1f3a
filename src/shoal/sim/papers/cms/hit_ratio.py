"""`c.hit-ratio`: accesses that find their file in a cache, by kind of cache and workflow: figure 12 [CMS V]."""

from __future__ import annotations

from shoal.sim.papers.agreement import AtLeast, AtMost, Printed
from shoal.sim.papers.cms.conditions import AS_FITTED, C1, C2, C3, HOST_SLOTS, KINDS, LOW, MODELLED, WORLD, figures
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Parameter, Plot, Source, Value

SCHEMES = {"C1": C1, "C2": C2, "C3": C3}


def measure(inputs: Inputs) -> Measured:
    """Run all workflows with all caches."""
    settings = inputs.settings
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    for name in KINDS:
        for scheme, how in SCHEMES.items():
            if not settings["waits"]:
                how = how._replace(waits_for_data=False)
            if not settings["shares"]:
                how = how._replace(caches=C2.caches)
            ratio = figures(settings, name, how, LOW, inputs.seed).hit_ratio
            values[f"{name}.{scheme}"] = ratio
            data.append((int(name[1]), scheme, ratio))
        inputs.tick()
    values["order.W1"] = values["W1.C1"] - values["W1.C3"]
    values["order.W2"] = values["W2.C1"] - values["W2.C2"]
    values["order.W3"] = values["W3.C1"] - values["W3.C2"]
    return Measured(values, data)


EXPERIMENT = Experiment(
    id="c.hit-ratio",
    title="what caches on pilots and on hosts hold of what is read",
    section="CMS V, figure 12",
    seconds=3.0,
    parameters=(
        *WORLD, *AS_FITTED,
        Parameter("host_slots", HOST_SLOTS, Source.FITTED,
                  "pilots on a host; V says four of the Tier0 machines, and nothing of the simulation's (first run, with four: "
                  "W2 88 %, W1 without waitForData 40 %)", "W2.C1"),
        Parameter("waits", True, Source.PAPER, "IV.E: waitForData"),
        Parameter("shares", True, Source.PAPER, "IV.D: pilots of a host share their files"),
    ),
    claims=(
        Claim("W1.C1", "W1, cache of the host, waitForData", AtLeast(99.0, "above 99 %"), "%"),
        Claim("W1.C2", "W1, cache of each pilot, waitForData", AtLeast(99.0, "above 99 %"), "%"),
        Claim("W1.C3", "W1, cache of the host, no waitForData", Printed(23.0), "%",
              "Whoever asks first after jobs were created gets them; how often pilots ask, and jobs are created, is not printed. "
              "With 45 s between two requests it is 12 %, with 15 s 52 %."),
        Claim("W2.C1", "W2, cache of the host, waitForData", Printed(74.0), "%"),
        Claim("W2.C2", "W2, cache of each pilot, waitForData", Printed(50.0), "%",
              "A pilot that has a file may be given the second reader of another file, whose holder is busy, before the first of "
              "its own was created; then both readers of its file go elsewhere."),
        Claim("W3.C1", "W3, cache of the host, waitForData", Printed(50.0), "%"),
        Claim("W3.C2", "W3, cache of each pilot, waitForData", Printed(50.0), "%"),
        Claim("order.W1", "W1: with waitForData less without", AtLeast(50.0, "severely reduced without"), "points"),
        Claim("order.W2", "W2: of the host less of each pilot", AtLeast(10.0, "rises"), "points"),
        Claim("order.W3", "W3: of the host less of each pilot", AtLeast(0.0, "only slightly higher"), "points"),
    ),
    measure=measure,
    columns=("workflow", "cache", "hit_ratio_percent"),
    plot=Plot("workflow", "hit_ratio_percent", "cache", "workflow: 1 is W1, 3 is W3", "hit ratio, %"),
    watched=("W1.C3", "W2.C1"),
    ablations=(
        Ablation("no job waits for data", {"waits": False}, "order.W1", AtMost(5.0), "points"),
        Ablation("hosts do not share", {"shares": False}, "order.W2", AtMost(0.0), "points"),
    ),
    steps=3,
    modelled=MODELLED + " Of the storage element's conditions, of which the figure prints none, the low load is taken.",
)  # fmt: skip
