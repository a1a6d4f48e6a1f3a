"""Classes of a run with `max_running`: no more of it is live at once, wherever its pilots are."""

from __future__ import annotations

from tests.unit.engine.stand import FakePilot, Stand, bad, good


def leased(*pilots: FakePilot) -> int:
    return sum(len(pilot.held) for pilot in pilots)


def test_no_more_tasks_of_a_run_are_live_than_its_max_running_on_all_pilots_together() -> None:
    stand = Stand()
    stand.submit({"array": "1-10"}, {"array": "1-10", "cores": 2}, max_running=3)
    pilots = [stand.pilot(4, host=f"h{n}") for n in range(3)]
    for pilot in pilots:
        pilot.pull()
    assert leased(*pilots) == 3
    done = 0
    while (pilot := next((p for p in pilots if p.held), None)) is not None:
        pilot.talk(good(next(iter(pilot.held))))
        done += 1
        for one in pilots:
            one.took()
        assert leased(*pilots) == min(3, 20 - done)
        assert stand.sound()
    assert done == 20


def test_a_run_at_its_limit_keeps_no_other_run_back() -> None:
    stand = Stand()
    stand.submit({"array": "1-10"}, max_running=1)
    stand.submit({"array": "1-10"})
    pilot = stand.pilot(5)
    pilot.pull()
    runs = [attempt.partition(".")[0] for attempt in pilot.held]
    assert (runs.count("r1"), runs.count("r2")) == (1, 4)


def test_what_failed_or_was_lost_makes_place_for_the_next() -> None:
    stand = Stand()
    stand.submit({"array": "1-3", "retries": 1}, max_running=1)
    pilot, other = stand.pilot(2), stand.pilot(2, host="other")
    (first,) = pilot.pull()
    assert other.pull() == []
    pilot.talk(bad(first.attempt))
    other.took()
    assert leased(pilot, other) == 1
    lost, alive = (pilot, other) if pilot.held else (other, pilot)
    stand.bury(lost)
    alive.took()
    assert len(alive.held) == 1
    assert stand.sound()


def test_a_restarted_server_keeps_the_limit() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-5"}, max_running=2)
    pilot = stand.pilot(4)
    pilot.pull()
    stand.restart()
    pilot.talk()
    stand.pass_time(20)
    pilot.pull()
    assert len(pilot.held) == 2
    assert stand.engine.state.runs[run].max_running == 2
    assert stand.why(run, 5).code == "run_limit"
    assert stand.sound()


def test_runs_with_a_limit_learn_durations_together() -> None:
    """Their classes are apart, and what is known of the program is not."""
    stand = Stand()
    pilot = stand.pilot(1)
    for _ in range(2):
        run = stand.submit({}, max_running=1)
        (lease,) = pilot.pull()
        array = stand.engine.state.runs[run].arrays[0]
        cls = stand.engine.state.queue.listed_class_of(array)
        before = cls.base.mean
        pilot.talk(good(lease.attempt))
    assert before is not None and cls.key.run == run
