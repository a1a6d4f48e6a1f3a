"""The column `Shoal as it is`: the product's own engine and agents in a planning world, with Shoal's own measured times."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.sim.distributions import Constant
from shoal.sim.network import Link
from shoal.sim.papers.experiment import Inputs, Parameter, Source
from shoal.sim.planning.description import Arrival, Description, Pilots, ServerTimes
from shoal.sim.planning.outcome import Outcome
from shoal.sim.planning.workloads import Batch, Given, Job
from shoal.sim.planning.world import PlanningWorld

TIMES = (
    Parameter(
        "shoal_service_s", 0.001035, Source.MEASURED, "docs/performance.md: server per exchange, 480 pilots of one core"
    ),
    Parameter(
        "shoal_commit_s", 0.0033, Source.MEASURED, "docs/performance.md: roundtrip_p50_ms less roundtrip_cpu_ms"
    ),
    Parameter(
        "shoal_task_start_s", 0.0015, Source.MEASURED, "docs/performance.md: a command in pieces, guard and process"
    ),
)  # fmt: skip


def run_product(
    inputs: Inputs, arrivals: Sequence[float], jobs: Sequence[Job], latency: float, seed: int | None = None
) -> Outcome:
    """Have Shoal itself work through the jobs, in their order, with a pilot of one slot at each arrival; `latency`: of the
    network, one way."""
    settings = inputs.settings
    description = Description(
        pilots=Pilots(arrivals=tuple(Arrival(at, 1) for at in arrivals)),
        link=Link(Constant(latency)),
        server=ServerTimes(Constant(settings["shoal_commit_s"]), settings["shoal_service_s"]),
        task_start=Constant(settings["shoal_task_start_s"]),
    )
    return PlanningWorld(description, [Given(Batch(jobs))], inputs.seed if seed is None else seed).run()
