"""Removal of finished runs: rows and memory go, accounts and the journal stay, the number is not used again."""

from __future__ import annotations

from shoal.engine.changes import RunDrop
from shoal.engine.commands import Remove
from shoal.engine.records import Run
from shoal.engine.state import State
from shoal.engine.tasks.nested import forget
from shoal.model.errors import Conflict
from shoal.model.ids import run_text
from shoal.model.quantities import many


def remove(state: State, command: Remove) -> dict[str, int]:
    """Forget finished runs, all of them or none. The caller has loaded those that had left memory."""
    found = [state.runs[number] for number in command.runs]
    for run in found:
        _check(state, run)
    for run in found:
        state.emit("run_removed", run=run.number, name=run.name, tasks=run.total)
        del state.runs[run.number]
        state.keys.pop((run.owner, run.key), None)
        forget(state, run)
        for task in [task for task in state.settled if task[0] == run.number]:
            del state.settled[task]
        state.change(RunDrop(run.number))
    return {"runs": len(found), "tasks": sum(run.total for run in found)}


def _check(state: State, run: Run) -> None:
    """Refuse a run of which something may still run."""
    name = run_text(run.number)
    if run.finished is None:
        left = run.total - run.settled
        what = f"{many(left, 'task')} to go" if left else "its submitter may add tasks"
        hint = f"`shoal cancel {name}` ends it"
        raise Conflict(f"{name} is not over: {what}", code="not_final", hint=hint)
    if any(attempt.run == run.number for attempt in state.dying):
        hint = "try again in a moment"
        raise Conflict(f"tasks of {name} are still being stopped on their pilots", code="still_stopping", hint=hint)
