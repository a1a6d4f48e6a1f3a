"""Forecasts of a run's end: what each part of the model does."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.sched.vector.forecast import Forecast, Work, estimate_speeds, forecast
from shoal.sched.vector.slots import Floats


def made(work: Work, seed: int = 1) -> Forecast:
    found = forecast(work, np.random.default_rng(seed))
    assert found is not None
    return found


def bag(waiting: int, ended: Floats, slots: int, ages: Floats | None = None, **more: float) -> Work:
    return Work(waiting, ended, np.empty(0) if ages is None else ages, np.ones(slots), **more)  # type: ignore[arg-type]


def test_a_run_without_tasks_left_is_over() -> None:
    assert made(Work(0, np.empty(0), np.empty(0), np.empty(0))) == (0.0, 0.0, 0.0)


def test_without_a_slot_nothing_is_known() -> None:
    assert forecast(Work(5, np.ones(3), np.empty(0), np.empty(0)), np.random.default_rng(1)) is None


def test_what_runs_is_not_waited_for_longer_than_its_rest() -> None:
    found = made(bag(0, np.full(500, 10.0), 2, np.array([4.0, 9.0])))
    assert found.p50 == pytest.approx(6.0, rel=0.02)


def test_a_task_that_has_run_longer_than_any_other_goes_on() -> None:
    found = made(bag(0, np.full(50, 10.0), 1, np.array([500.0])))
    assert 0.0 < found.p10 < found.p90


def test_tasks_that_run_for_a_short_while_are_not_short_tasks() -> None:
    found = made(bag(100, np.full(10, 10.0), 10, np.full(10, 1.0)))
    assert found.p50 == pytest.approx(109.0, rel=0.07)


def test_a_task_whose_age_is_not_known_is_somewhere_in_its_duration() -> None:
    found = made(bag(0, np.full(500, 10.0), 1, np.array([np.nan])))
    assert found.p10 < 2.5 and 3.5 < found.p50 < 6.5 and 8.0 < found.p90 <= 12.0


def test_few_observations_give_a_wide_forecast() -> None:
    durations = 10.0 * np.exp(0.5 * np.random.default_rng(3).standard_normal(400))
    few, many = made(bag(60, durations[:4], 4)), made(bag(60, durations, 4))
    assert few.p90 - few.p10 > 2 * (many.p90 - many.p10)
    single = made(bag(60, durations[:1], 4))
    assert single.p90 - single.p10 > 0.2 * single.p50


def test_a_slot_that_comes_later_helps_from_then_on_and_one_that_comes_too_late_is_not_waited_for() -> None:
    alone = made(bag(20, np.full(500, 10.0), 1))
    helped = made(bag(20, np.full(500, 10.0), 1)._replace(arrivals=np.array([100.0])))
    late = made(bag(20, np.full(500, 10.0), 1)._replace(arrivals=np.array([1e6])))
    assert alone.p50 == pytest.approx(200.0, rel=0.03)
    assert helped.p50 == pytest.approx(150.0, rel=0.03)
    assert late.p50 == pytest.approx(alone.p50, rel=0.03)


def test_every_second_attempt_that_fails_takes_twice_the_time() -> None:
    found = made(bag(300, np.full(500, 10.0), 2)._replace(failing=0.5))
    assert found.p50 == pytest.approx(3000.0, rel=0.05)


def test_idle_time_before_each_task_counts() -> None:
    found = made(bag(100, np.full(500, 1.0), 1)._replace(idle=np.full(50, 0.5)))
    assert found.p50 == pytest.approx(150.0, rel=0.03)


def test_tasks_that_wait_for_the_others_come_after_them() -> None:
    found = made(bag(8, np.full(500, 10.0), 4, later=1))
    assert found.p50 == pytest.approx(30.0, rel=0.03)


def test_a_large_run_is_a_flow_of_work_with_the_same_end() -> None:
    found = made(bag(100_000, np.full(500, 10.0), 100))
    assert found.p50 == pytest.approx(10_000.0, rel=0.02)


# --- speeds


def test_a_place_that_takes_twice_as_long_has_half_the_speed() -> None:
    rng = np.random.default_rng(5)
    places = [n % 2 for n in range(80)]
    durations = np.where(np.array(places) == 1, 20.0, 10.0) * np.exp(0.1 * rng.standard_normal(80))
    fast, slow, unseen = estimate_speeds(places, durations, 3)
    assert fast / slow == pytest.approx(2.0, rel=0.1)
    assert unseen == 1.0


def test_equal_places_with_skewed_tasks_get_nearly_equal_speeds() -> None:
    rng, ratios = np.random.default_rng(6), []
    for _ in range(50):
        speeds = estimate_speeds([n % 4 for n in range(20)], np.exp(rng.standard_normal(20)), 4)
        ratios.append(speeds.max() / speeds.min())
    assert np.median(ratios) < 1.3  # the means themselves differ by a factor of 2.4
