"""Bulk insert: many rows with one statement.

The interpreter's lock is released and taken again with every statement, which costs half a millisecond beside a busy
event loop: with a statement per row the writer would do nothing else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from shoal.db.named_queries import SQL, for_many
from shoal.db.write_batch import EVENT_BYTES, encode
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

    def succeed(self, done: Successes) -> int:
        """Insert rows and events of neighbours; what they share is given once. Returns the size of the events."""
        rows: list[Any] = []
        events: list[Any] = []
        size = 0
        for seq, values in enumerate(done.values(), done.seq):
            element, started, duration, cpu, rss, _, _ = values
            text = encode(done.data(started, duration, cpu, rss))
            rows += values
            events += (seq, element, text)
            size += len(text) + EVENT_BYTES
        count, at = done.high - done.low, 0
        row = (
            done.run, done.number, done.winner, done.exit_code, done.leased, done.ended, done.pilot, done.host, done.site,
        )  # fmt: skip
        event = (done.ended, done.run, done.number, done.pilot, done.site, done.owner)
        while at < count:
            take = next(step for step in (*self._sizes, 1) if step <= count - at)
            self._connection.execute(for_many("add_successes", take), (*row, *rows[7 * at : 7 * (at + take)]))
            self._connection.execute(for_many("add_success_events", take), (*event, *events[3 * at : 3 * (at + take)]))
            at += take
        return size
