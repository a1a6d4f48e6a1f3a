"""When a pilot leaves an allocation that ends."""

from __future__ import annotations

from shoal.pilot.agent.allocation import MARGIN, Allocation


def test_without_an_end_there_is_nothing_to_leave_for() -> None:
    assert Allocation(None, 5.0).leave_at(10.0) is None


def test_tasks_get_their_grace_and_we_some_time_more() -> None:
    allocation = Allocation(3600.0, 5.0)
    assert allocation.leave_at(10.0) == 3605.0 - 10.0 - MARGIN
    assert allocation.why(3565.0) == "the allocation ends in 40 s"


def test_half_of_a_short_allocation_is_used() -> None:
    assert Allocation(20.0, 100.0).leave_at(10.0) == 110.0
    assert Allocation(0.0, 100.0).leave_at(10.0) == 100.0
