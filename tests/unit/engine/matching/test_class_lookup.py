"""Classes are found by the values of task fields; the class found is that of the key."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.engine.consistency import check
from shoal.engine.matching.classes import Queue, key_of
from shoal.engine.records import Array, Run
from shoal.model.rangeset import RangeSet
from shoal.model.task.spec import Spec
from shoal.wire.task import parse_spec
from tests.unit.engine.stand import Stand

FIELDS: dict[str, list[Any]] = {
    "cores": [1, 2],
    "memory": ["1G", "2G"],
    "licences": [{"matlab": 1}, {"matlab": 2}],
    "time": ["1m", "2m"],
    "rerun": ["safe", "exclusive"],
    "priority": [0, 1, -1.5],
    "require": ["cpu_mhz > 1", "cpu_mhz > 2"],
    "rank": ["cpu_mhz", "load"],
    "setup": [["module load a"], ["module load b"]],
    "container": ["docker://a", "docker://b"],
    "stdout": ["a", "b"],
    "checkpoint": [["a"]],
    "labels": [{"a": "b"}],
    "retries": [0],
    "visible": [{}],
}
TABLES = st.fixed_dictionaries(
    {"command": st.sampled_from([["a"], ["a", "1"], ["b"]])},
    optional={name: st.sampled_from(values) for name, values in FIELDS.items()},
)


def array_of(spec: Spec, owner: str = "me", depth: int = 0) -> Array:
    run = Run(1, owner, "", 0.0, "/", 1, None, "", "", "{}", "", depth=depth)
    return Array(run, 1, 1, spec, RangeSet.span(1, 2))


@given(tables=st.lists(TABLES, min_size=1, max_size=12), data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_class_found_by_values_is_that_of_the_key(tables: list[dict[str, Any]], data: st.DataObject) -> None:
    queue = Queue()
    for table in tables:
        for _ in range(2):
            owner, depth = data.draw(st.sampled_from(["me", "you"])), data.draw(st.sampled_from([0, 1]))
            array = array_of(parse_spec(table), owner, depth)
            assert queue.class_of(array).key == key_of(array, array.spec)
    keys = [cls.key for cls in queue]
    assert len(keys) == len(set(keys))


def test_a_forgotten_class_is_not_found_again() -> None:
    queue, spec = Queue(), parse_spec({"command": ["a"]})
    first = queue.class_of(array_of(spec))
    first.is_forgotten = True
    queue._classes.clear()
    again = queue.class_of(array_of(spec))
    assert again is not first and not again.is_forgotten


def test_an_array_in_the_class_of_other_fields_is_noticed() -> None:
    stand = Stand()
    stand.submit({"command": ["a"]}, {"command": ["a"], "cores": 2})
    one, other = stand.engine.state.runs[1].arrays
    assert check(stand.engine.state) == []
    one.cls = stand.engine.state.queue.class_of(other)
    assert any("class of other fields" in line for line in check(stand.engine.state))
