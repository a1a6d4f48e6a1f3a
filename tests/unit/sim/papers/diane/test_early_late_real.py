"""Early binding on as many nodes as there are."""

from __future__ import annotations

import numpy as np

from shoal.sim.papers.diane.early_late_real import early_ends


def test_a_job_needs_its_wait_and_then_a_node() -> None:
    ends = early_ends(np.array([0.0, 1.0, 50.0]), np.array([10.0, 10.0, 10.0]), 1)
    assert ends.tolist() == [10.0, 20.0, 60.0]
    assert early_ends(np.array([0.0, 1.0, 50.0]), np.array([10.0] * 3), 2).tolist() == [10.0, 11.0, 60.0]
