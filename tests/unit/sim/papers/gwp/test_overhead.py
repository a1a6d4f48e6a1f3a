"""g.overhead, on a fraction of its tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.sim.papers.experiment import Inputs
from shoal.sim.papers.gwp import overhead
from shoal.sim.papers.gwp.simulate import smaller

SMALL = smaller(overhead.EXPERIMENT.settings, 50)


def test_a_small_run_gives_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = tuple(replace(one, value=SMALL[one.name]) for one in overhead.EXPERIMENT.parameters)
    small = replace(overhead.EXPERIMENT, parameters=parameters)
    monkeypatch.setattr(overhead, "EXPERIMENT", small)
    found = overhead.measure(Inputs(1, small.settings)).values
    assert {claim.key for claim in small.claims} | set(small.watched) <= set(found)


def test_a_varied_parameter_is_compared_on_the_same_tests() -> None:
    """The first version compared one test with all three of its kind."""
    found, often = (overhead.measure(Inputs(1, {**SMALL, "gw_pulling": one})).values for one in (30.0, 3.0))
    assert set(overhead.EXPERIMENT.watched) <= set(found) and "pilot.long" not in found
    assert often["pilot.d"] < found["pilot.d"] - 5.0
