"""The table of experiments by id."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.model.errors import NotFound, echo
from shoal.sim.papers.cms import hit_ratio, pilotmonitor, stage_in, tier0, turnaround
from shoal.sim.papers.diane import (
    balance,
    docking,
    early_late_real,
    factory,
    granularity,
    imaging,
    ordering,
    oversubmission,
    speedup,
    start,
)
from shoal.sim.papers.experiment import Experiment
from shoal.sim.papers.gwp import filling, guided, overhead
from shoal.sim.papers.lbo import delay, request_counts, timeline
from shoal.sim.papers.lbo import hit_ratio as lbo_hit_ratio
from shoal.sim.papers.lbo import turnaround as lbo_turnaround
from shoal.sim.papers.sphinx import deadline, weather
from shoal.wire.did_you_mean import did_you_mean

EXPERIMENTS: dict[str, Experiment] = {
    one.id: one
    for one in (
        speedup.EXPERIMENT,
        start.EXPERIMENT,
        granularity.EXPERIMENT,
        oversubmission.EXPERIMENT,
        ordering.EXPERIMENT,
        balance.EXPERIMENT,
        early_late_real.EXPERIMENT,
        docking.EXPERIMENT,
        imaging.EXPERIMENT,
        factory.EXPERIMENT,
        filling.EXPERIMENT,
        overhead.EXPERIMENT,
        guided.EXPERIMENT,
        pilotmonitor.EXPERIMENT,
        hit_ratio.EXPERIMENT,
        stage_in.EXPERIMENT,
        turnaround.EXPERIMENT,
        tier0.EXPERIMENT,
        lbo_hit_ratio.EXPERIMENT,
        lbo_hit_ratio.LOCAL_EXPERIMENT,
        request_counts.EXPERIMENT,
        delay.EXPERIMENT,
        lbo_turnaround.EXPERIMENT,
        timeline.EXPERIMENT,
        weather.EXPERIMENT,
        deadline.EXPERIMENT,
    )
}


def select(words: Sequence[str]) -> list[Experiment]:
    """The experiments with these ids or beginnings of ids, in the order of the table."""
    for word in words:
        if not any(name.startswith(word) for name in EXPERIMENTS):
            raise NotFound(
                f"there is no experiment {echo(word)!r}", code="no_experiment",
                hint=did_you_mean(word, list(EXPERIMENTS)),
            )  # fmt: skip
    return [one for name, one in EXPERIMENTS.items() if any(name.startswith(word) for word in words)]
