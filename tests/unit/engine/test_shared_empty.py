"""Collections that records share while they are empty."""

from __future__ import annotations

import pytest

from shoal.engine.records import (
    NO_APART,
    NO_CHILDREN,
    NO_CHUNKS,
    NO_ELEMENTS,
    NO_PARENTS,
    NO_TARGETS,
    NO_TASKS,
    SHARED,
    Array,
    Run,
    Task,
)
from shoal.model.rangeset import RangeSet
from shoal.model.task.spec import Needs, Spec
from shoal.wire.task import parse_spec, stored_spec


def arrays() -> list[Array]:
    run = Run(1, "me", "", 0.0, "/", 1, None, "", "", "{}", "")
    spec = parse_spec({"command": ["true"]})
    return [Array(run, first, 1, spec, RangeSet.span(first, first + 1)) for first in (1, 2)]


def test_nothing_can_be_put_into_them() -> None:
    for fill in (
        lambda: NO_TASKS.update({1: None}),  # type: ignore[dict-item]
        lambda: NO_TASKS.setdefault(1, None),  # type: ignore[arg-type]
        lambda: NO_APART.__setitem__(1, True),
        lambda: NO_TARGETS.__ior__({1: True}),
        lambda: NO_PARENTS.add(1),
        lambda: NO_PARENTS.update({1}),
        lambda: NO_CHILDREN.append(None),  # type: ignore[arg-type]
        lambda: NO_CHUNKS.insert(0, None),  # type: ignore[arg-type]
        lambda: NO_ELEMENTS.add_range(1, 2),
        lambda: NO_ELEMENTS.add(1),
    ):
        with pytest.raises(TypeError, match="shared"):
            fill()
    assert not any(SHARED)


def test_what_is_not_there_can_be_removed() -> None:
    assert NO_TASKS.pop(1, None) is None
    NO_PARENTS.discard(1)
    NO_TARGETS.clear()
    NO_ELEMENTS.remove_range(1, 9)


def test_each_array_gets_its_own_when_something_is_put_into_it() -> None:
    one, other = arrays()
    one.enter_task(Task(one, 1))
    one.add_done(1, 2)
    one.set_apart(1, 7)
    one.add_child(other)
    assert (len(one.tasks), len(one.done), one.apart, one.children) == (1, 1, {1: 7}, [other])
    assert (other.tasks, other.done, other.apart, other.children) == ({}, RangeSet(), {}, [])
    one.drop_task(1)
    assert one.tasks is NO_TASKS
    one.take_done(1, 2)
    other.take_done(2, 3)
    assert not one.done and not other.done and not any(SHARED)


def test_a_spec_holds_what_was_given_and_finds_the_rest() -> None:
    table = {"command": ["sim", "1"], "priority": 3, "memory": "1G"}
    spec = parse_spec(table)
    assert set(vars(spec)) == {"command", "priority", "memory"}
    assert spec == Spec(command=("sim", "1"), priority=3.0, memory=1 << 30) == stored_spec(table)
    assert hash_free(spec) == (1, {}, {}, None, 1)
    assert spec.needs == Needs(memory=1 << 30)
    assert spec.needs is parse_spec({**table, "command": ["other"]}).needs, "shared"


def hash_free(spec: Spec) -> tuple[object, ...]:
    return spec.cores, spec.env, spec.labels, spec.sweep, spec.count
