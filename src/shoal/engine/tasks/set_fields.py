"""Other values of task fields for what is queued: priority, limits, requirements. What has begun keeps its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.engine.changes import ArrayTable
from shoal.engine.commands import SetFields
from shoal.engine.matching.chunks import carve_all, carve_array
from shoal.engine.matching.prefetch import ask_back
from shoal.engine.matching.visibility import offer_again
from shoal.engine.records import NOT_QUEUED, Array, Chunk, Run, Task
from shoal.engine.state import State
from shoal.engine.tasks.deadlines import common_due
from shoal.engine.tasks.divisible import work_of
from shoal.engine.tasks.layout import array_at
from shoal.model.errors import Conflict
from shoal.model.ids import AttemptId, TaskId, run_text
from shoal.model.states import Rerun
from shoal.model.task.spec import FIELDS
from shoal.wire.messages import ORDERS

WHY = "its fields were changed"


def set_fields(state: State, command: SetFields) -> dict[str, int]:
    """Change fields of a run's tasks that have not begun, or of one of them; `tasks` is how many, `begun` how many keep
    what they have until their next attempt."""
    target = command.target
    run = state.runs.get(target if isinstance(target, int) else target.run)
    if run is None or run.settled == run.total:
        name = run_text(target) if isinstance(target, int) else str(target)
        hint = f"`shoal copy {name.partition('.')[0]}` runs the same once more, with changes"
        raise Conflict(f"{name} is over: nothing of it is queued", code="already_final", hint=hint)
    if isinstance(target, int):
        done = _set_run(state, run, command)
    else:
        done = _set_task(state, run, target, command.fields)
    if any(not FIELDS[name].same_result for name in command.fields):
        run.signature = ""  # it is not the work any more that `--resume` would take it for
    if "deadline" in command.fields:
        run.due, run.is_at_risk = common_due(run), False
    task = None if isinstance(target, int) else target
    state.emit("tasks_changed", task=task, run=run.number, fields=command.fields, tasks=done["tasks"])
    state.write_run(run)
    return done


def _set_run(state: State, run: Run, command: SetFields) -> dict[str, int]:
    open_arrays = [array for array in run.arrays if len(array.done) < array.count]
    works = {array.first: work_of(array) for array in open_arrays if array.spec.units is not None}
    for work in works.values():
        work.table |= command.fields
    if any(array.first not in command.tables and array.first not in works for array in open_arrays):
        raise Conflict("tasks were added to the run meanwhile", code="try_again", hint="the same command again")
    values = {name: FIELDS[name].read(value, name) for name, value in command.fields.items()}
    queued = begun = 0
    for array in open_arrays:
        queued += len(array.todo)
        spec = replace(array.spec, **values)
        if spec.needs != array.spec.needs:
            carve_array(state, array)  # from now on each remembers what it takes
        back = _ask_back(state, array, list(array.tasks.values()), array.chunks)
        queued, begun = queued + back, begun + array.live - back
        state.queue.withdraw(array)
        array.spec = spec
        # Pieces may have been cut since the tables were read.
        table = works[array.first].text(array) if array.first in works else command.tables[array.first]
        state.change(ArrayTable(run.number, array.first, table))
        for task in list(array.tasks.values()):
            _forget_own(task, command.fields)
            _write(state, task)
        offer_again(state, array)
    return {"tasks": queued, "begun": begun}


def _set_task(state: State, run: Run, target: TaskId, fields: dict[str, Any]) -> dict[str, int]:
    array = array_at(run, target.element)
    if target.element in array.done:
        raise Conflict(f"{target} is over", code="already_final", hint=f"see `shoal show {target}`")
    chunk = array.chunk_of(target.element)
    if chunk is not None:
        carve_all(state, [chunk])
    task = state.task_at(array, target.element)
    back = _ask_back(state, array, [task], [])
    is_queued = target.element in array.todo
    if is_queued:
        state.queue.withdraw(array)
    _forget_own(task, fields)
    task.differences.changed |= fields
    task.set_own()
    _write(state, task)
    if is_queued:
        array.set_apart(target.element, array.apart.get(target.element, NOT_QUEUED))
        offer_again(state, array)
    return {"tasks": int(is_queued) or back, "begun": int(not is_queued and not back)}


def _forget_own(task: Task, fields: dict[str, Any]) -> None:
    """Drop what the task had of its own in fields that are set now; memory that it was given after it ran out, too."""
    if task.special is None:
        return
    for name in fields:
        task.special.changed.pop(name, None)
    if "memory" in fields and not task.live:
        task.special.memory = task.special.base = task.special.raises = 0
    task.set_own()


def _write(state: State, task: Task) -> None:
    """Have the row of a task written if it has something of its own: what it was given, or what its attempts take."""
    newest = max(task.live.values(), key=lambda attempt: attempt.leased, default=None)
    if newest is None:
        if task.special is not None:
            state.write_task(task)
    elif newest.pilot in state.pilots:  # else its row says where its last pilot was
        state.write_task(task, pilot=state.pilots[newest.pilot], leased=newest.leased)


def _ask_back(state: State, array: Array, tasks: list[Task], chunks: list[Chunk]) -> int:
    """Have pilots give back what they fetched ahead and have not begun, so that the change counts for it; how many."""
    if array.spec.rerun is not Rerun.SAFE:
        return 0
    spans: dict[str, list[tuple[AttemptId, int]]] = {}
    for task in tasks:
        for attempt in task.live.values():
            if not attempt.running and attempt.is_ahead:
                spans.setdefault(attempt.pilot, []).append((attempt.id, 1))
    for chunk in chunks:
        for low, high in chunk.left_of(array) if chunk.is_ahead else ():
            spans.setdefault(chunk.pilot, []).append((chunk.attempt(low), high - low))
    count = 0
    for name, found in spans.items():
        pilot = state.pilots.get(name)
        if pilot is not None and pilot.protocol >= ORDERS["take_back"]:
            count += ask_back(state, pilot, found, WHY)
    return count
