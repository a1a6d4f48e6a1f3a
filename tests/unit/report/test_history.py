"""Step functions of a run: pool, busy slots and tasks that are left, by hand."""

from __future__ import annotations

import math

import pytest

from shoal.report.history import Attempt, Ending, PilotLife, RunRecord, known_pilots, sample, timeline


def attempt(task: int, pilot: str, start: float, end: float, outcome: str = "succeeded", slots: int = 1) -> Attempt:
    return Attempt(task, 1, pilot, start, end, slots, outcome)


def pilot(name: str, joined: float, ended: float = math.inf, slots: int = 1) -> PilotLife:
    return PilotLife(name, f"host-{name}", slots, joined, ended)


def small_run() -> RunRecord:
    """Three tasks on two pilots, of which the second comes after two seconds."""
    tasks = [attempt(1, "a", 0.0, 4.0), attempt(2, "b", 3.0, 5.0), attempt(3, "a", 4.0, 10.0)]
    endings = [Ending(4.0, 1, 1), Ending(5.0, 1, 1), Ending(10.0, 1, 1)]
    return RunRecord(0.0, 10.0, 3, tasks, [pilot("a", -5.0), pilot("b", 2.0)], endings)


def test_the_steps_of_a_small_run() -> None:
    found = timeline(small_run())
    assert found.times == [0.0, 2.0, 3.0, 4.0, 5.0, 10.0]
    assert found.pool == [1, 2, 2, 2, 2]
    assert found.useful == [1, 1, 2, 2, 1] and found.wasted == [0] * 5
    assert found.left == [3, 3, 3, 2, 1]


def test_a_run_without_anything_has_one_step_and_one_of_no_length_has_none() -> None:
    empty = timeline(RunRecord(5.0, 7.0))
    assert empty == ([5.0, 7.0], [0], [0], [0], [0])
    assert timeline(RunRecord(5.0, 5.0)) == ([5.0], [], [], [], [])
    assert sample(timeline(RunRecord(5.0, 5.0)), [], 10).pool == []


def test_a_pilot_that_left_is_no_longer_in_the_pool_and_its_lost_attempt_is_wasted() -> None:
    record = RunRecord(0.0, 9.0, 1, [attempt(1, "a", 1.0, 3.0, "lost"), attempt(1, "b", 4.0, 9.0)],
                       [pilot("a", 0.0, 3.0, slots=2), pilot("b", 4.0)], [Ending(9.0, 1, 1)])  # fmt: skip
    found = timeline(record)
    assert found.times == [0.0, 1.0, 3.0, 4.0, 9.0]
    assert found.pool == [2, 2, 0, 1]
    assert (found.useful, found.wasted) == ([0, 0, 0, 1], [0, 1, 0, 0])


def test_a_pilot_is_never_busier_than_it_is_large() -> None:
    """Tasks that wait lend their cores: more of them run than there are slots. What counts is shown first."""
    both = [attempt(1, "a", 0.0, 4.0, "failed"), attempt(2, "a", 1.0, 3.0)]
    found = timeline(RunRecord(0.0, 4.0, 2, both, [pilot("a", 0.0)], []))
    assert (found.useful, found.wasted) == ([0, 1, 0], [1, 0, 1])


def test_a_pilot_that_nobody_lists_is_there_while_it_worked_and_as_large_as_it_had_to_be() -> None:
    work = [attempt(1, "x", 1.0, 5.0), attempt(2, "x", 2.0, 3.0, slots=3), attempt(3, "a", 0.0, 8.0)]
    (early, late) = known_pilots([pilot("a", 1.0, 7.0)], work)
    assert early == pilot("a", 0.0, 8.0), "one that worked was there, whatever its row says"
    assert (late.pilot, late.slots, late.joined, late.ended) == ("x", 4, 1.0, 5.0)


def test_what_happened_before_and_after_the_run_is_cut_off() -> None:
    record = RunRecord(10.0, 20.0, 1, [attempt(1, "a", 5.0, 30.0, "running")], [pilot("a", 0.0, 40.0)], [])
    assert timeline(record) == ([10.0, 20.0], [1], [1], [0], [1])


def test_means_over_equal_parts_and_tasks_per_minute() -> None:
    record = small_run()
    shown = sample(timeline(record), record.endings, 5)
    assert shown.width == 2.0
    assert shown.pool == pytest.approx([1.0, 2.0, 2.0, 2.0, 2.0])
    assert shown.busy == pytest.approx([1.0, 1.5, 1.5, 1.0, 1.0])
    assert shown.rate == pytest.approx([0.0, 0.0, 60.0, 0.0, 30.0]), "the last moment belongs to the last part"


def test_the_means_keep_the_area_whatever_the_number_of_parts() -> None:
    record = small_run()
    for parts in (1, 3, 7, 1000):
        shown = sample(timeline(record), record.endings, parts)
        assert sum(shown.pool) * shown.width == pytest.approx(18.0)
        assert sum(shown.busy) * shown.width == pytest.approx(12.0)
        assert sum(shown.rate) * shown.width / 60.0 == pytest.approx(3.0)
