"""Group commit: one thread owns the database and writes everything that came since its last commit in one go
[ADR 0002].

The event loop puts changes in and never waits; what must not be said before it is durable is put in as a
callback and runs on the loop after the commit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import shlex
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from shoal.db.location import refusal_of, way_out
from shoal.db.sqlite import Database
from shoal.engine.changes import Change
from shoal.model.errors import ShoalError
from shoal.server.disk_reserve import Reserve, is_full

log = logging.getLogger(__name__)
T = TypeVar("T")
ALONE = 0.01  # seconds that changes wait for others, if nobody waits for their commit
RETRY_FULL = 1.0  # seconds between tries while the disk is full
LAST_WORDS = 2.0  # seconds that a server whose database is gone still answers, to say so
DEFECT = 5  # exit code, also of a server whose database cannot be written
# Errors of SQLite that may mean a full disk or quota. None of them is a failed fsync, which is never tried again.
_MAY_BE_FULL = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP)
_READING = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)  # nothing was to be written


class Writer:
    """The only one who touches the database."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop, reserve: Reserve) -> None:
        self._database, self._loop, self._reserve = database, loop, reserve
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._unsettled = 0  # entries put in and not yet committed
        self.trouble = ""  # not empty: the disk is full, nothing new can be accepted
        self.gone = ""  # not empty: the database was taken away under us; nothing is true any more
        self.on_gone: Callable[[], None] = lambda: None
        self._is_stuck = False  # changes wait for space
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
        self._queue.put(_Entry((), None, lambda db: self._answer(answer, question)))
        return await answer

    async def settled(self) -> None:
        """Wait until everything put in so far is durable."""
        done: asyncio.Future[None] = self._loop.create_future()
        self.put((), lambda: give(done, None))
        await done

    async def stop(self) -> None:
        """Write what is left, then close the database."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def watch(self) -> None:
        """Look after the disk, every second or so: are our files there, is there space again?"""
        if self.gone:
            return
        displaced = self._database.displaced()
        if displaced:
            self.gone = displaced
            self._queue.put(_Entry((), None, lambda database: self._leave()))
            self.on_gone()
        elif self.trouble and not self._is_stuck and self._reserve.keep():
            log.warning("the disk has space again: %d bytes are free", self._reserve.free())
            self.trouble = ""

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
                self.gone = self.gone or self._database.displaced()
                if self.gone:
                    self._leave()
                self._end()
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
                if self._is_full(error):
                    self._wait_for_space(len(changes))
                    continue
                self._die(error)
            except Exception as error:
                self._die(error)
            self._is_stuck = False
            self.commits += 1
            # Before anybody is told: what was written into a file without a name is not durable.
            if not self.gone:
                self.gone = self._database.displaced()
            if self.gone:
                self._leave()
            return

    def _is_full(self, error: sqlite3.OperationalError) -> bool:
        code = error.sqlite_errorcode
        return code & 0xFF == sqlite3.SQLITE_FULL or (code in _MAY_BE_FULL and is_full(self._reserve.path.parent))

    def _is_unwritten(self, error: sqlite3.OperationalError) -> bool:
        """True if what was to be on the disk may not be: a failed write or fsync, and not for want of space."""
        code = error.sqlite_errorcode
        return code & 0xFF == sqlite3.SQLITE_IOERR and code not in _READING and not self._is_full(error)

    def _wait_for_space(self, count: int) -> None:
        """The engine has gone on already, so these rows must land: take the reserve, refuse new work, try again."""
        if self.gone:
            self._leave()
        given_up = self._reserve.give_up()
        if not self.trouble or (not given_up and not self._is_stuck):
            how = "the reserve is used" if given_up else "changes wait"
            log.error("the disk is full, changes=%d: %s; free some space", count, how)
        self.trouble = self._reserve.trouble()
        if not given_up:
            self._is_stuck = True
            time.sleep(RETRY_FULL)

    def _end(self) -> None:
        """Note the end in order, if there is space for that, and close the database in any case."""
        try:
            self._with_reserve(Database.end_in_order)
        except sqlite3.Error as error:
            log.error("the end could not be noted, so the next start is one as after a crash: %s", error)
        finally:
            self._database.close()

    def _with_reserve(self, question: Callable[[Database], T]) -> T:
        """Ask the database; once more with the reserve's space if the disk is full."""
        try:
            return question(self._database)
        except sqlite3.OperationalError as error:
            if not self._is_full(error) or not self._reserve.give_up():
                raise
            self.trouble = self._reserve.trouble()
            return question(self._database)

    def _leave(self) -> None:
        """The database was taken away: save what is open, tell it, and end without touching what bears its name now.

        To close SQLite would delete the log by its name, which may be another database's.
        """
        path = self._database.path
        self._loop.call_soon_threadsafe(self.on_gone)
        self._reserve.give_up()  # the copy needs space, and nobody needs the reserve any more
        try:
            copy = self._database.rescue()
        except (sqlite3.Error, ShoalError, OSError) as error:
            saved = f"what it held could not be saved: {error}"
        else:
            state = shlex.quote(os.path.dirname(path))
            saved = f"what it held is in {copy} (`shoal server restore --state {state} {shlex.quote(copy)}`)"
        log.critical("%s, so the server ends; %s", self.gone, saved)
        time.sleep(LAST_WORDS)
        os._exit(DEFECT)

    def _die(self, error: Exception) -> None:
        """A failed commit or fsync is never retried: memory and disk differ, a restart reads what is on disk."""
        path = self._database.path
        self.gone = self.gone or self._database.displaced()
        if self.gone:
            self._leave()
        refusal = refusal_of(path, error) if isinstance(error, sqlite3.Error) else None
        why = refusal.line if refusal is not None else f"{error} ({way_out(path)})"
        log.critical("the database cannot be written, the server ends: %s", why)
        os._exit(DEFECT)

    def _answer(self, answer: asyncio.Future[T], question: Callable[[Database], T]) -> None:
        try:
            found = self._with_reserve(question)  # retention, the very thing that makes space, needs some to begin with
        except Exception as error:
            if isinstance(error, sqlite3.OperationalError) and self._is_unwritten(error):
                self._die(error)
            self._loop.call_soon_threadsafe(fail, answer, error)
        else:
            self._loop.call_soon_threadsafe(give, answer, found)

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


class _Entry(NamedTuple):
    changes: Sequence[Change]
    then: Callable[[], None] | None
    question: Callable[[Database], None] | None = None


def give(waiter: asyncio.Future[T], found: T) -> None:
    """Resolve a future, unless its waiter has gone away."""
    if not waiter.done():
        waiter.set_result(found)


def fail(waiter: asyncio.Future[T], error: Exception) -> None:
    """Fail a future, unless its waiter has gone away."""
    if not waiter.done():
        waiter.set_exception(error)
