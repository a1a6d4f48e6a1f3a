"""Goals: a run whose answer is good enough is stopped [ADR 0053].

When a goal is reached, what runs is part of the answer that reached it: it is moved from `live` to `merged` in the
transaction that cancels it.
"""

from __future__ import annotations

from shoal.engine.records import Run
from shoal.engine.state import State
from shoal.engine.tasks.partial import Partial, defect_text
from shoal.engine.tasks.runs import cancel_run, close_if_done
from shoal.model.states import Cause
from shoal.sched.partial.goal import is_reached, shown_values

JUDGE_EVERY = 0.25  # seconds between two looks whether a goal is reached, and
JUDGE_EACH = 0.001  # more for each task that runs and has emitted something


def settle_changed(state: State) -> None:
    """At the end of a command: write what was merged, and look whether goals are reached."""
    for number, is_merged in list(state.emitting.items()):
        run = state.runs.get(number)
        if run is None or run.partial is None:
            del state.emitting[number]
            continue
        is_judged = state.now >= due(run.partial)
        if is_judged:
            is_merged = _judge(state, run, run.partial) or is_merged
        if is_merged:
            state.change(run.partial.row(number))
        if is_judged or not _is_open(run, run.partial):
            del state.emitting[number]
        else:
            state.emitting[number] = False  # it is written; the goal is looked at in a moment


def due(partial: Partial) -> float:
    """When to look at the goal again, if anything was emitted."""
    return partial.judged + JUDGE_EVERY + JUDGE_EACH * len(partial.live)


def _is_open(run: Run, partial: Partial) -> bool:
    return partial.goal is not None and not partial.reached and run.finished is None


def _judge(state: State, run: Run, partial: Partial) -> bool:
    """Stop the rest of a run whose goal is reached; True if there is something to write."""
    if not _is_open(run, partial) or partial.goal is None:
        return False
    partial.judged = state.now
    try:
        found, _ = partial.current()
        reached = shown_values(partial.goal, found) if is_reached(partial.goal, found) else ""
    except Exception as defect:  # whatever it is: it is this run's, and every command of everybody comes by here
        state.emit("goal_dropped", run=run.number, until=partial.until, why=defect_text(defect))
        partial.goal, partial.until = None, ""
        return True
    if not reached:
        return False
    partial.reached = reached
    why = f"the goal of this run is reached: {partial.reached} (--until)"
    before, finished = dict(partial.live), partial.tasks
    stopped = cancel_run(state, run, why, spares=True, cause=Cause.GOAL_REACHED)
    state.emit(
        "goal_reached", run=run.number, until=partial.until, values=partial.reached, tasks=finished,
        running=len({at.element for at in before if at not in partial.live}), cancelled=stopped,
    )  # fmt: skip
    close_if_done(state, run)
    # Final tasks that go on are merged at their ends, not now as well.
    goes_on, partial.live = partial.live, {at: one for at, one in before.items() if at not in partial.live}
    partial.merged, running = partial.current()
    partial.tasks, partial.live = finished + running, goes_on
    state.write_run(run)
    return True
