"""`shoal simulate`: how long a workload would take in a world that a file describes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.output.charts import columns, shows_blocks
from shoal.cli.output.step_progress import StepProgress
from shoal.cli.output.tables import pairs, print_json, print_lines, table
from shoal.cli.session import json_option
from shoal.cli.tasks.report import chart_lines, phase_lines, write_figure
from shoal.model.quantities import many, show_duration

if TYPE_CHECKING:  # the simulator is imported when it is used
    from shoal.sim.planning.description import Description
    from shoal.sim.planning.prediction import Prediction
    from shoal.sim.planning.workloads import Workload

MAX_SEEDS = 1_000
QUANTILES = (0.1, 0.5, 0.9)


@click.command()
@click.argument("workload", metavar="WORKLOAD")
@click.option("--world", metavar="FILE", required=True, help="The world: sites, hosts, queues, pilots (TOML).")
@click.option(
    "--seeds", type=click.IntRange(1, MAX_SEEDS), default=10, show_default=True, metavar="N", help="Simulations."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="The first seed.")
@click.option("--pilots", type=click.IntRange(1, 100_000), metavar="N", help="Pilots in place of those of the world.")
@click.option("-o", "--output", "path", metavar="FILE", help="Draw the middle simulation: FILE.png, .svg or .html.")
@json_option
def simulate(
    workload: str, world: str, seeds: int, seed: int, pilots: int | None, path: str | None, as_json: bool
) -> None:
    """Simulate a workload in a world, several times, and show when it would finish and where the time goes.

    WORKLOAD is a TOML file with bags of tasks or workflows of two steps, or a workflow in WfFormat (.json). The simulation
    runs Shoal's own server and pilot logic on a virtual clock; the world says what is around them. The same seed gives the
    same simulation. What may stand in the files: docs/howto/plan-with-the-simulator.md; examples are in worlds/.

    \b
    Examples:
      shoal simulate worlds/bag.toml --world worlds/cluster.toml
      shoal simulate workflow.json --world worlds/laptop.toml --pilots 4
      shoal simulate worlds/bag.toml --world worlds/grid.toml --seeds 50 -o finish.svg
    """
    kind = ""
    if path is not None:
        from shoal.report.figure import figure_format

        kind = figure_format(path)
    from shoal.sim.planning.prediction import as_report
    from shoal.sim.planning.world_file import read_workload, read_world, with_pilots

    description, work = read_world(world), read_workload(workload)
    if pilots is not None:
        description = with_pilots(description, pilots)
    found = predict_shown(description, work, range(seed, seed + seeds), as_json)
    made = as_report(found.middle, Path(workload).name)
    if path is not None:
        write_figure(made, path, kind)
    if as_json:
        print_json({"workload": workload, "world": world, **document(found)})
        return
    print_lines(_lines(found, f"{workload} in {world}"))
    print_lines(["", f"the middle simulation (seed {found.middle.seed}):"])
    print_lines(phase_lines(made))
    print_lines(["", *chart_lines(made, columns(), shows_blocks())])


def predict_shown(description: Description, work: Workload, seeds: range, quiet: bool) -> Prediction:
    """Simulate with a bar of progress."""
    from shoal.sim.planning.prediction import predict

    with StepProgress("simulate", quiet=quiet) as progress:
        return predict(description, work, seeds, progress.update)


def time_text(seconds: float) -> str:
    """How long, or that it does not end."""
    return "never" if math.isinf(seconds) else show_duration(seconds)


def _lines(found: Prediction, what: str) -> Iterator[str]:
    first = found.runs[0]
    yield f"{many(first.tasks, 'task')}: {what}, {many(len(found.runs), 'simulation')}"
    finish = [time_text(found.quantile(part)) for part in QUANTILES]
    yield from table(["  finish", "P10", "P50", "P90"], [["", *finish]])
    areas = found.areas
    total = areas.total or 1.0
    shown: list[tuple[str, object]] = [
        ("  utilisation", f"{100 * found.mean(lambda run: run.anatomy.utilisation):.1f} % of the slots that were there"),
        ("  wasted", f"{100 * areas.failed / total:.1f} % of all slot time in attempts that failed or were lost"),
        (
            "  slot time",
            ", ".join(f"{name} {100 * area / total:.1f} %" for name, area in areas._asdict().items()),
        ),
        ("  pilots", f"{found.mean(lambda run: run.enrolled):,.0f} came, {found.mean(lambda run: run.asked):,.0f} asked for"),
        ("  exchanges", f"{found.mean(lambda run: run.messages.get('exchange', 0)):,.0f} with the server"),
    ]  # fmt: skip
    failed = found.mean(lambda run: run.failed)
    if failed:
        shown.append(("  failed", f"{failed:,.1f} tasks for good"))
    yield from pairs(shown)
    stuck = [run for run in found.runs if run.stuck]
    if stuck:
        yield f"  {len(stuck)} of {many(len(found.runs), 'simulation')} did not end: {stuck[0].stuck}"


def document(found: Prediction) -> dict[str, Any]:
    """The prediction for programs; seconds, null where it does not end."""
    areas = found.areas
    return {
        "tasks": found.runs[0].tasks,
        "seconds": {f"p{round(100 * part)}": _finite(found.quantile(part)) for part in QUANTILES},
        "utilisation": found.mean(lambda run: run.anatomy.utilisation),
        "slot_seconds": areas._asdict(),
        "simulations": [
            {
                "seed": run.seed, "seconds": _finite(run.makespan), "succeeded": run.succeeded, "failed": run.failed,
                "pilots_asked": run.asked, "pilots_came": run.enrolled, "messages": run.messages, "events": run.steps,
                "trace": run.trace, "stuck": run.stuck,
            }
            for run in sorted(found.runs, key=lambda run: run.seed)
        ],
    }  # fmt: skip


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else round(seconds, 3)
