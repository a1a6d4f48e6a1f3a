"""Runs that tasks submit: below which task a run is, how deep, and its end with that task [ADR 0025].

The label `parent` of a run names the task. It counts only among runs of one owner.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from shoal.engine.records import Run
from shoal.engine.state import State
from shoal.model.errors import BadInput, Refused
from shoal.model.ids import PARENT, TaskId, parse_task, run_text
from shoal.model.limits import MAX_NESTED, MAX_WAITING


def check_nesting(state: State, owner: str, labels: Mapping[str, str]) -> None:
    """Refuse a run that is nested too deeply, or of a task whose pilot has as many waiting tasks as it may have."""
    parent, depth = _place(state, owner, labels)
    if parent is None:
        return
    if depth > MAX_NESTED:
        top = run_text(_top(state, parent))
        raise Refused(
            f"{parent} is {MAX_NESTED} runs deep already, each submitted by a task of the one before",
            code="nested_too_deep", hint=f"does it submit itself without end? `shoal cancel {top}` ends all of them",
        )  # fmt: skip
    array = state.runs[parent.run].array_of(parent.element)
    task = array.tasks.get(parent.element) if array is not None else None
    for attempt in task.live.values() if task is not None else ():
        pilot = state.pilots.get(attempt.pilot)
        if pilot is not None and not attempt.lends and pilot.lending >= MAX_WAITING:
            raise Refused(
                f"{parent} cannot submit: {pilot.lending} tasks on {pilot.name} wait for others already",
                code="too_many_wait", hint="let fewer outer tasks run at once (throttle), or give the pool more hosts",
            )  # fmt: skip


def place(state: State, run: Run) -> None:
    """Enter a run below the task that submitted it."""
    run.parent, run.depth = _place(state, run.owner, json.loads(run.labels or "{}"))
    if run.parent is not None:
        state.nested.setdefault(run.parent, []).append(run.number)


def runs_below(state: State, task: TaskId) -> list[Run]:
    """The unfinished runs that a task submitted."""
    found = [state.runs[number] for number in state.nested.pop(task, ()) if number in state.runs]
    return [run for run in found if run.finished is None and run.parent == task]


def forget(state: State, run: Run) -> None:
    """A finished run leaves memory; the others that its task submitted stay below it."""
    if run.parent is None:
        return
    left = [number for number in state.nested.pop(run.parent, ()) if number != run.number]
    if left:
        state.nested[run.parent] = left


def _place(state: State, owner: str, labels: Mapping[str, str]) -> tuple[TaskId | None, int]:
    try:
        parent = parse_task(labels.get(PARENT, ""))
    except BadInput:
        return None, 0
    above = state.runs.get(parent.run)
    if above is None or above.owner != owner or above.array_of(parent.element) is None:
        return None, 0
    return parent, above.depth + 1


def _top(state: State, task: TaskId) -> int:
    """The outermost run above a task."""
    run = state.runs[task.run]
    while run.parent is not None and run.parent.run in state.runs:
        run = state.runs[run.parent.run]
    return run.number
