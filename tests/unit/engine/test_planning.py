"""Planning states in the engine: nothing starts before `unfinished`, and each step counts once [SPHINX S1; ADR 0059]."""

from __future__ import annotations

from itertools import pairwise

import pytest

from shoal.engine.commands import Accept, AdvancePlan, Submit
from shoal.model.ids import TaskId
from shoal.model.states import planning_state
from shoal.wire.submission import parse_submission
from tests.unit.engine.stand import OWNER, Stand, good

STATES = ["unreduced", "unpredicted", "unaccepted", "unplanned", "unfinished"]


def planned(stand: Stand) -> int:
    body = {"tasks": [{"command": ["a"], "name": "a"}, {"command": ["b"], "after": ["a"]}], "plan": 0.9}
    run = int(stand.do(Submit(parse_submission(body), OWNER, "d", plan={"accept": 0.9})).result["run"][1:])
    stand.commit()
    stand.do(Accept(run))
    return run


@pytest.mark.parametrize("dies_in", range(4))
def test_a_crash_in_any_state_goes_on_in_it_and_starts_nothing(dies_in: int) -> None:
    stand = Stand()
    pilot = stand.pilot(2)
    run = planned(stand)
    for at, (stage, to) in enumerate(pairwise(STATES)):
        assert pilot.pull() == []
        if at == dies_in:
            stand.commit()
            stand.crash()
            assert pilot.pull() == []
        assert f"it is {stage}" in stand.why(run).text
        assert stand.do(AdvancePlan(run, stage, to, {"at": at})).result["advanced"]
        assert not stand.do(AdvancePlan(run, stage, to, {"at": 9})).result["advanced"], "told twice, counts once"
    stand.commit()
    stand.do(Accept(run, 1, 2))
    leases = [lease for answer in stand.last.answers for lease in pilot.hear(answer.reply).leases] or pilot.pull()
    assert [lease.command for lease in leases] == [["a"]]
    assert stand.sound()


def test_what_is_not_committed_of_a_step_is_done_again() -> None:
    stand = Stand()
    run = planned(stand)
    stand.do(AdvancePlan(run, "unreduced", "unpredicted"))
    stand.crash()
    plan = stand.engine.state.runs[run].plan
    assert plan is not None and plan.stage == "unreduced"


def test_reduction_takes_results_over_and_releases_what_waited() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    before = stand.submit({"command": ["a"]})
    pilot.talk(good(pilot.work()))
    run = planned(stand)
    stand.do(AdvancePlan(run, "unreduced", "unfinished", {}, ((1, stand.row(before)),)))
    stand.commit()
    stand.do(Accept(run, 1, 2))
    leases = [lease for answer in stand.last.answers for lease in pilot.hear(answer.reply).leases] or pilot.pull()
    assert [lease.command for lease in leases] == [["b"]]
    assert stand.engine.state.runs[run].finals == {"succeeded": 1} and stand.sound()


def test_reduction_of_a_task_that_somebody_changed_leaves_nothing_of_it_queued() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    before = stand.submit({"command": ["a"]})
    pilot.talk(good(pilot.work()))
    run = planned(stand)
    stand.set(TaskId(run, 1), priority=5)
    stand.do(AdvancePlan(run, "unreduced", "unfinished", {}, ((1, stand.row(before)),)))
    stand.commit()
    assert stand.sound()


def test_a_planned_run_can_be_withdrawn() -> None:
    stand = Stand()
    run = planned(stand)
    assert stand.cancel(run)["cancelled"] == 2
    assert stand.engine.state.runs[run].finished is not None
    assert not stand.do(AdvancePlan(run, "unreduced", "unpredicted")).result["advanced"]


@pytest.mark.parametrize(
    ("stage", "state", "found"),
    [
        ("unreduced", "ready", "unpredicted"), ("unaccepted", "waiting", "unaccepted"), ("unplanned", "ready", "unplanned"),
        ("unfinished", "ready", "unsent"), ("unfinished", "running", "sent"), ("unreduced", "succeeded", "remove"),
    ],
)  # fmt: skip
def test_planning_states_of_tasks_follow_from_their_run_and_their_own(stage: str, state: str, found: str) -> None:
    assert planning_state(stage, state) == found


def test_results_are_taken_over_only_of_tasks_that_are_still_to_run() -> None:
    stand = Stand()
    pilot = stand.pilot(1)
    before = stand.submit({"command": ["a"]})
    pilot.talk(good(pilot.work()))
    row = stand.row(before)
    cancelled, twice = planned(stand), planned(stand)
    stand.cancel(cancelled, 1)
    stand.do(AdvancePlan(cancelled, "unreduced", "unpredicted", {}, ((1, row),)))
    assert "succeeded" not in stand.engine.state.runs[cancelled].finals
    stand.do(AdvancePlan(twice, "unreduced", "unpredicted", {}, ((1, row),)))
    stand.do(AdvancePlan(twice, "unpredicted", "unreduced", {"without": "unpredicted"}))
    stand.do(AdvancePlan(twice, "unreduced", "unpredicted", {}, ((1, row),)))
    run = stand.engine.state.runs[twice]
    assert run.finals == {"succeeded": 1} and run.finished is None and stand.sound()
