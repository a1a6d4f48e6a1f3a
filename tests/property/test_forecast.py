"""Forecasts of a run's end, whatever was seen of it: in order, never negative, longer with more work, shorter with more slots."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shoal.sched.vector.forecast import Work, estimate_speeds, forecast, makespans

SECONDS = st.floats(0.0, 1e6, allow_nan=False)
SPEEDS = st.floats(0.1, 10.0)


@st.composite
def works(draw: st.DrawFn) -> Work:
    speeds = draw(st.lists(SPEEDS, min_size=1, max_size=6))
    ages = draw(st.lists(st.one_of(SECONDS, st.just(float("nan"))), max_size=len(speeds)))
    return Work(
        draw(st.one_of(st.integers(0, 60), st.just(1_500))), np.array(draw(st.lists(SECONDS, min_size=1, max_size=20))),
        np.array(ages, float),
        np.array(speeds), np.array(draw(st.lists(SECONDS, max_size=3)), float), draw(st.floats(0.0, 0.9)),
        np.array(draw(st.lists(SECONDS, max_size=5)), float), draw(st.integers(0, 5)), draw(st.sampled_from((0.0, 0.03))),
    )  # fmt: skip


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@given(works())
def test_quantiles_are_finite_in_order_and_never_negative(work: Work) -> None:
    found = forecast(work, rng(), draws=30)
    assert found is not None
    assert 0.0 <= found.p10 <= found.p50 <= found.p90 < float("inf")


@given(works())
def test_an_equal_seed_gives_an_equal_forecast(work: Work) -> None:
    assert forecast(work, rng(), draws=20) == forecast(work, rng(), draws=20)


@given(works())
def test_before_the_first_end_nothing_is_known(work: Work) -> None:
    found = forecast(work._replace(ended=np.empty(0), waiting=work.waiting + 1), rng(), draws=20)
    assert found is None


EQUAL = st.builds(
    lambda duration, waiting, slots: (duration, waiting, slots),
    st.floats(0.01, 1e5), st.integers(1, 120), st.integers(1, 20),
)  # fmt: skip


def equal_work(duration: float, waiting: int, slots: int, speed: float = 1.0) -> Work:
    return Work(waiting, np.full(300, duration), np.empty(0), np.full(slots, speed))


@given(EQUAL)
def test_equal_tasks_on_equal_slots_take_whole_rounds(case: tuple[float, int, int]) -> None:
    duration, waiting, slots = case
    found = forecast(equal_work(*case), rng(), draws=60)
    assert found is not None
    rounds = -(-waiting // slots)
    assert abs(found.p50 - rounds * duration) <= 0.02 * rounds * duration


@given(
    st.lists(SECONDS, min_size=1, max_size=20), st.lists(SECONDS, max_size=4), st.integers(0, 60), st.integers(1, 60),
    st.integers(1, 3),
)  # fmt: skip
def test_whatever_the_durations_more_tasks_take_longer_and_more_slots_do_not(
    ended: list[float], ages: list[float], waiting: int, tasks: int, further: int
) -> None:
    slots = len(ages) + 1
    work = Work(waiting, np.array(ended), np.array(ages, float), np.ones(slots))
    longer = work._replace(waiting=waiting + tasks)
    wider = work._replace(speeds=np.ones(slots + further))
    base, more, less = (np.median(makespans(one, rng(), 30)) for one in (work, longer, wider))
    assert more >= base * (1 - 1e-9)
    assert less <= base * (1 + 1e-9)


@given(EQUAL, st.lists(SPEEDS, min_size=1, max_size=8))
def test_slots_of_different_speeds_lie_between_all_slow_and_all_fast(
    case: tuple[float, int, int], speeds: list[float]
) -> None:
    duration, waiting, _ = case
    mixed = forecast(equal_work(duration, waiting, 1)._replace(speeds=np.array(speeds)), rng(), draws=40)
    slow = forecast(equal_work(duration, waiting, len(speeds), min(speeds)), rng(), draws=40)
    fast = forecast(equal_work(duration, waiting, len(speeds), max(speeds)), rng(), draws=40)
    assert mixed is not None and slow is not None and fast is not None
    assert 0.97 * fast.p50 <= mixed.p50 <= 1.03 * slow.p50


@given(EQUAL, st.floats(0.05, 0.9))
def test_failures_lengthen(case: tuple[float, int, int], failing: float) -> None:
    good, bad = equal_work(*case), equal_work(*case)._replace(failing=failing)
    assert np.mean(makespans(bad, rng(), 60)) >= 0.99 * np.mean(makespans(good, rng(), 60))


@given(st.lists(st.tuples(st.integers(0, 4), SECONDS), max_size=30))
def test_speeds_are_positive_and_equal_if_only_one_place_was_seen(ends: list[tuple[int, float]]) -> None:
    places, durations = [place for place, _ in ends], np.array([duration for _, duration in ends], float)
    speeds = estimate_speeds(places, durations, 5)
    assert np.all(speeds > 0) and np.all(np.isfinite(speeds))
    assert np.all(estimate_speeds([3] * len(ends), durations, 5) == 1.0)
