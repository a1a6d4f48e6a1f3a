"""Shoal as it is on the serial workflow: the product's engine and agents, with as many pilots that are all there at once.

Files are not in it: pilots of planning worlds keep none, and the server's blobs would say nothing of the paper's caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from shoal.sim.distributions import Constant, Normal
from shoal.sim.network import Link
from shoal.sim.papers.agreement import NotJudged
from shoal.sim.papers.experiment import Parameter, Source
from shoal.sim.papers.lbo.architectures import SIZES
from shoal.sim.papers.product import TIMES
from shoal.sim.planning.description import Arrival, Description, Pilots, ServerTimes
from shoal.sim.planning.workloads import SERIAL, Given, TwoSteps
from shoal.sim.planning.world import PlanningWorld

SHOAL = (
    Parameter("shoal_network", 0.02, Source.CHOSEN, "seconds one way between sites and the server", varied=False),
    *TIMES,
)  # fmt: skip
COLUMN = (
    " Shoal as it is runs the serial workflow with tasks that read no files: pilots of planning worlds keep none. They have no "
    "time of their own after a task, and beats that have nothing to tell are not sent there."
)
FOR_COMPARISON = NotJudged("its own row is above; here it is what Shoal is compared with")


class Ran(NamedTuple):
    """What came out."""

    requests: float  # per task: registrations and exchanges
    delay: float  # seconds between tasks of a pilot, in mean, while there were tasks that had not begun
    turnaround: float
    all_begun: float  # when the last pilot had its first task


def run_shoal(settings: Mapping[str, Any], size: str, seed: int) -> Ran:
    """Run the serial workflow of a size, once in a process."""
    names = (*(one.name for one in SHOAL), "task_s", "task_spread")
    return _run(tuple((name, settings[name]) for name in names), size, seed)


@lru_cache(maxsize=128)
def _run(known: tuple[tuple[str, float], ...], size: str, seed: int) -> Ran:
    settings, (pilots, tasks) = dict(known), SIZES[size]
    seconds = Normal(settings["task_s"], settings["task_spread"] * settings["task_s"])
    workflow = TwoSteps(SERIAL, tasks // 2, seconds).draw(Random(f"{seed}/{size}/shoal"))
    description = Description(
        pilots=Pilots(arrivals=tuple(Arrival(0.0, 1) for _ in range(pilots))),
        link=Link(Constant(settings["shoal_network"])),
        server=ServerTimes(Constant(settings["shoal_commit_s"]), settings["shoal_service_s"]),
        task_start=Constant(settings["shoal_task_start_s"]),
    )
    outcome = PlanningWorld(description, [Given(workflow)], seed).run()
    by_pilot: dict[str, list[tuple[float, float]]] = {}
    for one in outcome.record.attempts:
        by_pilot.setdefault(one.pilot, []).append((one.start, one.end))
    for spans in by_pilot.values():
        spans.sort()
    delays = [start - end for spans in by_pilot.values() for (_, end), (start, _) in pairwise(spans)]
    messages = outcome.messages
    return Ran(
        (messages["register"] + messages["exchange"]) / tasks,
        fmean(delays),
        outcome.makespan,
        max(spans[0][0] for spans in by_pilot.values()),
    )
