"""`u.balance`: pieces made to measure against tasks of equal size, over the communication of the application and the
heterogeneity of the processors, as in section 4.8.3 and figures 4.17 and 4.18 of the thesis [DIANE U8]."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from shoal.sim.distributions import Constant
from shoal.sim.papers.agreement import AtLeast, AtMost, Between, NotJudged
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
from shoal.sim.planning.description import Arrival, Description, Pilots, Site, Storage
from shoal.sim.planning.workloads import Bag, Divisible
from shoal.sim.planning.world import PlanningWorld

RATIOS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # seconds of communication for one of computation, on the mean processor
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of heterogeneity
BANDWIDTH = 10.0  # MB per second of the mean link: only its product with the ratio matters


def spread_to(drawn: np.ndarray, level: float) -> np.ndarray:
    """Positive numbers with mean 1 whose standard deviation is this level, spread as the drawn ones are."""
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        found = np.exp(middle * drawn)
        if float(np.std(found / found.mean(), ddof=1)) < level:
            low = middle
        else:
            high = middle
    found = np.exp(low * drawn)
    return np.asarray(found / found.mean())


def phi(powers: np.ndarray, bandwidths: np.ndarray) -> float:
    """The heterogeneity of the processors, as the thesis defines it: of power over bandwidth."""
    ratios = powers / bandwidths
    return float(np.std(ratios / ratios.mean(), ddof=1))


def _world(powers: np.ndarray, bandwidths: np.ndarray, start: float) -> Description:
    """One pilot with one slot for each processor, and a link of its own."""
    sites = tuple(Site(f"p{at}", storage=Storage(BANDWIDTH * float(one))) for at, one in enumerate(bandwidths))
    arrivals = tuple(Arrival(0.0, 1, float(power), site=f"p{at}") for at, power in enumerate(powers))
    return Description(sites, Pilots(arrivals=arrivals), task_start=Constant(start))


def measure(inputs: Inputs) -> Measured:
    """Execution times with tasks of equal size, and in pieces, in the same worlds."""
    settings, rng = inputs.settings, inputs.rng("processors")
    count, start = int(settings["processors"]), float(settings["start_s"])
    work = count * float(settings["mean_s"])  # seconds on the mean processor
    drawn, links = rng.standard_normal(count), rng.standard_normal(count)
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []

    def times(powers: np.ndarray, bandwidths: np.ndarray, ratio: float) -> tuple[float, float, float]:
        world = _world(powers, bandwidths, start)
        moved = BANDWIDTH * ratio  # MB for each second of work
        tasks, units = int(settings["tasks"]), int(settings["units"])
        equal = Bag(tasks, Constant(work / tasks), input_mb=moved * work / tasks)
        pieces = Divisible(units, work / units, input_mb=moved * work / units)
        plain = PlanningWorld(world, [equal], inputs.seed).run().makespan
        made = PlanningWorld(world, [pieces], inputs.seed).run().makespan if settings["adaptive"] else plain
        together = work / float(np.sum(1.0 / (1.0 / powers + ratio / bandwidths)))
        inputs.tick()
        return plain, made, together

    mixed = float(settings["mixed"])
    powers, bandwidths = spread_to(drawn, mixed), spread_to(links, mixed)
    for ratio in RATIOS:
        plain, made, together = times(powers, bandwidths, ratio)
        values |= {f"equal_{ratio}": plain, f"pieces_{ratio}": made, f"gain_{ratio}": plain / made}
        data.append(("ratio", ratio, phi(powers, bandwidths), plain, made, together, plain / made))
    values["most"] = max(values[f"gain_{ratio}"] for ratio in RATIOS)
    for level in LEVELS:
        powers, bandwidths = spread_to(drawn, level), np.ones(count)
        plain, made, together = times(powers, bandwidths, float(settings["ratio"]))
        values[f"level_{level}"] = plain / made
        data.append(("heterogeneity", level, phi(powers, bandwidths), plain, made, together, plain / made))
    values["least_step"] = min(values[f"level_{b}"] - values[f"level_{a}"] for a, b in pairwise(LEVELS))
    lower = values["level_0.5"] - values["level_0.0"]
    values["bend"] = (values["level_1.0"] - values["level_0.5"]) - lower
    return Measured(values, data)


def _rows() -> tuple[Claim, ...]:
    rows = [
        Claim(
            f"equal_{ratio}", f"ratio {ratio}: execution time with equal tasks; as it is: in pieces",
            NotJudged("only plotted"), "s", as_it_is=AsItIs(f"pieces_{ratio}", f"equal_{ratio}"),
        )
        for ratio in RATIOS
    ]  # fmt: skip
    rows += [
        Claim(f"gain_{ratio}", f"ratio {ratio}: equal tasks over pieces", AtLeast(1.0, "faster for all six"), "x")
        for ratio in RATIOS
    ]
    rows.append(Claim("most", "the largest of these", Between(1.5, 2.3, "up to 2 times"), "x"))
    rows += [
        Claim(f"level_{level}", f"heterogeneity {level:g}: equal tasks over pieces", NotJudged("only plotted"), "x")
        for level in LEVELS
    ]
    return (
        *rows,
        Claim(
            "least_step", "least rise from one level to the next", AtLeast(0.0, "grows with heterogeneity"), "x",
            note="Disagrees: the mean over the seeds rises with every level, but not each seed with each step. With few tasks "
            "for each processor the time with equal tasks changes by whole tasks, so that it may stay while pieces get slower.",
        ),
        Claim(
            "bend", "rise from 0.5 to 1 above that from 0 to 0.5", AtLeast(0.0, "super-linear"), "x",
            note="Of a plot: judged is the sign. How large the gain is depends on the number of equal tasks (see `tasks`), which "
            "the text does not give.",
        ),
    )  # fmt: skip


EXPERIMENT = Experiment(
    id="u.balance",
    title="pieces made to measure against tasks of equal size",
    section="DIANE 4.8.3, figures 4.17 and 4.18",
    seconds=10.0,
    parameters=(
        Parameter("processors", 16, Source.PAPER, "4.8.3"),
        Parameter("adaptive", True, Source.PAPER, "4.8.1: size by what is measured"),
        Parameter("tasks", 32, Source.CHOSEN, "4.8.3 does not say how many equal tasks: two for each processor"),
        Parameter("mixed", 0.6, Source.CHOSEN, "standard deviation of powers, and of bandwidths, in figure 4.17"),
        Parameter("ratio", 0.2, Source.CHOSEN, "communication over computation in figure 4.18"),
        Parameter("start_s", 0.5, Source.CHOSEN, "start of a payload on a worker node"),
        Parameter(
            "mean_s", 600.0, Source.CHOSEN, "work of the mean processor; less costs less to simulate", varied=False
        ),
        Parameter("units", 16_000, Source.CHOSEN, "fine enough not to matter", varied=False),
    ),
    claims=_rows(),
    measure=measure,
    columns=("part", "x", "phi", "equal_s", "pieces_s", "together_s", "gain"),
    plot=Plot("x", "gain", "part", "ratio, or heterogeneity of the processors", "equal tasks over pieces"),
    watched=("most", "level_1.0"),
    ablations=(
        Ablation("sizes by measurement", {"adaptive": False}, "most", AtMost(1.001), "x"),
        Ablation("heterogeneity of the processors", {"mixed": 0.0}, "most", AtMost(1.2), "x"),
    ),
    steps=len(RATIOS) + len(LEVELS),
    modelled="Both ways run in the product's own engine and agents: tasks of equal size as an array that pilots pull, pieces as "
    "divisible work (`sched/size.py`). The pieces are Shoal as it is. Processors, links and payloads are models; the values of "
    "the six ratios are chosen, since the text names none.",
)
