"""g.overhead, on a fraction of its tasks."""

from __future__ import annotations

from shoal.sim.papers.experiment import Inputs
from shoal.sim.papers.gwp.overhead import EXPERIMENT, measure
from shoal.sim.papers.gwp.simulate import smaller


def test_a_small_run_gives_every_row() -> None:
    settings = smaller(EXPERIMENT.settings, 50)
    found = measure(Inputs(1, settings))
    configured = {"pilot.pulling.60", "scheduling.interval.20"}  # not in a variation
    assert {claim.key for claim in EXPERIMENT.claims} - configured <= set(found.values)
    often = measure(Inputs(1, {**settings, "gw_pulling": 3.0, "gw_tries": 200}))
    assert often.values["pilot.long"] < found.values["pilot.long"] - 5.0
