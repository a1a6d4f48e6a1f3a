"""Edges by files: whatever tables and sweeps a task file has, each task waits for the writers of what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.flow.file_edges import tie
from shoal.model.task.spec import Spec
from shoal.model.task.sweep import fill
from shoal.wire.submission import parse_submission


@given(st.lists(st.tuples(st.sets(st.integers(0, 7), max_size=3), st.integers(1, 3)), min_size=1, max_size=8))
def test_the_edges_are_those_of_the_files(shape: list[tuple[set[int], int]]) -> None:
    """Any acyclic pattern of tables and sweeps: each task waits for the writers of what it reads, and for little else."""
    tables: list[dict[str, Any]] = []
    for at, (reads, count) in enumerate(shape):
        table: dict[str, Any] = {"command": ["x"], "name": f"t{at}", "outputs": [f"f{at}.{{x}}"]}
        table["params"] = {"x": list(range(count))}
        table["inputs"] = [f"f{other}.{{x}}" for other in sorted(reads) if other < at]
        tables.append(table)
    found = tie(tables, parse_submission({"tasks": tables}).specs)
    specs = parse_submission({"tasks": found}).specs
    writers = {name: spec.name for spec in specs for name, _ in _files(spec, spec.outputs)}
    for spec in specs:
        for name, _ in _files(spec, spec.inputs):
            if name in writers:
                assert writers[name] in spec.after, (spec.name, name)


def _files(spec: Spec, texts: Sequence[str]) -> list[tuple[str, int]]:
    assert spec.sweep is not None
    return [(fill(text, spec.sweep.at(at)), at) for text in texts for at in range(spec.count)]
