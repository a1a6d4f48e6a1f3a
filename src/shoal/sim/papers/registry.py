"""The table of experiments by id."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.model.errors import NotFound, echo
from shoal.sim.papers.cms import pilotmonitor
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
from shoal.wire.did_you_mean import did_you_mean

EXPERIMENTS: dict[str, Experiment] = {
    one.EXPERIMENT.id: one.EXPERIMENT
    for one in (
        speedup,
        start,
        granularity,
        oversubmission,
        ordering,
        balance,
        early_late_real,
        docking,
        imaging,
        factory,
        filling,
        overhead,
        guided,
        pilotmonitor,
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
