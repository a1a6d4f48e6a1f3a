"""`g.filling`: three pilot systems on 30,000 long multiplications, their makespans and how full their pilots were [GWP 6.2]."""

from __future__ import annotations

from shoal.sim.papers.agreement import AtLeast, AtMost, Printed
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Plot, Value
from shoal.sim.papers.gwp.simulate import (
    DIANE_PARAMETERS,
    DIRAC_PARAMETERS,
    GRID,
    GWPILOT_PARAMETERS,
    Outcome,
    outcome,
)
from shoal.sim.papers.gwp.workload import DIANE, DIRAC, GWPILOT, LONG, SHORT, SYSTEMS, TABLE_6

HOUR = 3_600.0
VARIED = "abd"  # tests that are looked at when a parameter is varied


def measure(inputs: Inputs) -> Measured:
    """Simulate the systems in all tests; a few of them if a parameter is varied."""
    tests = SHORT + LONG if dict(inputs.settings) == EXPERIMENT.settings else VARIED
    found: dict[tuple[str, str], Outcome] = {}
    for test in tests:
        for system in SYSTEMS:
            found[test, system] = outcome(inputs.settings, test, system, inputs.seed)
        inputs.tick()
    values: dict[str, float] = {}
    for (test, system), one in found.items():
        values[f"makespan.{test}.{system}"] = one.makespan / HOUR
        values[f"filling.{test}.{system}"] = one.filling
        values[f"up.{test}.{system}"] = one.mean_up
    for test in tests:
        makespan = {system: found[test, system].makespan for system in SYSTEMS}
        values[f"first.{test}"] = makespan[GWPILOT] / makespan[DIANE]
        values[f"last.{test}"] = makespan[DIRAC] / max(makespan[GWPILOT], makespan[DIANE])
        fill = {system: found[test, system].filling for system in SYSTEMS}
        values[f"fuller.{test}"] = min(fill[DIANE] - fill[GWPILOT], fill[GWPILOT] - fill[DIRAC])
    data: list[tuple[Value, ...]] = [
        ("abcdef".index(test) + 1, test, system, one.makespan / HOUR, one.filling, one.mean_up, one.submitted, one.enrolled,
         one.failed)
        for (test, system), one in found.items()
    ]  # fmt: skip
    return Measured(values, data)


def _claims() -> tuple[Claim, ...]:
    claims = []
    for (test, system), cell in TABLE_6.items():
        claims.append(
            Claim(f"makespan.{test}.{system}", f"({test}) makespan, {system}", Printed(cell.makespan / HOUR), "h")
        )
    for (test, system), cell in TABLE_6.items():
        claims.append(Claim(f"filling.{test}.{system}", f"({test}) filling rate, {system}", Printed(cell.filling), "%"))
    for (test, system), cell in TABLE_6.items():
        claims.append(Claim(f"up.{test}.{system}", f"({test}) pilots up on average, {system}", Printed(cell.mean_up)))
    for test in SHORT + LONG:
        rule = AtLeast(1.0, "DIANE is faster") if test == "f" else AtMost(1.0, "GWpilot is faster")
        claims.append(Claim(f"first.{test}", f"({test}) makespan of GWpilot over DIANE", rule))
        claims.append(
            Claim(f"last.{test}", f"({test}) makespan of DIRAC over the slower other", AtLeast(1.0, "DIRAC is slowest"))
        )
        claims.append(
            Claim(
                f"fuller.{test}", f"({test}) smallest step from DIANE over GWpilot to DIRAC in filling",
                AtLeast(0.0, "fuller in this order"), "points",
            )  # fmt: skip
        )
    return tuple(claims)


EXPERIMENT = Experiment(
    id="g.filling",
    title="three pilot systems on 30,000 short tasks",
    section="GWP 6.2, table 6",
    seconds=30.0,
    parameters=(*GRID, *GWPILOT_PARAMETERS, *DIANE_PARAMETERS, *DIRAC_PARAMETERS),
    claims=_claims(),
    measure=measure,
    columns=(
        "number", "test", "system", "makespan_hours", "filling_percent", "mean_up", "submitted", "enrolled", "failed",
    ),
    plot=Plot("number", "filling_percent", "system", "test: 1 is (a), 6 is (f)", "filling rate, %"),
    watched=(
        "makespan.a.GWpilot", "filling.a.GWpilot", "filling.d.GWpilot", "makespan.b.DIANE", "makespan.a.DIRAC",
        "filling.a.DIRAC", "filling.d.DIRAC",
    ),
    ablations=(
        Ablation(
            "DIANE submits as fast as GWpilot and keeps pilots whose task failed",
            {"diane_submission": 0.1, "diane_drops": False}, "first.b", AtLeast(1.0),
        ),
        Ablation("GWpilot: pilots pull every second", {"gw_pulling": 1.0, "gw_tries": 600}, "filling.a.GWpilot", AtLeast(93.0), "%"),
        Ablation(
            "DIRAC: quick commands, no delays, pilots ask again after a second",
            {"dirac_command": 0.01, "dirac_command_task": 0.0, "dirac_classify": 0.0, "dirac_complete": 0.0,
             "dirac_retry": 1.0, "dirac_failed_matches": 1200, "dirac_most_matches": 12000, "script_pause": 1.0,
             "dirac_submission_delay": 0.5},
            "filling.d.DIRAC", AtLeast(95.0), "%",
        ),
    ),
    steps=len(SHORT + LONG),
    modelled=(
        "Factories are the policies of `sched`; matching, pulling, scripts and servers of the three systems are models, as are "
        "the grid's queues (waits without memory) and hosts (the two reference machines). Put in for each test are the counts "
        "of submitted pilots (DIANE, GWpilot) and of failed tasks; everything else is shared by a to c and by d to f."
    ),
)  # fmt: skip
