"""Granting: a task gets a new attempt, which takes capacity of its pilot from then on."""

from __future__ import annotations

from shoal.engine.matching.classes import Leasable
from shoal.engine.records import NO_NEEDS, Array, Attempt, Pilot
from shoal.engine.state import State
from shoal.model.ids import AttemptId
from shoal.model.states import TaskState, advance


def grant(
    state: State, leasable: Leasable, pilot: Pilot, reply_seq: int, is_ahead: bool = False, precedence: int = 0
) -> Attempt:
    """Raise the attempt number and lease an element to a pilot; `is_ahead`: it waits there for a slot."""
    array = leasable.array
    element = leasable.element or array.first_plain()
    task = state.task_at(array, element)
    array.take_todo(element, element + 1)
    array.apart.pop(element, None)
    array.count_live(1)
    attempt = grant_copy(state, array, element, pilot, reply_seq)
    attempt.precedence, attempt.is_ahead = precedence, is_ahead
    if is_ahead:
        state.accounting.tree.start(array.run.owner, state.now, 0)  # its first start is over
    else:
        state.count_cores(array, attempt)
    advance(task, TaskState.LEASED)
    state.write_task(task, pilot=pilot, leased=state.now)
    return attempt


def grant_copy(state: State, array: Array, element: int, pilot: Pilot, reply_seq: int) -> Attempt:
    """One more attempt at a task that is in memory."""
    task = array.tasks[element]
    run = array.run
    task.number = max(task.number, run.base) + 1
    name = AttemptId(run.number, element, task.number, state.incarnation, run.nonce)
    attempt = Attempt(name, pilot.name, state.now, reply_seq=reply_seq)
    attach(state, array, attempt, pilot)
    return attempt


def attach(state: State, array: Array, attempt: Attempt, pilot: Pilot) -> None:
    """Enter a live attempt on both sides: its task and its pilot."""
    task = array.tasks[attempt.id.element]
    task.live[attempt.id] = attempt
    pilot.live[attempt.id] = attempt
    if task.special is not None and task.special.alone:
        pilot.lone, pilot.cleared_for = attempt.id, None
    attempt.pilot = pilot.name
    attempt.orphaned = None
    state.orphans.pop(attempt.id, None)
    state.hold(array, attempt, task.needs if attempt.needs is NO_NEEDS else attempt.needs, pilot)
    state.settle_pilot(pilot)
