"""Many simulations of one workload in one world, and what they have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from shoal.report.anatomy import Anatomy, Areas, dissect
from shoal.report.history import timeline
from shoal.report.run_record import Found
from shoal.report.run_report import RunReport, make_report
from shoal.sim.planning.description import Description
from shoal.sim.planning.outcome import Outcome
from shoal.sim.planning.workloads import Workload
from shoal.sim.planning.world import PlanningWorld

Progress = Callable[[int, int], None]
PARTS = 1_000  # of the progress of one simulation


class Simulated(NamedTuple):
    """One simulation, without its long record."""

    seed: int
    makespan: float  # infinite: it did not end
    anatomy: Anatomy
    tasks: int
    succeeded: int
    failed: int
    asked: int
    enrolled: int
    steps: int
    messages: dict[str, int]
    trace: str
    stuck: str


class Prediction(NamedTuple):
    """What to expect: the simulations in the order of how long they took, and the record of the middle one."""

    runs: list[Simulated]
    middle: Outcome

    def quantile(self, part: float) -> float:
        """How long at most this part of the simulations took; infinite where one did not end."""
        at = part * (len(self.runs) - 1)
        low, high = self.runs[math.floor(at)].makespan, self.runs[math.ceil(at)].makespan
        return low if low == high else low + (at - math.floor(at)) * (high - low)

    @property
    def areas(self) -> Areas:
        """The mean slot time by where it went."""
        return Areas(*(fmean(values) for values in zip(*(run.anatomy.areas for run in self.runs), strict=True)))

    def mean(self, of: Callable[[Simulated], float]) -> float:
        """The mean of something over all simulations."""
        return fmean(of(run) for run in self.runs)


def predict(description: Description, workload: Workload, seeds: Sequence[int], progress: Progress) -> Prediction:
    """Simulate once for each seed. Long records are not kept: the middle one is simulated again for its own."""
    is_again = len(seeds) > 1
    total = PARTS * (len(seeds) + is_again)

    def simulate(seed: int, before: int) -> Outcome:
        def tell(done: int, of: int) -> None:
            progress(before * PARTS + PARTS * done // max(1, of), total)

        outcome = PlanningWorld(description, workload, seed).run(tell)
        tell(1, 1)
        return outcome

    if not is_again:
        middle = simulate(seeds[0], 0)
        return Prediction([_short(middle)], middle)
    runs = [_short(simulate(seed, number)) for number, seed in enumerate(seeds)]
    runs.sort(key=lambda run: run.makespan)
    return Prediction(runs, simulate(runs[len(runs) // 2].seed, len(seeds)))


def _short(outcome: Outcome) -> Simulated:
    anatomy = dissect(timeline(outcome.record))
    return Simulated(
        outcome.seed, outcome.makespan, anatomy, outcome.tasks, outcome.succeeded, outcome.failed, outcome.asked,
        outcome.enrolled, outcome.steps, dict(outcome.messages), outcome.trace, outcome.stuck,
    )  # fmt: skip


def as_report(outcome: Outcome, name: str) -> RunReport:
    """A simulated run as a report, with its charts and figure."""
    info: dict[str, Any] = {"run": "simulated", "name": name, "total": outcome.tasks, "finished": outcome.record.end}
    found = Found(info, outcome.record)
    found.states.update({"succeeded": outcome.succeeded, "failed": outcome.failed})
    return make_report(found)
