"""Workflows on pilots that keep files, on a few pilots."""

from __future__ import annotations

import pytest

from shoal.sim.papers.cms.cached_runs import CachedRun, Condition, Run, Scheme, Workflow
from shoal.sim.papers.cms.conditions import C1, C2, C3, NONE
from shoal.sim.papers.cms.stage_in import EXPERIMENT
from shoal.sim.planning.workloads import MERGING, SERIAL, SPLITTING

SETTINGS = {
    **EXPERIMENT.settings,
    "pilots": 12,
    "host_slots": 3,
    "job_spread": 0.0,
    "delay_spread": 0.0,
    "delay_s": 100.0,
}
CALM = Condition(0.5, 0.0)


def run(kind: str, first: int, fan: int, scheme: Scheme, condition: Condition = CALM, **settings: float) -> Run:
    return CachedRun({**SETTINGS, **settings}, Workflow(kind, first, fan), scheme, condition, "1").run()


def test_a_job_waits_for_the_idle_pilot_that_made_its_file() -> None:
    """[CMS IV.E] "would not schedule the job to the pilot if there are other idle pilots holding the required data" """
    for scheme in (C1, C2):
        found = run(SERIAL, 6, 1, scheme)
        assert found.reads == found.hits == 6
    assert run(SERIAL, 6, 1, C3, host_slots=1, job_spread=0.1).hits < 6
    assert run(SERIAL, 6, 1, NONE).hits == 0


def test_the_second_reader_of_a_file_finds_it_on_a_neighbour_s_disk_only_if_hosts_share() -> None:
    assert run(SPLITTING, 1, 2, C1).hits == 2
    assert run(SPLITTING, 1, 2, C2).hits == 1


def test_one_of_two_files_of_a_merge_is_elsewhere_unless_a_host_has_both() -> None:
    assert run(MERGING, 2, 2, C2).hits == 1
    assert run(MERGING, 2, 2, C1, host_slots=12).hits == 2


def test_times_are_those_of_reads_computing_and_the_write() -> None:
    found = run(SERIAL, 6, 1, C1)
    assert [job.stage_in for job in found.jobs] == [0.0] * 6 + [20.0] * 6
    assert found.jobs[0].execution == pytest.approx(1_150.0 + 50.0)
    assert found.jobs[6].execution == pytest.approx(20.0 + 1_150.0 + 50.0)
    assert {job.stage_in for job in run(SERIAL, 6, 1, NONE).jobs[6:]} == {50.0}


def test_a_job_whose_access_fails_is_created_again_and_costs_time() -> None:
    calm, rough = run(SERIAL, 6, 1, NONE), run(SERIAL, 6, 1, NONE, Condition(0.5, 0.3))
    assert len(rough.jobs) == 12 and rough.turnaround > calm.turnaround + 600.0
    assert rough.reads > calm.reads == 6


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(MERGING, 6, 2, C1, job_spread=0.1) == run(MERGING, 6, 2, C1, job_spread=0.1)
