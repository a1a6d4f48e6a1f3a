"""One reason in plain words for everything that waits, from the very state and functions that decide."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.engine.leasing import closed
from shoal.engine.records import Array, Pilot, Run, Task
from shoal.engine.state import State
from shoal.model.errors import NotFound
from shoal.model.ids import TaskId, run_text
from shoal.model.quantities import many, show_duration
from shoal.model.states import Rerun, TaskState
from shoal.sched.match import misfit


@dataclass(frozen=True)
class Reason:
    """Why something stands where it stands, and what would help."""

    text: str
    fix: str = ""


def why_task(state: State, array: Array, element: int) -> Reason:
    """Why a task that is not final is where it is."""
    where = array.state_of(element)
    if where is TaskState.WAITING:
        return _parents(array)
    if where is TaskState.READY:
        return _ready(state, array)
    chunk = array.chunk_of(element)
    if chunk is not None:
        return Reason(
            f"attempt {chunk.attempt(element).text} is with {chunk.pilot} for "
            f"{show_duration(max(0.0, state.now - chunk.leased))} and has not started yet"
        )
    task = array.tasks.get(element)
    if task is None:
        return Reason("it is final", f"see `shoal show {TaskId(array.run.number, element)}`")
    return _live(state, task)


def _parents(array: Array) -> Reason:
    parents = [array.run.array_of(first) for first in sorted(array.unmet)]
    names = [
        f"{p.spec.name} ({p.succeeded} of {p.count} succeeded)" if p.count > 1 else p.spec.name for p in parents if p
    ]
    return Reason(f"it waits for {', '.join(names[:5])}", "it becomes ready when they have succeeded")


def _ready(state: State, array: Array) -> Reason:
    run, spec = array.run, array.spec
    shut = closed(state) if run.accepted else "its submission is on its way to the disk"
    if shut:
        return Reason(shut, "nothing to do, it goes on by itself")
    if array.throttled:
        return Reason(
            f"{many(array.live, 'task')} of this array run, its limit is {spec.throttle}", "raise the number behind %"
        )
    pilots = [p for p in state.pilots.values() if state.serves(p, run.owner)]
    if not pilots:
        because = f": {state.trouble}" if state.trouble and state.keeper in ("", run.owner) else ""
        return Reason(f"no pilot is connected{because}", "start one with `shoal pilot start`")
    taking = [p for p in pilots if not p.draining]
    if not taking:
        return Reason(f"every pilot is ending ({pilots[0].draining})", "start one with `shoal pilot start`")
    fitting = [p for p in taking if misfit(spec.needs, p.room) is None]
    if not fitting:
        best = max(taking, key=lambda p: p.room.cores)
        lack = misfit(spec.needs, best.room)
        return Reason(
            f"no pilot is large enough: it {lack} (the largest of {len(taking)}, {best.name} on {best.host})",
            "ask for less, or start a larger pilot",
        )
    cores = sum(p.room.cores for p in fitting)
    quiet = [p for p in fitting if p.suspect]
    if len(quiet) == len(fitting):
        return Reason(
            f"every fitting pilot is silent ({len(fitting)})", "they are given up after the lease time, or come back"
        )
    if any(misfit(spec.needs, p.free) is None for p in fitting):
        return Reason("a pilot has room and takes it with its next exchange", "nothing to do")
    running = sum(p.held for p in fitting)
    return Reason(
        f"all slots are busy: {many(running, 'task')} on {many(cores, 'core')} of {many(len(fitting), 'pilot')}",
        "wait, or start more pilots with `shoal pilot start`",
    )


def _live(state: State, task: Task) -> Reason:
    parts = []
    for attempt in task.live.values():
        pilot = state.pilots.get(attempt.pilot)
        age = show_duration(max(0.0, state.now - (attempt.started or attempt.leased)))
        if pilot is None:
            left = show_duration(max(0.0, (attempt.orphaned or state.now) - state.now))
            after = "runs again" if task.array.spec.rerun is Rerun.EXCLUSIVE else "counts as lost"
            parts.append(f"its pilot {attempt.pilot} was lost; as rerun={task.array.spec.rerun} it {after} in {left}")
        elif attempt.running:
            quiet = f", which is silent for {show_duration(state.now - pilot.seen)}" if pilot.suspect else ""
            parts.append(f"attempt {attempt.id.text} runs on {pilot.name} ({pilot.host}) for {age}{quiet}")
        else:
            parts.append(
                f"attempt {attempt.id.text} is with {pilot.name} ({pilot.host}) for {age} and has not started yet"
            )
    here = any(attempt.running and attempt.pilot in state.pilots for attempt in task.live.values())
    return Reason("; ".join(parts), f"`shoal logs {task.id}` shows its output so far" if here else "")


def why_run(state: State, run: Run) -> list[Reason]:
    """Why a run is not over: one reason for each array that has something left, the first ten."""
    if run.finished is not None:
        return [Reason("nothing waits: every task is final")]
    reasons: list[Reason] = []
    if run.live:
        reasons.append(Reason(f"{many(run.live, 'task')} with pilots"))
    seen: set[str] = set()
    for array in run.arrays:
        if not array.todo:
            continue
        reason = why_task(state, array, array.todo.first())
        if reason.text not in seen:
            seen.add(reason.text)
            label = f"{array.spec.name}: " if array.spec.name else ""
            reasons.append(Reason(f"{label}{many(len(array.todo), 'task')}: {reason.text}", reason.fix))
        if len(reasons) >= 10:
            break
    return reasons


def why_pilot(state: State, pilot: Pilot) -> list[Reason]:
    """What a pilot does, or why it does nothing."""
    if pilot.suspect:
        left = show_duration(max(0.0, state.timing.lease - (state.now - pilot.seen)))
        return [Reason(f"silent for {show_duration(state.now - pilot.seen)}", f"it is given up in {left}")]
    if pilot.draining:
        return [
            Reason(f"it takes nothing new: {pilot.draining}; {many(pilot.held, 'attempt')} left", "it ends by itself")
        ]
    if pilot.held:
        return [Reason(f"it holds {many(pilot.held, 'attempt')} on {many(pilot.room.cores, 'core')}")]
    shut = closed(state)
    if shut:
        return [Reason(shut)]
    ready = [c for c in state.queue.classes.values() if c.head() is not None and state.serves(pilot, c.key[0])]
    if not ready:
        return [Reason("no task is ready", "submit some with `shoal run` or `shoal sweep`")]
    lacks = [misfit(cls.needs, pilot.room) or "waits for its next exchange" for cls in ready]
    return [Reason(f"no ready task fits it: a task {lacks[0]}")]


def why(state: State, target: int | TaskId | str) -> tuple[str, list[Reason]]:
    """State and reasons of a run, task or pilot that is in memory."""
    if isinstance(target, str):
        pilot = state.pilots.get(target)
        if pilot is None:
            raise NotFound(f"no pilot {target} is connected", code="unknown_pilot", hint="see `shoal pilots`")
        return str(pilot.state), why_pilot(state, pilot)
    run = state.runs.get(target if isinstance(target, int) else target.run)
    if run is None:
        return "finished", [Reason("nothing waits: every task is final")]
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
