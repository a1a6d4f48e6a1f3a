"""What a task takes, as far as it is known."""

from __future__ import annotations

from shoal.sched.provisioning.durations import likely_seconds


def test_few_tasks_take_longer_than_what_is_likely() -> None:
    assert likely_seconds([], [5.0]) is None
    assert likely_seconds([3.0], []) == 3.0
    assert likely_seconds([float(at) for at in range(100)], [50.0, 90.0]) == 95.0


def test_tasks_that_run_longer_than_those_that_ended_count_as_half_done() -> None:
    assert likely_seconds([10.0] * 5, [600.0, 3.0]) == 1_200.0
    assert likely_seconds([10.0] * 50, [600.0, 3.0]) == 10.0, "one in fifty"


def test_nothing_is_known_if_more_run_longer_than_have_ended() -> None:
    assert likely_seconds([10.0] * 5, [600.0] * 6) is None
