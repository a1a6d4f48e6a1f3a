"""Partial results in the engine: copies, parts, chunks, restarts, and goals [ADR 0053]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.engine.commands import Remove
from shoal.engine.matching.grant import grant_copy
from shoal.engine.restore import restore
from shoal.engine.tasks.goals import JUDGE_EVERY
from shoal.model.errors import Conflict
from shoal.sched.partial.contribution import Contribution
from shoal.wire.messages import Batch, Checkpoint, Emitted
from tests.unit.engine.stand import FakePilot, Stand, good, later


def text(*values: float, element: int = 1) -> str:
    made = Contribution()
    made.add([("x", value) for value in values], element, {})
    return made.text()


def told(stand: Stand, run: int) -> tuple[Any, ...]:
    """n and sum of x; tasks that count for good, and those that run."""
    stand.commit()
    found = stand.engine.partial(run) or stand.reader.partial(run)
    answers = found["answers"]
    return (*((answers[0]["n"], answers[0]["sum"]) if answers else (0, 0.0)), found["tasks"], found["running"])


def begun(stand: Stand, count: int, **more: Any) -> tuple[int, FakePilot, list[str]]:
    run = stand.submit({"array": f"1-{count}"} if count > 1 else {}, **more)
    pilot = stand.pilot(cores=count)
    leases = pilot.pull()
    pilot.run()
    return run, pilot, [lease.attempt for lease in leases]


def test_what_a_task_emits_is_seen_while_it_runs_replaced_by_more_and_counted_once_at_its_end() -> None:
    stand = Stand()
    run, pilot, (one, two) = begun(stand, 2)
    pilot.talk(emitted=[Emitted(one, text(1.0)), Emitted(two, text(10.0, element=2))])
    assert told(stand, run) == (2, 11.0, 0, 2)
    pilot.talk(emitted=[Emitted(one, text(1.0, 2.0))])
    assert told(stand, run) == (3, 13.0, 0, 2)
    pilot.talk(good(one, emitted=text(1.0, 2.0, 3.0)))
    assert told(stand, run) == (4, 16.0, 1, 1)
    pilot.talk(good(two))
    assert told(stand, run) == (3, 6.0, 1, 0), "what was seen while it ran is not what counts at the end"
    assert stand.sound()


def test_of_two_copies_of_a_task_one_counts() -> None:
    stand = Stand()
    run, pilot, (one,) = begun(stand, 1)
    task = stand.task(run)
    other = stand.pilot(host="other")
    copy = str(grant_copy(stand.engine.state, task.array, 1, stand.engine.state.pilots[other.name], 0).id)
    other.held[copy] = "running"
    pilot.talk(emitted=[Emitted(one, text(1.0))])
    other.talk(emitted=[Emitted(copy, text(1.0, 2.0))])
    assert told(stand, run) == (1, 1.0, 0, 1), "the one that was leased first"
    other.talk(good(copy, emitted=text(1.0, 2.0)))
    assert told(stand, run) == (2, 3.0, 1, 0)
    pilot.talk(good(one, emitted=text(1.0, 2.0)))
    assert told(stand, run) == (2, 3.0, 1, 0)


def test_calls_of_a_chunk_count_from_the_columns_of_their_batch() -> None:
    stand = Stand()
    run, pilot, attempts = begun(stand, 3)
    pilot.held.clear()
    pilot.talk(
        batches=[Batch(attempts[0], 3, [1.0] * 3, [1.0] * 3, emitted=[text(1.0), "", text(5.0, element=3)])], held={}
    )
    assert told(stand, run) == (2, 6.0, 2, 0)


def test_nobody_but_the_pilot_that_runs_an_attempt_is_believed() -> None:
    stand = Stand()
    run, pilot, (one,) = begun(stand, 1)
    stand.pilot(host="other").talk(emitted=[Emitted(one, text(1.0))])
    assert told(stand, run) == (0, 0.0, 0, 0)
    pilot.talk(emitted=[Emitted(one, "no JSON"), Emitted(one, '{"x":{"mean":[1,0,"?"]}}')])
    assert told(stand, run) == (0, 0.0, 0, 1)
    pilot.talk(good(one, emitted="[]"))
    assert told(stand, run) == (0, 0.0, 0, 0) and stand.state(run) == "succeeded"


def test_a_task_that_goes_on_from_a_checkpoint_adds_to_what_it_had_emitted_there() -> None:
    stand = Stand()
    run = stand.submit({"checkpoint": ["state"]})
    pilot = stand.pilot()
    (first,) = pilot.pull()
    digest = "sha256:" + "a" * 64
    (second,) = pilot.talk(later(first.attempt, digest, emitted=text(1.0))).leases
    assert second.emitted == text(1.0), "the pilot goes on from there"
    pilot.run(second.attempt)
    pilot.talk(checkpoints=[Checkpoint(second.attempt, {"state": digest}, 1, text(1.0, 2.0))])
    stand.restart()
    stand.bury(pilot)
    (third,) = stand.pilot(host="two").pull()
    assert third.emitted == text(1.0, 2.0), "what it emitted after its last checkpoint, it emits again"
    assert told(stand, run)[2] == 0


def test_after_a_crash_nothing_that_was_acknowledged_is_missing_or_counted_twice() -> None:
    stand = Stand()
    run, pilot, (one, two) = begun(stand, 2)
    pilot.talk(good(one, emitted=text(1.0)))
    stand.commit()
    report = good(two, emitted=text(2.0, element=2))
    pilot.send(pilot.make([report]))  # its commit, and so its answer, does not come
    stand.crash()
    assert told(stand, run)[:3] == (1, 1.0, 1)
    pilot.talk(good(one, emitted=text(1.0)), report)
    pilot.talk(report)
    assert told(stand, run)[:3] == (2, 3.0, 2)
    stand.crash()
    assert told(stand, run)[:3] == (2, 3.0, 2)


# --- goals
GOAL = "rel_err(x) < 0.5 and n(x) >= 10"


def test_a_goal_stops_the_rest_and_what_runs_is_part_of_the_answer() -> None:
    stand = Stand()
    run, pilot, attempts = begun(stand, 2, until=GOAL)
    more = stand.submit({"array": "1-5"}, until=GOAL)
    pilot.talk(emitted=[Emitted(attempts[1], text(5.0, element=2))])
    stand.pass_time(JUDGE_EVERY + 0.01)
    pilot.talk(good(attempts[0], emitted=text(*[4.0, 6.0] * 5)))
    assert {order.attempt for order in pilot.orders("cancel")} == {attempts[1]}
    assert told(stand, run) == (11, 55.0, 2, 0), "one task that ended, and one as far as it had come"
    assert stand.state(run, 2) == "cancelled" and stand.row(run, 2).cause == "goal_reached"
    assert "goal" in stand.row(run, 2).message
    (event,) = stand.events("goal_reached")
    assert (event.data["tasks"], event.data["running"], event.data["cancelled"]) == (1, 1, 1)
    pilot.talk(good(attempts[1], emitted=text(5.0, 7.0, element=2)))
    assert told(stand, run) == (11, 55.0, 2, 0), "what comes after that counts for nothing"
    assert stand.engine.state.runs[more].partial is not None and not stand.events("run_finished")[1:]
    assert stand.sound()


def test_a_final_task_that_goes_on_after_the_goal_counts_once() -> None:
    stand = Stand()
    run = stand.submit({"name": "work"}, {"role": "final"}, until="n(x) >= 3")
    pilot = stand.pilot(cores=2)
    pilot.talk(good(pilot.work(), emitted=text(4.0)))
    (final,) = (lease.attempt for lease in (*pilot.took(), *pilot.pull()))
    pilot.run()
    pilot.talk(emitted=[Emitted(final, text(2.0, 3.0, element=2))])
    stand.pass_time(JUDGE_EVERY + 0.01)
    assert stand.events("goal_reached") and told(stand, run) == (3, 9.0, 1, 1)
    pilot.talk(good(final, emitted=text(2.0, 3.0, 8.0, element=2)))
    assert told(stand, run) == (4, 17.0, 2, 0)
    stand.restart()
    assert told(stand, run) == (4, 17.0, 2, 0) and stand.sound()


def test_a_goal_is_looked_at_in_time_although_nothing_more_is_emitted() -> None:
    stand = Stand()
    run, pilot, (one, _) = begun(stand, 2, until="n(x) >= 2")
    pilot.talk(emitted=[Emitted(one, text(1.0))])
    pilot.talk(emitted=[Emitted(one, text(1.0, 2.0))])
    assert not stand.events("goal_reached"), "it was looked at a moment ago"
    due = stand.engine.deadline()
    assert due is not None and due <= stand.now + JUDGE_EVERY + 0.01
    stand.pass_time(due - stand.now)
    assert stand.events("goal_reached") and stand.state(run, 2) == "cancelled"


def test_a_goal_holds_over_a_restart() -> None:
    stand = Stand()
    run, pilot, (one, _) = begun(stand, 2, until="n(x) >= 2")
    pilot.talk(emitted=[Emitted(one, text(1.0))])
    stand.restart()
    assert stand.engine.partial(run)["goal"] == {"until": "n(x) >= 2", "reached": False, "values": {"n(x)": 0.0}}  # type: ignore[index]
    pilot.talk(held=pilot.held)
    stand.pass_time(1.0)
    pilot.talk(good(one, emitted=text(1.0, 2.0)))
    stand.pass_time(1.0)
    assert stand.events("goal_reached")
    stand.restart()
    assert stand.reader.partial(run)["goal"]["reached"] is True


def test_values_at_the_end_of_the_range_of_floats_stop_no_server() -> None:
    stand = Stand()
    run, pilot, (one, two) = begun(stand, 2, until="rel_err(x) < 0.01")
    pilot.talk(emitted=[Emitted(one, text(*[i * 1e200 for i in range(20)]))])
    stand.pass_time(1.0)
    pilot.talk(good(two, emitted=text(*[1e308] * 20, element=2)))
    stand.pass_time(1.0)
    assert told(stand, run)[0] == 40 and not stand.events("goal_dropped")


def test_a_goal_that_cannot_be_judged_is_dropped_and_harms_no_other_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in what is merged must not end what every command of everybody passes through."""
    stand = Stand()
    run, pilot, (one, _) = begun(stand, 2, until="mean(x) > 2")

    def fail(merged: Contribution) -> None:
        raise OverflowError("int too large to convert to float")

    with monkeypatch.context() as defect:
        defect.setattr(Contribution, "copy", fail)
        pilot.talk(emitted=[Emitted(one, text(1.0))])
        stand.pass_time(1.0)
    (event,) = stand.events("goal_dropped")
    assert event.data == {"until": "mean(x) > 2", "why": "OverflowError: int too large to convert to float"}
    assert stand.state(stand.submit({})) == "ready" and stand.engine.partial(run)["goal"] is None  # type: ignore[index]
    stand.restart()
    pilot.talk(good(one, emitted=text(3.0)))
    stand.pass_time(1.0)
    assert told(stand, run)[:3] == (1, 3.0, 1) and not stand.events("goal_reached")
    assert stand.sound()


def test_what_cannot_be_merged_is_left_out_and_its_task_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand()
    run, pilot, (one, two) = begun(stand, 2)

    def fail(merged: Contribution, other: Contribution) -> None:
        raise OverflowError("too large")

    with monkeypatch.context() as defect:
        defect.setattr(Contribution, "merge", fail)
        pilot.talk(good(one, emitted=text(1.0)))
    pilot.talk(good(two, emitted=text(2.0, element=2)))
    assert told(stand, run) == (1, 2.0, 2, 0) and stand.state(run, 1) == "succeeded"
    assert [event.data["why"] for event in stand.events("emitted_left_out")] == ["OverflowError: too large"]


def test_what_a_goal_stopped_cannot_be_retried_since_it_was_counted() -> None:
    stand = Stand()
    run, pilot, (one, _) = begun(stand, 2, until="n(x) >= 2")
    stand.pass_time(1.0)
    pilot.talk(good(one, emitted=text(1.0, 2.0)))
    stand.pass_time(1_000.0)
    with pytest.raises(Conflict, match="goal of r1 is reached"):
        stand.retry(run)


def test_a_removed_run_leaves_nothing_of_what_it_emitted() -> None:
    stand = Stand()
    run, pilot, (one,) = begun(stand, 1)
    pilot.talk(good(one, emitted=text(1.0)))
    stand.commit()
    assert stand.reader.partial_row(run) is not None
    stand.do(Remove((run,)))
    stand.commit()
    assert stand.reader.partial_row(run) is None


def test_a_lease_says_how_values_are_reduced() -> None:
    stand = Stand()
    stand.submit({}, reduce={"x": "hist(0, 1, 4)"})
    (lease,) = stand.pilot().pull()
    assert lease.reduce == {"x": "hist(0,1,4)"}


def test_a_rebuilt_engine_knows_what_running_tasks_had_emitted() -> None:
    stand = Stand()
    run, pilot, (one, two) = begun(stand, 2)
    pilot.talk(emitted=[Emitted(one, text(1.0)), Emitted(two, text(2.0, element=2))])
    stand.commit()
    state = restore(stand.database.snapshot(), stand.timing, stand.rng, stand.now)
    stand._take(stand.engine.rebuild(state, stand.now, "a defect"))
    assert told(stand, run) == (2, 3.0, 0, 2)
    pilot.talk(good(one, emitted=text(1.0, 4.0)))
    assert told(stand, run) == (3, 7.0, 1, 1) and stand.sound()
