"""Exchanges that wait: those that bring reports and ask for work at once wait when the reports are durable [ADR 0066]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.engine.changes import Answer
from shoal.engine.commands import Drain, Rest, Tick
from shoal.engine.pilots.long_poll import RESTS
from shoal.wire.messages import Batch
from tests.unit.engine.stand import FakePilot, Stand


def brought(stand: Stand) -> tuple[Any, Answer]:
    """A pilot that has made a call, and brings its report and asks; and the answer that it may get."""
    pilot = stand.pilot(1)
    stand.submit({})
    (lease,) = pilot.pull()
    pilot.held.pop(lease.attempt)
    batch = Batch(lease.attempt, 1, [1.0], [0.001], result=["gAU="])
    answer = pilot.send(pilot.make(batches=[batch], asks=True))
    assert answer is not None and answer.durable and [v.verdict for v in answer.reply.verdicts] == ["recorded"]
    return pilot, answer


def rest(stand: Stand, answer: Answer) -> bool:
    stand.commit()
    return bool(stand.do(Rest(answer.pilot, answer.seq)).result)


def test_an_exchange_with_reports_waits_for_work_and_brings_the_verdicts_with_it() -> None:
    stand = Stand()
    _, answer = brought(stand)
    assert answer.rests and rest(stand, answer) and stand.last.answers == [] and stand.sound()
    stand.send_run({})
    (late,) = stand.last.answers
    assert (late.seq, late.reply.verdicts) == (answer.seq, answer.reply.verdicts)
    assert len(late.reply.leases) == 1 and not late.durable, "its reports are durable; this lease need not be"
    assert stand.sound()


def test_it_waits_only_a_moment() -> None:
    stand = Stand()
    _, answer = brought(stand)
    assert rest(stand, answer)
    stand.now += RESTS + 0.01
    stand.do(Tick())
    (late,) = stand.last.answers
    assert (late.seq, late.reply.leases, late.reply.verdicts) == (answer.seq, [], answer.reply.verdicts)
    assert not late.durable and stand.sound()


def test_the_next_exchange_ends_its_wait() -> None:
    stand = Stand()
    pilot, answer = brought(stand)
    assert rest(stand, answer)
    pilot.send(pilot.make(tags={"unfit": "no space"}))
    ended = [late for late in stand.last.answers if late.seq == answer.seq]
    assert [late.reply.verdicts for late in ended] == [answer.reply.verdicts] and stand.sound()


def test_a_repeated_one_gets_its_reply_and_waits_no_more() -> None:
    stand = Stand()
    pilot, answer = brought(stand)
    assert rest(stand, answer)
    again = pilot.send(pilot.exchange)
    assert again is not None and again.reply == answer.reply
    assert stand.engine.state.pilots[pilot.name].parked is None and stand.sound()


def test_work_that_came_while_it_was_written_goes_with_it_at_once() -> None:
    stand = Stand()
    _, answer = brought(stand)
    stand.submit({})
    assert rest(stand, answer)
    (late,) = stand.last.answers
    assert len(late.reply.leases) == 1 and late.reply.verdicts == answer.reply.verdicts and stand.sound()


@pytest.mark.parametrize("why", ["order", "newer", "gone"])
def test_it_is_answered_where_there_is_something_else_to_say(why: str) -> None:
    stand = Stand()
    pilot, answer = brought(stand)
    if why == "order":
        stand.do(Drain((pilot.name,), "maintenance"))
    elif why == "newer":
        pilot.send(pilot.make())
    else:
        pilot.talk(leaving="told to end")
    assert not rest(stand, answer) and stand.sound()


def test_a_pilot_that_does_not_ask_or_leaves_is_answered_after_the_commit() -> None:
    stand = Stand()
    pilot = stand.pilot(2)
    stand.submit({"array": "1-2"})
    attempts = [lease.attempt for lease in pilot.pull()]
    fields: list[dict[str, Any]] = [{}, {"asks": True, "leaving": "told to end"}]
    for more in fields:
        batch = Batch(attempts.pop(), 1, [1.0], [0.001], result=["gAU="])
        answer = pilot.send(pilot.make(batches=[batch], held={}, **more))
        assert answer is not None and answer.durable and not answer.rests


def test_what_an_answer_tells_of_the_mesh_does_not_wait_and_is_not_lost() -> None:
    stand = Stand()

    def peer(at: int) -> FakePilot:
        return stand.pilot(bound=True, identity=f"host{at}", tags={"peer": f"10.0.0.{at}:7000"})

    pilot = peer(1)
    stand.submit({})
    (lease,) = pilot.pull()
    pilot.held.pop(lease.attempt)
    peer(2)
    answer = pilot.send(pilot.make(batches=[Batch(lease.attempt, 1, [1.0], [0.001], result=["gAU="])], asks=True))
    assert answer is not None and [one.address for one in answer.reply.neighbours] == ["10.0.0.2:7000"]
    assert not answer.rests
