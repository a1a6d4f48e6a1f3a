"""`u.granularity`: the makespan over the length of a task in units of the idle time before it [DIANE 3.4.2, figure 3.10]."""

from __future__ import annotations

import numpy as np

from shoal.sched.vector.binding import late_flow, late_tasks
from shoal.sim.papers.agreement import AtMost, Between, Printed
from shoal.sim.papers.diane.queue_waits import MIDDLE, UPPER, waits_for, waits_parameter
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Parameter, Plot, Source, Value

IDLE = (1.0, 5.0, 20.0, 100.0)  # seconds: network latency, transfers of 10 MB (mean, slow), the most of figure 3.10
RATIOS = np.exp(np.linspace(np.log(0.5), np.log(400.0), 49))  # task over idle time
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
    return Measured(values, data)


def tasks_of(work: float, ratio: float, idle: float) -> int:
    """How many tasks that are so many times as long as the idle time make up the work."""
    return max(1, round(work / (ratio * idle)))


def _rows() -> tuple[Claim, ...]:
    rows = []
    for idle in IDLE:
        rows += [
            Claim(
                f"best_{idle:.0f}", f"idle {idle:.0f} s: task over idle time where the makespan is least",
                Between(10.0 / NEAR, 10.0 * NEAR, "about 10"),
            ),
            Claim(
                f"at_10_{idle:.0f}", f"idle {idle:.0f} s: makespan at 10 over the least", AtMost(1.15, "the least"), "x"
            ),
            Claim(
                f"at_1_{idle:.0f}", f"idle {idle:.0f} s: makespan where task and idle time are equal, over U0",
                Printed(2.0), "x",
            ),
        ]  # fmt: skip
    return tuple(rows)


EXPERIMENT = Experiment(
    id="u.granularity",
    title="makespan over the length of a task",
    section="DIANE 3.4.2, figure 3.10",
    seconds=4.0,
    parameters=(
        waits_parameter("LHCb"),
        MIDDLE,
        UPPER,
        Parameter("work_h", 100.0, Source.PAPER, "figure 3.10"),
        Parameter("jobs", 100, Source.PAPER, "figure 3.10"),
        Parameter("overhead", True, Source.PAPER, "3.4.2: each task costs idle time"),
        Parameter("draws", 60, Source.CHOSEN, "deviation of the mean below one per cent", varied=False),
    ),
    claims=_rows(),
    measure=measure,
    columns=("idle", "idle_s", "ratio", "task_s", "makespan_over_bound"),
    plot=Plot("ratio", "makespan_over_bound", "idle", "task over idle time", "makespan of U1 over U0", True, True),
    watched=("best_100", "best_1", "at_1_20"),
    ablations=(Ablation("no idle time", {"overhead": False}, "at_1_20", AtMost(1.02), "x"),),
    steps=len(IDLE),
    modelled="Model U1; with the idle time of Shoal itself see `u.early-late-real` and `u.ordering`.",
    takes_waits=True,
)
