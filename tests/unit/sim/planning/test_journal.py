"""A run of the past, read as a workload and pilots."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from shoal.model.errors import Refused
from shoal.report.history import Attempt, PilotLife, RunRecord
from shoal.report.run_record import Found
from shoal.sim.planning.description import Description, Pilots
from shoal.sim.planning.journal import Journal, read_journal
from shoal.sim.planning.workloads import tables as workload_tables
from shoal.sim.planning.world import PlanningWorld
from shoal.wire.submission import parse_submission
from tests.unit.report.fake_source import Json, run_info

COMMAND = ["x"]


def ran(task: int, pilot: str, seconds: float, outcome: str = "succeeded", number: int = 1) -> Attempt:
    """An attempt."""
    return Attempt(task, number, pilot, 100.0, 100.0 + seconds, 1, outcome)


def journal(tasks: list[Json], attempts: Iterable[Attempt], **more: Any) -> Journal:
    """What a replay takes from a run of these tables and attempts."""
    attempts = list(attempts)
    pilots = [PilotLife(name, name, 1, 100.0, math.inf) for name in sorted({one.pilot for one in attempts})]
    record = RunRecord(100.0, 9_000.0, 0, attempts, pilots, [])
    return read_journal(Found(run_info(tasks, finished=9_000.0), record, **more))


def test_a_pilot_that_had_the_long_tasks_is_not_slow() -> None:
    tables: list[Json] = [{"command": COMMAND, "array": "1-80"}, {"command": COMMAND, "array": "1-20"}]
    short = [ran(1 + at, f"p{at % 8}", 60.0 + at % 3) for at in range(80)]
    long = [ran(81 + at, f"p{8 + at % 2}", 3_600.0 + at % 3) for at in range(20)]
    found = journal(tables, [*short, *long])
    assert len(found.arrivals) == 10
    assert [one.speed for one in found.arrivals] == pytest.approx([1.0] * 10, rel=0.05)


def test_speeds_are_compared_within_an_array() -> None:
    tables: list[Json] = [{"command": COMMAND, "array": "1-40"}, {"command": COMMAND, "array": "1-40"}]
    attempts = [
        ran(1 + at, f"p{at % 4}", (60.0 if at < 40 else 3_600.0) * (2.0 if at % 4 == 3 else 1.0)) for at in range(80)
    ]
    speeds = [one.speed for one in journal(tables, attempts).arrivals]
    assert speeds[3] == pytest.approx(0.5 * speeds[0], rel=0.05)


def test_pieces_of_divisible_work_are_compared_by_their_units() -> None:
    sizes = [100, 50, 200, 100, 50, 200]
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    tables: list[Json] = [
        {"command": COMMAND, "name": "work", "units": {"first": first, "count": size, "cut": True}}
        for first, size in zip(starts, sizes, strict=True)
    ]
    attempts = [ran(1 + at, f"p{at % 2}", size * (1.0, 2.0)[at % 2]) for at, size in enumerate(sizes)]
    speeds = [one.speed for one in journal(tables, attempts).arrivals]
    assert speeds[1] == pytest.approx(0.5 * speeds[0], rel=0.05)


def test_tasks_whose_results_were_taken_over_are_not_replayed() -> None:
    tables: list[Json] = [
        {"command": COMMAND, "array": "1-4", "name": "a"},
        {"command": COMMAND, "after": ["a"], "name": "b"},
        {"command": COMMAND, "after": ["b"]},
    ]
    found = journal(tables, [ran(2, "p1", 20.0), ran(4, "p1", 40.0), ran(6, "p1", 60.0)], reused={1, 3, 5})
    assert found.unknown == 0
    assert [(job.seconds, job.after) for job in found.work.batch.jobs] == [(20.0, ()), (40.0, ()), (60.0, ())]


def test_what_was_done_before_a_checkpoint_is_work_of_its_task() -> None:
    attempts = [ran(1, "p1", 50.0), ran(2, "p1", 30.0, "checkpointed"), ran(2, "p2", 15.0, "checkpointed", 2)]
    attempts += [ran(2, "p2", 5.0, number=3), ran(3, "p2", 50.0)]
    found = journal([{"command": COMMAND, "array": "1-3"}], attempts)
    assert [job.seconds for job in found.work.batch.jobs] == pytest.approx([50.0, 50.0, 50.0])
    assert [job.failed for job in found.work.batch.jobs] == [(), (), ()]


def test_a_task_that_failed_for_good_takes_as_long_as_its_last_failure_after_the_others() -> None:
    attempts = [ran(1, "p1", 50.0), ran(2, "p1", 3.0, "failed"), ran(2, "p1", 7.0, "failed", 2)]
    found = journal([{"command": COMMAND, "array": "1-3"}], attempts)
    jobs = [(job.seconds, job.failed) for job in found.work.batch.jobs]
    assert jobs == [(50.0, ()), (7.0, (3.0,)), (50.0, ())]
    assert found.unknown == 1, "the third never ran"


def parents(tables: list[Json], tasks: int) -> list[tuple[int, ...]]:
    """What the tasks of a run wait for in its replay, which must end in a world."""
    found = journal(tables, [ran(1 + at, "p1", 10.0) for at in range(tasks)])
    outcome = PlanningWorld(Description(pilots=Pilots(2)), [found.work], 1).run()
    assert outcome.succeeded == tasks
    ends = {one.task: one.end for one in outcome.record.attempts}
    for at, job in enumerate(found.work.batch.jobs):
        assert all(ends[at + 1] > ends[parent + 1] for parent in job.after)
    return [job.after for job in found.work.batch.jobs]


def test_a_task_waits_for_what_need_only_end_and_for_tables_after_its_own() -> None:
    tables: list[Json] = [
        {"command": COMMAND, "after": ["late"], "after_any": ["other"]},
        {"command": COMMAND, "name": "late", "array": "1-2"},
        {"command": COMMAND, "name": "other", "after_any": ["late"]},
    ]
    assert parents(tables, 4) == [(1, 2, 3), (), (), (1, 2)]


def test_a_task_waits_for_all_pieces_of_divisible_work() -> None:
    pieces: list[Json] = [
        {"command": COMMAND, "name": "work", "units": {"first": 5 * at, "count": 5, "cut": True}} for at in range(3)
    ]
    tables: list[Json] = [pieces[0], {"command": COMMAND, "after": ["work"]}, *pieces[1:]]
    assert parents(tables, 4) == [(), (0, 2, 3), (), ()]


def test_what_cannot_be_replayed_is_refused() -> None:
    with pytest.raises(Refused, match="waited for r7, which is not in it") as caught:
        journal([{"command": COMMAND, "after": ["r7"]}], [ran(1, "p1", 1.0)])
    assert caught.value.code == "not_replayable"
    with pytest.raises(Refused, match="tasks were added") as caught:
        journal([{"command": COMMAND}], [ran(1, "p1", 1.0)], added=True)
    assert caught.value.code == "not_replayable"


def test_a_merge_of_thousands_is_replayed() -> None:
    tables: list[Json] = [{"command": COMMAND, "array": "1-5000", "name": "a"}, {"command": COMMAND, "after": ["a"]}]
    found = journal(tables, [ran(1 + at, f"p{at % 2}", 10.0) for at in range(5_001)])
    first, merge = parse_submission({"tasks": workload_tables(found.work.batch), "cwd": "/"}).specs
    assert (first.count, merge.count, merge.after) == (5_000, 1, (first.name,))


def test_what_is_not_carried_over_is_known() -> None:
    plain = journal([{"command": COMMAND}], [ran(1, "p1", 1.0)])
    assert (plain.ignored, plain.other_runs) == ((), 0)
    tables: list[Json] = [
        {"command": COMMAND, "array": "1-2%1", "memory": "1G"},
        {"command": COMMAND, "gpus": 1, "require": "cores > 2"},
    ]
    record = RunRecord(100.0, 200.0, 0, [ran(1, "p1", 1.0)], [], [])
    found = read_journal(Found(run_info(tables, finished=200.0, max_running=3), record, other_runs=2))
    assert found.ignored == ("max_running", "%N of an array", "memory", "gpus", "require")
    assert found.other_runs == 2
