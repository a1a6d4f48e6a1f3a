"""The models of the three systems, on a fiftieth of the tasks."""

from __future__ import annotations

import pytest

from shoal.sim.papers.gwp.filling import EXPERIMENT
from shoal.sim.papers.gwp.pilots import GridTest, Pilot, PilotSystem
from shoal.sim.papers.gwp.simulate import build, options_of, smaller
from shoal.sim.papers.gwp.workload import DIANE, DIRAC, GWPILOT, SYSTEMS

SMALL = {**smaller(EXPERIMENT.settings, 50), "dirac_command_task": 1.0}
CASES = [(system, test, seed) for system in SYSTEMS for test, seed in (("a", 1), ("d", 2))]


def system_of(name: str, test: str, seed: int, fails: float = 0.05, **changes: object) -> PilotSystem:
    settings = {**SMALL, **changes}
    grid = GridTest(test, settings["tasks"], settings["managed"], 0.5, fails, 0.5)
    return build(grid, options_of(settings, test, name), seed)


@pytest.mark.parametrize(("name", "test", "seed"), CASES)
def test_every_task_is_done_once_and_a_pilot_runs_one_at_a_time(name: str, test: str, seed: int) -> None:
    system = system_of(name, test, seed)
    busy: set[int] = set()
    most_up = 0
    start, end = system.start_task, system.ended

    def starts(pilot: Pilot, *rest: float) -> None:
        nonlocal most_up
        assert pilot.number not in busy
        busy.add(pilot.number)
        most_up = max(most_up, len(system.up))
        start(pilot, *rest)  # type: ignore[arg-type]  # as it was called

    def ends(pilot: Pilot, task: int) -> None:
        busy.discard(pilot.number)
        end(pilot, task)

    system.start_task, system.ended = starts, ends  # type: ignore[method-assign,assignment]  # watched
    system.run()
    assert system.is_over and set(system.ends) == {1} and system.done == system.grid.tasks
    assert 0.0 < system.filling <= 1.0
    assert 0.0 < system.mean_up <= most_up
    if name != DIRAC:  # which asks for one for each task that waits, however many are up
        assert most_up <= system.grid.managed + (SMALL["gw_over_long"] if name == GWPILOT else 0)
    assert system.enrolled <= system.submitted and len(system.all_lives()) == system.enrolled
    assert system.active == 0 and system.failed == sum(life.was_dropped for life in system.lives) > 0
    assert len(system.times) == system.grid.tasks and all(min(one) >= -1e-6 for one in system.times)


@pytest.mark.parametrize("name", SYSTEMS)
def test_same_seed_same_trace(name: str) -> None:
    first, again, other = (system_of(name, "a", seed).run() for seed in (1, 1, 2))
    assert first.trace == again.trace and first.makespan == again.makespan
    assert first.trace != other.trace


def test_pilots_are_fuller_the_sooner_a_task_that_ended_is_replaced() -> None:
    filling = {name: system_of(name, "a", 1, 0.0).run().filling for name in SYSTEMS}
    assert filling[DIANE] > 0.99 > filling[GWPILOT] > filling[DIRAC]


def test_a_pilot_that_pulls_often_is_fuller() -> None:
    often = system_of(GWPILOT, "a", 1, gw_pulling=1.0, gw_tries=600).run()
    assert often.filling > system_of(GWPILOT, "a", 1).run().filling + 0.03


def test_diane_submits_one_after_another_and_drops_a_pilot_for_each_failed_task() -> None:
    system = system_of(DIANE, "a", 1).run()
    assert system.failed == sum(life.was_dropped for life in system.lives) > 0
    assert system.submitted <= 1 + system.makespan / SMALL["diane_submission"]
    kept = system_of(DIANE, "a", 1, diane_drops=False).run()
    assert kept.failed > 0 and not any(life.was_dropped for life in kept.lives)


def test_a_dirac_pilot_that_finds_no_task_ten_times_ends() -> None:
    system = system_of(DIRAC, "a", 1, 0.0, script_pause=3_000.0, dirac_retry=20.0).run()
    assert any(not life.was_dropped for life in system.lives)
    assert set(system.ends) == {1}


def test_an_idle_pilot_of_gwpilot_ends_after_its_tries() -> None:
    system = system_of(GWPILOT, "d", 1, 0.0, gw_tries=2).run()
    assert any(not life.was_dropped for life in system.lives)
    assert set(system.ends) == {1}
