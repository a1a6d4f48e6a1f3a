"""States of tasks and pilots, and the tables of their transitions [protocol 4].

Rules: (1) a state changes only through `advance`; (2) the tables below are complete, and the reference diagrams are made
from them; (3) reasons are not states: "cannot match anywhere" is `ready` with a reason.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from shoal.model.errors import IllegalTransition


class _Text(str, Enum):
    """An enumeration whose members are written as their values."""

    def __str__(self) -> str:
        return str(self.value)


class TaskState(_Text):
    """The state of a task."""

    WAITING = "waiting"  # for parents
    READY = "ready"
    LEASED = "leased"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"  # only rerun=never

    @property
    def final(self) -> bool:
        """True if the state is the last one, unless a person retries the task."""
        return self in FINAL


class PilotState(_Text):
    """The state of a pilot; `suspect` is a mark, not a state."""

    QUEUED = "queued"
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"
    GONE = "gone"


class Cause(_Text):
    """Why an attempt did not succeed."""

    TASK_ERROR = "task_error"
    OVER_TIME = "over_time"
    OUT_OF_MEMORY = "out_of_memory"
    SIGNAL = "signal"
    INITIALIZER = "initializer"  # of an executor's function calls
    STAGE_IN = "stage_in"
    STAGE_OUT = "stage_out"
    OUTPUT_MISSING = "output_missing"
    HOST_UNFIT = "host_unfit"
    PILOT_LOST = "pilot_lost"
    POISON = "poison"
    CANCELLED = "cancelled"
    DEPENDENCY_FAILED = "dependency_failed"
    GOAL_REACHED = "goal_reached"


class Rerun(_Text):
    """What may happen to a task whose pilot went silent [promise R4]."""

    SAFE = "safe"
    EXCLUSIVE = "exclusive"
    NEVER = "never"


_T = TaskState
FINAL: frozenset[TaskState] = frozenset({_T.SUCCEEDED, _T.FAILED, _T.CANCELLED, _T.LOST})

TASK_TABLE: dict[TaskState, frozenset[TaskState]] = {
    _T.WAITING: frozenset({_T.READY, _T.CANCELLED, _T.FAILED}),
    _T.READY: frozenset({_T.LEASED, _T.SUCCEEDED, _T.CANCELLED}),
    _T.LEASED: frozenset({_T.RUNNING, _T.READY, _T.WAITING, _T.CANCELLED}),
    _T.RUNNING: frozenset({_T.SUCCEEDED, _T.FAILED, _T.CANCELLED, _T.LOST, _T.READY, _T.WAITING}),
    _T.SUCCEEDED: frozenset({_T.READY}),
    _T.FAILED: frozenset({_T.READY}),
    _T.CANCELLED: frozenset({_T.READY}),
    _T.LOST: frozenset({_T.READY}),
}

_P = PilotState
PILOT_TABLE: dict[PilotState, frozenset[PilotState]] = {
    _P.QUEUED: frozenset({_P.IDLE, _P.GONE}),
    _P.IDLE: frozenset({_P.BUSY, _P.DRAINING, _P.GONE}),
    _P.BUSY: frozenset({_P.IDLE, _P.DRAINING, _P.GONE}),
    _P.DRAINING: frozenset({_P.GONE}),
    _P.GONE: frozenset(),
}


# Planning states of runs, in order, and of their tasks [SPHINX S1; ADR 0059]. An entry point may put others between the first
# and `unfinished`.
UNREDUCED, UNPREDICTED, UNACCEPTED, UNPLANNED = "unreduced", "unpredicted", "unaccepted", "unplanned"
UNFINISHED, UNSENT, SENT, REMOVE = "unfinished", "unsent", "sent", "remove"


def planning_state(stage: str, state: str) -> str:
    """The planning state of a task, by that of its run and by its own state. A task knows no `unreduced`: what is reduced is
    over at once; `sent` stands for what the paper leaves to those who run it."""
    if state in FINAL:
        return REMOVE
    if stage != UNFINISHED:
        return UNPREDICTED if stage == UNREDUCED else stage
    return SENT if state in (TaskState.LEASED, TaskState.RUNNING) else UNSENT


class HasTaskState(Protocol):
    """What `advance` needs of a task."""

    state: TaskState

    def story(self) -> list[str]: ...


class HasPilotState(Protocol):
    """What `advance_pilot` needs of a pilot."""

    state: PilotState

    def story(self) -> list[str]: ...


def advance(task: HasTaskState, to: TaskState) -> None:
    """Move a task to its next state, or raise with its history."""
    if to not in TASK_TABLE[task.state]:
        raise IllegalTransition("task", str(task.state), str(to), task.story())
    task.state = to


def advance_pilot(pilot: HasPilotState, to: PilotState) -> None:
    """Move a pilot to its next state, or raise with its history."""
    if to not in PILOT_TABLE[pilot.state]:
        raise IllegalTransition("pilot", str(pilot.state), str(to), pilot.story())
    pilot.state = to
