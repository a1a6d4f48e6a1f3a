"""What the first tasks of a bag teach about the others."""

from __future__ import annotations

from shoal.engine.matching.classes import Sample
from shoal.engine.matching.learned import learned_of
from shoal.sched.memory_request import learned_request
from tests.unit.engine.stand import Stand, good

GIB = 1 << 30


def test_tasks_without_a_memory_request_get_what_their_like_took() -> None:
    stand = Stand()
    run = stand.submit({"command": ["sim", "{i}"], "array": "1-200"})
    pilot = stand.pilot(2)
    array = stand.engine.state.runs[run].arrays[0]
    assert learned_of(stand.engine.state.queue.class_of(array)) is None
    assert stand.engine.demand("ann", stand.now).needs[0].memory == 0
    attempts = [lease.attempt for lease in pilot.pull()]
    for attempt, seconds, memory in zip(attempts[:2], (10.0, 30.0), (GIB, 3 * GIB), strict=True):
        pilot.talk(good(attempt, duration=seconds, max_rss=memory, out=7, err=5))
    learned = learned_of(stand.engine.state.queue.class_of(array))
    assert learned is not None
    assert (learned.samples, learned.p95, learned.memory, learned.output) == (2, 30.0, 3 * GIB, 12)
    need = stand.engine.demand("ann", stand.now).needs[0]
    assert (need.memory, need.seconds, need.is_learned) == (learned_request([3 * GIB]), 30.0, True)
    assert stand.engine.machines(run, stand.now).learned == learned._asdict()


def test_what_a_task_states_is_not_overruled() -> None:
    stand = Stand()
    run = stand.submit({"command": ["sim"], "array": "1-5", "memory": "4G"})
    cls = stand.engine.state.queue.class_of(stand.engine.state.runs[run].arrays[0])
    cls.learn(Sample(1.0, GIB))
    assert stand.engine.demand("ann", stand.now).needs[0].memory == 4 * GIB


def test_of_a_run_that_is_over_nothing_is_told() -> None:
    assert Stand().engine.machines(7, 0.0) == ({}, None, [])
