"""WfFormat: whatever workflow is written reads back equal, and no file ends in anything but a workflow or a refusal."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.flow.formats.wfformat import Instance, Machine, Task, document, read
from shoal.flow.formats.wfformat_vertices import Replay, vertices
from shoal.model.errors import BadInput

names = st.text("abcXYZ019-_.", min_size=1, max_size=8)
numbers = st.one_of(st.integers(0, 10**15), st.floats(0.0, 1e15))
maybe = st.none() | numbers


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    ids = draw(st.lists(names, min_size=1, max_size=8, unique=True))
    sizes = draw(st.dictionaries(names, st.integers(0, 10**15), max_size=5))
    ran = draw(st.booleans())
    files = st.lists(st.sampled_from(sorted(sizes)), unique=True, max_size=3).map(tuple) if sizes else st.just(())
    tasks = []
    for at, name in enumerate(ids):
        parents = draw(st.lists(st.sampled_from(ids[:at]), unique=True).map(tuple)) if at else ()
        task = Task(name, draw(names), parents, draw(files), draw(files))
        if ran and draw(st.booleans()):
            task = task._replace(
                seconds=draw(numbers), program=draw(names), arguments=draw(st.lists(names, max_size=3).map(tuple)),
                cores=draw(st.none() | st.integers(1, 99)), avg_cpu=draw(maybe), memory=draw(maybe), read=draw(maybe),
                written=draw(maybe), priority=draw(maybe), machines=draw(st.sampled_from([(), ("n1",)])),
            )  # fmt: skip
        tasks.append(task)
    machines = (Machine("n1", "linux", "x86_64", "6.1", 10**9, 8, 3000, "vendor"),)
    executed = {"executed": "2026-01-01", "makespan": draw(numbers), "machines": machines} if ran else {}
    return Instance(draw(names), tuple(tasks), sizes, system=("Shoal", "1", ""), **executed)  # type: ignore[arg-type]


@given(instances())
def test_what_is_written_reads_back_equal(instance: Instance) -> None:
    assert read(json.dumps(document(instance)), "flow.json") == instance


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
    st.just(["b"]),
)


@given(instances(), st.randoms(use_true_random=False), values)
def test_a_file_with_any_other_value_anywhere_is_read_or_refused_in_one_line(
    instance: Instance, rng: Random, value: Any
) -> None:
    """Somewhere a member is replaced or taken out: nothing but a refusal that names the file may come of it."""
    made = document(instance)
    at: Any = made
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        if not keys:
            return
        key = rng.choice(list(keys))
        if not isinstance(at[key], (dict, list)) or rng.random() < 0.2:
            break
        at = at[key]
    if rng.random() < 0.3:
        del at[key]
    else:
        at[key] = value
    try:
        found = read(json.dumps(made), "flow.json")
        vertices(found, "flow.json", Replay(2.0, 2.0))
    except BadInput as error:
        assert error.message.startswith("flow.json") and "\n" not in error.line
