"""`c.stagein`: how long jobs wait for their data, with and without a cache, and what that makes of their time: figures 8 and
10 [CMS V]."""

from __future__ import annotations

from shoal.sim.papers.agreement import AtMost, Between, NotJudged, Printed
from shoal.sim.papers.cms.conditions import (
    C1,
    DELAY_S,
    DELAYED,
    HIGH,
    HOST_AS_FITTED,
    JOB_S,
    LOCAL_S,
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


def measure(inputs: Inputs) -> Measured:
    """Run the serial workflow in all conditions, the others under high load, with and without the cache."""
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    for name, condition in CASES:
        cached = NONE if not inputs.settings["caches"] else C1
        with_it = figures(inputs.settings, name, cached, condition, inputs.seed)
        without = figures(inputs.settings, name, NONE, condition, inputs.seed)
        case = condition if name == W1 else name
        values[f"cache.{case}"], values[f"none.{case}"] = with_it.stage_in, without.stage_in
        values[f"execution.{case}"] = reduction(without.execution, with_it.execution)
        for how, one in (("cache", with_it), ("no cache", without)):
            data.append((CONDITIONS[condition], name, f"{name}, {how}", one.stage_in, one.execution))
        inputs.tick()
    return Measured(values, data)


EXPERIMENT = Experiment(
    id="c.stagein",
    title="time until a job has its data, with and without a cache",
    section="CMS V, figures 8 and 10",
    seconds=4.0,
    parameters=(
        *WORLD, HOST_AS_FITTED,
        Parameter("delay_s", DELAY_S, Source.FITTED,
                  "seconds of an access for a delay factor of 1; half of the jobs of W1 read", "none.d3f3"),
        Parameter("local_s", LOCAL_S, Source.FITTED, "seconds of an access to the cache, 700 MB", "cache.d1f1"),
        Parameter("job_s", JOB_S, Source.FITTED, "seconds of computing of a job", "execution.d3f1"),
        Parameter("caches", True, Source.PAPER, "IV.C: pilots keep files"),
    ),
    claims=(
        Claim("none.d1f1", "stage-in of a job of W1, low load, no cache", Printed(10.0), "s"),
        Claim("none.d2f2", "no cache, moderate load", NotJudged("a bar without a number"), "s"),
        Claim("none.d3f1", "no cache, delayed without failures", NotJudged("a bar without a number"), "s"),
        Claim("none.d3f3", "no cache, high load", Printed(450.0), "s"),
        Claim("cache.d1f1", "stage-in of a job of W1, low load, cache", Printed(10.0), "s"),
        Claim("cache.d2f2", "cache, moderate load", Between(10.0, 13.0, "10 to 13 s"), "s"),
        Claim("cache.d3f1", "cache, delayed without failures", Between(10.0, 13.0, "10 to 13 s"), "s"),
        Claim("cache.d3f3", "cache, high load", Printed(13.0), "s",
              "A job that failed is created again when the pilot with its file often has another one by then, and reads from "
              "the storage element; in the paper that was rarer."),
        Claim("execution.d1f1", "time of a job of W1 less by the cache, low load", AtMost(1.0, "less than 1 %"), "%"),
        Claim("execution.d3f1", "time less by the cache, delayed without failures", Between(17.0, 18.0), "%"),
        Claim("execution.d3f3", "time less by the cache, high load", Between(18.0, 20.0), "%",
              "Only the attempt that succeeds is counted here, so that failures add nothing to it."),
        Claim("execution.W2", "time of a job of W2 less by the cache, high load", Between(11.0, 13.0), "%",
              "Here W2 saves for each hit what W1 does, and has more jobs that read for each that does not. In the paper it "
              "saves less, in proportion to its hits, and the text does not say why."),
        Claim("execution.W3", "time of a job of W3 less by the cache, high load", Between(7.0, 9.0), "%",
              "As W2: a job reads two files, one after the other here; were they read together, it would save half."),
    ),
    measure=measure,
    columns=("condition", "workflow", "series", "stage_in_s", "execution_s"),
    plot=Plot("condition", "stage_in_s", "series", "load: 1 is d1f1, 2 d2f2, 3 d3f1, 4 d3f3", "stage-in of a job, s",
              y_log=True),
    watched=("cache.d3f3", "none.d1f1", "execution.d3f3", "execution.W2"),
    ablations=(
        Ablation("pilots keep no files", {"caches": False}, "execution.d3f3", AtMost(0.0), "%"),
        Ablation("the storage element has no delays", {"delay_s": 0.0}, "none.d3f3", AtMost(0.0), "s"),
    ),
    steps=len(CASES),
    modelled=MODELLED + " The stage-in is the mean over all jobs of a workflow, those that read nothing included: only so do "
    "the printed times of jobs and of workflows go together.",
)  # fmt: skip
