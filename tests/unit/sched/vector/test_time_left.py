"""What is seen of a run becomes a forecast: ends from events or rows, slots from what runs, idle time from both ends of a gap."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.sched.vector.forecast import Forecast
from shoal.sched.vector.time_left import End, Observed, Running, Score, forecast_by_rows, idle_times, running_tasks
from tests.unit.report.fake_source import FakeSource, run_info, task_row

BAG = [{"command": ["x"], "array": "1-40"}]


def ended(task: int, duration: float | None = 10.0, pilot: str = "p1", **data: Any) -> dict[str, Any]:
    end = {"state": "succeeded", "duration": duration, **data}
    return {"seq": task, "kind": "task_finished", "run": 1, "task": task, "pilot": pilot, "data": end}


def observed(*events: dict[str, Any]) -> Observed:
    found = Observed()
    for event in events:
        found.take(event)
    return found


def bag(done: int, **counts: int) -> dict[str, Any]:
    return run_info(BAG, counts={"succeeded": done, **counts})


def test_before_the_first_end_it_is_not_known() -> None:
    assert observed().forecast(bag(0), [Running("p1", 5.0)], 2) is None


def test_while_nothing_runs_it_is_not_known() -> None:
    assert observed(ended(1)).forecast(bag(1), [], 0) is None


def test_equal_tasks_take_whole_rounds_in_the_slots_that_are_busy() -> None:
    seen = observed(*(ended(n) for n in range(1, 21)))
    found = seen.forecast(bag(20), [Running("p1", 0.0), Running("p1", 0.0)], 2)
    assert found is not None
    assert found.p50 == pytest.approx(100.0, rel=0.1)
    assert found.p10 < 100.0 < found.p90 < 130.0


def test_slots_whose_tasks_have_no_rows_count_as_well() -> None:
    seen = observed(*(ended(n) for n in range(1, 21)))
    some, all_ = seen.forecast(bag(20), [], 2), seen.forecast(bag(20), [], 10)
    assert some is not None and all_ is not None
    assert all_.p50 < some.p50 / 3


def test_a_slot_that_is_free_for_a_moment_is_one_of_the_pilot_whose_task_ended_last() -> None:
    """Of two pilots one takes three times as long: the forecast depends on whose slot the idle one is."""
    ends = [ended(n, 30.0 if n % 2 else 10.0, f"p{n % 2}") for n in range(1, 11)]
    for n, end in enumerate(ends):
        end["time"] = 100.0 + n
    running = [Running("p0", 1.5), Running("p1", 0.5)]  # the last end was one of p0, and nothing followed it
    fast = observed(*ends).forecast(bag(10), running, 3)
    known = observed(*ends).forecast(bag(10), [*running, Running("p0", 5.0)], 3)
    slow = observed(*ends[:-2], ends[-1], ends[-2]).forecast(bag(10), [Running("p0", 0.0), Running("p1", 3.5)], 3)
    assert fast is not None and known is not None and slow is not None
    assert fast.p50 == pytest.approx(known.p50, rel=0.05) and slow.p50 > 1.15 * fast.p50


def test_results_that_were_taken_over_and_tasks_that_never_ran_say_nothing() -> None:
    closed = {"seq": 3, "kind": "tasks_closed", "run": 1, "data": {"count": 3, "state": "cancelled"}}
    cancelled = ended(4, state="cancelled", duration=None)
    assert observed(closed, cancelled, ended(5, reused="r0.5")).forecast(bag(5), [Running("p1", 1.0)], 1) is None


def test_attempts_that_were_repeated_lengthen() -> None:
    ends = [ended(n) for n in range(1, 21)]
    again = [{"seq": n, "kind": "task_retried", "run": 1, "task": n, "data": {}} for n in range(20)]
    good = observed(*ends).forecast(bag(20), [Running("p1", 0.0)], 1)
    bad = observed(*ends, *again).forecast(bag(20), [Running("p1", 0.0)], 1)
    assert good is not None and bad is not None
    assert bad.p50 == pytest.approx(2 * good.p50, rel=0.2)


def test_a_slow_pilot_that_is_left_alone_takes_its_own_time() -> None:
    ends = [ended(n, 10.0, "fast") for n in range(1, 16)] + [ended(n, 40.0, "slow") for n in range(16, 21)]
    slow, fast = (observed(*ends).forecast(bag(20), [Running(name, 0.0)], 1) for name in ("slow", "fast"))
    assert slow is not None and fast is not None
    assert fast.p50 == pytest.approx(200.0, rel=0.15)
    assert slow.p50 == pytest.approx(800.0, rel=0.15)


def test_a_slow_pilot_has_done_less_of_its_task_than_its_age_says() -> None:
    ends = [ended(n, 10.0, "fast") for n in range(1, 21)] + [ended(n, 40.0, "slow") for n in range(21, 40)]
    found = observed(*ends).forecast(bag(39), [Running("slow", 30.0)], 1)
    assert found is not None and found.p50 == pytest.approx(10.0, rel=0.2)


def test_a_few_tasks_that_wait_for_the_others_come_last_and_many_are_too_little_known() -> None:
    seen = observed(*(ended(n) for n in range(1, 21)))
    merge = seen.forecast(bag(35, waiting=1), [Running("p1", 0.0)] * 4, 4)
    assert merge is not None and merge.p50 == pytest.approx(20.0, rel=0.15)
    assert seen.forecast(bag(20, waiting=10), [Running("p1", 0.0)] * 4, 4) is None


# --- idle time


def test_idle_time_runs_from_an_end_to_the_next_start_at_the_same_pilot() -> None:
    ends = [*(End("a", 1.0, at, 0.0) for at in (0.0, 0.0, 1.2, 1.5)), End("b", 5.0, 1.1, 0.0)]
    assert sorted(idle_times(ends)) == pytest.approx([0.2, 0.5])


def test_the_end_behind_which_a_task_still_runs_is_not_taken_for_idle() -> None:
    """Its slot has no second end yet; the other slot's tasks follow each other at once."""
    other = [End("a", 1.0, 1.05 * n, 0.0) for n in range(5)]
    assert idle_times([End("a", 0.5, 0.0, 0.0), *other]) == pytest.approx([0.05] * 4)


def test_short_tasks_take_as_long_as_the_gaps_between_them_say() -> None:
    seen = observed(*(ended(n, 0.1, started=100.0 + 0.3 * n) for n in range(1, 21)))
    found = seen.forecast(bag(20), [Running("p1", 0.0)], 1)
    assert found is not None and found.p50 == pytest.approx(20 * 0.3, rel=0.1)


@pytest.mark.parametrize(("slots", "ahead"), [(2, 0.0), (8, 0.0), (2, 0.05)])
def test_busy_slots_follow_from_how_many_short_tasks_ended_and_how_long_they_took(slots: int, ahead: float) -> None:
    each = 0.1 + ahead
    ends = [(slot, round_) for round_ in range(int(12.0 / each)) for slot in range(slots)]
    seen = observed(*(
        {**ended(n, 0.1, f"p{slot}", started=each * round_), "time": each * (round_ + 1)}
        for n, (slot, round_) in enumerate(ends, 1)
    ))  # fmt: skip
    assert seen.busy_slots(12.0) == slots
    assert seen.busy_slots(40.0) == 0  # nothing ended lately


def test_a_few_ends_do_not_say_how_many_slots_are_busy() -> None:
    assert observed(*({**ended(n), "time": float(n)} for n in range(1, 9))).busy_slots(9.0) == 0


# --- rows


def test_what_runs_has_the_age_of_its_lease_or_of_its_start_if_it_was_fetched_ahead() -> None:
    rows = [
        task_row(1, state="running", leased=90.0, started=90.3, pilot="p1"),
        task_row(2, state="running", leased=40.0, started=95.0, pilot="p2"),
        task_row(3, state="leased", leased=99.5, started=None, pilot="p2"),
        task_row(4, state="leased", leased=80.0, started=None, pilot="p2"),  # fetched ahead
    ]
    row = bag(0)
    assert running_tasks(FakeSource(row, rows), row, 100.0, 8) == [
        Running("p1", 10.0), Running("p2", 5.0), Running("p2", 0.5),
    ]  # fmt: skip
    assert len(running_tasks(FakeSource(row, rows), row, 100.0, 2)) == 2


def test_the_rows_of_a_very_large_run_are_not_searched() -> None:
    row = run_info([{"command": ["x"], "array": "1-30000"}])
    source = FakeSource(row, [task_row(1, state="running")])
    assert running_tasks(source, row, 100.0, 8) == [] and source.asked == []


def test_a_run_is_forecast_by_its_rows_alone() -> None:
    rows = [task_row(n, duration=10.0) for n in range(1, 21)]
    rows += [task_row(n, state="running", leased=100.0, started=None) for n in (21, 22)]
    row = bag(20, running=2)
    found = forecast_by_rows(FakeSource(row, rows), row, 100.0, 2)
    assert found is not None and found.p50 == pytest.approx(100.0, rel=0.1)


def test_a_slot_whose_task_has_just_ended_is_still_there() -> None:
    rows = [task_row(n, duration=10.0, ended=99.9 if n > 18 else 50.0) for n in range(1, 21)]
    rows.append(task_row(21, state="running", leased=99.9, started=None))
    row = bag(20, running=1)
    several, two = (forecast_by_rows(FakeSource(row, rows), row, 100.0, slots) for slots in (8, 2))
    assert several is not None and several.p50 == pytest.approx(70.0, rel=0.1)  # three slots
    assert two is not None and two.p50 == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize("row", [bag(20), bag(0, running=2), {**bag(20, running=2), "finished": 110.0}])
def test_a_run_that_is_over_or_does_not_run_is_not_asked_for(row: dict[str, Any]) -> None:
    source = FakeSource(row)
    assert forecast_by_rows(source, row, 100.0, 2) is None and source.asked == []


# --- the score


@pytest.mark.parametrize(("took", "held"), [(25.0, True), (31.0, False), (None, None)])
def test_the_score_says_whether_nine_in_ten_was_enough(took: float | None, held: bool | None) -> None:
    document = Score(1_000.0, Forecast(10.0, 20.0, 30.0)).document(took)
    assert document == {"made_at": 1_000.0, "p10": 10.0, "p50": 20.0, "p90": 30.0, "took": took, "held": held}


def test_a_pilot_that_was_lost_makes_a_later_end_likelier_and_one_that_came_an_earlier_one() -> None:
    running = [Running(pilot, 5.0) for pilot in ("p1", "p2", "p3")]
    ends = [ended(n, pilot=f"p{n % 3 + 1}", started=100.0 + n) for n in range(1, 10)]
    lost = [{"kind": "task_lost_pilot", "pilot": f"p{n}", "data": {}} for n in (8, 8, 9)]
    came = [ended(n, pilot=f"p{n}", started=120.0) for n in (10, 11)]
    quiet, losing, growing = (observed(*ends, *more).forecast(bag(10), running, 3) for more in ((), lost, came))
    assert quiet is not None and losing is not None and growing is not None
    assert losing.p90 > 1.1 * quiet.p90
    assert growing.p10 < 0.97 * quiet.p10
