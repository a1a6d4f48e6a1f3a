"""The three phases and the slot time lost in each, by hand [DIANE U9]."""

from __future__ import annotations

import pytest

from shoal.report.anatomy import PHASES, Anatomy, Areas, dissect
from shoal.report.history import Ending, RunRecord, timeline
from tests.unit.report.test_history import attempt, pilot, small_run


def bounds(anatomy: Anatomy) -> list[tuple[float, float]]:
    return [(phase.start, phase.end) for phase in anatomy.phases]


def test_the_phases_of_a_small_run_and_where_its_slot_time_went() -> None:
    found = dissect(timeline(small_run()))
    assert [phase.name for phase in found.phases] == list(PHASES)
    assert found.target == 2
    assert bounds(found) == [(0.0, 2.0), (2.0, 5.0), (5.0, 10.0)]
    submission, main, tail = (phase.areas for phase in found.phases)
    assert submission == Areas(useful=2.0, missing=2.0)
    assert main == Areas(useful=5.0, overhead=1.0), "a slot was free for a second, and a task was left"
    assert tail == Areas(useful=5.0, idle=5.0)
    assert found.areas == Areas(12.0, 0.0, 1.0, 5.0, 2.0) and found.areas.total == 20.0
    assert found.share(tail.lost) == 0.25 and found.utilisation == pytest.approx(12 / 18)


def test_a_run_without_pilots_is_all_submission() -> None:
    found = dissect(timeline(RunRecord(0.0, 10.0, 4)))
    assert bounds(found) == [(0.0, 10.0), (10.0, 10.0), (10.0, 10.0)]
    assert (found.target, found.areas, found.utilisation, found.share(0.0)) == (0, Areas(), 0.0, 0.0)
    assert dissect(timeline(RunRecord(0.0, 10.0, 4)), target=3).areas == Areas(missing=30.0)


def test_an_empty_run_has_no_areas() -> None:
    found = dissect(timeline(RunRecord(3.0, 3.0)))
    assert bounds(found) == [(3.0, 3.0)] * 3 and found.areas == Areas()


def test_one_task_on_a_larger_pool_is_all_tail() -> None:
    record = RunRecord(0.0, 4.0, 1, [attempt(1, "a", 1.0, 4.0)], [pilot("a", -1.0, slots=2)], [Ending(4.0, 1, 1)])
    found = dissect(timeline(record))
    assert bounds(found) == [(0.0, 0.0), (0.0, 0.0), (0.0, 4.0)]
    assert found.areas == Areas(useful=3.0, overhead=1.0, idle=4.0)


def test_one_task_on_one_slot_has_no_tail() -> None:
    record = RunRecord(0.0, 4.0, 1, [attempt(1, "a", 1.0, 4.0)], [pilot("a", 0.5)], [Ending(4.0, 1, 1)])
    found = dissect(timeline(record))
    assert bounds(found) == [(0.0, 0.5), (0.5, 4.0), (4.0, 4.0)]
    assert found.areas == Areas(useful=3.0, overhead=0.5, missing=0.5)


def test_when_all_failed_nothing_was_useful() -> None:
    tried = [attempt(1, "a", 0.0, 2.0, "failed"), attempt(1, "a", 2.0, 4.0, "failed")]
    found = dissect(timeline(RunRecord(0.0, 4.0, 1, tried, [pilot("a", 0.0)], [Ending(4.0, 1, 1)])))
    assert found.areas == Areas(failed=4.0)
    assert found.share(found.areas.lost) == 1.0 and found.utilisation == 1.0, "it was busy, for nothing"


def test_slots_that_left_are_missing_in_the_main_phase() -> None:
    """As in run 4 of the thesis: the pool falls below its target while there is work."""
    work = [attempt(1, "a", 0.0, 10.0), attempt(2, "b", 0.0, 4.0, "lost"), attempt(2, "a", 10.0, 14.0)]
    record = RunRecord(0.0, 14.0, 2, work, [pilot("a", 0.0), pilot("b", 0.0, 4.0)],
                       [Ending(10.0, 1, 1), Ending(14.0, 1, 1)])  # fmt: skip
    found = dissect(timeline(record))
    assert bounds(found) == [(0.0, 0.0), (0.0, 14.0), (14.0, 14.0)], "never fewer tasks than slots"
    assert found.areas == Areas(useful=14.0, failed=4.0, missing=10.0)


def test_a_run_that_goes_on_has_no_tail_while_there_is_enough_to_do() -> None:
    running = [attempt(1, "a", 0.0, 6.0), attempt(2, "a", 6.0, 8.0, "running")]
    found = dissect(timeline(RunRecord(0.0, 8.0, 5, running, [pilot("a", 0.0)], [Ending(6.0, 1, 1)])))
    assert bounds(found) == [(0.0, 0.0), (0.0, 8.0), (8.0, 8.0)]
    assert found.areas == Areas(useful=8.0)


def test_a_task_of_several_cores_fills_as_many_slots() -> None:
    record = RunRecord(
        0.0, 2.0, 4, [attempt(1, "a", 0.0, 2.0, slots=4)], [pilot("a", 0.0, slots=4)], [Ending(2.0, 1, 4)]
    )
    found = dissect(timeline(record))
    assert found.areas == Areas(useful=8.0) and found.phases[2].end == found.phases[2].start


def test_one_late_pilot_of_many_does_not_make_the_run_its_submission() -> None:
    pilots = [pilot(f"p{i}", 0.0) for i in range(99)] + [pilot("late", 50.0)]
    found = dissect(timeline(RunRecord(0.0, 100.0, 1_000, [], pilots, [])))
    assert bounds(found)[0] == (0.0, 0.0) and found.areas.missing == 50.0


def test_a_target_that_was_asked_for_shows_what_never_came() -> None:
    found = dissect(timeline(small_run()), target=5)
    assert found.target == 5 and bounds(found) == [(0.0, 2.0), (2.0, 5.0), (5.0, 10.0)]
    assert found.areas.missing == 2 * 4 + 8 * 3 and found.areas.total == 50.0
