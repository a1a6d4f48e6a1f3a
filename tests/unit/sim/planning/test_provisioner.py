"""A provisioner in a planning world: it gets the work done by what its policy asks for, and what is left over ends."""

from __future__ import annotations

import pytest

from shoal.sched.demand import DemandRule
from shoal.sim.distributions import Constant
from shoal.sim.planning.description import Description, PilotLimits, Provision, Site
from shoal.sim.planning.outcome import Outcome
from shoal.sim.planning.workloads import Bag
from shoal.sim.planning.world import PlanningWorld


def _run(policy: str, **numbers: int) -> Outcome:
    site = Site(slots=2, wait=Constant(100.0), limits=PilotLimits(max_pilots=5, max_queued=5))
    provision = Provision(DemandRule(policy, **numbers))
    return PlanningWorld(Description((site,), provision=provision), [Bag(30, Constant(300.0))], 1).run()


@pytest.mark.parametrize("policy", ["shoal", "pilotmonitor-repaired", "simple", "guided"])
def test_the_work_gets_done_within_the_bounds_of_the_site(policy: str) -> None:
    found = _run(policy)
    assert found.succeeded == 30 and 1 <= found.enrolled <= found.asked <= 5
    assert found.makespan < 2_500.0


def test_the_same_seed_gives_the_same_world() -> None:
    assert _run("heuristic").trace == _run("heuristic").trace
