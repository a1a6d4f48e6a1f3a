"""c.pilotmonitor, on a small workflow."""

from __future__ import annotations

import pytest

from shoal.sim.distributions import Constant
from shoal.sim.papers.cms.direct import DirectSubmission, JobTimes
from shoal.sim.papers.cms.pilotmonitor import EXPERIMENT, Delays, measure
from shoal.sim.papers.experiment import Inputs
from shoal.sim.planning.description import Site
from shoal.sim.planning.workloads import Batch, Job

SMALL = {**EXPERIMENT.settings, "first": 8, "pilots": 12}
CHAIN = Batch((Job(100.0), Job(200.0), Job(50.0, (0, 1))))


def test_a_job_is_submitted_when_the_ends_of_those_before_it_are_known() -> None:
    found = DirectSubmission(CHAIN, Site(wait=Constant(30.0)), Constant(7.0), 1).run()
    assert found == [(30.0, 130.0, 137.0), (30.0, 230.0, 237.0), (267.0, 317.0, 324.0)]


def test_jobs_wait_for_a_host() -> None:
    found = DirectSubmission(CHAIN, Site(hosts=1), Constant(0.0), 1).run()
    assert [one.began for one in found] == [0.0, 100.0, 300.0]


def test_delays_are_what_is_neither_computing_nor_waiting_for_other_jobs() -> None:
    times = [JobTimes(30.0, 130.0, 137.0), JobTimes(30.0, 230.0, 237.0), JobTimes(267.0, 317.0, 324.0)]
    found = Delays(CHAIN, times)
    assert (found.mean, found.first, found.between, found.turnaround) == (37.0, 30.0, 37.0, 74.0)
    assert [found.running(at) for at in (0.0, 50.0, 250.0, 300.0)] == [0, 2, 0, 1]


def test_a_small_run_gives_every_row_and_is_repeatable() -> None:
    found = measure(Inputs(1, SMALL))
    assert {claim.key for claim in EXPERIMENT.claims} | set(EXPERIMENT.watched) <= set(found.values)
    assert found.values["reduction.waiting"] > found.values["reduction.pilotmonitor"] > 0.0
    assert measure(Inputs(1, SMALL, engine=False)).values.items() <= found.values.items()


def test_as_printed_no_pilot_is_sent_for_a_group_as_large_as_the_free_slots() -> None:
    """[CMS IV.A], steps 9 and 10"""
    found = measure(Inputs(2, SMALL)).values
    assert found["sent.pilotmonitor"] == 0 and found["sent.pilotmonitor-repaired"] == pytest.approx(8, abs=1)
