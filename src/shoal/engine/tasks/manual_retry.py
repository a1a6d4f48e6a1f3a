"""Manual retry: final tasks are made ready again at a user's request [protocol 4]."""

from __future__ import annotations

import json

from shoal.engine.changes import SpanDrop
from shoal.engine.commands import Outcomes, Retry, RetrySpan
from shoal.engine.matching.visibility import ask_again
from shoal.engine.policy.apply_policy import check_queue
from shoal.engine.records import NO_PARENTS, Run, Task
from shoal.engine.state import State
from shoal.engine.task_overrides import TaskOverrides
from shoal.engine.tasks import growth
from shoal.engine.tasks.dependencies import enter, failed_outside, target_text
from shoal.engine.tasks.layout import array_at, arrays_by_name, meet, parents_of, release_begun
from shoal.engine.tasks.partial import why_not_again
from shoal.engine.tasks.runs import close_if_done, enter_noop, hold_lasts
from shoal.model.errors import Conflict
from shoal.model.ids import TaskId, run_text
from shoal.model.states import TaskState, advance


def retry(state: State, command: Retry) -> dict[str, int]:
    """Make final tasks ready again. Attempt numbers go on, so an old copy cannot be taken for a new try. Files that wait since
    the run was cancelled make tasks, even if there is no task to be made ready."""
    run = state.runs[command.run]
    reopened = run.finished is not None
    rows = [row for row in command.rows if row.element in array_at(run, row.element).done]
    for row in rows:
        wait = (row.ended or state.now) + state.timing.hold + state.timing.margin - state.now
        if row.live and wait > 0:
            raise Conflict(
                f"{TaskId(row.run, row.element)} is still being stopped on its pilot", code="still_stopping",
                hint=f"it must never run twice at once: try again in a moment, in {wait:.0f} s at the latest",
            )  # fmt: skip
    spans = [span for span in command.spans if span.low in array_at(run, span.low).done]
    refused = why_not_again(run)
    states = [*(row.state for row in rows), *(before for _, _, before in spans)]
    if refused and TaskState.CANCELLED.value in states:
        hint = "submit it again with another goal"
        raise Conflict(f"the goal of {run_text(run.number)} is reached: {refused}", code="goal_reached", hint=hint)
    _check_parents(state, run, [row.element for row in rows], spans, command.outcomes)
    check_queue(state, run.owner, len(rows) + sum(high - low for low, high, _ in spans))
    for row in rows:
        _reopen(state, run, row.element, row.element + 1, row.state)
    for low, high, before in spans:
        _reopen(state, run, low, high, before)
        state.change(SpanDrop(run.number, low, high))
    count, total = len(rows) + sum(high - low for low, high, _ in spans), run.total
    may_grow = not refused and growth.may_resume(run)
    if count or may_grow:
        growth.resume(state, run)
    hold_lasts(run)
    by_name = arrays_by_name(run)
    for array in run.arrays:
        array.unmet = {parent.first for parent in parents_of(array, by_name)} or NO_PARENTS
        meet(array)
        if array.todo:
            enter(state, array)
        release_begun(array)
        for task in array.tasks.values():
            if array.waiting and task.state is TaskState.READY:
                task.state = TaskState.WAITING  # what it waits for runs again
    for row in rows:
        array = array_at(run, row.element)
        task = array.enter_task(Task(array, row.element, TaskState(row.state), number=row.attempt))
        if array.waiting:
            task.state = TaskState.WAITING  # it had never been leased: its parents are to run again first
        else:
            advance(task, TaskState.READY)
        if row.special:
            task.special = TaskOverrides(**json.loads(row.special))
            task.set_own()
            state.offer_back(task)
        state.settled.pop(task.id, None)
        for attempt in [a for a in state.dying if a.task == task.id]:
            del state.dying[attempt]  # its hold has ended: it counts as dead
        state.write_task(task)
    if count or may_grow:
        ask_again(state, (array.spec for array in run.arrays))
        for array in run.arrays:
            state.queue.offer(array)
            enter_noop(state, array)
        run.finished = None
        state.emit("run_reopened" if reopened else "tasks_reset", run=run.number, tasks=count)
        if not count:
            close_if_done(state, run)  # what waits may be a rest
        state.write_run(run)
    return {"tasks": count or run.total - total}


def _check_parents(state: State, run: Run, elements: list[int], spans: list[RetrySpan], outcomes: Outcomes) -> None:
    """A task whose parents stay failed would wait for ever: refuse, and name what helps."""
    reopened: dict[int, int] = {}  # array's first -> elements that come back
    for low, high in [*((e, e + 1) for e in elements), *((low, high) for low, high, _ in spans)]:
        first = array_at(run, low).first
        reopened[first] = reopened.get(first, 0) + high - low
    by_name = arrays_by_name(run)
    for first in reopened:
        array = array_at(run, first)
        failed = failed_outside(state, array, outcomes)
        if failed is not None:
            raise Conflict(
                f"{target_text(failed)}, which it waits for, did not succeed", code="parent_failed",
                hint=f"retry that first: `shoal retry {target_text(failed)}`",
            )  # fmt: skip
        for parent in (parent for name in array.spec.after for parent in by_name.get(name, ())):
            if len(parent.done) - parent.succeeded > reopened.get(parent.first, 0):
                raise Conflict(
                    f"{parent.spec.name}, which it waits for, did not succeed", code="parent_failed",
                    hint=f"retry the whole run: `shoal retry {run_text(run.number)}`",
                )  # fmt: skip


def _reopen(state: State, run: Run, low: int, high: int, before: str) -> None:
    array = array_at(run, low)
    array.take_done(low, high)
    array.failed -= high - low if before in (TaskState.FAILED, TaskState.LOST) else 0
    array.put_todo(low, high)
    array.since = state.now
    if array.sequence is not None:
        for element in range(low, high):
            array.sequence.back(element)
    state.accounting.ledger.queued(run.owner, high - low)
    run.finals[before] -= high - low
