"""What tasks wait for outside of their own run: earlier runs, and tasks of these. The rules of their release are in `runs`.

A dependency is entered in the state only while what it names is open. Whatever ends a run or task settles those who
wait for it in the same command, so in the same transaction: after a restart, a dependency on something that is no
longer open has been met, for otherwise the tasks that had it would be final.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

from shoal.engine.commands import Outcomes
from shoal.engine.records import Array, Run
from shoal.engine.state import Ended, State
from shoal.model.ids import TaskId, run_text, target_of
from shoal.model.states import TaskState
from shoal.model.task.spec import Spec

Target = int | TaskId


class Settled(NamedTuple):
    """Something ended that arrays of other runs wait for."""

    target: Target
    succeeded: bool
    arrays: list[Array]


def target_text(target: Target) -> str:
    """`r18`, or `r18.3`."""
    return run_text(target) if isinstance(target, int) else str(target)


def outside_of(spec: Spec, names: Container[str]) -> dict[Target, bool]:
    """The runs and tasks of other runs that a spec waits for, and whether they must succeed; `names`: its own run's
    tables, whose names come before ids."""
    found: dict[Target, bool] = {}
    for texts, must_succeed in ((spec.after_any, False), (spec.after, True)):
        for text in texts:
            target = target_of(text) if text not in names else None
            if target is not None:
                found[target] = must_succeed
    return found


def names_of(run: Run) -> set[str]:
    """The names of a run's tables."""
    return {array.spec.name for array in run.arrays if array.spec.name}


def _may_name_others(spec: Spec) -> bool:
    """False if nothing that it waits for looks like a run or task: to look through the names of its own run for each of
    10,000 tables would take seconds."""
    return any(target_of(name) is not None for name in (*spec.after, *spec.after_any))


def is_open(state: State, target: Target) -> bool:
    """True if a run, or a task of it, is not over."""
    run = state.runs.get(target if isinstance(target, int) else target.run)
    if run is None or run.finished is not None:
        return False
    array = None if isinstance(target, int) else run.array_of(target.element)
    return isinstance(target, int) or (array is not None and target.element not in array.done)


def failed_outside(state: State, array: Array, outcomes: Outcomes) -> Target | None:
    """Something that an array needs and that ended without success, if there is any."""
    if not _may_name_others(array.spec):
        return None
    needed = outside_of(array.spec, names_of(array.run)).items()
    lost = (t for t, must in needed if must and not is_open(state, t) and not outcomes.get(t, True))
    return next(lost, None)


def enter(state: State, array: Array) -> None:
    """Let an array wait for what is open of the runs and tasks that it names."""
    if not _may_name_others(array.spec):
        return
    found = outside_of(array.spec, names_of(array.run)).items()
    left = {target: must_succeed for target, must_succeed in found if is_open(state, target)}
    array.awaits = {**array.awaits, **left}
    for target in left:
        run = target if isinstance(target, int) else target.run
        state.dependents.setdefault(run, {}).setdefault(target, []).append(array)


def take_settled(state: State) -> Iterator[Settled]:
    """What ended since the last call and is waited for; each is given once. What the caller does with it may end more."""
    while state.ended:
        ended, state.ended = state.ended, []
        for one in ended:
            targets = state.dependents.get(one.run, {})
            for target in _hit(one, targets):
                run = state.runs[one.run]
                good = run.finals.get("succeeded", 0) == run.total if one.state is None else one.state
                yield Settled(target, good is True or good is TaskState.SUCCEEDED, targets.pop(target))
            if not targets:
                state.dependents.pop(one.run, None)


def _hit(one: Ended, targets: dict[Target, list[Array]]) -> list[Target]:
    """Those of the targets that ended."""
    if one.state is None:
        return [target for target in targets if isinstance(target, int)]
    if one.high - one.low < len(targets):
        return [task for e in range(one.low, one.high) if (task := TaskId(one.run, e)) in targets]
    return [t for t in targets if not isinstance(t, int) and one.low <= t.element < one.high]
