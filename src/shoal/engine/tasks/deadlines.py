"""Deadlines of runs: the one that all tasks of a run have, and when it is said that it is at risk."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

from shoal.engine.commands import NoteChance
from shoal.engine.records import Run
from shoal.engine.state import State
from shoal.sched.vector.deadline import chance_text, is_at_risk


def common_due(run: Run, before: int = 0) -> float | None:
    """The deadline that all tasks of a run have; of its first arrays, `before` of them, it is known already."""
    found = {array.due for array in run.arrays[before:]}
    if before:
        found.add(inf if run.due is None else run.due)
    return found.pop() if len(found) == 1 and inf not in found else None


def note_chance(state: State, command: NoteChance) -> None:
    """Say once that a run will probably miss its deadline, and once more if it was well in time meanwhile."""
    run = state.runs.get(command.run)
    if run is None or run.due is None or run.finished is not None:
        return
    was, run.is_at_risk = run.is_at_risk, is_at_risk(command.chance, run.is_at_risk)
    if was or not run.is_at_risk:
        return
    state.emit("deadline_at_risk", run=run.number, due=run.due, chance=round(command.chance, 4))
    if run.notify:
        moment = datetime.fromtimestamp(run.due, UTC)
        text = f"may miss its deadline, {moment:%Y-%m-%d %H:%M} UTC: P {chance_text(command.chance)}"
        state.notify(run, "deadline", text, due=run.due, chance=round(command.chance, 4))
