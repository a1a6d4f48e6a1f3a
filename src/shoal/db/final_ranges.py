"""The final elements of a run as ranges. An array is mostly worked off in order: most blocks of rows are one range, which
SQLite finds in half the time that handing out each row takes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from shoal.db.named_queries import SQL
from shoal.model.states import FINAL

BLOCK = 2_000  # rows looked at together
_FINAL = frozenset(state.value for state in FINAL)


class StateRange(NamedTuple):
    """Elements low .. high - 1, all in one state."""

    state: str
    low: int
    high: int


def final_ranges(connection: sqlite3.Connection, run: int) -> Iterator[StateRange]:
    """Ranges of the rows that are final, in order; neighbours may be parts of a longer one."""
    after = 0
    while True:
        asked = {"run": run, "after": after, "limit": BLOCK}
        count, low, last, least, most = connection.execute(SQL["state_block"], asked).fetchone()
        if not count:
            return
        if least == most and count == last - low + 1:
            if least in _FINAL:
                yield StateRange(least, low, last + 1)
        else:
            yield from _row_by_row(connection.execute(SQL["final_states"], {"run": run, "after": after, "last": last}))
        after = last


def _row_by_row(rows: sqlite3.Cursor) -> Iterator[StateRange]:
    low = high = 0
    before = ""
    for element, state in rows:
        if element != high or state != before:
            if low < high:
                yield StateRange(before, low, high)
            low, before = element, state
        high = element + 1
    if low < high:
        yield StateRange(before, low, high)
