"""When a pilot leaves an allocation that ends."""

from __future__ import annotations

from shoal.pilot.agent.allocation import MARGIN, OWN_MARGIN, Allocation


def test_without_an_end_there_is_nothing_to_leave_for() -> None:
    assert Allocation(None, 5.0).leave_at(10.0) is None


def test_tasks_get_their_grace_and_we_some_time_more() -> None:
    allocation = Allocation(3600.0, 5.0)
    assert allocation.leave_at(10.0) == 3605.0 - 10.0 - MARGIN
    assert allocation.why(3565.0) == "the allocation ends in 40 s"


def test_half_of_a_short_allocation_is_used() -> None:
    assert Allocation(20.0, 100.0).leave_at(10.0) == 110.0
    assert Allocation(0.0, 100.0).leave_at(10.0) == 100.0


def test_a_lifetime_ends_as_an_allocation_does_and_what_is_leased_by_its_limit_can_end() -> None:
    own = Allocation(None, 5.0, 3600.0)
    assert own.leave_at(10.0) == 3605.0 - 10.0 - OWN_MARGIN
    assert own.left(5.0, 10.0) == 3600.0 - 10.0 - OWN_MARGIN, "tasks have until the pilot leaves"
    assert own.why(3590.0) == "its lifetime ends in 15 s"
    assert Allocation(3600.0, 5.0).left(5.0, 10.0) == 3600.0
    assert Allocation(None, 5.0).left(5.0, 10.0) is None


def test_of_an_allocation_and_a_lifetime_the_first_end_counts() -> None:
    assert Allocation(100.0, 0.0, 3600.0).why(60.0) == "the allocation ends in 40 s"
    assert Allocation(3600.0, 0.0, 100.0).why(90.0) == "its lifetime ends in 10 s"
