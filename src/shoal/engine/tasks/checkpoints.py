"""Checkpoints of tasks: those that arrive while a task runs, and those that it ends with [GWP G10].

The fence is the same as for reports: a checkpoint counts only from the pilot that holds the attempt, and only of the
current attempt, which is the newest of those that live. So a task that is lost goes on from the last checkpoint that was
acknowledged, and never from the files of an attempt that was given up or of another task.
"""

from __future__ import annotations

from shoal.engine.matching.chunks import carve
from shoal.engine.matching.lease_message import parameters
from shoal.engine.records import Attempt, Pilot, Run, Task
from shoal.engine.state import State
from shoal.model.blobs import is_digest
from shoal.model.errors import BadInput
from shoal.model.ids import parse_attempt
from shoal.model.limits import MAX_CHECKPOINT
from shoal.model.task.sweep import fill
from shoal.wire.messages import Checkpoint, Report


def check_files(files: dict[str, str], field: str) -> None:
    """Refuse what cannot be the files of a checkpoint."""
    if len(files) > MAX_CHECKPOINT or not all(is_digest(digest) for digest in files.values()):
        raise BadInput("no checkpoint", code="bad_digest", field=field, hint="names with sha256:HEX")


def is_declared(task: Task, files: dict[str, str]) -> bool:
    """True if these are exactly the files that the task declared."""
    spec, params = task.array.spec, parameters(task.array.spec, task.element - task.array.first)
    declared = {fill(name, params) if params else name for name in spec.checkpoint}
    return bool(declared) and set(files) == declared


def save(state: State, pilot: Pilot, checkpoint: Checkpoint) -> bool:
    """Keep the checkpoint of an attempt that runs on, in place of the one before it; False: it does not count."""
    attempt = parse_attempt(checkpoint.attempt)
    run = state.runs.get(attempt.run)
    array = run.array_of(attempt.element) if run is not None else None
    if array is None or not pilot.holds(attempt):
        return False
    chunk = array.chunk_of(attempt.element)
    task = carve(state, chunk, attempt.element) if chunk is not None else array.tasks[attempt.element]
    live = task.live[attempt]
    if live is not current(task) or not is_declared(task, checkpoint.files):
        return False
    special = task.differences
    is_first = special.saved_by != str(attempt)
    if not is_first and checkpoint.number <= special.saved_number:
        return True  # repeated, or overtaken by a newer one
    if is_first:
        special.saved_by, special.began_with = str(attempt), special.files
    if checkpoint.files != special.files:
        clear_suspicion(task)
    special.files, special.saved_number = dict(checkpoint.files), checkpoint.number
    special.emitted = checkpoint.emitted
    holder = state.pilots[live.pilot]
    state.write_task(task, pilot=holder, leased=live.leased)
    if is_first:  # not each time: a thousand tasks would fill the journal
        state.emit("checkpoint_saved", task=task.id, attempt=attempt.number, pilot=holder, files=len(special.files))
    return True


def clear_suspicion(task: Task) -> None:
    """The task made progress without ending its pilot: earlier losses do not count against it."""
    task.losses, task.lost_on = 0, []
    if task.special is not None:
        task.special.alone = False


def current(task: Task) -> Attempt:
    """The newest of a task's live attempts."""
    return max(task.live.values(), key=lambda live: (live.id.number, live.id.incarnation))


def end_part(task: Task, live: Attempt, report: Report) -> bool:
    """An attempt ended with a checkpoint, from which the next one goes on. Returns whether the task has come further:
    whether a file differs from those that the attempt began with."""
    special = task.differences
    began_with = special.began_with if special.saved_by == str(live.id) else special.files
    files = report.files
    special.files, special.part, special.emitted = dict(files), special.part + 1, report.emitted
    special.saved_by, special.saved_number, special.began_with = "", 0, {}
    return files != began_with


def digests_of(run: Run) -> set[str]:
    """Blobs that the checkpoints of a run's tasks need."""
    return {
        digest
        for array in run.arrays
        for task in array.tasks.values()
        if task.special is not None
        for digest in task.special.files.values()
    }
