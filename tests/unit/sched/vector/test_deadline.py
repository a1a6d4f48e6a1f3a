"""What is said of a deadline: the chance, and what would raise it."""

from __future__ import annotations

import pytest

from shoal.sched.vector.deadline import (
    CALM,
    GOOD,
    RISK,
    Fresh,
    chance_of,
    chance_text,
    fresh_ends,
    is_at_risk,
    state_fresh,
)

RUN = Fresh(tasks=100, durations=(9.0, 10.0, 11.0) * 10, slots=10)  # some 100 s


def test_a_run_with_time_enough_is_told_so_and_nothing_more() -> None:
    found = state_fresh(RUN, 200.0)
    assert found is not None and found.chance > 0.99 and found.slots is None and found.tasks is None
    assert 90.0 < found.p50 < found.p90 < 130.0


def test_a_run_that_is_too_large_is_told_how_many_slots_or_tasks_would_do() -> None:
    found = state_fresh(RUN, 60.0)
    assert found is not None and found.chance < 0.01
    assert found.slots is not None and 17 <= found.slots <= 30 and found.tasks is not None and 35 <= found.tasks <= 55
    assert chance_of(fresh_ends(RUN._replace(slots=found.slots)), 60.0) >= GOOD, "so many do"
    assert chance_of(fresh_ends(RUN._replace(tasks=found.tasks)), 60.0) >= GOOD


def test_where_a_single_task_takes_too_long_nothing_helps() -> None:
    found = state_fresh(RUN, 5.0)
    assert found is not None and found.slots is None and found.tasks is None


@pytest.mark.parametrize("run", [RUN._replace(durations=()), RUN._replace(slots=0)])
def test_nothing_is_said_where_nothing_is_known(run: Fresh) -> None:
    assert state_fresh(run, 100.0) is None


def test_more_slots_than_tasks_are_no_help_and_no_harm() -> None:
    assert state_fresh(Fresh(1, (1.0, 2.0), 1_000), 10.0) is not None


def test_draws_never_make_it_certain() -> None:
    ends = fresh_ends(RUN, draws=100)
    assert 0.0 < chance_of(ends, 0.0) < 0.01 < 0.99 < chance_of(ends, 1e9) < 1.0
    assert [chance_text(chance) for chance in (0.0, 0.004, 0.02, 0.5, 0.985, 0.999)] == [
        "< 1 %", "< 1 %", "= 2 %", "= 50 %", "= 99 %", "> 99 %",
    ]  # fmt: skip


def test_a_risk_is_one_until_it_is_well_over() -> None:
    between = (RISK + CALM) / 2
    assert is_at_risk(RISK - 0.01, False) and not is_at_risk(between, False)
    assert is_at_risk(between, True) and not is_at_risk(CALM, True)
