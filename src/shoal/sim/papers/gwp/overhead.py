"""`g.overhead`: the parts of a task's turnaround in GWpilot, and what they follow [GWP 6.4.2, figure 8]."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shoal.sim.papers.agreement import AtLeast, AtMost, Between, Printed
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Plot, Source, Value
from shoal.sim.papers.gwp.simulate import GRID, GWPILOT_PARAMETERS, Seconds, outcome
from shoal.sim.papers.gwp.workload import GWPILOT, LONG, SHORT

SINGLE = "ad"  # a test of each kind
PARTS = ("computing", "scheduling", "pilot", "application")
# A test of each kind with other settings: what the parts follow.
CONFIGURATIONS: tuple[tuple[str, str, float], ...] = (
    ("pulling", "gw_pulling", 15.0), ("pulling", "gw_pulling", 60.0), ("interval", "gw_interval", 5.0),
    ("interval", "gw_interval", 20.0), ("chunk", "gw_chunk", 25.0), ("chunk", "gw_chunk", 400.0),
)  # fmt: skip


class Box(NamedTuple):
    """The distribution of one part of the turnaround: seconds."""

    first_quarter: float
    median: float
    third_quarter: float
    mean: float


def measure(inputs: Inputs) -> Measured:
    """Take the turnaround of every task apart: all tasks of the tests of one kind together, as the figure does, and of one
    test of each kind for other configurations. If a parameter is varied, only the latter tests are run."""
    is_whole = dict(inputs.settings) == EXPERIMENT.settings
    values: dict[str, float] = {}
    data: list[tuple[Value, ...]] = []
    for name, tests in (("short", SHORT), ("long", LONG)) if is_whole else ():
        ran = [outcome(inputs.settings, test, GWPILOT, inputs.seed) for test in tests]
        for part in PARTS:
            box = _box([one.parts[part] for one in ran])
            values |= {
                f"{part}.{name}": box.median,
                f"{part}.{name}.mean": box.mean,
                f"{part}.{name}.above": _above(box),
            }
            data.append((name, "as in the paper", 1.0, part, *box))
        inputs.tick()
    usual = {test: outcome(inputs.settings, test, GWPILOT, inputs.seed) for test in SINGLE}
    for test, one in usual.items():
        values |= {f"{part}.{test}": _box([one.parts[part]]).median for part in PARTS}
    for what, key, value in CONFIGURATIONS if is_whole else ():
        changed = {**inputs.settings, key: int(value) if isinstance(inputs.settings[key], int) else value}
        parts = outcome(changed, "d", GWPILOT, inputs.seed).parts
        for part in PARTS:
            box = _box([parts[part]])
            values[f"{part}.{what}.{value:g}"] = box.median / values[f"{part}.d"] if values[f"{part}.d"] else 0.0
            data.append(("d", what, value, part, *box))
        inputs.tick()
    if is_whole:
        values["scheduling.ratio"] = values["scheduling.short"] / values["scheduling.long"]
        values["application.ratio"] = values["application.short"] / values["application.long"]
        values["pilot.ratio"] = values["pilot.long.mean"] / values["pilot.short.mean"]
    return Measured(values, data)


def _box(samples: list[Seconds]) -> Box:
    together = np.concatenate(samples)
    low, middle, high = (float(one) for one in np.quantile(together, (0.25, 0.5, 0.75)))
    return Box(low, middle, high, float(np.mean(together)))


def _above(box: Box) -> float:
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
        Claim(
            "scheduling.long", "scheduling overhead, long tests, median", Printed(7.0), "s",
            "8 s in test d alone. Where pilots start slowly, above all in e, tasks wait for one, which counts as scheduling here "
            "as there; the paper's pilots came sooner than their count tells.",
        ),
        Claim("scheduling.ratio", "scheduling overhead, short over long, medians", AtLeast(1.0, "short is higher"),
              note="As above: our pilots are fewer in the long tests than the paper's."),
        Claim("scheduling.long.above", "scheduling overhead, long: mean over third quarter", AtLeast(1.0, "mean outside")),
        Claim(
            "pilot.long.above", "pilot overhead, long: mean over third quarter", AtLeast(1.0, "mean outside"),
            note="The paper does not say what a few tasks waited for; silent deaths and slow transfers are not modelled.",
        ),
        Claim("pilot.ratio", "pilot overhead, long over short, means", AtLeast(1.0, "higher with larger outputs"),
              note="Our transfers are longer, too, but in long tests more pilots are idle and ask sooner after they are chosen."),
        Claim("application.ratio", "application overhead, short over long, medians", Between(0.5, 2.0, "similar")),
        Claim("pilot.pulling.60", "pilot overhead with twice the pulling interval", Between(1.7, 2.3, "follows it")),
        Claim("scheduling.interval.20", "scheduling overhead with twice the interval", Between(1.5, 2.5, "follows it")),
    ),
    measure=measure,
    columns=("tests", "what", "value", "part", "first_quarter", "median", "third_quarter", "mean"),
    plot=Plot("value", "median", "part", "setting of the configuration", "median, s", True, True),
    watched=("pilot.a", "pilot.d", "scheduling.a", "scheduling.d"),
    ablations=(
        Ablation("pilots pull every second", {"gw_pulling": 1.0, "gw_tries": 600}, "pilot.d", AtMost(10.0), "s"),
        Ablation("matching every second", {"gw_interval": 1.0}, "scheduling.d", AtMost(2.0), "s"),
    ),
    steps=2 + len(CONFIGURATIONS),
    modelled="The model of GWpilot of `g.filling`, every task of the tests.",
)  # fmt: skip
