"""Why a run, task or pilot is where it is, from the state and functions that decide."""

from __future__ import annotations

from dataclasses import replace

from shoal.engine.records import MESH, Array, Run, Task
from shoal.engine.state import State
from shoal.engine.tasks.growth import waiting_text
from shoal.engine.why.pilots_and_sites import waits_for_space, why_pilot
from shoal.engine.why.ready_task import why_ready
from shoal.engine.why.reason import PARENTS, Reason
from shoal.engine.windows.window import is_windowed
from shoal.model.errors import NotFound
from shoal.model.ids import TaskId, run_text
from shoal.model.quantities import first_of, many, show_duration
from shoal.model.states import Rerun, TaskState

FREE_SPACE = "free some space on the server's disk; it goes on by itself"
_WHATEVER = "it becomes ready when they have ended, in whatever way"


def why_task(state: State, array: Array, element: int) -> Reason:
    """Why a task that is not final is where it is."""
    where = array.state_of(element)
    if where is TaskState.WAITING:
        return _parents(state, array)
    if where is TaskState.READY:
        return why_ready(state, array, element)
    chunk = array.chunk_of(element)
    if chunk is not None:
        age = show_duration(max(0.0, state.now - chunk.leased))
        text = f"attempt {chunk.attempt(element).text} is with {chunk.pilot} for {age} and has not started yet"
        return Reason("leased", text)
    task = array.tasks.get(element)
    if task is None:
        return Reason("final", "it is final", f"see `shoal show {TaskId(array.run.number, element)}`")
    return _live(state, task)


def _parents(state: State, array: Array) -> Reason:
    if array.held and not array.waits_for_others:
        left = array.run.total - array.run.settled - sum(one.count for one in array.run.lasts)
        return Reason(PARENTS, f"it waits for the end of all others of its run ({many(left, 'task')} left)", _WHATEVER)
    parents = [array.run.array_of(first) for first in sorted(array.unmet)]
    names = [
        f"{p.spec.name} ({p.succeeded} of {p.count} succeeded)" if p.count > 1 else p.spec.name for p in parents if p
    ]
    names += [_outside(state, target) for target in array.awaits]
    needs_success = any(array.awaits.values()) or any(p.spec.name in array.spec.after for p in parents if p)
    how = "have succeeded" if needs_success else "have ended, in whatever way"
    return Reason(PARENTS, f"it waits for {first_of(names, 5)}", f"it becomes ready when they {how}")


def _outside(state: State, target: int | TaskId) -> str:
    """A run, or a task of another run, that is waited for, and how far it is."""
    if not isinstance(target, int):
        return str(target)
    run = state.runs[target]
    return f"{run_text(target)}{f' {run.name}' if run.name else ''} ({run.settled} of {run.total} done)"


def _live(state: State, task: Task) -> Reason:
    parts, code = [], "leased"
    for attempt in task.live.values():
        pilot = state.pilots.get(attempt.pilot)
        age = show_duration(max(0.0, state.now - (attempt.started or attempt.leased)))
        if is_windowed(attempt):
            site = attempt.pilot[len(MESH) :].partition("/")[0]
            text = (
                f"it is in the window of site {site}, which begins it if the server is away; else it waits for its turn"
            )
            return Reason("window", text, "nothing to do, it goes on by itself")
        if pilot is None:
            left = show_duration(max(0.0, (attempt.orphaned or state.now) - state.now))
            after = "runs again" if task.array.spec.rerun is Rerun.EXCLUSIVE else "counts as lost"
            code = "pilot_lost" if code == "leased" else code
            parts.append(f"its pilot {attempt.pilot} was lost; as rerun={task.array.spec.rerun} it {after} in {left}")
        elif attempt.running:
            quiet = f", which is silent for {show_duration(state.now - pilot.seen)}" if pilot.suspect else ""
            how, code = f", {attempt.assigned}" if attempt.assigned else "", "running"
            parts.append(f"attempt {attempt.id.text} runs on {pilot.name} ({pilot.host}) for {age}{quiet}{how}")
            full = waits_for_space(pilot, state.now)
            if full:
                return Reason(
                    "disk_full", f"{'; '.join(parts)}, which waits to bring what tasks wrote: {full}", FREE_SPACE
                )
        else:
            parts.append(
                f"attempt {attempt.id.text} is with {pilot.name} ({pilot.host}) for {age} and has not started yet"
            )
    return Reason(
        code, "; ".join(parts), f"`shoal logs {task.id}` shows its output so far" if code == "running" else ""
    )


def why_run(state: State, run: Run) -> list[Reason]:
    """Why a run is not over: one reason for each array that has something left, the first ten."""
    if run.finished is not None:
        return [Reason("final", "nothing waits: every task is final")]
    reasons: list[Reason] = []
    if run.live:
        reasons.append(Reason("with_pilots", f"{many(run.live, 'task')} with pilots"))
        pilots = (p for p in state.pilots.values() if any(attempt.id.run == run.number for attempt in p.live.values()))
        full = next(filter(None, (waits_for_space(pilot, state.now) for pilot in pilots)), "")
        if full:
            reasons.append(Reason("disk_full", f"what its tasks wrote waits on their hosts: {full}", FREE_SPACE))
    if text := waiting_text(run):
        reasons.append(Reason("waits_for_files", text, f"`shoal grow {run_text(run.number)} --end`: no more will come"))
    seen: set[str] = set()
    for array in run.arrays:
        if not array.todo:
            continue
        reason = why_task(state, array, array.todo.first())
        if reason.text not in seen:
            seen.add(reason.text)
            label = f"{array.spec.name}: " if array.spec.name else ""
            text = f"{label}{many(len(array.todo), 'task')}: {reason.text}"
            reasons.append(replace(reason, text=text))
        if len(reasons) >= 10:
            break
    return reasons


def why(state: State, target: int | TaskId | str) -> tuple[str, list[Reason]]:
    """State and reasons of a run, task or pilot that is in memory."""
    if isinstance(target, str):
        pilot = state.pilots.get(target)
        if pilot is None:
            raise NotFound(f"no pilot {target} is connected", code="unknown_pilot", hint="see `shoal pilots`")
        return str(pilot.state), why_pilot(state, pilot)
    run = state.runs.get(target if isinstance(target, int) else target.run)
    if run is None:
        return "finished", [Reason("final", "nothing waits: every task is final")]
    if isinstance(target, int):
        return "finished" if run.finished is not None else "open", why_run(state, run)
    array = run.array_of(target.element)
    if array is None:
        raise NotFound(
            f"{target} does not exist",
            code="unknown_task",
            hint=f"{run_text(run.number)} has {many(run.total, 'task')}",
        )
    where: TaskState | None = array.state_of(target.element)
    return str(where) if where is not None else "final", [why_task(state, array, target.element)]
