"""Time in which the server did not run counts against nobody: what a gap does to each deadline."""

from __future__ import annotations

from shoal.engine.commands import Resume, Tick
from shoal.model.states import TaskState
from tests.unit.engine.stand import Stand, good


def thaw(stand: Stand, seconds: float) -> None:
    """The server stood still so long; on waking it hears of that first, and then ticks."""
    stand.now += seconds
    stand.do(Resume(seconds))
    stand.do(Tick())


def test_a_pilot_that_lived_before_a_long_gap_gets_a_whole_lease() -> None:
    stand = Stand()
    pilot = stand.pilot()
    run = stand.submit({"command": ["a"], "rerun": "never"})
    attempt = pilot.work()
    stand.pass_time(70.0)  # silent, and not yet lost
    thaw(stand, 1_800.0)
    assert [event.data for event in stand.events("server_resumed")] == [{"seconds": 1_800.0}]
    stand.pass_time(74.0)
    assert stand.events("pilot_gone") == [] and stand.state(run) == "running"
    pilot.talk(good(attempt))
    assert stand.state(run) == "succeeded" and stand.sound()


def test_a_pilot_that_stays_silent_is_lost_all_the_same() -> None:
    stand = Stand()
    stand.pilot()
    thaw(stand, 90.0)
    stand.pass_time(76.0)
    assert len(stand.events("pilot_gone")) == 1


def test_short_gaps_add_up_and_do_not_keep_a_dead_pilot_alive() -> None:
    stand = Stand()
    stand.pilot()
    for _ in range(20):
        stand.pass_time(4.0)
        thaw(stand, 5.0)
    assert len(stand.events("pilot_gone")) == 1, "80 s of the server's own time have passed"
    assert stand.events("server_resumed") == []


def test_the_hold_of_an_orphan_is_not_used_up_by_a_gap() -> None:
    stand = Stand()
    pilot = stand.pilot()
    run = stand.submit({"command": ["a"], "rerun": "never"})
    pilot.work()
    stand.pass_time(76.0)
    (task,) = stand.engine.state.orphans.values()
    stand.pass_time(915.0 - 76.0 - 5.0)  # five seconds are left
    thaw(stand, 3_600.0)
    stand.pass_time(70.0)
    assert task.state is TaskState.RUNNING, "its pilot has a lease's time to come back and speak for it"
    again = stand.pilot(former=pilot)
    again.talk(held=pilot.held)
    stand.pass_time(30.0)
    assert stand.state(run) == "running" and stand.events("task_finished") == []


def test_the_quarantine_of_a_restart_is_not_used_up_by_a_gap() -> None:
    stand = Stand()
    stand.pilot()
    stand.restart()
    stand.submit({"command": ["a"]})
    other = stand.pilot()
    thaw(stand, 60.0)
    assert other.pull() == [], "the pilot of before has not said what it holds"
    stand.pass_time(16.0)
    assert len(other.pull()) == 1


def test_no_watch_for_files_ends_by_a_gap() -> None:
    stand = Stand()
    rule = {"name": "reco", "files": "*.dat", "command": ["reco", "{file}"], "watch": "1h"}
    run = stand.submit(rules=[rule])
    stand.pass_time(3_000)
    thaw(stand, 10_000)
    assert stand.engine.state.runs[run].finished is None
    stand.pass_time(500)
    assert stand.engine.state.runs[run].finished is None
    stand.pass_time(200)
    assert stand.engine.state.runs[run].finished is not None, "the hour without the gap is over"


def test_an_open_run_is_not_abandoned_by_a_gap() -> None:
    stand = Stand()
    stand.submit({"command": ["a"]}, open=True)
    pilot = stand.pilot()
    pilot.talk(good(pilot.work()))
    stand.pass_time(50.0)
    thaw(stand, 600.0)
    assert stand.events("run_finished") == []
    stand.pass_time(61.0)
    assert len(stand.events("run_finished")) == 1
