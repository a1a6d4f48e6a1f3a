"""Many rows to a statement.

The interpreter's lock is let go once per statement and taken again after it, which with a busy event loop costs half a
millisecond: once per row that would be all that is done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from shoal.db.batch import values_of
from shoal.db.named_queries import SQL, for_many
from shoal.engine.changes import Successes, TaskRow

AT_ONCE = (256, 64, 16, 4)  # rows to a statement


class BulkInsert:
    """Inserts rows over one connection, inside whatever transaction it has."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // len(TaskRow._fields)
        self._sizes = [size for size in AT_ONCE if size <= most]  # SQLite before 3.32 takes 999 values a statement

    def insert(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows by a named statement for one."""
        at = 0
        for size in self._sizes:
            while len(rows) - at >= size:
                self._connection.execute(for_many(name, size), list(chain.from_iterable(rows[at : at + size])))
                at += size
        self._connection.executemany(SQL[name], rows[at:])

    def succeed(self, told: Successes) -> int:
        """Insert rows and events of neighbours; what they share is given once. Returns the size of the events."""
        rows, events, size = values_of(told)
        count, at = told.high - told.low, 0
        row = (
            told.run,
            told.number,
            told.winner,
            told.exit_code,
            told.leased,
            told.ended,
            told.pilot,
            told.host,
            told.site,
        )
        event = (told.ended, told.run, told.number, told.pilot, told.site, told.owner)
        while at < count:
            take = next(step for step in (*self._sizes, 1) if step <= count - at)
            self._connection.execute(for_many("add_successes", take), (*row, *rows[7 * at : 7 * (at + take)]))
            self._connection.execute(for_many("add_success_events", take), (*event, *events[3 * at : 3 * (at + take)]))
            at += take
        return size
