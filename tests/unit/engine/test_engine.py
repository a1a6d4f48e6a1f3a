"""The machine as a whole: its journal, its deadlines, and the check that finds what does not add up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal.engine.commands import Enrol, Tick
from shoal.engine.restore import restore
from shoal.engine.state import State
from shoal.model.errors import BadInput, InternalError
from shoal.model.event import KINDS
from shoal.model.ids import parse_attempt
from shoal.model.states import TaskState
from shoal.wire.messages import PROTOCOL, Capacity, Register
from tests.unit.engine.stand import OWNER, Stand, bad, good


def busy_stand() -> Stand:
    """Something of everything."""
    stand = Stand()
    stand.submit({"name": "a", "array": "1-6"}, {"name": "b", "after": ["a"]}, {"rerun": "exclusive"})
    pilot = stand.pilot(4)
    one, two, *_ = (lease.attempt for lease in pilot.pull())
    pilot.run()
    pilot.talk(good(one), bad(two))
    stand.submit({"array": "1-9"})
    pilot.pull()
    stand.pilot(2).pull()
    lost = stand.pilot(4)
    lost.pull()
    lost.run()
    stand.bury(lost)
    return stand


def test_the_journal_has_no_gaps_and_only_known_words() -> None:
    stand = busy_stand()
    stand.drain()
    stand.cancel(1)
    stand.restart()
    assert [event.seq for event in stand.journal] == list(range(1, len(stand.journal) + 1))
    assert {event.kind for event in stand.journal} <= set(KINDS)
    assert len({event.kind for event in stand.journal}) >= 9


def test_every_word_of_the_journal_is_written_somewhere_once() -> None:
    assert all(text for text in KINDS.values())
    assert len(KINDS) == 58


def test_a_tick_at_the_deadline_moves_the_deadline_on() -> None:
    stand = busy_stand()
    for _ in range(200):
        due = stand.engine.deadline()
        if due is None:
            break
        stand.now = max(stand.now, due)
        stand.pass_time(0)
        after = stand.engine.deadline()
        assert after is None or after > stand.now, "a loop without rest"
    else:
        pytest.fail("it never came to rest")
    assert stand.engine.state.pilots == {}


def test_an_idle_engine_asks_for_no_tick() -> None:
    assert Stand().engine.deadline() is None


def test_there_is_work_until_every_task_is_final() -> None:
    stand = Stand()
    assert not stand.engine.busy
    run = stand.submit({})
    assert [stand.engine.busy, stand.cancel(run)["cancelled"], stand.engine.busy] == [True, 1, False]


def forget_ready(state: State) -> None:
    state.runs[1].arrays[0].todo.clear()


def miscount_live(state: State) -> None:
    state.runs[1].arrays[0].live += 1


def miscount_success(state: State) -> None:
    state.runs[1].arrays[0].succeeded += 1


def take_out_of_class(state: State) -> None:
    for array in state.runs[1].arrays:
        array.queued = False


def forget_the_parent(state: State) -> None:
    state.runs[1].arrays[1].unmet.clear()


def forget_the_deadline(state: State) -> None:
    assert state.orphans
    state.orphans.clear()


def leak_room(state: State) -> None:
    next(iter(state.pilots.values())).free = Capacity(99)


def forget_an_attempt(state: State) -> None:
    next(pilot for pilot in state.pilots.values() if pilot.live).live.popitem()


def forget_a_chunk(state: State) -> None:
    next(pilot for pilot in state.pilots.values() if pilot.chunks).chunks.popitem()


def lease_twice(state: State) -> None:
    chunk = next(chunk for pilot in state.pilots.values() for chunk in pilot.chunks.values())
    chunk.array.todo.add(chunk.left.first())


def miscount_slots(state: State) -> None:
    state.slots += 1


def forget_who_waits(state: State) -> None:
    assert state.parked
    state.parked.clear()


def finish_too_early(state: State) -> None:
    state.runs[1].finished = 1.0


def wrong_state(state: State) -> None:
    next(task for task in state.runs[1].arrays[0].tasks.values() if task.live).state = TaskState.READY


@pytest.mark.parametrize(
    "damage",
    [
        forget_ready, miscount_live, miscount_success, take_out_of_class, forget_the_parent, forget_the_deadline, leak_room,
        forget_an_attempt, finish_too_early, wrong_state, forget_a_chunk, lease_twice, miscount_slots, forget_who_waits,
    ],
)  # fmt: skip
def test_the_check_finds_every_planted_damage(damage: Callable[[State], None]) -> None:
    stand = Stand()
    stand.submit({"name": "a", "array": "1-6"}, {"name": "b", "after": ["a"]}, {"rerun": "exclusive", "priority": 9})
    gone = stand.pilot(1)
    gone.work()
    stand.bury(gone)
    running = stand.pilot(2)
    running.pull()
    running.run()
    stand.submit({"array": "1-9", "priority": 10})
    stand.pilot(3).pull()
    stand.pilot(64, owner="someone").talk()
    assert stand.sound()
    damage(stand.engine.state)
    assert stand.engine.check() != []


def test_a_rebuilt_engine_keeps_what_only_the_process_knew() -> None:
    stand = Stand()
    stand.submit({"array": "1-3"})
    register = Register(PROTOCOL, "0", "host", "id", Capacity(1, 1 << 30, 1 << 30, 0), nonce="n1")
    registered = stand.do(Enrol(register, OWNER, "local")).result
    first = stand.pilot(3)
    attempt = first.work()
    first.talk(good(attempt))
    lost = stand.pilot()
    stand.bury(lost)
    heir = stand.pilot(former=lost)
    stand.commit()
    state = restore(stand.database.snapshot(), stand.timing, stand.rng, stand.now)
    stand._take(stand.engine.rebuild(state, stand.now, "a defect"))
    assert stand.do(Enrol(register, OWNER, "local")).result == registered, (
        "a registration that is repeated is one pilot"
    )
    assert stand.engine.state.gone[lost.name].heir == heir.name, "nobody else may come back as the lost pilot"
    assert stand.engine.state.pilots[first.name].ended_lately(parse_attempt(attempt)), (
        "its last log lines may still come"
    )
    assert stand.sound()


def test_a_step_of_time_that_is_refused_is_a_defect_for_nobody_sent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand()

    def refuse(state: State) -> None:
        raise BadInput("too long")

    monkeypatch.setattr("shoal.engine.tasks.runs.grow_in_time", refuse)
    with pytest.raises(InternalError):
        stand.do(Tick())
