"""Other values of fields for what is queued; what has begun keeps its own."""

from __future__ import annotations

import pytest

from shoal.engine.changes import RunRow
from shoal.engine.commands import Add
from shoal.model.errors import Conflict
from shoal.model.ids import TaskId
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import Stand, back, bad, good

M = 1 << 20


def test_a_run_goes_first_once_its_priority_is_raised_also_after_a_restart() -> None:
    stand = Stand()
    first, second = stand.submit({"array": "1-2"}), stand.submit({"array": "1-2"})
    assert stand.set(second, priority=5) == {"tasks": 2, "begun": 0}
    (event,) = stand.events("tasks_changed")
    assert (event.run, event.data) == (second, {"fields": {"priority": 5}, "tasks": 2})
    stand.restart()
    pilot = stand.pilot(cores=1)
    pilot.pull()
    order = []
    for _ in range(4):
        (attempt,) = pilot.held
        order.append(int(attempt[1 : attempt.index(".")]))
        pilot.run()
        pilot.talk(good(attempt))
    assert order == [second, second, first, first]
    assert stand.sound()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_running_attempt_keeps_its_needs_and_frees_what_it_took(restarts: bool) -> None:
    stand = Stand()
    run = stand.submit({"array": "1-2", "cores": 1, "memory": 100 * M})
    pilot = stand.pilot(cores=3)
    one, two = (lease.attempt for lease in pilot.pull())
    pilot.run(one)
    assert stand.set(run, cores=2, memory=300 * M) == {"tasks": 0, "begun": 2}
    assert stand.sound()
    if restarts:
        stand.restart()
        pilot.talk()
    assert stand.engine.state.pilots[pilot.name].free.cores == 1
    pilot.talk(back(two))
    assert stand.sound()
    (again,) = [attempt for attempt in pilot.held if attempt != one]  # two cores are free, which it needs now
    assert again.startswith(f"r{run}.2#2")
    assert stand.engine.state.pilots[pilot.name].free.cores == 0
    pilot.run(again)
    pilot.talk(good(one))
    assert stand.engine.state.pilots[pilot.name].free.cores == 1
    assert [account.useful for account in stand.accounts if account.useful] == [5.0], "one core for five seconds"
    assert stand.sound()


def test_a_lease_has_the_new_limits() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3", "time": 10})
    stand.set(run, time="2h", memory="1G")
    stand.set(TaskId(run, 2), time=30, memory="2G")
    pilot = stand.pilot(cores=3)
    found = {lease.attempt.partition("#")[0]: (lease.time, lease.room.memory) for lease in pilot.pull()}
    assert found == {f"r{run}.1": (7200.0, 1 << 30), f"r{run}.2": (30.0, 2 << 30), f"r{run}.3": (7200.0, 1 << 30)}
    assert stand.sound()


def test_one_task_changes_alone_and_why_says_so_at_once() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3", "cores": 8})
    pilot = stand.pilot(cores=1)
    assert pilot.pull() == []
    assert stand.set(TaskId(run, 2), cores=1) == {"tasks": 1, "begun": 0}
    assert [lease.attempt.partition("#")[0] for lease in pilot.took()] == [f"r{run}.2"]
    assert "needs 8 cores" in stand.why(run, 3).text
    stand.set(run, cores=1, require="x == 1")
    assert "x == 1" in stand.why(run, 3).text
    assert stand.sound()


def test_a_deadline_of_one_task_puts_it_before_its_neighbours() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"})
    stand.set(TaskId(run, 3), deadline="2026-11-16T08:00")
    assert stand.pilot().work().startswith(f"r{run}.3#")
    assert stand.sound()


def test_changed_tasks_that_wait_for_parents_start_when_those_have_succeeded() -> None:
    stand = Stand()
    run = stand.submit({"name": "a"}, {"name": "b", "after": ["a"], "array": "1-2"})
    stand.set(TaskId(run, 3), priority=2)
    stand.restart()
    pilot = stand.pilot()
    pilot.talk(good(pilot.work()))
    assert next(iter(pilot.held)).startswith(f"r{run}.3#"), "its priority counts from the moment it is ready"
    assert stand.sound()


def test_the_own_values_of_a_task_outlive_its_failure_and_a_manual_retry() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-2"})
    stand.set(TaskId(run, 1), memory="2G")
    pilot = stand.pilot(cores=2)
    for attempt in [lease.attempt for lease in pilot.pull()]:
        pilot.run(attempt)
        pilot.talk(bad(attempt))
    assert stand.retry(run) == 2
    assert {lease.attempt[3:4]: lease.room.memory for lease in pilot.pull()} == {"1": 2 << 30, "2": 0}
    assert stand.sound()


def test_a_value_for_the_whole_run_replaces_that_of_a_task() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-2"})
    stand.set(TaskId(run, 1), priority=3, time=60)
    stand.set(run, priority=1)
    assert stand.task(run).spec.priority == 1
    assert stand.task(run).spec.time == 60
    stand.set(run, time=5)
    pilot = stand.pilot(cores=2)
    assert {lease.time for lease in pilot.pull()} == {5.0}
    assert stand.sound()


def test_what_a_pilot_fetched_ahead_is_asked_back() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-200"})
    pilot = stand.pilot()
    for _ in range(40):  # short tasks: soon it gets more than it has slots
        attempts = [lease.attempt for lease in pilot.pull()] or list(pilot.held)
        if len(pilot.held) > 3:
            break
        for attempt in attempts:
            pilot.run(attempt)
            pilot.talk(good(attempt, duration=0.01))
    assert len(pilot.held) > 3
    first = next(iter(pilot.held))
    pilot.run(first)
    done = stand.set(run, memory="1G")
    assert done["begun"] <= 2
    orders = [order for answer in stand.last.answers for order in answer.reply.orders if order.kind == "take_back"]
    assert sum(order.count for order in orders) >= len(pilot.held) - 2
    assert stand.sound()


def test_what_is_over_cannot_be_changed() -> None:
    stand = Stand()
    run, done = stand.submit({"array": "1-2"}), stand.submit({})
    stand.cancel(done, TaskId(run, 1))
    with pytest.raises(Conflict, match=f"r{done} is over: nothing of it is queued"):
        stand.set(done, priority=1)
    with pytest.raises(Conflict, match=f"r{run}.1 is over"):
        stand.set(TaskId(run, 1), priority=1)
    assert stand.events("tasks_changed") == []


def test_resume_no_longer_takes_a_run_for_equal_if_what_changed_may_change_results() -> None:
    stand = Stand()
    run = stand.submit({})
    stand.engine.state.runs[run].signature = "2:abc:{}"
    stand.set(run, priority=1)
    assert stand.engine.state.runs[run].signature == "2:abc:{}"
    stand.set(run, cores=2)
    assert [row.signature for row in stand.last.changes if isinstance(row, RunRow)] == [""]


def test_another_class_of_tasks_of_the_owner_is_not_touched_by_a_change() -> None:
    stand = Stand()
    mine, other = stand.submit({"array": "1-50"}), stand.submit({"array": "1-50"})
    stand.set(mine, priority=-1)
    assert stand.pilot().work().startswith(f"r{other}.1#")
    assert stand.sound()


def test_an_addition_to_an_open_run_that_is_sent_twice_is_known_again_after_a_change() -> None:
    stand = Stand()
    run = stand.submit(open=True)
    more = Add(run, 1, parse_submission({"tasks": [{"command": ["x"], "priority": 1}]}))
    assert stand.do(more).result["again"] is False
    stand.set(run, priority=7, cores=2)
    assert stand.do(more).result["again"] is True
    with pytest.raises(Conflict, match="another task is at element 1"):
        stand.do(Add(run, 1, parse_submission({"tasks": [{"command": ["y"]}]})))


def test_a_change_passes_no_quota() -> None:
    stand = Stand()
    stand.policy(quota=[{"who": "ann", "cores": 2}])
    run = stand.submit({"array": "1-2", "cores": 2})
    pilot = stand.pilot(cores=8)
    attempt = pilot.work()
    stand.set(run, priority=1e9)
    assert pilot.pull() == []
    assert "cores" in stand.why(run, 2).text
    stand.set(run, cores=1)
    assert pilot.pull() == [], "what runs still takes the two cores that it was given"
    pilot.talk(good(attempt))
    assert len(pilot.held) == 1
    assert stand.sound()


def test_a_waiting_attempt_lends_what_it_took_not_what_its_run_asks_for_now() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-1", "cores": 1})
    pilot = stand.pilot(cores=4)
    outer = pilot.work()
    stand.set(run, cores=3)
    pilot.talk(waits=[outer])
    assert stand.engine.state.pilots[pilot.name].free.cores == 4 and stand.sound()
    pilot.talk(waits=[])
    assert stand.engine.state.pilots[pilot.name].free.cores == 3 and stand.sound()


def test_a_bounded_run_waits_once_in_the_queue_after_a_change() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-3"}, max_running=1)
    stand.set(run, priority=5)
    queued = [entry for cls in stand.engine.state.queue._classes.values() for entry in cls.heap]
    assert [(entry.leasable.array.run.number, entry.leasable.element) for entry in queued] == [(run, 0)]
    pilot = stand.pilot(cores=3)
    assert len(pilot.pull()) == 1 and stand.sound()


def test_a_nested_task_that_was_changed_alone_still_goes_before_other_work() -> None:
    stand = Stand()
    pilot = stand.pilot(cores=1)
    stand.submit({})
    outer = pilot.work()
    stand.submit({"priority": 1_000_000})
    inner = stand.submit({"array": "1-2"}, labels={"parent": "r1.1"})
    stand.set(TaskId(inner, 2), time=30)
    (first,) = pilot.pull(waits=[outer])
    pilot.run(first.attempt)
    (second,) = pilot.talk(good(first.attempt), waits=[outer]).leases
    assert {first.attempt.partition("#")[0], second.attempt.partition("#")[0]} == {f"r{inner}.1", f"r{inner}.2"}
    assert stand.sound()
