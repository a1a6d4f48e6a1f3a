"""How the tables of a run lie in memory: one array after another, tied to those that they wait for."""

from __future__ import annotations

import json
from collections.abc import Mapping

from shoal.engine.matching.element_order import ElementOrder
from shoal.engine.records import Array, Run
from shoal.engine.run_bound import RunBound
from shoal.engine.state import State
from shoal.engine.tasks.divisible import enter_work
from shoal.model.rangeset import RangeSet
from shoal.model.task.field_values import FINAL
from shoal.model.task.spec import Spec, Submission


def lay_out(state: State, run: Run, submission: Submission) -> None:
    """Append the specs of a submission to the run."""
    for spec, table in zip(submission.specs, submission.tables, strict=True):
        first = run.total + 1
        array = make_array(state, run, first, spec)
        add_array(run, array)
        enter_work(array, table)
        state.accounting.ledger.queued(run.owner, spec.count)
        state.write_array(array, json.dumps(table))  # as written: the order of parameters is theirs


def make_array(state: State, run: Run, first: int, spec: Spec) -> Array:
    """One spec of a run in memory, nothing of it begun."""
    count = spec.count
    return Array(
        run, first, count, spec, RangeSet.span(first, first + count),
        sequence=ElementOrder(spec, first) if spec.order else None, since=state.now,
        held=spec.noop or spec.role == FINAL,
    )  # fmt: skip


def add_array(run: Run, array: Array) -> None:
    """Append an array to its run."""
    run.arrays.append(array)
    run.firsts.append(array.first)
    run.total += array.count
    spec = array.spec
    if spec.role == FINAL:
        run.lasts = [*run.lasts, array]
    elif spec.role:
        run.services = [*run.services, array]
    if spec.category is not None and spec.category.name not in run.categories:
        run.categories = {**run.categories, spec.category.name: RunBound(spec.category.most, outer=run.bound)}


def link(run: Run) -> None:
    """Link children to parents of the same run by name; an array with an incomplete parent waits."""
    by_name = arrays_by_name(run)
    for array in run.arrays:
        if not (array.spec.after or array.spec.after_any):
            continue
        parents = parents_of(array, by_name)
        for parent in parents:
            parent.add_child(array)
        array.unmet = {*array.unmet, *(parent.first for parent in parents)}


def arrays_by_name(run: Run) -> dict[str, list[Array]]:
    """The arrays of each table that has a name: several, if it is divisible work."""
    found: dict[str, list[Array]] = {}
    for array in run.arrays:
        if array.spec.name:
            found.setdefault(array.spec.name, []).append(array)
    return found


def parents_of(array: Array, by_name: Mapping[str, list[Array]]) -> list[Array]:
    """The arrays of its own run that an array waits for."""
    spec = array.spec
    return [parent for name in {*spec.after, *spec.after_any} for parent in by_name.get(name, ())]


def meet(array: Array) -> None:
    """Remove the parents that are complete, or need only be over and are, from those that an array waits for."""
    if array.unmet:
        array.unmet = {first for first in array.unmet if not is_met(array, array_at(array.run, first))}


def is_met(child: Array, parent: Array) -> bool:
    return parent.complete or (parent.is_over and parent.spec.name not in child.spec.after)


def release_begun(array: Array) -> None:
    """Elements of an array that are live were released: it does not wait again for what need only have ended, and was
    retried meanwhile."""
    if array.live and array.waiting:
        array.unmet = {first for first in array.unmet if array_at(array.run, first).spec.name in array.spec.after}
        array.awaits = {target: must_succeed for target, must_succeed in array.awaits.items() if must_succeed}


def array_at(run: Run, first: int) -> Array:
    found = run.array_of(first)
    assert found is not None
    return found
