"""Workloads of planning worlds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.errors import Refused
from shoal.sim.distributions import Constant, Uniform
from shoal.sim.planning.workloads import (
    MERGING,
    SERIAL,
    SPLITTING,
    Bag,
    Batch,
    Divisible,
    Job,
    Shuffled,
    TwoSteps,
    tables,
)
from shoal.wire.submission import parse_submission


def parents(steps: TwoSteps) -> list[tuple[int, ...]]:
    """What the tasks of the second step wait for."""
    return [job.after for job in steps.draw(Random(1)).jobs[steps.first :]]


def test_the_three_kinds_of_two_steps() -> None:
    assert parents(TwoSteps(SERIAL, 3, Constant(1.0))) == [(0,), (1,), (2,)]
    assert parents(TwoSteps(SPLITTING, 2, Constant(1.0), fan=2)) == [(0,), (0,), (1,), (1,)]
    assert parents(TwoSteps(MERGING, 5, Constant(1.0), fan=2)) == [(0, 1), (2, 3), (4,)]


def test_divisible_work_is_one_table_with_units() -> None:
    batch = Divisible(500, 2.0, input_mb=3.0).draw(Random(1))
    assert batch.jobs == [Job(2.0, input_mb=3.0)]
    (spec,) = parse_submission({"tasks": tables(batch), "cwd": "/"}).specs
    assert spec.units == (0, 500, False)


def test_a_bag_draws_anew_for_each_seed() -> None:
    bag = Bag(20, Uniform(1.0, 2.0))
    assert bag.draw(Random(1)) == bag.draw(Random(1))
    assert bag.draw(Random(1)) != bag.draw(Random(2))


@given(st.lists(st.tuples(st.sets(st.integers(0, 30)), st.integers(1, 2)), min_size=1, max_size=30))
def test_tables_have_each_job_once_in_order_with_its_parents(drawn: list[tuple[set[int], int]]) -> None:
    jobs = [Job(1.0, tuple(sorted(one for one in after if one < at)), cores) for at, (after, cores) in enumerate(drawn)]
    specs = parse_submission({"tasks": tables(Batch(jobs)), "cwd": "/"}).specs
    elements = [(spec, number) for spec in specs for number in range(spec.count)]
    assert len(elements) == len(jobs)
    places: dict[str, list[int]] = {}
    for at, (spec, _) in enumerate(elements):
        places.setdefault(spec.name, []).append(at)
    for job, (spec, _) in zip(jobs, elements, strict=True):
        assert spec.cores == job.cores
        assert sorted(place for name in spec.after for place in places[name]) == sorted(job.after)


def test_neighbours_with_the_same_parents_and_children_are_one_array() -> None:
    first, second = tuple(range(3)), tuple(range(3, 7))
    jobs = [*[Job(1.0)] * 3, *[Job(2.0, first)] * 4, Job(3.0, second), Job(3.0, second, 2), Job(4.0)]
    shown = [(table.get("name"), table.get("array"), table.get("after")) for table in tables(Batch(jobs))]
    assert shown == [
        ("job0", "1-3", None),
        ("job3", "1-4", ["job0"]),
        (None, None, ["job3"]),
        (None, None, ["job3"]),
        (None, None, None),
    ]


def test_a_workflow_beyond_the_limits_is_one_line() -> None:
    chain = [Job(1.0, (at - 1,) if at else ()) for at in range(100_001)]
    with pytest.raises(Refused, match="100,001 kinds of tasks"):
        tables(Batch(chain))
    wide = [Job(1.0, (), 1 + at % 2) for at in range(10_001)]
    with pytest.raises(Refused, match="waits for 10,001 others"):
        tables(Batch([*wide, Job(1.0, tuple(range(10_001)))]))


def test_jobs_in_any_order_come_in_another_one_for_each_seed() -> None:
    jobs = [Job(float(seconds)) for seconds in range(20)]
    first, second = (Shuffled(Batch(jobs)).draw(Random(seed)).jobs for seed in (1, 2))
    assert sorted(first) == sorted(second) == jobs
    assert first != second
