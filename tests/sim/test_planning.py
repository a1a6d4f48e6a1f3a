"""Planning worlds: the same seed gives the same world, nothing runs twice at once, and the makespan is what it must be."""

from __future__ import annotations

import gc
import math
import weakref
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.engine.commands import Enrol
from shoal.model.policy import INTERVAL, MatchRule, Policy
from shoal.sim.distributions import Choice, Constant, Exponential, Uniform
from shoal.sim.network import Link
from shoal.sim.planning.description import Arrival, Cut, Description, Downtime, Pilots, ServerTimes, Site, Storage
from shoal.sim.planning.outcome import Outcome
from shoal.sim.planning.prediction import predict
from shoal.sim.planning.workloads import MERGING, Bag, Batch, Divisible, Given, Job, TwoSteps, Workload
from shoal.sim.planning.world import PlanningWorld
from shoal.sim.server import SimServer

BAG = (Bag(40, Uniform(5.0, 20.0)),)
LATE = 0.1  # seconds of overhead for each task in a row, at most


def simulate(description: Description, work: Workload = BAG, seed: int = 1) -> Outcome:
    """Simulate a workload."""
    return PlanningWorld(description, work, seed).run()


def check(outcome: Outcome) -> None:
    """Each task succeeded once, and no pilot ever ran more than it has slots for, or while it was not there."""
    done = Counter(one.task for one in outcome.record.attempts if one.outcome == "succeeded")
    assert outcome.succeeded == outcome.tasks
    assert set(done) == set(range(1, outcome.tasks + 1))
    lives = {life.pilot: life for life in outcome.record.pilots}
    steps: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for one in outcome.record.attempts:
        life = lives[one.pilot]
        assert life.joined <= one.start <= one.end
        assert one.start <= life.ended
        steps[one.pilot] += [(one.start, one.slots), (one.end, -one.slots)]
    for pilot, changes in steps.items():
        busy = 0
        for _, change in sorted(changes, key=lambda step: (step[0], step[1])):
            busy += change
            assert busy <= lives[pilot].slots


def world(**more: object) -> Description:
    """Five pilots of two slots, changed."""
    return replace(Description(sites=(Site(slots=2),), pilots=Pilots(5)), **more)  # type: ignore[arg-type]  # by name


def test_the_same_seed_gives_the_same_world_and_another_does_not() -> None:
    traces = [simulate(world(), seed=seed).trace for seed in (1, 1, 2)]
    assert traces[0] == traces[1] != traces[2]


@pytest.mark.parametrize(("tasks", "pilots"), [(1, 1), (10, 10), (11, 10), (35, 7), (3, 20)])
def test_equal_tasks_take_as_many_turns_as_they_must(tasks: int, pilots: int) -> None:
    turns = math.ceil(tasks / pilots)
    found = simulate(Description(pilots=Pilots(pilots)), (Bag(tasks, Constant(60.0)),))
    assert 60.0 * turns <= found.makespan <= 60.0 * turns + LATE * (turns + 1)


def test_a_fast_pilot_does_more() -> None:
    arrivals = (Arrival(0.0, 1, 1.0), Arrival(0.0, 1, 3.0))
    found = simulate(Description(pilots=Pilots(arrivals=arrivals)), (Bag(40, Constant(30.0)),))
    by_pilot = Counter(one.pilot for one in found.record.attempts)
    assert sorted(by_pilot.values()) == [10, 30]


def test_a_host_without_any_speed_is_very_slow() -> None:
    found = simulate(Description((Site(speed=Constant(0.0)),), Pilots(1)), (Bag(1, Constant(10.0)),))
    assert found.makespan == pytest.approx(1_000.0, abs=1.0)


def test_a_workflow_keeps_its_order() -> None:
    found = simulate(world(), (TwoSteps(MERGING, 8, Uniform(5.0, 10.0), fan=4),))
    check(found)
    ends = {one.task: one.end for one in found.record.attempts}
    for one in found.record.attempts:
        if one.task > 8:
            assert one.start >= max(ends[task] for task in range(4 * (one.task - 9) + 1, 4 * (one.task - 9) + 5))


def test_a_merge_of_thousands_is_simulated() -> None:
    found = simulate(Description((Site(slots=8),), Pilots(25)), (TwoSteps(MERGING, 5_000, Constant(10.0), fan=5_000),))
    check(found)
    (merge,) = (one for one in found.record.attempts if one.task == 5_001)
    assert merge.start >= max(one.end for one in found.record.attempts if one.task <= 5_000)


@settings(max_examples=12, deadline=None)
@example(seed=8585, pilots=1, slots=1, lifetime=0.0, failure=0.0, loss=0.02, tasks=1)  # the registration came twice
@given(
    seed=st.integers(0, 10_000),
    pilots=st.integers(1, 6),
    slots=st.integers(1, 4),
    lifetime=st.sampled_from([0.0, 200.0, 1_000.0]),
    failure=st.sampled_from([0.0, 0.1]),
    loss=st.sampled_from([0.0, 0.02]),
    tasks=st.integers(1, 60),
)
def test_whatever_the_world_each_task_ends_once(
    seed: int, pilots: int, slots: int, lifetime: float, failure: float, loss: float, tasks: int
) -> None:
    site = Site(
        slots=slots,
        wait=Exponential(20.0),
        start=Uniform(0.0, 5.0),
        start_failure=0.1,
        lifetime=Exponential(lifetime) if lifetime else None,
        task_failure=failure,
    )
    description = Description(
        (site,), Pilots(pilots, keep=True), Link(Uniform(0.001, 0.1), loss=loss, duplicate=loss), beats=seed % 2 == 0
    )
    found = simulate(description, (Bag(tasks, Uniform(1.0, 30.0), retries=50),), seed)
    if not found.failed:
        check(found)
    assert found.succeeded + found.failed == tasks
    assert not found.stuck


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), deaths=st.booleans(), tasks=st.integers(1, 60))
def test_beats_without_news_change_no_end(seed: int, deaths: bool, tasks: int) -> None:
    ends = (Arrival(0.0, 2, until=37.0),) if deaths else ()
    arrivals = (*(Arrival(float(at), 2) for at in range(3)), *ends)
    work = (Bag(tasks, Uniform(1.0, 60.0)),)
    with_beats, without = (
        simulate(Description(pilots=Pilots(arrivals=arrivals), beats=beats), work, seed) for beats in (True, False)
    )
    assert (with_beats.succeeded, with_beats.failed) == (without.succeeded, without.failed) == (tasks, 0)
    assert without.makespan == pytest.approx(with_beats.makespan, rel=0.02, abs=1.5)
    assert without.messages["exchange"] <= with_beats.messages["exchange"]


def test_a_dead_pilot_is_missed_after_as_long_as_with_beats() -> None:
    site = Site(slots=1, lifetime=Constant(50.0))
    work = (Bag(1, Constant(100.0)),)
    late = (Arrival(60.0, 1),)
    found = [
        simulate(Description((site,), Pilots(1, arrivals=late), beats=beats), work).makespan for beats in (True, False)
    ]
    assert found[0] == pytest.approx(found[1], abs=12.0)
    assert 50.0 + 65.0 + 100.0 <= found[1] <= 50.0 + 77.0 + 100.0


def test_pilots_end_with_their_allocation_and_others_are_asked_for() -> None:
    site = Site(slots=1, wall=100.0, start=Constant(10.0))
    found = simulate(Description((site,), Pilots(2, keep=True)), (Bag(30, Constant(30.0)),))
    check(found)
    assert found.enrolled > 4
    assert all(life.ended - life.joined <= 101.0 or math.isinf(life.ended) for life in found.record.pilots)


def test_pilots_that_end_at_once_are_asked_for_a_second_later() -> None:
    site = Site(slots=1, lifetime=Choice((0.0, 1_000.0)))
    description = Description((site,), Pilots(20, keep=True), horizon=3_600.0)
    found = simulate(description, (Bag(20, Constant(100.0)),))
    check(found)
    never = Description((Site(slots=1, lifetime=Constant(0.0)),), Pilots(1, keep=True), horizon=3_600.0)
    outcome = simulate(never, (Bag(1, Constant(100.0)),))
    assert "horizon" in outcome.stuck
    assert outcome.asked <= 10_000


def test_pilots_are_asked_for_one_after_another() -> None:
    found = simulate(Description(pilots=Pilots(10, per_hour=360.0)), (Bag(100, Constant(100.0)),))
    joined = sorted(life.joined for life in found.record.pilots)
    assert joined[-1] == pytest.approx(90.0, abs=1.0)


def test_a_downtime_kills_what_runs_and_starts_nothing() -> None:
    site = Site(slots=2, downtimes=(Downtime(30.0, 500.0),))
    found = simulate(Description((site,), Pilots(3, keep=True)), (Bag(30, Constant(20.0)),))
    check(found)
    assert not [one for one in found.record.attempts if 30.0 < one.start < 500.0]


def test_a_cut_site_works_on_and_reports_later() -> None:
    site = Site(slots=1, cuts=(Cut(15.0, 45.0),))
    found = simulate(Description((site,), Pilots(2)), (Bag(8, Constant(20.0)),))
    check(found)
    assert 80.0 < found.makespan < 200.0


def test_pilots_of_a_long_cut_are_lost_and_their_tasks_run_elsewhere() -> None:
    cut, other = Site("cut", slots=1, cuts=(Cut(15.0, 615.0),)), Site("other", slots=1)
    arrivals = (Arrival(0.0, 1, site="cut"), Arrival(0.0, 1, site="cut"), Arrival(0.0, 1, site="other"))
    found = simulate(Description((cut, other), Pilots(arrivals=arrivals)), (Bag(30, Constant(20.0)),))
    assert (found.succeeded, found.failed, found.stuck) == (30, 0, "")
    again = sorted(one.start for one in found.record.attempts if one.number > 1)
    # what ran at the cut is given to another when the lease of its pilot is over, 75 s after its last beat
    assert again
    assert 15.0 + 60.0 <= again[0] <= 15.0 + 75.0 + 25.0


@pytest.mark.parametrize("kinds", [("request", "reply"), ("request",), ("reply",)])
def test_a_pilot_that_starts_in_a_cut_joins_when_the_last_one_ends(kinds: tuple[str, ...]) -> None:
    cuts = (Cut(10.0, 50.0), Cut(20.0, 200.0, kinds), Cut(40.0, 60.0, ("reply",)))
    site = Site(slots=1, start=Constant(30.0), cuts=cuts)
    found = simulate(Description((site,), Pilots(1)), (Bag(1, Constant(20.0)),))
    check(found)
    assert 200.0 <= found.record.pilots[0].joined <= 300.0


def test_a_pilot_that_registers_again_is_the_same_and_tells_what_is_left_of_its_wall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[float | None] = []
    usual = SimServer.request

    def request(self: SimServer, command: Any, *words: Any) -> None:
        if isinstance(command, Enrol):
            told.append(command.register.ends)
        usual(self, command, *words)

    monkeypatch.setattr(SimServer, "request", request)
    site = Site(slots=1, wall=5_000.0, start=Constant(7.0), cuts=(Cut(15.0, 615.0),))
    found = simulate(Description((site,), Pilots(2)), (Bag(60, Constant(20.0)),))
    assert len(told) == 4
    assert told[:2] == pytest.approx([5_000.0] * 2, abs=1.0)
    assert all(ends is not None and 4_200.0 < ends < 5_000.0 - 608.0 for ends in told[2:])
    assert (found.asked, found.enrolled) == (2, 2)
    assert [life.joined for life in found.record.pilots] == pytest.approx([7.0] * 2, abs=1.0)


def test_storage_and_a_busy_server_take_their_time() -> None:
    plain = simulate(world(), (Bag(40, Constant(10.0), input_mb=100.0),)).makespan
    site = Site(slots=2, storage=Storage(10.0))
    stored = simulate(world(sites=(site,)), (Bag(40, Constant(10.0), input_mb=100.0),)).makespan
    assert stored == pytest.approx(plain + 4 * 10.0, abs=1.0)
    busy = simulate(world(server=ServerTimes(service=0.5)), (Bag(40, Constant(10.0)),)).makespan
    assert busy > plain + 4 * 0.5


def test_the_output_of_a_task_does_not_wait_for_its_own_input() -> None:
    site = Site(storage=Storage(10.0, total=10.0))
    work = (Bag(1, Constant(10.0), input_mb=100.0, output_mb=100.0),)
    assert simulate(Description((site,), Pilots(1)), work).makespan == pytest.approx(30.0, abs=LATE)


def test_a_thin_link_takes_its_time() -> None:
    work = (Bag(1, Constant(10.0)),)
    thin = Description(pilots=Pilots(1), link=Link(Constant(0.001), bandwidth=1_000.0))
    # the registration and its answer, the first exchange, the lease, and the report
    late = (500 + 500 + 500 + 800 + 800) / 1_000.0
    found = simulate(thin, work).makespan - simulate(Description(pilots=Pilots(1)), work).makespan
    assert found == pytest.approx(late, abs=LATE)


def test_matching_at_intervals_is_slower_than_at_once() -> None:
    rule = Policy(match=MatchRule(INTERVAL, 10.0, 15))
    assert simulate(world(policy=rule)).makespan > simulate(world()).makespan + 10.0


def test_attempts_that_a_journal_knows_to_have_failed_fail_again() -> None:
    work = (Given(Batch([Job(10.0, failed=(3.0, 4.0)), Job(10.0)])),)
    found = simulate(Description(pilots=Pilots(2)), work)
    failed = sorted(round(one.end - one.start) for one in found.record.attempts if one.outcome == "failed")
    assert failed == [3, 4]
    assert found.succeeded == 2


@pytest.mark.parametrize(
    ("pilots", "why"),
    [
        (Pilots(arrivals=(Arrival(0.0, 1, until=5.0),)), "no pilot left"),
        (Pilots(arrivals=(Arrival(0.0, 1),)), "nothing ran for a day"),
    ],
)
def test_a_world_that_cannot_end_says_why(pilots: Pilots, why: str) -> None:
    found = simulate(
        Description(pilots=pilots), (Bag(3, Constant(100.0), cores=2 if pilots.arrivals[0].until is None else 1),)
    )
    assert math.isinf(found.makespan)
    assert why in found.stuck


def test_a_prediction_is_in_order_and_adds_up() -> None:
    told: list[tuple[int, int]] = []
    found = predict(world(), BAG, range(5), lambda done, total: told.append((done, total)))
    spans = [run.makespan for run in found.runs]
    assert spans == sorted(spans)
    assert (
        found.quantile(0.0)
        == spans[0]
        <= found.quantile(0.1)
        <= found.quantile(0.5)
        <= found.quantile(0.9)
        <= spans[-1]
    )
    assert found.middle.makespan == spans[2]
    assert told[-1][0] == told[-1][1]
    areas = found.areas
    assert areas.useful / areas.total == pytest.approx(found.mean(lambda run: run.anatomy.utilisation), rel=0.05)


@pytest.mark.parametrize("count", [1, 4])
def test_a_prediction_keeps_one_long_record(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[weakref.ref[Outcome]] = []
    alive: list[int] = []
    usual = PlanningWorld.run

    def run(self: PlanningWorld, *words: Any) -> Outcome:
        gc.collect()
        alive.append(sum(one() is not None for one in kept))
        outcome = usual(self, *words)
        kept.append(weakref.ref(outcome))
        return outcome

    monkeypatch.setattr(PlanningWorld, "run", run)
    told: list[tuple[int, int]] = []
    found = predict(world(), BAG, range(count), lambda done, total: told.append((done, total)))
    assert alive == [0] * (count + (count > 1))
    assert found.middle.trace == found.runs[count // 2].trace
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


def test_divisible_work_is_cut_so_that_different_hosts_end_together() -> None:
    arrivals = tuple(Arrival(0.0, 1, speed) for speed in (0.5, 1.0, 2.0, 4.0))
    outcome = simulate(Description(pilots=Pilots(arrivals=arrivals)), (Divisible(3_000, 0.5),))
    assert outcome.makespan == pytest.approx(3_000 * 0.5 / 7.5, rel=0.03)
    equal = simulate(Description(pilots=Pilots(arrivals=arrivals)), (Bag(8, Constant(3_000 * 0.5 / 8)),))
    assert outcome.makespan < equal.makespan
