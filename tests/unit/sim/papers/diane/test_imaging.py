"""u.imaging, in small."""

from __future__ import annotations

import numpy as np

from shoal.sim.papers.diane.imaging import EXPERIMENT, late_ends, measure
from shoal.sim.papers.experiment import Inputs


def test_what_a_worker_reported_counts_and_what_it_did_after_that_is_lost() -> None:
    starts, ends = np.array([0.0, 5.0]), np.array([25.0, 1e9])
    # The first reports at 10 and 20 and ends; the second at 15, 25, 35.
    assert late_ends(starts, ends, work=45.0, update=10.0).tolist() == [10.0, 15.0, 20.0, 25.0, 35.0]


def test_late_binding_ends_before_early_binding_and_shoal_brings_all_results() -> None:
    found = measure(Inputs(1, {**EXPERIMENT.settings, "runs": 1, "jobs": 20, "cpu_h": 0.5})).values
    assert found["late_h"] < found["early_h"] and found["shoal_results"] == 100.0
    assert found["early_results"] < 100.0
