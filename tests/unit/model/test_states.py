"""The tables of states, literally as the contract has them (section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from shoal.model.errors import IllegalTransition
from shoal.model.states import (
    FINAL,
    PILOT_TABLE,
    TASK_TABLE,
    Cause,
    PilotState,
    Rerun,
    TaskState,
    advance,
    advance_pilot,
)

# The tables [protocol 4], spelled out. `leased` has no way to an end but over `running`: the lease is the start.
TASK_MOVES = {
    "waiting": {"ready", "cancelled", "failed"},
    "ready": {"leased", "succeeded", "cancelled"},
    "leased": {"running", "ready", "waiting", "cancelled"},
    "running": {"succeeded", "failed", "cancelled", "lost", "ready", "waiting"},
    "succeeded": {"ready"},
    "failed": {"ready"},
    "cancelled": {"ready"},
    "lost": {"ready"},
}
PILOT_MOVES = {
    "queued": {"idle", "gone"},
    "idle": {"busy", "draining", "gone"},
    "busy": {"idle", "draining", "gone"},
    "draining": {"gone"},
    "gone": set(),
}
CAUSES = {
    "task_error", "over_time", "out_of_memory", "signal", "stage_in", "stage_out", "output_missing", "host_unfit",
    "pilot_lost", "poison", "cancelled", "dependency_failed", "initializer", "goal_reached",
}  # fmt: skip


@dataclass
class Thing:
    """A task with a story."""

    state: TaskState

    def story(self) -> list[str]:
        return ["r1.1", "attempts 2"]


@dataclass
class Ship:
    """A pilot with a story."""

    state: PilotState

    def story(self) -> list[str]:
        return []


def test_the_table_of_tasks_is_the_contracts() -> None:
    assert {s.value: {to.value for to in after} for s, after in TASK_TABLE.items()} == TASK_MOVES


def test_the_table_of_pilots_is_the_contracts() -> None:
    assert {s.value: {to.value for to in after} for s, after in PILOT_TABLE.items()} == PILOT_MOVES


def test_every_state_stands_in_its_table() -> None:
    assert set(TASK_TABLE) == set(TaskState)
    assert set(PILOT_TABLE) == set(PilotState)


def test_four_states_are_final_and_only_retry_leads_out_of_them() -> None:
    assert {s.value for s in FINAL} == {"succeeded", "failed", "cancelled", "lost"}
    for state in TaskState:
        assert state.final == (state in FINAL)
        if state.final:
            assert TASK_TABLE[state] == {TaskState.READY}


def test_failure_causes_are_the_contracts() -> None:
    assert {c.value for c in Cause} == CAUSES


def test_re_run_classes_are_the_contracts() -> None:
    assert {r.value for r in Rerun} == {"safe", "exclusive", "never"}


@pytest.mark.parametrize("before", list(TaskState))
@pytest.mark.parametrize("after", list(TaskState))
def test_a_task_moves_by_its_table_or_not_at_all(before: TaskState, after: TaskState) -> None:
    task = Thing(before)
    if after.value in TASK_MOVES[before.value]:
        advance(task, after)
        assert task.state is after
    else:
        with pytest.raises(IllegalTransition):
            advance(task, after)
        assert task.state is before


@pytest.mark.parametrize("before", list(PilotState))
@pytest.mark.parametrize("after", list(PilotState))
def test_a_pilot_moves_by_its_table_or_not_at_all(before: PilotState, after: PilotState) -> None:
    pilot = Ship(before)
    if after.value in PILOT_MOVES[before.value]:
        advance_pilot(pilot, after)
        assert pilot.state is after
    else:
        with pytest.raises(IllegalTransition):
            advance_pilot(pilot, after)
        assert pilot.state is before


def test_an_illegal_move_tells_the_story() -> None:
    with pytest.raises(IllegalTransition) as caught:
        advance(Thing(TaskState.SUCCEEDED), TaskState.FAILED)
    error = caught.value
    assert (error.what, error.before, error.after) == ("task", "succeeded", "failed")
    assert error.history == ["r1.1", "attempts 2"]
    assert "succeeded -> failed" in str(error)
    assert "r1.1; attempts 2" in str(error)
    assert error.code == "illegal_transition"


def test_an_illegal_move_of_a_pilot_without_a_story_says_so() -> None:
    with pytest.raises(IllegalTransition, match="history: none"):
        advance_pilot(Ship(PilotState.GONE), PilotState.IDLE)


@pytest.mark.parametrize("word", [TaskState.READY, PilotState.IDLE, Cause.POISON, Rerun.SAFE])
def test_states_print_as_their_words(word: TaskState | PilotState | Cause | Rerun) -> None:
    assert str(word) == word.value
