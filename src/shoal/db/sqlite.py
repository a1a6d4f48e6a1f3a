"""The one connection that writes: a batch of changes per transaction in, the snapshot of a starting engine out.

Rules: (1) exactly one Database per file, enforced by locks; (2) only it writes and checkpoints, everything else
opens the file read-only (two writers can meet SQLite's WAL-reset bug); (3) one thread at a time.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeVar

from shoal.db import accounts
from shoal.db.backups import BUSY, LOG_FILES, check_connection, copy_to, keep_before_migration, size_of, stamp
from shoal.db.bulk_insert import BulkInsert
from shoal.db.database_lock import Lock, check_location, explained, make_private, rescued, way_out
from shoal.db.final_ranges import StateRange, final_ranges
from shoal.db.migrate import migrate, version_of
from shoal.db.named_queries import SQL
from shoal.db.write_batch import EVENT_BYTES, Batch, clean
from shoal.engine import changes as rows
from shoal.engine.commands import RetrySpan
from shoal.engine.snapshot import FinalRange, KeptRow, LoadedRun, SettledRow, Snapshot
from shoal.engine.state import SETTLED_KEPT
from shoal.model.blobs import BlobDrop, BlobRefDrop, BlobRefRow, BlobRow, BlobRows
from shoal.model.errors import Refused
from shoal.model.ids import LIFE_BITS, next_incarnation
from shoal.model.limits import GONE_KEPT, HOSTS_KEPT
from shoal.model.people import GroupRow, PeopleRows, SiteRow, TokenRow, UserRow

MEMORY = ":memory:"
CHECK_WITHIN = 5.0  # seconds that a start after a kill may take to look for damage
PRUNE_SLICE = 5_000  # events deleted per call: some 20 ms, so that no report waits for retention
MAX_INT = 2**63 - 1
KEEP_AUDIT = 180 * 86_400.0  # seconds that uses of tokens, and dead tokens, stay longer than events
KEEP_GONE = 86_400.0  # seconds that a pilot may stay away and still come back for what it held
RowT = TypeVar("RowT")

_DROP_RUN = (
    "drop_run", "drop_arrays", "drop_spans", "drop_partial", "drop_growth", "drop_plan", "drop_grown", "note_removed",
)  # fmt: skip
_BULK = frozenset({"put_host", "put_pilot", "put_run", "put_chunk", "add_array"})  # of which a batch may have many rows
_BLOBS: dict[type, str] = {
    BlobRow: "put_blob", BlobRefRow: "put_blob_ref", BlobDrop: "drop_blob", BlobRefDrop: "drop_blob_ref",
}  # fmt: skip


class Pruned(NamedTuple):
    """What one slice of retention did."""

    events: int  # deleted
    bytes: int  # their estimated size
    oldest_seq: int  # the smallest that can still be asked for
    more: bool  # call again
    runs: list[int]  # finished before the time: their logs may go; ask on with after_run = the last of them


class FailedTasks(NamedTuple):
    """What of a run is final without success: tasks with rows, and ranges of those without."""

    tasks: list[rows.TaskRow]
    spans: list[RetrySpan]


class Database:
    """The single writer of one database."""

    def __init__(self, connection: sqlite3.Connection, path: str, lock: Lock | None, durability: str) -> None:
        self.connection = connection
        self.path = path
        self._lock = lock
        self.durability = durability
        self.notes: list[str] = []  # what opening it did, for the log
        self._size = 0  # of the file: the largest seen so far
        self._logs: dict[str, tuple[int, int] | None] = {}  # the identities of SQLite's own files beside it
        self._bulk = BulkInsert(connection)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, durability: Literal["full", "normal"] = "full",
        on_locked: Callable[[], None] = lambda: None,
    ) -> Database:  # fmt: skip
        """Open or create a database and migrate it; refused in one line where that would be wrong.

        `normal` may lose the last commits at a power cut (never at a kill), and is for tests and simulations.
        `on_locked` is called once the lock is held, before anything is written.
        """
        location, lock, notes = os.fspath(path), None, []
        if location != MEMORY:
            location = os.path.realpath(location)  # a lock by another name would be no lock
            check_location(location)
            _check_rescued(location)
            lock = Lock(location)
        connection: sqlite3.Connection | None = None
        try:
            on_locked()
            is_unclean = size_of(location + "-wal") > 0
            if lock is not None:
                make_private(location)
                lock.hold_inode()
            with explained(location):
                # isolation_level None: transactions begin and end by our own statements.
                connection = sqlite3.connect(
                    location, isolation_level=None, check_same_thread=False, timeout=BUSY, cached_statements=256
                )
                version_of(connection, location)  # first of all, because it refuses files that are not ours
                if is_unclean:
                    notes.append(_check_after_kill(connection, location))
                kept = keep_before_migration(connection, location) if lock is not None else ""
                if kept:
                    notes.append(f"the database as it was before its migration is kept in {kept}")
                cls._prepare(connection, location, durability)
        except BaseException:
            if connection is not None:
                connection.close()
            if lock is not None:
                lock.close()
            raise
        database = cls(connection, location, lock, durability)
        database.notes = notes
        return database

    @staticmethod
    def _prepare(connection: sqlite3.Connection, path: str, durability: str) -> None:
        migrate(connection, path)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode not in ("wal", "memory"):
            raise Refused(f"{path}: no write-ahead log is possible there", code="unwritable", hint="use a local disk")
        # FULL: a commit is on the disk when it returns. In WAL mode that is one fsync of the log.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if durability == 'normal' else 'FULL'}")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: a plain fsync there does not reach the disk
        connection.execute("PRAGMA foreign_keys = OFF")
        # 16 MiB of log between checkpoints (pages of 4 KiB): a page changed by many batches is copied once.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA journal_size_limit = 67108864")  # a log that a slow reader let grow shrinks again
        connection.execute("PRAGMA cache_size = -4096")  # KiB; rows come in key order: more only looks like a leak
        connection.execute("PRAGMA temp_store = MEMORY")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Checkpoint, close and release the locks. Idempotent."""
        self.connection.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction. IMMEDIATE: a database that cannot be written fails before work is done.

        SQLite's own errors pass: only the writer knows after which of them (a full disk) to try again.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:  # SQLite may have rolled back by itself, as after a full disk
                self.connection.execute("ROLLBACK")
            raise

    # --- writing
    def raise_incarnation(self, now: float, salt: int | None = None) -> int:
        """Count this start, durably whatever the durability; returns the new incarnation, which no other start has, not
        even of an older copy of this database. `salt`: its random bits, for simulations that are to be repeatable."""
        salt = secrets.randbits(LIFE_BITS) if salt is None else salt
        self.connection.execute("PRAGMA synchronous = FULL")
        with self._transaction() as connection:
            value = next_incarnation(self._meta("incarnation"), salt)
            connection.execute(SQL["set_meta"], {"key": "incarnation", "value": value})
            connection.execute(SQL["set_meta"], {"key": "started", "value": now})
            if not self._meta("ended"):
                connection.execute(SQL["raise_bases"])
            connection.execute(SQL["set_meta"], {"key": "ended", "value": 0})
        if self.durability == "normal":
            self.connection.execute("PRAGMA synchronous = NORMAL")
        return value

    def end_in_order(self) -> None:
        """Record a clean shutdown: the next start knows that no lease is missing from the database."""
        with self._transaction() as connection:
            connection.execute(SQL["set_meta"], {"key": "ended", "value": 1})

    def apply(self, changes: Sequence[rows.Change]) -> None:
        """Write a batch in one transaction; if any of it fails, none of it is there."""
        if not changes:
            return
        try:
            self._write(Batch(changes))
        except UnicodeEncodeError:
            # A lone surrogate (a file name that is not UTF-8, or a hostile pilot) has no UTF-8 form. It must not
            # stop the results of everybody else.
            self._write(Batch(clean(changes)))

    def _write(self, batch: Batch) -> None:
        with self._transaction() as connection:
            size = sum(self._bulk.succeed(successes) for successes in batch.successes)
            self._bulk.insert("put_task", batch.tasks)
            self._bulk.insert("add_acct", batch.acct)
            for statement, found in batch.rows.items():
                if statement in _BULK:
                    self._bulk.insert(statement, found)
                else:
                    connection.executemany(SQL[statement], found)
            for kind, blobs in groupby(batch.blobs, type):
                connection.executemany(SQL[_BLOBS[kind]], blobs)
            for change in batch.spans:
                if isinstance(change, rows.SpanDrop):
                    self._drop_span(change)
                else:
                    connection.execute(SQL["add_span"], change)
            for table in batch.tables:
                connection.execute(SQL["set_table"], table._asdict())
            for drop in batch.run_drops:
                for statement in _DROP_RUN:
                    connection.execute(SQL[statement], drop._asdict())
            if batch.events:
                self._bulk.insert("add_event", batch.events)
            if batch.events or size:
                connection.execute(SQL["add_event_bytes"], {"bytes": batch.event_bytes + size})

    def _drop_span(self, drop: rows.SpanDrop) -> None:
        """Remove elements from the spans they are in; the elements before and after them stay."""
        if drop.low >= drop.high:
            return
        for span in self._rows(rows.SpanRow, "hit_spans", **drop._asdict()):
            self.connection.execute(SQL["drop_span"], (span.run, span.low))
            if span.low < drop.low:
                self.connection.execute(SQL["add_span"], span._replace(high=drop.low))
            if span.high > drop.high:
                self.connection.execute(SQL["add_span"], span._replace(low=drop.high))

    def drop_tasks(self, run: int | None = None, limit: int = PRUNE_SLICE) -> bool:
        """Delete some tasks of a removed run, or of any; True: there may be more. The run itself is gone already, so
        nobody waits for it, and what a crash leaves behind is deleted with the next old events."""
        found = [run] if run is not None else [run for (run,) in self.connection.execute(SQL["removed_runs"])]
        with self._transaction() as connection:
            counts = [connection.execute(SQL["drop_tasks"], {"run": one, "limit": limit}).rowcount for one in found[:1]]
        return len(found) > 1 or limit in counts

    # --- reading for the engine and the server
    def snapshot(self) -> Snapshot:
        """Everything unfinished, for a starting engine; `settled` oldest first, `done` by run, state and element."""
        runs = self._rows(rows.RunRow, "open_runs")
        arrays = [row for run in runs for row in self._rows(rows.ArrayRow, "arrays_of_run", run=run.run)]
        growths = [row for run in runs for row in self._rows(rows.GrowthRow, "get_growth", run=run.run)]
        with_parents = dict.fromkeys(row.run for row in arrays if '"after' in row.task)
        with_parents |= dict.fromkeys(row.run for row in growths)
        return Snapshot(
            incarnation=self._meta("incarnation"),
            lease_key=bytes.fromhex(self.connection.execute(SQL["get_meta"], {"key": "lease_key"}).fetchone()[0]),
            next_run=self._one("last_run") + 1,
            next_seq=max(self._one("last_event"), self._meta("oldest_seq") - 1) + 1,
            last_time=next(iter(self.connection.execute(SQL["last_time"])), (0.0,))[0],
            runs=runs,
            arrays=arrays,
            tasks=[row for run in runs for row in self._rows(rows.TaskRow, "open_tasks", run=run.run)],
            done=[final for run in runs for final in self._done(run.run)],
            chunks=self._rows(rows.ChunkRow, "all_chunks"),
            kept=[row for run in with_parents for row in self._rows(KeptRow, "kept_outputs", run=run)],
            pilots=self._rows(rows.PilotRow, "living_pilots"),
            gone=self._rows(rows.PilotRow, "gone_pilots", after=self._meta("started") - KEEP_GONE, limit=GONE_KEPT),
            hosts=self._rows(rows.HostRow, "list_hosts", holders="", limit=HOSTS_KEPT),
            groups={user.name: user.grp for user in self._rows(UserRow, "all_users") if user.grp},
            settled=self._rows(SettledRow, "settled_tasks", limit=SETTLED_KEPT)[::-1],
            policy=next(iter(self._rows(rows.PolicyRow, "newest_policy")), None),
            usage=self._rows(rows.UsageRow, "all_usage"),
            places=self._rows(rows.PlaceRow, "all_places"),
            spent=accounts.spent(self.connection, self._meta("started")),
            partials=[row for run in runs for row in self._rows(rows.PartialRow, "get_partial", run=run.run)],
            growths=growths,
            plans=[row for run in runs for row in self._rows(rows.PlanRow, "get_plan", run=run.run)],
            grown=[row for one in growths for row in self._rows(rows.GrownRow, "grown_files", run=one.run)],
        )

    def people(self, now: float) -> PeopleRows:
        """Users, groups, sites and tokens that may still be used."""
        return PeopleRows(
            self._rows(UserRow, "all_users"), self._rows(GroupRow, "all_groups"),
            self._rows(TokenRow, "live_tokens", now=now), self._rows(SiteRow, "all_sites"), self._one("last_audit") + 1,
        )  # fmt: skip

    def blobs(self) -> BlobRows:
        """All blobs and who holds them."""
        return BlobRows(self._rows(BlobRow, "all_blobs"), self._rows(BlobRefRow, "all_blob_refs"))

    def load_run(self, run: int) -> LoadedRun | None:
        """One run as a snapshot would have it, whether finished or not."""
        found = self._rows(rows.RunRow, "get_run", run=run)
        if not found:
            return None
        arrays = self._rows(rows.ArrayRow, "arrays_of_run", run=run)
        kept = self._rows(KeptRow, "kept_outputs", run=run)
        partials = self._rows(rows.PartialRow, "get_partial", run=run)
        tasks = self._rows(rows.TaskRow, "open_tasks", run=run)
        growths = self._rows(rows.GrowthRow, "get_growth", run=run)
        grown = self._rows(rows.GrownRow, "grown_files", run=run) if growths else []
        plans = self._rows(rows.PlanRow, "get_plan", run=run)
        return LoadedRun(found[0], arrays, tasks, self._done(run), kept, partials, growths, grown, plans)

    def failed_rows(self, run: int, element: int | None = None) -> FailedTasks:
        """What of a run, or of one element, is final without success."""
        low, high = (0, MAX_INT) if element is None else (element, element)
        failed = self._rows(rows.TaskRow, "failed_tasks", run=run, low=low, high=high)
        if element is None:
            spans = self._rows(rows.SpanRow, "spans_of_run", run=run)
        else:
            spans = self._rows(rows.SpanRow, "hit_spans", run=run, low=element, high=element + 1)
            spans = [span._replace(low=element, high=element + 1) for span in spans]
        ranges = [RetrySpan(span.low, span.high, span.state) for span in spans if span.state != "succeeded"]
        return FailedTasks(failed, ranges)

    def _done(self, run: int) -> list[FinalRange]:
        """The final elements of a run as the longest ranges of one state."""
        spans = self._rows(rows.SpanRow, "spans_of_run", run=run)
        ranges = [*(StateRange(span.state, span.low, span.high) for span in spans), *final_ranges(self.connection, run)]
        merged: list[FinalRange] = []
        for state, low, high in sorted(ranges):
            if merged and merged[-1].state == state and merged[-1].high >= low:
                merged[-1] = merged[-1]._replace(high=max(high, merged[-1].high))
            else:
                merged.append(FinalRange(run, low, high, state))
        return merged

    def _rows(self, kind: Callable[..., RowT], query: str, **values: Any) -> list[RowT]:
        return [kind(*row) for row in self.connection.execute(SQL[query], values)]

    def _one(self, query: str, **values: Any) -> int:
        return int(self.connection.execute(SQL[query], values).fetchone()[0])

    def _meta(self, key: str) -> int:
        return self._one("get_meta", key=key)

    # --- maintenance
    def prune(self, before: float, max_bytes: int, *, after_run: int = 0, limit: int = PRUNE_SLICE) -> Pruned:
        """Delete the oldest events that are older than a time or over a budget of bytes, `limit` of them at most.

        Only the beginning of the journal is deleted, so that the rest has no gaps. It ends at the first event that is
        young enough: a clock that was wrong for a minute must not make the events before it look old.
        """
        size = self._meta("event_bytes")
        count, freed, last = 0, 0, self._meta("oldest_seq") - 1
        for seq, time, length in self.connection.execute(SQL["oldest_events"], {"limit": limit}).fetchall():
            if time >= before and size - freed <= max_bytes:
                break
            count, freed, last = count + 1, freed + length + EVENT_BYTES, seq
        if count:
            with self._transaction() as connection:
                connection.execute(SQL["drop_events"], {"seq": last})
                connection.execute(SQL["set_meta"], {"key": "oldest_seq", "value": last + 1})
                connection.execute(SQL["add_event_bytes"], {"bytes": -freed})
        with self._transaction() as connection:
            connection.execute(SQL["drop_audit"], {"limit": limit, "before": before - KEEP_AUDIT})
            connection.execute(SQL["drop_tokens"], {"before": before - KEEP_AUDIT})
            accounts.prune(connection, before)
        found = self.connection.execute(SQL["old_runs"], {"after": after_run, "before": before, "limit": limit})
        runs = [run for (run,) in found]
        more = count == limit or len(runs) == limit
        return Pruned(count, freed, last + 1, more, runs)

    def rescue(self) -> str:
        """Copy the database that is still open here to a file beside the path it had; returns its name."""
        target = f"{self.path}.rescue-{stamp()}"
        copy_to(self.connection, target)
        return target

    def displaced(self) -> str:
        """How the files that are open here were removed or replaced; empty: they were not. From any thread.

        Without this a server would write into files that have no name any more, and answer as if nothing were wrong.
        """
        if self._lock is None:
            return ""
        known = self._size  # read before the check: another thread may check meanwhile and find the file grown
        mine = self._lock.stat()
        if mine is None:
            return ""
        found = _identity(self.path)
        if found != (mine.st_dev, mine.st_ino):
            return f"{self.path} was {'replaced' if found else 'removed'} while the server ran"
        if mine.st_size < known:
            return f"{self.path} was cut short while the server ran"
        self._size = max(self._size, mine.st_size)
        for suffix in LOG_FILES:
            seen = _identity(self.path + suffix)
            if self._logs.setdefault(suffix, seen) != seen:
                if self._logs[suffix] is not None:
                    how = "replaced" if seen else "removed"
                    return f"{self.path}{suffix}, the database's log, was {how} while the server ran"
                self._logs[suffix] = seen
        return ""


def _check_rescued(path: str) -> None:
    """Refuse to create a new database where one was removed under a server: its copy may be wanted."""
    found = rescued(path)
    if found and not os.path.exists(path):
        raise Refused(
            f"{path} was removed while a server ran, which saved {found[-1]}", code="database_gone",
            hint=f"{way_out(path)}, or delete that copy to begin anew",
        )  # fmt: skip


def _check_after_kill(connection: sqlite3.Connection, path: str) -> str:
    """A quick check of a database whose last server did not end in order: a power cut may have damaged it."""
    end = monotonic() + CHECK_WITHIN
    connection.set_progress_handler(lambda: monotonic() > end, 100_000)
    try:
        wrong = check_connection(connection, full=False)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_INTERRUPT:
            raise
        return f"the last server did not end in order; {CHECK_WITHIN:g} s were too short to check the database"
    finally:
        connection.set_progress_handler(None, 0)
    if wrong:
        raise Refused(f"{path} is damaged: {wrong[0]}", code="corrupt", hint=way_out(path))
    return "the last server did not end in order; the database was checked and is sound"


def _identity(path: str) -> tuple[int, int] | None:
    """The device and inode of the file that has this name now; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
