"""Models of early and late binding, whatever the waits: bounds, limits, and that the richer models become the simpler ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shoal.sched.vector.binding import early, late_flow, late_tasks
from shoal.sched.vector.slots import Floats

ROUNDING = 1e-6
WAITS = st.tuples(st.integers(1, 4), st.integers(1, 8)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(0.0, 1e5, width=32))
)
WORK = st.floats(1.0, 1e6)
TASKS = st.integers(1, 40)
IDLE = st.floats(0.0, 100.0)


def speeds_like(waits: Floats, seed: int) -> Floats:
    return np.random.default_rng(seed).uniform(0.2, 5.0, waits.shape)


def one_by_one(waits: Floats, work: float, tasks: int, idle: float, speeds: Floats) -> list[tuple[float, int]]:
    """The same, task by task, in plain Python."""
    found = []
    for row, speed in zip(waits, speeds, strict=True):
        each, free, used, end = idle + work / tasks / speed, row.copy(), set(), 0.0
        for _ in range(tasks):
            slot = int(free.argmin())
            free[slot] += each[slot]
            used.add(slot)
            end = max(end, float(free[slot]))
        found.append((end, len(used)))
    return found


@given(WAITS, WORK, TASKS, IDLE)
def test_late_binding_is_never_slower_than_early_and_tasks_never_faster_than_a_flow(
    waits: Floats, work: float, tasks: int, idle: float
) -> None:
    flow = late_flow(waits, work)
    assert (flow.end <= early(waits, work) * (1 + ROUNDING)).all()
    assert (flow.end <= late_tasks(waits, work, tasks, idle).end * (1 + ROUNDING)).all()
    assert ((flow.used >= 1) | (waits >= flow.end[:, None]).all(axis=1)).all() and (flow.used <= waits.shape[1]).all()


@given(WAITS, WORK, st.integers(1, 5))
def test_as_many_equal_tasks_for_each_slot_are_not_slower_than_early_binding(
    waits: Floats, work: float, each: int
) -> None:
    assert (late_tasks(waits, work, each * waits.shape[1]).end <= early(waits, work) * (1 + ROUNDING)).all()


@given(WAITS, WORK)
def test_very_many_tasks_without_idle_time_are_a_flow(waits: Floats, work: float) -> None:
    tasks = 10_000
    slack = work / tasks * (1 + ROUNDING) + ROUNDING * waits.max()
    assert (late_tasks(waits, work, tasks).end - late_flow(waits, work).end <= slack).all()


@given(WAITS, WORK, TASKS, IDLE)
def test_equal_speeds_and_no_failures_are_the_simpler_models(
    waits: Floats, work: float, tasks: int, idle: float
) -> None:
    ones, rng = np.ones(waits.shape), np.random.default_rng(1)
    assert (early(waits, work, ones, 0.0, None, rng) == early(waits, work)).all()
    assert (late_flow(waits, work, ones).end == late_flow(waits, work).end).all()
    assert (late_tasks(waits, work, tasks, idle, ones, 0.0, rng).end == late_tasks(waits, work, tasks, idle).end).all()


@given(WAITS, WORK, TASKS, IDLE, st.integers(0, 1_000))
def test_it_is_what_one_finds_task_by_task(waits: Floats, work: float, tasks: int, idle: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    waits = waits + rng.uniform(0.0, 1.0, waits.shape)  # of slots that come together any may be first
    speeds = speeds_like(waits, seed)
    found = late_tasks(waits, work, tasks, idle, speeds)
    expected = one_by_one(waits, work, tasks, idle, speeds)
    assert found.end == pytest.approx([end for end, _ in expected], rel=1e-9)
    assert found.used.tolist() == [used for _, used in expected]


@given(WAITS, WORK, TASKS, st.integers(0, 1_000))
def test_with_different_speeds_a_flow_is_never_slower_than_early_binding(
    waits: Floats, work: float, tasks: int, seed: int
) -> None:
    speeds = speeds_like(waits, seed)
    flow = late_flow(waits, work, speeds).end
    assert (flow <= early(waits, work, speeds) * (1 + ROUNDING)).all()
    assert (flow <= late_tasks(waits, work, tasks, 0.0, speeds).end * (1 + ROUNDING)).all()


@given(WAITS, WORK, TASKS, st.floats(0.01, 0.7))
def test_failures_only_make_it_longer(waits: Floats, work: float, tasks: int, failing: float) -> None:
    rng = np.random.default_rng(3)

    def again(count: int) -> Floats:
        return rng.uniform(0.0, 10.0, count)

    assert (early(waits, work, 1.0, failing, again, rng) >= early(waits, work)).all()
    better = late_tasks(waits, work, tasks).end * (1 - ROUNDING)
    assert (late_tasks(waits, work, tasks, 0.0, 1.0, failing, rng).end >= better).all()


def test_failing_attempts_are_repeated_as_often_as_they_fail() -> None:
    rng = np.random.default_rng(5)
    waits = np.zeros((2_000, 1))
    assert late_tasks(waits, 100.0, 100, 0.0, 1.0, 0.2, rng).end.mean() == pytest.approx(125.0, rel=0.01)
    assert early(waits, 100.0, 1.0, 0.2, lambda count: np.full(count, 60.0), rng).mean() == pytest.approx(
        140.0, rel=0.05
    )


def test_failing_jobs_need_waits_and_randomness() -> None:
    with pytest.raises(ValueError, match="wait again"):
        early(np.zeros((1, 1)), 1.0, 1.0, 0.5)
    with pytest.raises(ValueError, match="randomness"):
        late_tasks(np.zeros((1, 1)), 1.0, 1, 0.0, 1.0, 0.5)
