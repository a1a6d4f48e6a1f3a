"""`u.granularity`: the makespan over the length of a task in units of the idle time before it (figure 3.10) [DIANE 3.4]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.sched.vector.binding import late_flow, late_tasks
from shoal.sim.papers.agreement import AtMost, Between, NotJudged, Printed
from shoal.sim.papers.diane.queue_waits import MIDDLE, UPPER, waits_for, waits_parameter
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
IDLE = (1.0, 5.0, 20.0, 100.0)  # seconds: network latency, transfers of 10 MB (mean, slow), the most of figure 3.10
RATIOS = np.exp(np.linspace(np.log(0.5), np.log(400.0), 49))  # task over idle time
_NOTES = dict.fromkeys(
    (1.0, 5.0),
    "The best length is near sqrt(2 x makespan x idle time), where the last task loses as much as idle times do: about 10 idle "
    "times for 100 s, more for less. The makespan at 10 is within a few per cent of the least all the same.",
)
NEAR = 3.0  # "about ten times" is within this factor


def measure(inputs: Inputs) -> Measured:
    """The mean makespan for each idle time and length of task, with the same waits for all of them."""
    waits, settings = waits_for(inputs), inputs.settings
    work, jobs = float(settings["work_h"]) * 3600.0, int(settings["jobs"])
    drawn = waits.sample(inputs.rng("granularity"), (int(settings["draws"]), jobs))
    bound = float(late_flow(drawn, work).end.mean())
    values, data = {"bound_h": bound / 3600.0}, list[tuple[Value, ...]]()
    for idle in IDLE:
        lost = idle if settings["overhead"] else 0.0
        ends = {}
        for ratio in (*RATIOS, 1.0, 10.0):
            tasks = tasks_of(work, ratio, idle)
            ends[float(ratio)] = float(late_tasks(drawn, work, tasks, lost).end.mean()) / bound
        data += [(f"{idle:.0f} s", idle, ratio, work / tasks_of(work, ratio, idle), end) for ratio, end in ends.items()]
        best = min(ends, key=lambda ratio: ends[ratio])
        values |= {
            f"best_{idle:.0f}": best, f"at_10_{idle:.0f}": ends[10.0] / ends[best], f"at_1_{idle:.0f}": ends[1.0],
        }  # fmt: skip
        inputs.tick()
    if inputs.engine and inputs.waits is None:
        _run_product(inputs, drawn, work, values)
    return Measured(values, data)


def _run_product(inputs: Inputs, drawn: Floats, work: float, values: dict[str, float]) -> None:
    """One submission with Shoal itself, beside the model with the same waits."""
    tasks = round(work / float(inputs.settings["shoal_task_s"]))
    some = drawn[:1]
    bound = float(late_flow(some, work).end[0])
    values["one"] = float(late_tasks(some, work, tasks, 1.0).end[0]) / bound
    jobs, latency = [Job(work / tasks)] * tasks, float(inputs.settings["shoal_latency_s"])
    values["shoal"] = run_product(inputs, np.sort(some[0]).tolist(), jobs, latency).makespan / bound


def tasks_of(work: float, ratio: float, idle: float) -> int:
    """How many tasks that are so many times as long as the idle time make up the work."""
    return max(1, round(work / (ratio * idle)))


def _rows() -> tuple[Claim, ...]:
    rows = []
    for idle in IDLE:
        rows += [
            Claim(
                f"best_{idle:.0f}", f"idle {idle:.0f} s: task over idle time where the makespan is least",
                Between(10.0 / NEAR, 10.0 * NEAR, "about 10"), note=_NOTES.get(idle, ""),
            ),
            Claim(
                f"at_10_{idle:.0f}", f"idle {idle:.0f} s: makespan at 10 over the least", AtMost(1.15, "the least"), "x"
            ),
            Claim(
                f"at_1_{idle:.0f}", f"idle {idle:.0f} s: makespan where task and idle time are equal, over U0",
                Printed(2.0), "x",
            ),
        ]  # fmt: skip
    return (
        *rows,
        Claim(
            "one", "idle 1 s, one submission: makespan with tasks of 100 s, over U0", NotJudged(), "x",
            as_it_is=AsItIs("shoal", "one"),
        ),
    )  # fmt: skip


EXPERIMENT = Experiment(
    id="u.granularity",
    title="makespan over the length of a task",
    section="DIANE 3.4.2, figure 3.10",
    seconds=9.0,
    parameters=(
        waits_parameter("LHCb"),
        MIDDLE,
        UPPER,
        Parameter("work_h", 100.0, Source.PAPER, "figure 3.10"),
        Parameter("jobs", 100, Source.PAPER, "figure 3.10"),
        Parameter("overhead", True, Source.PAPER, "3.4.2: each task costs idle time"),
        Parameter("shoal_task_s", 100.0, Source.CHOSEN, "length of a task for Shoal itself", varied=False),
        Parameter("shoal_latency_s", 0.2, Source.PAPER, "3.4.2: a few hundred milliseconds; one way"),
        *TIMES,
        Parameter("draws", 60, Source.CHOSEN, "deviation of the mean below one per cent", varied=False),
    ),
    claims=_rows(),
    measure=measure,
    columns=("idle", "idle_s", "ratio", "task_s", "makespan_over_bound"),
    plot=Plot("ratio", "makespan_over_bound", "idle", "task over idle time", "makespan of U1 over U0", True, True),
    watched=("best_100", "best_1", "at_1_20"),
    ablations=(Ablation("no idle time", {"overhead": False}, "at_1_20", AtMost(1.02), "x"),),
    steps=len(IDLE),
    modelled="Model U1. `Shoal as it is`: the product's engine and agents, with a latency of the network in place of idle time.",
    takes_waits=True,
)
