"""`s.weather`: workflows on a loaded grid, placed round robin or by the weather of its sites: figure 3 [SPHINX results]."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

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
from shoal.sim.papers.product import TIMES
from shoal.sim.papers.sphinx.grid import HOUR, Grid, draw_dags, draw_sites
from shoal.sim.planning.description import Description, Pilots, Provision, ServerTimes
from shoal.sim.planning.workloads import Batch, Given, Job
from shoal.sim.planning.world import PlanningWorld

WIDTH_H = 0.5  # of a bar of the histograms
AXES = NotJudged("the axes of figure 3 are not in the text")
FUTURE = NotJudged("the paper leaves forecasts as future work")
P, C = Source.PAPER, Source.CHOSEN


def measure(inputs: Inputs) -> Measured:
    """Both planners at one time on one grid."""
    grid = Grid(inputs.settings, inputs.seed)
    grid.run()
    without, with_weather = grid.without, grid.with_weather
    inputs.tick()
    inside, error = grid.scores()
    values = {
        "factor": fmean(without.completion) / fmean(with_weather.completion),
        "completion.none": fmean(without.completion) / HOUR,
        "completion.weather": fmean(with_weather.completion) / HOUR,
        "idle": fmean(without.idle) / max(1.0, fmean(with_weather.idle)),
        "idle.none": fmean(without.idle) / HOUR,
        "idle.weather": fmean(with_weather.idle) / HOUR,
        "good": float(len(without.good)),
        "inside": inside,
        "error": error,
    }
    if inputs.engine:
        values["completion.shoal"] = fmean(_run_shoal(inputs.settings, inputs.seed)) / HOUR
    inputs.tick()
    data: list[tuple[Value, ...]] = []
    for what, of in (("completion", "completion"), ("idle", "idle")):
        for name, planner in (("no weather", without), ("weather", with_weather)):
            data += [(f"{what}, {name}", *bar) for bar in _histogram(getattr(planner, of))]
    return Measured(values, data)


def _histogram(seconds: list[float]) -> list[tuple[float, float]]:
    """The middle of each bar in hours, and the share of the values that are in it."""
    bars: dict[int, int] = {}
    for one in seconds:
        at = int(one / HOUR / WIDTH_H)
        bars[at] = bars.get(at, 0) + 1
    return [((at + 0.5) * WIDTH_H, bars.get(at, 0) / len(seconds)) for at in range(max(bars) + 1)]


def _run_shoal(settings: Mapping[str, Any], seed: int) -> list[float]:
    """Shoal itself with the same sites and workflows, each of them a run: pilots in the queues, late binding."""
    between = 2 * settings["transfer_s"] + 3 * settings["step_s"]  # of a job, beside its execution
    workload = [
        Given(Batch([Job(job.seconds + between, job.after) for job in dag])) for dag in draw_dags(settings, seed)
    ]
    description = Description(
        sites=tuple(one.site for one in draw_sites(settings, seed) if one.is_good), pilots=Pilots(),
        server=ServerTimes(Constant(settings["shoal_commit_s"]), settings["shoal_service_s"]),
        task_start=Constant(settings["shoal_task_start_s"]), provision=Provision(),
    )  # fmt: skip
    outcome = PlanningWorld(description, workload, seed).run()
    size, last = len(workload[0].batch.jobs), dict[int, float]()
    for one in outcome.record.attempts:
        if one.outcome == "succeeded":
            dag = (one.task - 1) // size
            last[dag] = max(last.get(dag, 0.0), one.end)
    return list(last.values())


EXPERIMENT = Experiment(
    id="s.weather",
    title="workflows placed by the weather of the sites, and round robin",
    section="SPHINX results, figure 3",
    seconds=20.0,
    parameters=(
        Parameter("dags", 30, P, "EXPERIMENTAL RESULTS: 30 workflow DAGs for each server"),
        Parameter("jobs", 10, P, "EXPERIMENTAL RESULTS: each with 10 jobs"),
        Parameter("steps", 6, P, "EXPERIMENTAL RESULTS: environment, input, execution, output, publication, cleaning up"),
        Parameter("sites", 27, P, "EXPERIMENTAL RESULTS: of Grid3"),
        Parameter("good_sites", 13, P, "EXPERIMENTAL RESULTS: 13 out of 27 once a steady state was achieved"),
        Parameter("cuts", True, P, "EXPERIMENTAL RESULTS: tight stability cuts"),
        Parameter("weather", True, P, "EXPERIMENTAL RESULTS: one of the servers uses it"),
        Parameter("background", True, P, "EXPERIMENTAL RESULTS: a moderately loaded grid, ATLAS and iVDGL jobs"),
        Parameter("load_low", 0.5, C, "least load by other people, of a site's slots: moderate"),
        Parameter("load_high", 1.1, C, "largest load: some sites have more than they can run, and long queues"),
        Parameter("slots_low", 16.0, C, "slots of the smallest site"),
        Parameter("slots_high", 128.0, C, "slots of the largest site"),
        Parameter("other_h", 3.0, C, "hours that a job of other people takes in mean: simulation for ATLAS"),
        Parameter("job_s", 600.0, C, "seconds of a job, stated; real ones differ by up to a fifth"),
        Parameter("bad_slow", 10.0, C, "times as long as stated on a site that is not good"),
        Parameter("cut", 3.0, C, "times as long as stated from which on a job is cut: significantly longer"),
        Parameter("step_s", 60.0, C, "seconds of a step that does next to nothing, by Condor-G"),
        Parameter("transfer_s", 60.0, C, "seconds of a transfer"),
        Parameter("monitor_s", 300.0, C, "seconds between two publications of a site's queue depth"),
        Parameter("plan_s", 60.0, C, "seconds between two plans"),
        Parameter("probe_h", 3.0, C, "hours from the first jobs to the workflows, in which sites prove good or not"),
        Parameter("turnover_h", 1.5, C, "hours that a job which runs at a site still takes, as the planner believes"),
        *TIMES,
    ),
    claims=(
        Claim("factor", "completion time of workflows, round robin over weather",
              Between(2.5, 7.5, "nearly a factor five"), "x"),
        Claim("idle", "time of a job in remote queues, round robin over weather", AtLeast(2.0, "less with weather, by the plots"),
              "x"),
        Claim("good", "sites that stay good", Between(12.0, 14.0, "13 of 27")),
        Claim("completion.none", "completion time of a workflow, round robin", AXES, "h"),
        Claim("completion.weather", "the same, with weather", AXES, "h",
              as_it_is=AsItIs("completion.shoal", "completion.weather")),
        Claim("idle.none", "time of a job in remote queues, round robin", AXES, "h"),
        Claim("idle.weather", "the same, with weather", AXES, "h"),
        Claim("inside", "share of observations in the interval that was forecast for 80 %", FUTURE),
        Claim("error", "mean error of the forecast over that of the last value", FUTURE),
    ),
    measure=measure,
    columns=("series", "hours", "share"),
    plot=Plot("hours", "share", "series", "hours", "share of workflows (completion), of jobs (idle)"),
    watched=("factor", "idle"),
    ablations=(
        Ablation("neither planner looks at the weather", {"weather": False}, "factor", Between(0.67, 1.5), "x"),
        Ablation("nobody else uses the grid", {"background": False}, "factor", AtMost(1.5), "x"),
    ),
    steps=2,
    modelled=(
        "The sites, their load and the six steps are a model; the linear program and the forecasts are the product's own. "
        "Both planners run at one time on one grid and bind early, as in the paper. Shoal as it is has the same sites, other "
        "people's jobs and workflows without the second planner, sends pilots and binds late; of the sites it has the good "
        "ones, which the planners found by their probes. In the first run it had all 27 and nothing that cuts a task on a slow "
        "one, and took five times as long as the planner with weather: what stability cuts do is left to time limits of tasks "
        "and to bans."
    ),
)  # fmt: skip
