"""Final elements as ranges, block by block."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.db import final_ranges as module
from shoal.db.sqlite import MEMORY, Database
from shoal.engine.changes import TaskRow
from shoal.model.states import FINAL, TaskState

_FINALS = {state.value for state in FINAL}


def row(element: int, state: str, run: int = 1) -> TaskRow:
    return TaskRow(
        run, element, state, 1, "", 0, 0, "", "", "", 0, None, 1.0, 1.0, 2.0, 0.5, 0.4, 0, "p1", "vm", "local", "", "", ""
    )  # fmt: skip


@given(
    elements=st.dictionaries(
        st.integers(1, 40), st.sampled_from([*["succeeded"] * 8, *(state.value for state in TaskState)]), max_size=40
    ),
    block=st.integers(1, 12),
)
@settings(max_examples=200, deadline=None)
def test_the_ranges_are_the_final_rows(elements: dict[int, str], block: int) -> None:
    with Database.open(MEMORY) as database, patch.object(module, "BLOCK", block):
        database.apply([*(row(e, s) for e, s in elements.items()), row(3, "failed", run=2)])
        found = list(module.final_ranges(database.connection, 1))
    told = [(element, state) for state, low, high in found for element in range(low, high)]
    assert told == sorted((e, s) for e, s in elements.items() if s in _FINALS)


def test_a_block_of_one_range_is_not_read_row_by_row() -> None:
    asked: list[str] = []
    with Database.open(MEMORY) as database, patch.object(module, "BLOCK", 10):
        database.apply([row(e, "succeeded") for e in range(1, 31)])
        database.connection.set_trace_callback(asked.append)
        found = list(module.final_ranges(database.connection, 1))
        database.connection.set_trace_callback(None)
    assert [(r.low, r.high) for r in found] == [(1, 11), (11, 21), (21, 31)]
    assert len(asked) == 4, "three blocks, and none behind them"
