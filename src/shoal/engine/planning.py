"""Planning states of runs that are planned by the server before they start [SPHINX S1; ADR 0059].

Such a run has all its tasks from the start, and none of them is offered. It passes one state after another, each durable before
the next is begun, until it is `unfinished`, which every other run is from its submission on. What is done in a state decides
the server (`server/planning/`): here is only what it may change, and that a step which is told twice counts once.
"""

from __future__ import annotations

import json
from typing import Any

from shoal.engine.changes import PlanRow
from shoal.engine.commands import AdvancePlan
from shoal.engine.records import Plan, Run
from shoal.engine.state import State
from shoal.engine.tasks.layout import array_at
from shoal.engine.tasks.runs import close_if_done, take_over
from shoal.model.ids import run_text
from shoal.model.states import UNFINISHED


def restore(run: Run, row: PlanRow) -> None:
    """What the database kept of the plan of a run."""
    run.plan = Plan(row.stage, json.loads(row.data))


def advance(state: State, command: AdvancePlan) -> dict[str, Any]:
    """Move a run from one planning state to another. Idempotent: a run that is elsewhere by now stays there."""
    run = state.runs.get(command.run)
    plan = run.plan if run is not None else None
    if run is None or plan is None or run.finished is not None or plan.stage != command.stage:
        return {"run": run_text(command.run), "stage": plan.stage if plan is not None else "", "advanced": False}
    plan.stage, plan.note = command.to, ""
    plan.data |= command.data
    state.change(plan.row(run.number))
    state.emit("run_planned", run=run.number, step=command.stage, stage=command.to, found=command.data)
    # Others were cancelled meanwhile, or are here from a step that is taken again.
    reused = tuple(one for one in command.reused if one[0] in array_at(run, one[0]).todo)
    if reused:
        take_over(state, run, reused)
        close_if_done(state, run)
    state.write_run(run)
    if command.to == UNFINISHED:
        state.out.offers.append((run.number, 1, run.total))
    return {"run": run_text(run.number), "stage": plan.stage, "advanced": True}


def planning_text(run: Run) -> str:
    """In which planning state a run waits, and why; empty: in none."""
    if run.plan is None or not run.is_planning:
        return ""
    return f"it is {run.plan.stage}: {run.plan.note}" if run.plan.note else f"it is {run.plan.stage}"
