"""The thesis' master and its workers."""

from __future__ import annotations

import pytest

from shoal.report.history import timeline
from shoal.sim.papers.diane.overlay import Master, process, shares


def test_a_worker_registers_asks_and_asks_again() -> None:
    record = process([10.0], [5.0, 7.0], Master(latency=1.0, service=0.5))
    assert [(one.start, one.end) for one in record.attempts] == [(14.5, 19.5), (22.0, 29.0)]
    assert record.end == 30.5  # the master knows


def test_the_master_serves_one_request_after_another() -> None:
    record = process([0.0, 0.0, 0.0], [1.0] * 3, Master(latency=0.0, service=2.0))
    assert sorted(one.start for one in record.attempts) == [2.0, 4.0, 6.0]


def test_tasks_go_out_in_their_order_to_who_asks_first() -> None:
    record = process([0.0, 1.0], [10.0, 1.0, 1.0, 1.0], Master(0.0, 0.0))
    assert [one.pilot for one in record.attempts] == ["w0", "w1", "w1", "w1"]


def test_the_shares_of_a_run_that_is_reckoned_by_hand() -> None:
    # Two workers, one comes after 2 s; four tasks; the last one runs alone from 5 to 9.
    found = shares(timeline(process([0.0, 2.0], [4.0, 3.0, 5.0], Master(0.0, 0.0))), 2)
    assert found.missing == pytest.approx(100 * 2 / 18) and found.missing_main == 0.0
    assert found.tail == pytest.approx(100 * 4 / 9) and found.tail_use == pytest.approx(50.0)
    assert found.overhead == 0.0
