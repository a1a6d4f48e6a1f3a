"""Attempts that wait for other tasks lend their cores: to the engine they are free, until the pilot says otherwise."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from shoal.engine.pilots import lending
from shoal.engine.state import KEEP_FINISHED, State
from shoal.model.errors import Refused
from shoal.model.ids import TaskId
from shoal.model.limits import MAX_LENT_TO_NEW, MAX_NESTED, MAX_WAITING
from shoal.wire.messages import Capacity
from tests.sim.planting import plant
from tests.unit.engine.stand import FakePilot, Stand, good


def below(stand: Stand, task: str, **more: Any) -> int:
    """A run that a task submits."""
    return stand.submit(dict(more), labels={"parent": task})


def test_a_waiting_task_lends_its_cores_and_takes_them_back() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    stand.submit({})
    outer = pilot.work()
    inner = below(stand, "r1.1")
    assert pilot.pull() == []
    (lease,) = pilot.pull(waits=[outer])
    assert lease.attempt.startswith(f"r{inner}.1#") and stand.sound()
    stand.submit({})
    assert pilot.pull(waits=[outer]) == []  # the core that was lent is in use
    assert pilot.talk(good(lease.attempt), waits=[]).leases == []  # the outer task goes on in it
    assert stand.engine.state.pilots[pilot.name].free.cores == 0 and stand.sound()
    (third,) = pilot.talk(good(outer)).leases
    assert third.attempt.startswith("r3.1#") and stand.sound()


def test_memory_and_gpus_of_a_waiting_task_stay_taken() -> None:
    stand = Stand()
    pilot = stand.pilot(room=Capacity(1, 4 << 30, 1 << 40, 1))
    stand.submit({"gpus": 1, "memory": "3G"})
    outer = pilot.work()
    below(stand, "r1.1", gpus=1)
    below(stand, "r1.1", memory="2G")
    fits = below(stand, "r1.1", memory="1G")
    assert [lease.attempt.partition(".")[0] for lease in pilot.pull(waits=[outer])] == [f"r{fits}"]
    assert stand.sound()


def test_a_quota_of_cores_does_not_count_what_is_lent() -> None:
    stand = Stand()
    stand.policy(quota=[{"who": "*", "cores": 1}], match={"max_running": 1})
    pilot = stand.pilot(2)
    stand.submit({})
    outer = pilot.work()
    inner = below(stand, "r1.1")
    (lease,) = pilot.pull(waits=[outer])
    assert lease.attempt.startswith(f"r{inner}.1#") and stand.sound()
    pilot.talk(good(lease.attempt))
    below(stand, "r1.1")
    assert pilot.pull() == [] and stand.sound()


def test_what_a_task_waits_for_goes_before_everything_else_of_its_owner() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    stand.submit({})
    outer = pilot.work()
    stand.submit({"priority": 1_000_000})
    inner = below(stand, "r1.1", priority=-5)
    deeper = below(stand, f"r{inner}.1", priority=-9)
    (lease,) = pilot.pull(waits=[outer])
    assert lease.attempt.startswith(f"r{deeper}.1#")


def test_many_waiting_tasks_lend_only_to_what_is_waited_for() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    stand.submit(*[{"command": ["true", str(n)]} for n in range(MAX_LENT_TO_NEW + 2)])
    waits: list[str] = []
    while leases := pilot.pull(waits=waits):
        waits += [lease.attempt for lease in leases]
        pilot.run(*waits)
    assert len(waits) == MAX_LENT_TO_NEW
    inner = below(stand, "r1.1")
    (lease,) = pilot.took()
    assert lease.attempt.startswith(f"r{inner}.1#") and stand.sound()


def test_a_pilot_that_is_lost_or_comes_back_lends_nothing_until_it_says_so() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    stand.submit({"rerun": "exclusive"})
    outer = pilot.work()
    pilot.talk(waits=[outer])
    again = stand.pilot(1, former=pilot)
    assert stand.sound() and not stand.engine.state.pilots[again.name].lending
    below(stand, "r1.1")
    assert len(again.pull(waits=[outer])) == 1 and stand.sound()
    stand.bury(again)
    assert stand.sound()
    other = stand.pilot(1)
    other.talk(waits=[outer])  # it has no such attempt
    assert stand.sound()
    stand.restart()
    assert stand.sound()


def test_a_task_that_was_cancelled_takes_the_runs_below_it_with_it() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    stand.submit({})
    outer = pilot.work()
    inner = below(stand, "r1.1")
    (lease,) = pilot.pull(waits=[outer])
    deeper = below(stand, f"r{inner}.1")
    stranger = stand.submit({}, labels={"parent": "r1.1"}, owner="bob")
    pilot.talk(waits=[outer, lease.attempt])
    stand.cancel(TaskId(1, 1))
    assert [stand.state(run) for run in (inner, deeper)] == ["cancelled", "cancelled"]
    assert stand.state(stranger) == "ready" and stand.sound()


def test_a_run_below_a_task_that_is_over_and_forgotten_keeps_no_other_there_alive() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    stand.submit({})
    outer = pilot.work()
    short, long = below(stand, "r1.1"), below(stand, "r1.1")
    (lease,) = pilot.pull(waits=[outer])
    assert lease.attempt.startswith(f"r{short}.1#")
    pilot.talk(good(lease.attempt), waits=[outer])
    for _ in range(2):
        stand.pass_time(KEEP_FINISHED / 2)
        pilot.talk(waits=[outer])
    stand.pass_time(1.0)
    assert short not in stand.engine.state.runs
    stand.cancel(TaskId(1, 1))
    assert stand.state(long) == "cancelled" and stand.sound()


def test_runs_nested_without_end_and_pilots_full_of_waiting_tasks_are_refused() -> None:
    stand = Stand()
    stand.submit({})
    for depth in range(MAX_NESTED):
        below(stand, f"r{depth + 1}.1")
    with pytest.raises(Refused, match=rf"r{MAX_NESTED + 1}.1 is {MAX_NESTED} runs deep already") as deep:
        below(stand, f"r{MAX_NESTED + 1}.1")
    assert "`shoal cancel r1`" in deep.value.hint
    wide = Stand()
    pilot = wide.pilot(1)
    wide.submit({})
    outer = pilot.work()
    wide.engine.state.pilots[pilot.name].lending = MAX_WAITING
    with pytest.raises(
        Refused, match=f"r1.1 cannot submit: {MAX_WAITING} tasks on {pilot.name} wait for others already"
    ):
        below(wide, "r1.1")
    assert outer.startswith("r1.1#")


# --- a story of many tasks, told with chance
def story(seed: int) -> None:
    """Outer tasks on pilots, each of which submits, waits, goes on and submits again; nothing may get stuck, and never may
    more cores be leased to tasks that do not wait than there are, beyond those of waits that have just ended."""
    rng = random.Random(seed)
    stand = Stand()
    pilots = [stand.pilot(rng.randint(1, 2), host=f"h{n}") for n in range(rng.randint(1, 2))]
    todo = {stand.submit({"array": f"1-{rng.randint(2, 6)}"}): 0}
    inner: dict[str, int] = {}  # attempt -> the run that it waits for
    depth = dict.fromkeys(todo, 0)
    finished: set[int] = set()
    running: dict[str, FakePilot] = {}
    for _ in range(400):
        if not stand.engine.busy:
            return
        pilot = rng.choice(pilots)
        for attempt in [name for name, run in inner.items() if run in finished]:
            del inner[attempt]
        mine = [name for name in pilot.held if name not in inner]
        ends = [name for name in mine if rng.random() < 0.5]
        for attempt in mine:
            run, _, rest = attempt[1:].partition(".")
            if attempt not in ends and depth[int(run)] < 3 and rng.random() < 0.4:
                made = below(stand, f"r{run}.{rest.partition('#')[0]}", array=f"1-{rng.randint(1, 2)}")
                depth[made], inner[attempt] = depth[int(run)] + 1, made
        for attempt in mine:
            pilot.held[attempt] = "running"
        went_on = sum(name not in inner for name in mine)
        leases = pilot.talk(*[good(name) for name in ends], waits=[name for name in pilot.held if name in inner]).leases
        running.update(dict.fromkeys((lease.attempt for lease in leases), pilot))
        busy = sum(name not in inner for name in pilot.held)
        assert busy <= max(pilot.room.cores, went_on), "more runs than there are cores"
        assert not leases or busy <= pilot.room.cores, "leased beyond the cores"
        finished |= {event.run for event in stand.events("run_finished") if event.run is not None}
        wrong = stand.engine.check()
        assert not wrong, "; ".join(wrong)
        stand.pass_time(0.1)
        for other in pilots:
            other.talk(waits=[name for name in other.held if name in inner])
    raise AssertionError("stuck")


@pytest.mark.parametrize("seed", range(12))
def test_stories_of_nested_tasks_come_to_their_end(seed: int) -> None:
    story(seed)


BUGS: dict[str, tuple[Callable[..., Any], str, str, str]] = {
    "forgets to lend": (lending.note_waiting, "pilot, attempt in waiting)", "pilot, False)", "stuck"),
    "forgets to take back": (
        lending.note_waiting,
        "pilot, attempt in waiting)",
        "pilot, live.lends or attempt in waiting)",
        "beyond the cores|more runs",
    ),
    "forgets the quota": (State.lend, "if attempt.site is not None:", "if False:", "counted"),
    "forgets at the end of an attempt": (
        State.drop_attempt,
        "if gone.lends and pilot is not None:",
        "if False:",
        "free|lent|counted",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_of_lending_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, old, new, complaint = BUGS[name]
    plant(monkeypatch, function, old, new)
    with pytest.raises(AssertionError, match=complaint):
        for seed in range(12):
            story(seed)
