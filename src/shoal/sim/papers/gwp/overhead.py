"""`g.overhead`: the parts of a task's turnaround in GWpilot, and what they follow [GWP 6.4.2, figure 8]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from shoal.sim.papers.agreement import AtLeast, AtMost, Between, Printed
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Plot, Source, Value
from shoal.sim.papers.gwp.simulate import GRID, GWPILOT_PARAMETERS, Outcome, Summary, outcome
from shoal.sim.papers.gwp.workload import GWPILOT, LONG, SHORT

PARTS = ("computing", "scheduling", "pilot", "application")
# A test of each kind with other settings: what the parts follow.
CONFIGURATIONS: tuple[tuple[str, str, float], ...] = (
    ("pulling", "gw_pulling", 15.0), ("pulling", "gw_pulling", 60.0), ("interval", "gw_interval", 5.0),
    ("interval", "gw_interval", 20.0), ("chunk", "gw_chunk", 25.0), ("chunk", "gw_chunk", 400.0),
)  # fmt: skip


def measure(inputs: Inputs) -> Measured:
    """Take the turnaround of every task apart, for the tests of both kinds and for other configurations."""
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    is_whole = dict(inputs.settings) == EXPERIMENT.settings  # else a parameter is varied: a test of each kind is enough
    for name, tests in (("short", SHORT), ("long", LONG)):
        ran = [outcome(inputs.settings, test, GWPILOT, inputs.seed) for test in (tests if is_whole else tests[:1])]
        for part in PARTS:
            box = _mean([_part(one, part) for one in ran])
            values |= {f"{part}.{name}": box.median, f"{part}.{name}.mean": box.mean, f"{part}.{name}.above": _above(box)}
            data.append((name, "as in the paper", 1.0, part, *box))
        inputs.tick()
    usual = outcome(inputs.settings, "d", GWPILOT, inputs.seed)
    for what, key, value in CONFIGURATIONS if is_whole else ():
        changed = _changed(inputs.settings, key, value)
        one = outcome(changed, "d", GWPILOT, inputs.seed)
        for part in PARTS:
            before, after = _part(usual, part).median, _part(one, part).median
            values[f"{part}.{what}.{value:g}"] = after / before if before else 0.0
            data.append(("d", what, value, part, *_part(one, part)))
        inputs.tick()
    values["scheduling.ratio"] = values["scheduling.short"] / values["scheduling.long"]
    values["application.ratio"] = values["application.short"] / values["application.long"]
    values["pilot.ratio"] = values["pilot.long.mean"] / values["pilot.short.mean"]
    return Measured(values, data)


def _changed(settings: Mapping[str, Any], key: str, value: float) -> dict[str, Any]:
    return {**settings, key: int(value) if isinstance(settings[key], int) else value}


def _part(one: Outcome, name: str) -> Summary:
    found: Summary = getattr(one, name)
    return found


def _mean(boxes: list[Summary]) -> Summary:
    return Summary(*(fmean(column) for column in zip(*boxes, strict=True)))


def _above(box: Summary) -> float:
    """The mean over the third quarter: above 1 if a few tasks have most of it."""
    return box.mean / box.third_quarter if box.third_quarter else 0.0


EXPERIMENT = Experiment(
    id="g.overhead",
    title="the parts of a task's turnaround in GWpilot",
    section="GWP 6.4.2, figure 8",
    seconds=15.0,
    parameters=tuple(
        replace(one, source=Source.CHOSEN, where="as in g.filling, where it is fitted", fitted_to="") if one.fitted_to else one
        for one in (*GRID, *GWPILOT_PARAMETERS)
    ),
    claims=(
        Claim("pilot.short", "pilot overhead, short tests, median", Printed(30.0), "s"),
        Claim("pilot.long", "pilot overhead, long tests, median", Printed(30.0), "s"),
        Claim("scheduling.long", "scheduling overhead, long tests, median", Printed(7.0), "s"),
        Claim("scheduling.ratio", "scheduling overhead, short over long, medians", AtLeast(1.0, "short is higher")),
        Claim("scheduling.long.above", "scheduling overhead, long: mean over third quarter", AtLeast(1.0, "mean outside")),
        Claim("pilot.long.above", "pilot overhead, long: mean over third quarter", AtLeast(1.0, "mean outside")),
        Claim("pilot.ratio", "pilot overhead, long over short, means", AtLeast(1.0, "higher with larger outputs")),
        Claim("application.ratio", "application overhead, short over long, medians", Between(0.5, 2.0, "similar")),
        Claim("pilot.pulling.60", "pilot overhead with twice the pulling interval", Between(1.7, 2.3, "follows it")),
        Claim("scheduling.interval.20", "scheduling overhead with twice the interval", Between(1.5, 2.5, "follows it")),
    ),
    measure=measure,
    columns=("tests", "what", "value", "part", "first_quarter", "median", "third_quarter", "mean"),
    plot=Plot("value", "median", "part", "setting of the configuration", "median, s", True, True),
    watched=("pilot.short", "pilot.long", "scheduling.long"),
    ablations=(
        Ablation("pilots pull every second", {"gw_pulling": 1.0, "gw_tries": 600}, "pilot.long", AtMost(10.0), "s"),
        Ablation("matching every second", {"gw_interval": 1.0}, "scheduling.long", AtMost(2.0), "s"),
    ),
    steps=2 + len(CONFIGURATIONS),
    modelled="The model of GWpilot of `g.filling`, every task of the tests.",
)  # fmt: skip
