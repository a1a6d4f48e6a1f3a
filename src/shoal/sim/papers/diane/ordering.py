"""`u.ordering`: the three phases of a run by the order of its tasks (figures 6.7 and 6.8, table 6.2) [DIANE 6.5].

Runs 3 (random order) and 4 (natural order, one of its two masters) of the thesis' analyses for a radio conference, and
longest first, which is ours. The durations themselves are not published: they are drawn from the Weibull distribution with
the printed mean whose longest of all tasks is the printed longest. The natural order goes country by country.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shoal.report.history import sample, timeline
from shoal.sim.papers.agreement import AtMost, Between, NotJudged, Printed
from shoal.sim.papers.diane.overlay import Master, process, shares
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
from shoal.sim.papers.product import TIMES, run_product
from shoal.sim.planning.workloads import Job

Floats = NDArray[np.float64]
HOUR = 3600.0
RANDOM, NATURAL, LONGEST_FIRST = "random", "natural", "longest first"
PARTS = 50  # points of a curve


def measure(inputs: Inputs) -> Measured:
    """Both runs in the order of the thesis and longest first; Shoal itself with a part of the tasks and workers."""
    settings, values, data = inputs.settings, dict[str, float](), list[tuple[Value, ...]]()
    master = Master(float(settings["latency_s"]), 1.0 / float(settings["master_hz"]))
    for run in (3, 4):
        workers, ordered = int(settings[f"workers_{run}"]), str(settings[f"order_{run}"])
        rng = inputs.rng(f"run {run}")
        durations = draw_durations(inputs, run, rng)
        arrivals = np.sort(rng.exponential(float(settings[f"ramp_{run}_s"]), workers))
        for order in (ordered, LONGEST_FIRST) if inputs.engine else (ordered,):
            record = process(arrivals.tolist(), in_order(durations, order, inputs).tolist(), master)
            history = timeline(record)
            found, name = shares(history, workers), f"{run}" if order == ordered else f"{run}_longest"
            values |= {f"{key}_{name}": value for key, value in found._asdict().items()}
            values[f"makespan_{name}"] = record.end / HOUR
            shown = sample(history, record.endings, PARTS)
            data += [
                (f"run {run}, {order}", 100.0 * (at + 0.5) / PARTS, pool, busy, rate)
                for at, (pool, busy, rate) in enumerate(zip(shown.pool, shown.busy, shown.rate, strict=True))
            ]
            inputs.tick()
        if inputs.engine:
            _run_part(inputs, run, ordered, durations, arrivals, master, values)
        inputs.tick()
    return Measured(values, data)


def _run_part(
    inputs: Inputs, run: int, ordered: str, durations: Floats, arrivals: Floats, master: Master,
    values: dict[str, float],
) -> None:  # fmt: skip
    """The thesis' overlay and Shoal itself, with the same part of the tasks and workers."""
    step = int(inputs.settings["part"])
    some, came = durations[::step], arrivals[step // 2 :: step].tolist()
    for order in (ordered, LONGEST_FIRST):
        name = f"{run}" if order == ordered else f"{run}_longest"
        tasks = in_order(some, order, inputs).tolist()
        values[f"part_{name}"] = process(came, tasks, master).end / HOUR
        found = run_product(inputs, came, [Job(seconds) for seconds in tasks], master.latency)
        values[f"shoal_{name}"] = found.makespan / HOUR


def draw_durations(inputs: Inputs, run: int, rng: np.random.Generator) -> Floats:
    """The durations of a run's tasks."""
    tasks, hours = int(inputs.settings[f"tasks_{run}"]), float(inputs.settings[f"busy_{run}_h"])
    mean = hours * HOUR / tasks
    shape = fit_shape(mean, float(inputs.settings["longest_s"]), tasks)
    drawn: Floats = rng.weibull(shape, tasks) * mean / math.gamma(1.0 + 1.0 / shape)
    return drawn


def fit_shape(mean: float, longest: float, tasks: int) -> float:
    """The shape of the Weibull distribution with this mean, of which one of so many tasks is as long as the longest."""
    low, high = 0.2, 5.0
    for _ in range(60):
        shape = 0.5 * (low + high)
        reached = mean / math.gamma(1.0 + 1.0 / shape) * math.log(tasks) ** (1.0 / shape)
        low, high = (shape, high) if reached > longest else (low, shape)
    return 0.5 * (low + high)


def in_order(durations: Floats, order: str, inputs: Inputs) -> Floats:
    """The tasks as they are dispatched."""
    if order == LONGEST_FIRST:
        return np.sort(durations)[::-1]
    rng = inputs.rng(f"order {order}")
    if order == RANDOM:
        return rng.permutation(durations)
    # A country's tasks are alike: sorted by their length and some noise, and cut into as many parts as there are countries.
    noise = float(inputs.settings["within"]) * rng.standard_normal(len(durations))
    alike = durations[np.argsort(np.log(durations) + noise)]
    countries = np.array_split(alike, int(inputs.settings["countries"]))
    longest = int(inputs.settings["middle"])
    ordinary = [countries[at] for at in rng.permutation(len(countries) - longest)]
    middle = [countries[-1 - at] for at in rng.permutation(longest)]
    half = len(ordinary) // 2
    return np.concatenate([*ordinary[:half], *middle, *ordinary[half:]])


# Why rows disagree, or how to read them.
NOTES = {
    "makespan_3": "The printed makespan less its tail is 1.17 h, ours 1.1 h: what is missing is the tail.",
    "tail_3": (
        "The printed tail lasts 0.26 x 1.58 h = 1,480 s, longer than the longest tasks of figure 6.6 (about 1000 s): tasks took "
        "longer on some nodes than this workload has. With longer tasks it grows (see `longest_s`)."
    ),
    "tail_use_3": "As for its length: there were more tasks of 1000 s and more than the rebuilt distribution has.",
    "missing_first_4": (
        "With the next row: where the submission phase ends. Here the pool fills as an exponential does, so that nearly all "
        "that is missing is missing before it has 95 % of its size; in run 4 it stayed below its target for longer."
    ),
    "missing_main_4": "See the row before.",
    "overhead_first_4": "Presumably clusters of very short tasks stood at the beginning of the data; here they come anywhere.",
    "overhead_main_4": (
        "The direction is right (three times that of a random order), by the latency of the network on short tasks more than by "
        "the bound of the master."
    ),
    "tail_4": "It depends on which countries happen to come last, and varies from seed to seed as much as it differs.",
    "tail_use_4": "See the row before.",
    "part_3": (
        "Worse by less than 0.1 %: the report of a task shorter than a round trip waits for the exchange that is under way."
    ),
    "part_4": "As in run 3.",
}


def _claims() -> tuple[Claim, ...]:
    part = "a twentieth of the tasks and workers: makespan"
    rows = (
        Claim("makespan_3", "run 3, random order: makespan", Printed(1.58), "h"),
        Claim("missing_3", "run 3: lost while workers come", Printed(12.0), "%"),
        Claim("overhead_3", "run 3: scheduling overhead before the tail", Between(2.0, 3.0), "%"),
        Claim("tail_3", "run 3: length of the tail", Printed(26.0), "%"),
        Claim("tail_use_3", "run 3: workers busy in the tail", Printed(5.0), "%"),
        Claim("makespan_4", "run 4, natural order: makespan", Printed(1.01), "h"),
        Claim("missing_4", "run 4: lost while workers come", Printed(48.0), "%"),
        Claim("missing_first_4", "run 4: of it in the submission phase", Printed(33.0), "%"),
        Claim("missing_main_4", "run 4: of it in the main phase", Printed(15.0), "%"),
        Claim("overhead_first_4", "run 4: scheduling overhead in the submission phase", Printed(30.0), "%"),
        Claim("overhead_main_4", "run 4: scheduling overhead in the main phase", Printed(10.0), "%"),
        Claim("tail_4", "run 4: length of the tail", Printed(5.0), "%"),
        Claim("tail_use_4", "run 4: workers busy in the tail", Printed(20.0), "%"),
        Claim("makespan_3_longest", "run 3, longest first: makespan", NotJudged(), "h"),
        Claim("tail_3_longest", "run 3, longest first: length of the tail", NotJudged(), "%"),
        Claim("makespan_4_longest", "run 4, longest first: makespan", NotJudged(), "h"),
        Claim("overhead_main_4_longest", "run 4, longest first: overhead in the main phase", NotJudged(), "%"),
        *(
            Claim(f"part_{key}", f"run {what}, {part}", NotJudged(), "h", as_it_is=AsItIs(f"shoal_{key}", f"part_{key[0]}"))
            for key, what in (
                ("3", "3, random order"), ("4", "4, natural order"),
                ("3_longest", "3, longest first"), ("4_longest", "4, longest first"),
            )
        ),
    )  # fmt: skip
    return tuple(replace(row, note=NOTES.get(row.key, "")) for row in rows)


EXPERIMENT = Experiment(
    id="u.ordering",
    title="three phases of a run by the order of its tasks",
    section="DIANE 6.5",
    seconds=15.0,
    parameters=(
        Parameter("tasks_3", 40_000, Source.PAPER, "table 6.2, iteration 3"),
        Parameter("busy_3_h", 192.0, Source.PAPER, "table 6.2: time on the workers; with 210 workers for 1.58 h it is busy time"),
        Parameter("workers_3", 212, Source.PAPER, "figure 6.7, the target line"),
        Parameter("order_3", RANDOM, Source.PAPER, "6.5.2"),
        Parameter("tasks_4", 19_500, Source.PAPER, "table 6.2, iteration 4, by two: figure 6.7 shows one of two masters"),
        Parameter("busy_4_h", 75.5, Source.PAPER, "table 6.2, by two as well"),
        Parameter("workers_4", 190, Source.PAPER, "figure 6.7, the target line"),
        Parameter("order_4", NATURAL, Source.PAPER, "6.5.2"),
        Parameter("longest_s", 1_000.0, Source.CHOSEN, "figure 6.6: individual tasks of 1000 s; the distribution is chosen"),
        Parameter("master_hz", 115.0, Source.PAPER, "6.4: peaks of 110 to 120 Hz"),
        Parameter("ramp_3_s", 683.0, Source.FITTED, "mean wait: the printed share of the printed makespan", "missing_3"),
        Parameter("ramp_4_s", 1_745.0, Source.FITTED, "mean wait: the printed share of the printed makespan", "missing_4"),
        Parameter(
            "latency_s", 0.22, Source.FITTED, "one way: 2.5 % of a mean task of 17.3 s is 0.44 s both ways", "overhead_3"
        ),
        Parameter("countries", 104, Source.PAPER, "6.1; the natural order goes country by country, 6.5.2"),
        Parameter("within", 0.5, Source.CHOSEN, "spread of the logarithm of durations within a country"),
        Parameter("middle", 10, Source.CHOSEN, "countries with the longest tasks, which came in the middle of run 4, 6.5.2"),
        Parameter("part", 20, Source.CHOSEN, "of the tasks and workers one in so many, for Shoal itself", varied=False),
        *TIMES,
    ),
    claims=_claims(),
    measure=measure,
    columns=("series", "percent_of_makespan", "pool", "busy", "tasks_per_minute"),
    plot=Plot("percent_of_makespan", "busy", "series", "time, % of the makespan", "busy workers"),
    watched=("makespan_3", "tail_3", "makespan_4", "overhead_main_4"),
    ablations=(
        Ablation("chance: run 3 longest first", {"order_3": LONGEST_FIRST}, "tail_3", AtMost(5.0), "%"),
        Ablation("the bound of the master", {"master_hz": 1e9}, "overhead_main_4", AtMost(5.0), "%"),
        Ablation("latency of the network", {"latency_s": 0.0}, "overhead_main_4", AtMost(5.0), "%"),
        Ablation("the natural order: run 4 at random", {"order_4": RANDOM}, "overhead_main_4", AtMost(5.0), "%"),
    ),
    steps=6,
    modelled=(
        "The thesis' master is a model (first come, first served, a bounded rate). `Shoal as it is`: the product's engine and "
        "agents with the same arrivals and tasks, one in twenty of them, compared with the thesis' master in its own order. "
        "Changed after the first run: the countries in the middle come in any order, the model pays for registration "
        "and the last report, and latency is switched off beside the master's rate, whose ablation had failed."
    ),
)  # fmt: skip
