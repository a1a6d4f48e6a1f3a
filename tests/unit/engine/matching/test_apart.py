"""Tasks in classes of their own, apart from their array: each is offered as long as it may start, and in one class only."""

from __future__ import annotations

from shoal.engine.consistency import check
from shoal.engine.records import NOT_QUEUED
from shoal.model.ids import TaskId, parse_attempt
from shoal.wire.messages import Capacity
from tests.unit.engine.stand import Stand, back, no_memory

GIB = 1 << 30


def test_a_task_apart_from_its_throttled_array_is_offered_when_another_is_given_back() -> None:
    stand = Stand()
    pilot, other = stand.pilot(1, host="h1"), stand.pilot(1, host="h2")
    run = stand.submit({"array": "1-2%1", "memory": "1G"})
    (lease,) = pilot.pull()
    pilot.talk(no_memory(lease.attempt))
    assert [parse_attempt(attempt).element for attempt in pilot.held] == [2]
    assert other.pull() == [], "only one at a time"
    stand.bury(other)
    stand.bury(pilot)
    assert stand.sound(), "both are ready, and nothing runs"
    stand.cancel(TaskId(run, 2))
    (lease,) = stand.pilot(1, host="h3").pull()
    assert parse_attempt(lease.attempt).element == 1, "nothing of its array will ever end, by which it would be offered"


def test_a_task_is_not_leased_by_an_entry_of_a_class_that_it_was_in_before() -> None:
    stand = Stand()
    pilot = stand.pilot(1, host="h1")
    run = stand.submit({"memory": "1G"})
    (lease,) = pilot.pull()
    pilot.talk(no_memory(lease.attempt))
    (second,) = pilot.held
    pilot.run(second)
    stand.bury(pilot)  # it is queued with 2 GiB
    again = stand.pilot(1, host="h1", former=pilot)
    again.talk()
    array = stand.engine.state.runs[run].arrays[0]
    assert array.live == 1 and not array.apart, "its pilot came back with it"
    small = stand.pilot(1, host="h2", room=Capacity(1, 3 * GIB, 1 << 40, 0))
    again.talk(no_memory(second), leaving="bye")
    assert array.tasks[1].needs.memory == 4 * GIB and list(array.apart) == [1]
    assert small.pull() == [] and stand.sound(), "it does not fit there"
    assert [lease.room.memory for lease in stand.pilot(1, host="h3").pull()] == [4 * GIB]


def test_a_ready_task_that_is_not_offered_is_noticed() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    run = stand.submit({"array": "1-2", "memory": "1G"})
    (lease,) = pilot.pull()
    pilot.talk(no_memory(lease.attempt))
    (second,) = pilot.held
    pilot.talk(back(second), leaving="bye")
    array = stand.engine.state.runs[run].arrays[0]
    assert list(array.apart) == [1] and check(stand.engine.state) == []
    array.apart[1] = NOT_QUEUED
    assert any("not offered in its own class" in line for line in check(stand.engine.state))
