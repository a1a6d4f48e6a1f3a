"""Classes: those of a run with `max_running`, of which no more is live at once, wherever its pilots are; and those of single
tasks, each of which is offered as long as it may start, and in one class only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.engine.commands import Accept, Submit
from shoal.engine.consistency import check
from shoal.engine.matching import classes
from shoal.engine.matching.classes import OwnerQueue, Queue, Sample, key_of
from shoal.engine.records import NOT_QUEUED, Array, Run
from shoal.model.ids import TaskId, parse_attempt
from shoal.model.rangeset import RangeSet
from shoal.model.task.spec import Spec
from shoal.wire.chunk import names, shift
from shoal.wire.messages import PROTOCOL, Batch, Capacity, Lease
from shoal.wire.submission import parse_submission
from shoal.wire.task import parse_spec
from tests.unit.engine.matching.test_chunks import batch_of, calls
from tests.unit.engine.stand import FakePilot, Stand, back, bad, good, no_memory

GIB = 1 << 30


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
    while (busy := next((p for p in pilots if p.held), None)) is not None:
        busy.talk(good(next(iter(busy.held))))
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
    pilot, queue = stand.pilot(1), stand.engine.state.queue
    classes = []
    for _ in range(2):
        run = stand.submit({}, max_running=1)
        classes.append(queue.listed_class_of(stand.engine.state.runs[run].arrays[0]))
        (lease,) = pilot.pull()
        pilot.talk(good(lease.attempt))
    first, second = classes
    assert first is not second and first.base is second.base and first.base.mean is not None


# --- lanes: short calls that a pilot makes one after another
def bounded_calls(stand: Stand, most: int, count: int = 100) -> tuple[int, list[FakePilot]]:
    """A run of calls that are known to be short, and two proven pilots that have not asked for anything yet."""
    pilots = [stand.pilot(2, host=f"h{n}") for n in range(2)]
    for pilot in pilots:
        stand.engine.state.pilots[pilot.name].proven = True
    submission = parse_submission({"tasks": [calls(count)], "max_running": most})
    run = int(stand.do(Submit(submission, "ann", "d")).result["run"][1:])
    stand.commit()
    stand.engine.state.queue.class_of(stand.engine.state.runs[run].arrays[0]).learn(Sample(0.001), 10)
    stand.do(Accept(run))
    return run, pilots


def ask(pilot: FakePilot, **more: Any) -> list[Lease]:
    """The leases that an exchange brings, as they are; none if it has to wait."""
    answer = pilot.send(pilot.make(**more))
    return answer.reply.leases if answer is not None else []


def holding(lease: Lease) -> dict[str, Any]:
    """The held list of an exchange with these calls."""
    return {"held": {}} if lease.count < 1 else {"held": dict.fromkeys(names(lease), "leased")}


def left(stand: Stand, run: int) -> int:
    bound = stand.engine.state.runs[run].bound
    assert bound is not None
    return bound.left


@pytest.mark.parametrize("most", [1, 2, 3])
def test_short_calls_are_leased_as_lanes_that_count_as_one_each(most: int) -> None:
    stand = Stand()
    run, pilots = bounded_calls(stand, most)
    leases = [lease for pilot in pilots for lease in ask(pilot)]
    assert len({lease.lane for lease in leases}) == len(leases) == most
    assert all(lease.lane for lease in leases)
    assert sum(lease.count for lease in leases) > 10
    assert left(stand, run) == 0 and stand.why(run, 100).code in ("run_limit", "leased")
    assert stand.sound()


def test_a_pilot_gets_no_more_lanes_than_it_has_slots() -> None:
    stand = Stand()
    _, (pilot, _) = bounded_calls(stand, 8)
    assert len(ask(pilot)) == 2


def test_a_lane_that_has_ended_makes_place_for_the_next() -> None:
    stand = Stand()
    run, (pilot, other) = bounded_calls(stand, 1, 2_000)
    (lease,) = ask(pilot)
    part = Batch(lease.attempt, 3, [5.0] * 3, [0.001] * 3, [0.0] * 3, result=["gAVLAS4="] * 3)
    rest = replace(lease, attempt=str(shift(parse_attempt(lease.attempt), 3)), count=lease.count - 3)
    assert ask(pilot, batches=[part], **holding(rest)) == []
    assert left(stand, run) == 0
    assert ask(other) == [] and stand.sound()
    ask(pilot, batches=[batch_of(rest)])
    found = [lease for answer in stand.last.answers for lease in answer.reply.leases]
    assert len(found) == 1 and found[0].lane and left(stand, run) == 0 and stand.sound()


@pytest.mark.parametrize("end", ["lost", "cancelled", "failed", "restart"])
def test_lanes_add_up_whatever_becomes_of_their_calls(end: str) -> None:
    stand = Stand()
    run, (pilot, other) = bounded_calls(stand, 1)
    (lease,) = ask(pilot)
    if end == "lost":
        stand.bury(pilot)
        assert left(stand, run) == 1
        (again,) = ask(other)
        assert again.count == 1, "what has a history is leased one by one"
    elif end == "cancelled":
        stand.cancel(TaskId(run, 2), TaskId(run, 1))
    elif end == "failed":
        ask(pilot, reports=[bad(lease.attempt)], **holding(replace(lease, attempt=lease.attempt.replace(".1#", ".2#"))))
    else:
        stand.restart()
    assert left(stand, run) == 0 and stand.sound()
    stand.cancel(run)
    assert left(stand, run) == 1 and stand.sound()


def test_calls_of_a_bounded_run_go_one_by_one_to_a_pilot_of_the_last_protocol() -> None:
    stand = Stand()
    _, _ = bounded_calls(stand, 1)
    old = stand.pilot(2, protocol=PROTOCOL - 1)
    stand.engine.state.pilots[old.name].proven = True
    assert [lease.count for lease in ask(old)] == [1]


FIELDS: dict[str, list[Any]] = {
    "cores": [1, 2],
    "memory": ["1G", "2G"],
    "licences": [{"matlab": 1}, {"matlab": 2}],
    "time": ["1m", "2m"],
    "rerun": ["safe", "exclusive"],
    "priority": [0, 1, -1.5],
    "require": ["cpu_mhz > 1", "cpu_mhz > 2"],
    "rank": ["cpu_mhz", "load"],
    "setup": [["module load a"], ["module load b"]],
    "container": ["docker://a", "docker://b"],
    "stdout": ["a", "b"],
    "checkpoint": [["a"]],
    "labels": [{"a": "b"}],
    "retries": [0],
    "visible": [{}],
}
TABLES = st.fixed_dictionaries(
    {"command": st.sampled_from([["a"], ["a", "1"], ["b"]])},
    optional={name: st.sampled_from(values) for name, values in FIELDS.items()},
)


def array_of(spec: Spec, owner: str = "me", depth: int = 0) -> Array:
    run = Run(1, owner, "", 0.0, "/", 1, None, "", "", "{}", "", depth=depth)
    return Array(run, 1, 1, spec, RangeSet.span(1, 2))


@given(tables=st.lists(TABLES, min_size=1, max_size=12), data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_class_found_by_values_is_that_of_the_key(tables: list[dict[str, Any]], data: st.DataObject) -> None:
    queue = Queue()
    for table in tables:
        for _ in range(2):
            owner, depth = data.draw(st.sampled_from(["me", "you"])), data.draw(st.sampled_from([0, 1]))
            array = array_of(parse_spec(table), owner, depth)
            assert queue.class_of(array).key == key_of(array, array.spec)
    keys = [cls.key for cls in queue]
    assert len(keys) == len(set(keys))


def test_a_forgotten_class_is_not_found_again() -> None:
    queue, spec = Queue(), parse_spec({"command": ["a"]})
    first = queue.class_of(array_of(spec))
    first.is_forgotten = True
    queue._classes.clear()
    again = queue.class_of(array_of(spec))
    assert again is not first and not again.is_forgotten


def test_an_array_in_the_class_of_other_fields_is_noticed() -> None:
    stand = Stand()
    stand.submit({"command": ["a"]}, {"command": ["a"], "cores": 2})
    one, other = stand.engine.state.runs[1].arrays
    assert check(stand.engine.state) == []
    one.cls = stand.engine.state.queue.class_of(other)
    assert any("class of other fields" in line for line in check(stand.engine.state))


# --- tasks apart from their array
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


def test_many_classes_with_work_are_not_looked_through_for_each_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 tables, each with a memory of its own, are accepted: their submission and each restart once took hours."""
    looked: list[OwnerQueue] = []
    monkeypatch.setattr(classes, "KEPT_CLASSES", 20)
    monkeypatch.setattr(OwnerQueue, "forget", lambda self: looked.append(self))
    stand = Stand()
    stand.submit(*({"memory": f"{100 + at}M"} for at in range(1_000)))
    assert 0 < len(looked) < 30
    assert len([cls for cls in stand.engine.state.queue if cls.heap]) == 1_000
