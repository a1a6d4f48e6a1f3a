"""`u.start`: how likely all K jobs have started by a quantile of the queue wait [DIANE 3.3]."""

from __future__ import annotations

import numpy as np

from shoal.sim.papers.agreement import AtLeast, NotJudged, Printed
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Parameter, Plot, Source, Value

COUNTS = (1, 2, 5, 10, 20, 50, 100, 200)


def measure(inputs: Inputs) -> Measured:
    """Draw the jobs of many submissions, and count those submissions of which all have started by the quantile."""
    jobs, quantile = int(inputs.settings["jobs"]), float(inputs.settings["quantile"])
    draws = int(inputs.settings["draws"])
    rng, data = inputs.rng("start"), list[tuple[Value, ...]]()
    shares = {}
    for count in sorted({*COUNTS, jobs}):
        # The largest of `count` ranks: a job starts by the quantile if its rank in the distribution is below it.
        latest = rng.random(draws) ** (1.0 / count) if inputs.settings["independent"] else rng.random(draws)
        shares[count] = 100.0 * float(np.mean(latest <= quantile))
        data += [(count, "drawn", shares[count]), (count, "q^K", 100.0 * quantile**count)]
        inputs.tick()
    return Measured({"all": shares[jobs], "equation": shares[jobs]}, data)


EXPERIMENT = Experiment(
    id="u.start",
    title="how likely all K jobs have started",
    section="DIANE 3.3",
    seconds=0.1,
    parameters=(
        Parameter("jobs", 100, Source.PAPER, "3.3, the example after equation 3.2"),
        Parameter("quantile", 0.95, Source.PAPER, "3.3, the example after equation 3.2"),
        Parameter("independent", True, Source.PAPER, "3.3, equation 3.2: drawn with replacement"),
        Parameter("draws", 400_000, Source.CHOSEN, "chance below a twentieth of the figure", varied=False),
    ),
    claims=(
        Claim(
            "all",
            "100 jobs all started by the 0.95 quantile",
            Printed(0.06),
            "%",
            "The thesis prints 0.06 %, but by its own equation 3.2 it is 0.95^100 = 0.0059 = 0.59 %: a slip by ten.",
        ),
        Claim(
            "equation",
            "the same, against the thesis' equation 3.2",
            NotJudged("the model is this equation"),
            "%",
            "0.95^100 in place of what is printed.",
        ),
    ),
    measure=measure,
    columns=("jobs", "series", "started_percent"),
    plot=Plot("jobs", "started_percent", "series", "jobs submitted", "all have started by the quantile, %", True, True),
    ablations=(
        Ablation("jobs that wait together, not independently", {"independent": False}, "all", AtLeast(94.0), "%"),
    ),
    steps=len(COUNTS),
    modelled="A model, without the engine. It ran once before its rules were committed.",
)
