"""g.guided: its workload, and a fraction of it."""

from __future__ import annotations

import pytest

from shoal.sim.papers.experiment import Inputs
from shoal.sim.papers.gwp.guided import CONTROL, EXPERIMENT, GUIDED, RANKED, applications, measure, printed, radii

SMALL = {
    **EXPERIMENT.settings,
    "scale": 100,
    "bundle": 20,
    "sites": 6,
    "wait_s": 900.0,
    "per_site": 500,
    "look_s": 1_200.0,
}


def test_the_slices_have_each_radius_once() -> None:
    """[GWP 6.3.3]"""
    found = [radii(number) for number in (1, 2, 3)]
    assert found[0][:6] == [2, 47, 92, 3, 48, 93] and found[0][-3:] == [139, 140, 141]
    assert sorted(radius for one in found for radius in one) == list(range(2, 142))


def test_the_work_is_what_the_paper_says_of_it() -> None:
    """36.5 hours on 750 cores for the three slices, about 32 on 250 for the multiplications [GWP 6.3.3]."""
    works = applications(50, 1)
    assert sum(len(jobs) for jobs in works[1:]) == pytest.approx(241_920 / 50, abs=3)
    assert sum(job.seconds for jobs in works[1:] for job in jobs) * 50 / 750 / 3600 == pytest.approx(36.5, rel=0.01)
    assert sum(job.seconds for job in works[0]) * 50 / 250 / 3600 == pytest.approx(32.0, rel=0.01)
    bundled = sum(job.seconds for jobs in applications(50, 5) for job in jobs)
    assert bundled == pytest.approx(sum(job.seconds for jobs in works for job in jobs), rel=0.01)


def test_table_8_adds_up_as_printed() -> None:
    assert printed(CONTROL) == pytest.approx([168.73, 180.64, 178.39], abs=0.02)
    cuts = [100.0 * (1.0 - after / before) for before, after in zip(printed(CONTROL), printed(GUIDED), strict=True)]
    assert cuts == pytest.approx([11.0, 21.3, 20.0], abs=0.05)
    cuts = [100.0 * (1.0 - after / before) for before, after in zip(printed(CONTROL), printed(RANKED), strict=True)]
    assert cuts == pytest.approx([9.7, 7.4, 2.2], abs=0.05)


def test_guided_pilots_come_to_faster_hosts() -> None:
    found = measure(Inputs(1, SMALL, engine=False)).values
    assert set(EXPERIMENT.watched) <= set(found)
    assert found["speed.guided"] > found["speed.control"]
