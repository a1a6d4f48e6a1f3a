"""Accounts of use: what fades by half, what leaves the window, what runs while it runs."""

from __future__ import annotations

import pytest

from shoal.model.policy import UsageRule
from shoal.sched.usage import HalfLife, Usage, Windowed, make_usage

T0 = 1_700_000_000.0
DAY = 86_400.0


def test_use_weighs_half_after_each_half_life() -> None:
    usage = HalfLife(DAY)
    usage.add(T0, 100.0)
    assert usage.at(T0) == 100.0
    assert usage.at(T0 + DAY) == pytest.approx(50.0) and usage.at(T0 + 3 * DAY) == pytest.approx(12.5)
    assert usage.at(T0 - 5) == 100.0, "a clock that goes back changes nothing"


def test_frames_of_a_window_weigh_less_the_older_they_are() -> None:
    usage = Windowed(4 * DAY, 4)
    usage.add(10 * DAY + 5, 100.0)
    assert [usage.at((10 + days) * DAY + 5) for days in range(6)] == [100.0, 75.0, 50.0, 25.0, 0.0, 0.0]


@pytest.mark.parametrize("usage", [HalfLife(1e9), Windowed(1e9, 1)])
def test_what_runs_counts_while_it_runs_and_is_replaced_by_what_it_took(usage: Usage) -> None:
    usage.run(100.0, 4, 100.0)
    assert usage.at(110.0) == pytest.approx(40.0)
    usage.run(110.0, 1, 105.0)
    assert usage.at(120.0) == pytest.approx(80.0 + 15.0)
    usage.stop(120.0, 4, 100.0, 60.0)
    assert usage.at(120.0) == pytest.approx(60.0 + 15.0)
    usage.stop(125.0, 1, 105.0, 20.0)
    assert usage.at(130.0) == pytest.approx(80.0)
    usage.run(130.0, 2, 130.0)
    usage.stop(130.0, 2, 130.0, 7.0)
    assert usage.at(130.0) == pytest.approx(87.0)


def test_what_ran_for_days_has_faded_like_single_hours_of_it() -> None:
    running, hours = HalfLife(DAY), HalfLife(DAY)
    running.run(T0, 2, T0)
    for hour in range(72 * 60):
        hours.add(T0 + (hour + 0.5) * 60, 120.0)
    running.stop(T0 + 3 * DAY, 2, T0, 2 * 3 * DAY)
    assert running.at(T0 + 4 * DAY) == pytest.approx(hours.at(T0 + 4 * DAY), rel=1e-6)


@pytest.mark.parametrize("rule", [UsageRule("half_life", DAY), UsageRule("window", window=7 * DAY, buckets=7)])
def test_what_is_dumped_is_loaded(rule: UsageRule) -> None:
    usage = make_usage(rule)
    for day in range(5):
        usage.add(T0 + day * DAY, 10.0 * day + 1)
    copy = make_usage(rule)
    copy.load(usage.dump())
    for day in range(5, 12):
        assert copy.at(T0 + day * DAY) == pytest.approx(usage.at(T0 + day * DAY))
    assert make_usage(rule).dump() == []


def test_use_outlives_a_change_of_the_rule() -> None:
    old, new, back = Windowed(7 * DAY, 7), HalfLife(DAY), Windowed(7 * DAY, 7)
    old.add(T0, 100.0)
    new.load(old.dump())
    assert 70 < new.at(T0) < 142, "up to half a frame is lost"
    back.load(new.dump())
    assert back.at(T0) == pytest.approx(100.0)


def test_use_of_an_earlier_time_counts_as_if_it_had_come_in_order() -> None:
    usage, ordered = HalfLife(DAY), HalfLife(DAY)
    for time in (T0 + DAY, T0):
        usage.add(time, 10.0)
    for time in (T0, T0 + DAY):
        ordered.add(time, 10.0)
    assert usage.at(T0 + 2 * DAY) == pytest.approx(ordered.at(T0 + 2 * DAY))
    frames = Windowed(2 * DAY, 2)
    frames.add(T0, 10.0)
    frames.add(T0 - 5 * DAY, 10.0)
    assert frames.at(T0) == 10.0, "older than the window"
