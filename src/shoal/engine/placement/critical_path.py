"""Critical-path priority inside a run [SPHINX S5; ADR 0057]: of ready tasks of a run with dependencies, those go first behind
which the longest way to its end is left.

How long a task takes is what tasks of its class were seen to take, or its time limit, or one second: with nothing known it is
the number of tasks on the way. Ways are measured anew whenever four times as many tasks of the run have ended as at the last
time, so that each edge is looked at a few times in all. Priority, deadline and the order of runs stay before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.engine.records import Array, Run

if TYPE_CHECKING:
    from shoal.engine.matching.classes import Queue

AGAIN = 4  # times as many tasks have ended, when ways are measured anew
UNKNOWN = 1.0  # seconds of a task of which nothing is known


def is_in_workflow(array: Array) -> bool:
    """True if it waits for others of its run, or others wait for it."""
    return bool(array.children or array.spec.after or array.spec.after_any)


def measure_if_due(queue: Queue, run: Run) -> None:
    """Measure the ways of a run, if that was never done, or much has been learned since."""
    if run.measured < 0 or run.settled >= AGAIN * max(1, run.measured):
        run.measured = run.settled
        changed = []
        for array in _children_first(run):
            way = 0.0 if array.done and array.is_over else _seconds(queue, array)
            way += max([child.way for child in array.children], default=0.0)
            if array.way != way:
                array.way = way
                if array.queued or array.apart:
                    changed.append(array)
        queue.sort_again(changed)


def _children_first(run: Run) -> Iterable[Array]:
    """The arrays of a run, each after those that wait for it; mostly that is the order in which they were written."""
    if all(child.first > array.first for array in run.arrays for child in array.children):
        return reversed(run.arrays)
    parents: dict[int, list[Array]] = {}
    for array in run.arrays:
        for child in array.children:
            parents.setdefault(child.first, []).append(array)
    left = {array.first: len(array.children) for array in run.arrays}
    found = [array for array in run.arrays if not array.children]
    for array in found:  # grows while it is walked
        for parent in parents.get(array.first, ()):
            left[parent.first] -= 1
            if not left[parent.first]:
                found.append(parent)
    return found


def _seconds(queue: Queue, array: Array) -> float:
    if array.spec.noop:
        return 0.0
    mean = queue.class_of(array).base.mean
    if mean is not None:
        return mean
    return array.spec.time if array.spec.time is not None else UNKNOWN
