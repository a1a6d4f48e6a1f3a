"""Group commit: one thread owns the database and writes everything that came since its last commit in one go (A2).

The event loop puts changes in and never waits; what must not be said before it is durable is put in as a
callback and runs on the loop after the commit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from shoal.db.sqlite import Database
from shoal.engine.changes import Change

log = logging.getLogger(__name__)
T = TypeVar("T")
ALONE = 0.01  # seconds that changes wait for others, if nobody waits for their commit
RETRY_FULL = 1.0  # seconds between tries while the disk is full


class Writer:
    """The only one who touches the database."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        self._database, self._loop = database, loop
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._unsettled = 0  # entries put in and not yet committed
        self.trouble = ""  # not empty: the disk is full, nothing new can be accepted
        self.commits = 0
        self.on_commit: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, changes: Sequence[Change], then: Callable[[], None] | None = None) -> None:
        """Have changes written with the next commit; `then` runs on the loop after it, in order."""
        if not changes and not self._unsettled:
            if then is not None:
                then()
            return
        self._unsettled += 1
        self._queue.put(_Entry(changes, then))

    async def ask(self, question: Callable[[Database], T]) -> T:
        """Ask the database something that must see everything put in before; answered on the writer's thread."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._unsettled += 1
        self._queue.put(_Entry((), None, lambda db: self._answer(answer, question, db)))
        return await answer

    async def settled(self) -> None:
        """Wait until everything put in so far is durable."""
        done: asyncio.Future[None] = self._loop.create_future()
        self.put((), lambda: _give(done, None))
        await done

    async def stop(self) -> None:
        """Write what is left, then close the database."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # --- on the writer's thread
    def _run(self) -> None:
        while True:
            entry = self._queue.get()
            entries: list[_Entry] = []
            is_awaited = False
            while entry is not None:
                entries.append(entry)
                is_awaited = is_awaited or entry.then is not None
                if entry.question is not None:
                    break
                try:
                    # What nobody waits for, a lease for one, waits a moment for company: another commit in the middle
                    # of a call would only hold up the loop that has to answer.
                    entry = self._queue.get(not is_awaited, ALONE)
                except queue.Empty:
                    break
            if entries:
                self._write(entries)
            if entry is None:
                self._database.close()
                return

    def _write(self, entries: list[_Entry]) -> None:
        changes = [change for entry in entries for change in entry.changes]
        if changes:
            self._commit(changes)
        last = entries[-1]
        if last.question is not None:
            last.question(self._database)
        self._loop.call_soon_threadsafe(self._settle, entries)

    def _commit(self, changes: list[Change]) -> None:
        while True:
            try:
                self._database.apply(changes)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL:
                    # The engine has gone on already, so these rows must land: wait for space, refuse new work.
                    self.trouble = "the disk is full"
                    log.error("disk full, changes=%d wait", len(changes))
                    time.sleep(RETRY_FULL)
                    continue
                self._die(error)
            except Exception as error:
                self._die(error)
            self.trouble = ""
            self.commits += 1
            return

    def _die(self, error: Exception) -> None:
        """A failed commit or fsync is never retried: memory and disk differ, a restart reads what is on disk."""
        log.critical("the database cannot be written, the server ends: %s", error)
        os._exit(5)

    def _answer(self, answer: asyncio.Future[T], question: Callable[[Database], T], database: Database) -> None:
        try:
            found = question(database)
        except Exception as error:
            self._loop.call_soon_threadsafe(_fail, answer, error)
        else:
            self._loop.call_soon_threadsafe(_give, answer, found)

    # --- on the loop
    def _settle(self, entries: list[_Entry]) -> None:
        self._unsettled -= len(entries)
        for entry in entries:
            if entry.then is not None:
                try:
                    entry.then()
                except Exception:  # what one command's sender cannot be told must not keep it from the others
                    log.exception("what follows a commit failed")
        self.on_commit()


class _Entry:
    __slots__ = ("changes", "question", "then")

    def __init__(
        self,
        changes: Sequence[Change],
        then: Callable[[], None] | None,
        question: Callable[[Database], None] | None = None,
    ) -> None:
        self.changes, self.then, self.question = changes, then, question


def _give(answer: asyncio.Future[T], found: T) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
