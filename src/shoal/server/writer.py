"""Group commit: one thread owns the database and writes everything queued since its last commit in one transaction
[ADR 0002].

The event loop queues changes and never waits; an answer that must not be sent before its changes are durable is queued
as a callback, which runs on the loop after the commit.
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

from shoal.db.database_lock import refusal_of, way_out
from shoal.db.sqlite import Database
from shoal.engine.changes import Change
from shoal.model.errors import ShoalError
from shoal.server.disk_reserve import Reserve, is_full

log = logging.getLogger(__name__)
T = TypeVar("T")
ALONE = 0.01  # seconds that changes wait to be batched, if nobody waits for their commit
CROWD = 4  # answers that waited for one commit, from which on the loop gathers what it has at hand before the next
GATHER = 0.02  # seconds that it gathers at most
# Submissions that do not wait, after one that did and nothing came: calls may be longer, or the machine busy.
IN_VAIN = 8
UNDERWAY = 0.01  # seconds that a submission whose tasks run already waits for their reports, to share their commit
RETRY_FULL = 1.0  # seconds between tries while the disk is full
STUCK_END = 3.0  # seconds that a server that is to end waits for space for its last changes
GOODBYE = 2.0  # seconds that a server whose database is gone still answers requests with that error
DEFECT = 5  # exit code, also of a server whose database cannot be written
# Errors of SQLite that may mean a full disk or quota. None of them is a failed fsync, which is never tried again.
_MAY_BE_FULL = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP)
_READING = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)  # errors that lose no write


class Writer:
    """The queue and the thread that alone use the database."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop, reserve: Reserve) -> None:
        self._database, self._loop, self._reserve = database, loop, reserve
        self._queue: queue.SimpleQueue[list[_Entry] | None] = queue.SimpleQueue()
        self._gathered: list[_Entry] = []  # on the loop, for the next commit
        self._gathering_since = 0.0
        self._patience: asyncio.TimerHandle | None = None  # until when everything gathered may wait
        self._in_vain = 0  # how many are not worth that
        self._is_crowded = False  # many answers waited for the last commit
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._unsettled = 0  # entries queued and not yet committed
        self.trouble = ""  # not empty: the disk is full, nothing new can be accepted
        self.gone = ""  # not empty: the database was removed or replaced under the server
        self.on_gone: Callable[[], None] = lambda: None
        self.on_stuck: Callable[[], None] = lambda: None  # changes begin to wait for space
        self._stuck_since = 0.0  # changes wait for space since then, by the monotonic clock; 0: none do
        self._end_by = float("inf")  # the server is to end: changes wait for space until then
        self.commits = 0
        self.on_commit: Callable[[list[Sequence[Change]]], None] = lambda written: None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, changes: Sequence[Change], then: Callable[[], None] | None = None, *, may_wait: bool = False) -> None:
        """Queue changes for the next commit; `then` runs on the loop after it, in order. `may_wait`: what comes in the
        next moment needs a commit of its own, which these may share."""
        if not changes and not self._unsettled:
            if then is not None:
                then()
            return
        self._gather(_Entry(changes, then), may_wait)

    def _gather(self, entry: _Entry, may_wait: bool = False) -> None:
        """Hand an entry to the thread: at once, or where many exchanges are at work together with those that the loop has
        at hand. A commit costs the same for one exchange as for a hundred, and takes the interpreter from the loop."""
        self._unsettled += 1
        self._gathered.append(entry)
        if may_wait and not self._is_crowded and self._patience is None:
            if self._in_vain:
                self._in_vain -= 1
            else:
                self._patience = self._loop.call_later(UNDERWAY, self._give_up_waiting)
        if self._patience is not None and (may_wait or (entry.then is None and entry.query is None)):
            return
        if not self._is_crowded or entry.query is not None:
            self._hand_over()
        elif len(self._gathered) == 1:
            self._gathering_since = self._loop.time()
            self._loop.call_soon(self._hand_over)  # after everything that is ready now
        elif self._loop.time() - self._gathering_since >= GATHER:
            self._hand_over()

    def _give_up_waiting(self) -> None:
        self._in_vain = IN_VAIN
        self._hand_over()

    def _hand_over(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    async def ask(self, query: Callable[[Database], T]) -> T:
        """Run a query on the writer's thread, after everything that was queued before it."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._gather(_Entry((), None, lambda db: self._answer(answer, query)))
        return await answer

    async def settled(self) -> None:
        """Wait until everything queued so far is durable."""
        done: asyncio.Future[None] = self._loop.create_future()
        self.put((), lambda: give(done, None))
        await done

    @property
    def stuck_for(self) -> float:
        """Seconds that changes have waited for space on a full disk whose reserve is used up; 0: none do."""
        since = self._stuck_since
        return max(1e-6, time.monotonic() - since) if since else 0.0

    @property
    def is_settled(self) -> bool:
        """True if everything queued so far is durable."""
        return not self._unsettled

    async def stop(self) -> None:
        """Write what is queued, then close the database. A full disk is waited for only a moment: a server that keeps the
        lock and answers nobody would keep everybody else out."""
        self._end_by = time.monotonic() + STUCK_END
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def watch(self) -> None:
        """Check every second or so that the database's files are there, and whether a full disk has space again."""
        if self.gone:
            return
        displaced = self._database.displaced()
        if displaced:
            self.gone = displaced
            self._gather(_Entry((), None, lambda database: self._leave()))
            self.on_gone()
        elif self.trouble and not self._stuck_since and self._reserve.keep():
            log.warning("the disk has space again: %d bytes are free", self._reserve.free())
            self.trouble = ""

    # --- on the writer's thread
    def _run(self) -> None:
        while True:
            found = self._queue.get()
            entries: list[_Entry] = []
            is_awaited = False
            while found is not None:
                entries += found
                is_awaited = is_awaited or any(entry.then is not None for entry in found)
                if found[-1].query is not None:  # handed over at once, so it is the last of them
                    break
                try:
                    # Changes for which nobody waits, such as leases, are batched for a moment: another commit in the
                    # middle of a call would only delay the loop that has to answer.
                    found = self._queue.get(not is_awaited, ALONE)
                except queue.Empty:
                    break
            if entries:
                self._write(entries)
            if found is None:
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
        if last.query is not None:
            last.query(self._database)
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
            self._stuck_since = 0.0
            self.commits += 1
            # Before anybody gets an answer: what was written into a file without a name is not durable.
            if not self.gone:
                self.gone = self._database.displaced()
            if self.gone:
                self._leave()
            return

    def _is_full(self, error: sqlite3.OperationalError) -> bool:
        code = error.sqlite_errorcode
        return code & 0xFF == sqlite3.SQLITE_FULL or (code in _MAY_BE_FULL and is_full(self._reserve.path.parent))

    def _is_unwritten(self, error: sqlite3.OperationalError) -> bool:
        """True if a write or fsync failed, and not because the disk is full."""
        code = error.sqlite_errorcode
        return code & 0xFF == sqlite3.SQLITE_IOERR and code not in _READING and not self._is_full(error)

    def _wait_for_space(self, count: int) -> None:
        """Use the reserve, refuse new work and try again: the engine has gone on, so these rows must be written."""
        if self.gone:
            self._leave()
        given_up = self._reserve.give_up()
        if not self.trouble or (not given_up and not self._stuck_since):
            how = "the reserve is used" if given_up else "changes wait"
            log.error("the disk is full, changes=%d: %s; free some space", count, how)
        self.trouble = self._reserve.trouble()
        if given_up:
            return
        if time.monotonic() >= self._end_by:
            # As after a crash: nobody was told that these changes are done, and pilots report once more.
            log.critical(
                "the disk is full, so the server ends without changes=%d; nobody was told they are done", count
            )
            os._exit(DEFECT)
        if not self._stuck_since:
            self._stuck_since = time.monotonic()
            self._loop.call_soon_threadsafe(self.on_stuck)
        time.sleep(RETRY_FULL)

    def _end(self) -> None:
        """Record the clean shutdown, if there is space for that, and close the database in any case."""
        try:
            self._with_reserve(Database.end_in_order)
        except sqlite3.Error as error:
            log.error("the end could not be noted, so the next start is one as after a crash: %s", error)
        finally:
            self._database.close()

    def _with_reserve(self, query: Callable[[Database], T]) -> T:
        """Run a query; once more with the reserve's space if the disk is full."""
        try:
            return query(self._database)
        except sqlite3.OperationalError as error:
            if not self._is_full(error) or not self._reserve.give_up():
                raise
            self.trouble = self._reserve.trouble()
            return query(self._database)

    def _leave(self) -> None:
        """End after the database was removed or replaced: save a copy of what is open, and leave the new files alone.

        Closing SQLite would delete the log by its name, which may be another database's.
        """
        path = self._database.path
        self._loop.call_soon_threadsafe(self.on_gone)
        self._reserve.give_up()  # the copy needs its space
        try:
            copy = self._database.rescue()
        except (sqlite3.Error, ShoalError, OSError) as error:
            saved = f"what it held could not be saved: {error}"
        else:
            state = shlex.quote(os.path.dirname(path))
            saved = f"what it held is in {copy} (`shoal server restore --state {state} {shlex.quote(copy)}`)"
        log.critical("%s, so the server ends; %s", self.gone, saved)
        time.sleep(GOODBYE)
        os._exit(DEFECT)

    def _die(self, error: Exception) -> None:
        """End after a failed commit or fsync, which is never retried: a restart reads what is on the disk."""
        path = self._database.path
        self.gone = self.gone or self._database.displaced()
        if self.gone:
            self._leave()
        refusal = refusal_of(path, error) if isinstance(error, sqlite3.Error) else None
        why = refusal.line if refusal is not None else f"{error} ({way_out(path)})"
        log.critical("the database cannot be written, the server ends: %s", why)
        os._exit(DEFECT)

    def _answer(self, answer: asyncio.Future[T], query: Callable[[Database], T]) -> None:
        try:
            found = self._with_reserve(query)  # retention, which frees space, needs some to begin with
        except Exception as error:
            if isinstance(error, sqlite3.OperationalError) and self._is_unwritten(error):
                self._die(error)
            self._loop.call_soon_threadsafe(fail, answer, error)
        else:
            self._loop.call_soon_threadsafe(give, answer, found)

    # --- on the loop
    def _settle(self, entries: list[_Entry]) -> None:
        self._unsettled -= len(entries)
        answered = 0
        for entry in entries:
            if entry.then is not None:
                answered += 1
                try:
                    entry.then()
                except Exception:  # must not keep the other callbacks from running
                    log.exception("a callback after a commit failed")
        self._is_crowded = answered >= (2 if self._is_crowded else CROWD)
        self.on_commit([entry.changes for entry in entries])


class _Entry(NamedTuple):
    changes: Sequence[Change]
    then: Callable[[], None] | None
    query: Callable[[Database], None] | None = None


def give(waiter: asyncio.Future[T], found: T) -> None:
    """Resolve a future, unless its waiter has gone away."""
    if not waiter.done():
        waiter.set_result(found)


def fail(waiter: asyncio.Future[T], error: Exception) -> None:
    """Fail a future, unless its waiter has gone away."""
    if not waiter.done():
        waiter.set_exception(error)
