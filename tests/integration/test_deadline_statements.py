"""Of real runs that are told between 50 and 95 %, the mean of the statements is within 15 points of the share that made it
[SPHINX S6; ADR 0054]. With SHOAL_PROVE=1 thirty runs, else two, of which only a statement and an end are asked."""

from __future__ import annotations

from random import Random
from statistics import fmean

import numpy as np
import pytest

from shoal.sched.vector.deadline import chance_of, fresh_ends
from shoal.sched.vector.time_left import Observed
from tests.integration.cluster import PROVE, Cluster
from tests.integration.test_deadlines import typed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
RUNS = 30 if PROVE else 2
SLOTS, TASKS, KNOWN = 4, 24, 3  # KNOWN: newest runs that a statement is by, as the outlook of a submission has them


def test_statements_on_real_runs_come_true_as_often_as_they_say(cluster: Cluster) -> None:
    rng = Random(11)
    cluster.start_server()
    cluster.start_pilot(SLOTS)

    def go(number: int) -> float:
        values = ",".join(f"{min(1.5, rng.lognormvariate(-1.6, 0.6)):.3f}" for _ in range(TASKS))
        ran = typed(cluster, "submit", f"x={values}", "--", "sh", "-c", "sleep {x}")
        assert ran.returncode == 0, ran.stderr
        assert cluster.wait_run(number) == {"succeeded": TASKS}
        row = cluster.run_row(number)
        return float(row["finished"] - row["created"])

    for number in range(1, KNOWN + 1):
        go(number)
    told, made = [], []
    for number in range(KNOWN + 1, KNOWN + 1 + RUNS):
        observed = Observed()
        with cluster.client() as client:
            for before in range(number - KNOWN, number):
                observed.read(client, client.run_row(f"r{before}"))
        ends = fresh_ends(observed.fresh(TASKS, SLOTS))
        left = float(np.quantile(ends, rng.uniform(0.5, 0.95)))
        told.append(chance_of(ends, left))
        made.append(go(number) <= left)
    print(f"told {fmean(told):.3f} in mean, {sum(made)} of {len(made)} made it")
    assert all(0.45 < chance < 0.97 for chance in told)
    if PROVE:
        assert abs(fmean(told) - fmean(made)) <= 0.15
