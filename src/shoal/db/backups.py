"""Copies of a database: backups, copies before a migration, restoring one, and integrity checks.

backups/shoal-20260131-120000.db        made by `shoal server backup` without a name
backups/before-schema-5-20260131-....db made before a migration; the last two are kept
shoal.db.replaced-20260131-120000       replaced by `shoal server restore`
shoal.db.rescue-20260131-120000         saved by a server whose database was removed while it ran
"""

from __future__ import annotations

import contextlib
import glob
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from shoal.db.database_lock import BACKUPS, Lock, check_location, explained, make_private, sync_folder, unwritable
from shoal.db.migrate import newest, version_of
from shoal.db.named_queries import SQL
from shoal.model.errors import NotFound, Refused
from shoal.model.file_names import beside

KEPT_BEFORE = 2  # copies from before migrations
BUSY = 2.0  # seconds to wait for a lock: only a reader that replays the log of a killed server holds one
_UNCHANGING = "mode=ro&immutable=1"
LOG_FILES = ("-wal", "-shm")  # SQLite's own, beside the database
_TOKENS_SINCE, _CHUNKS_SINCE = 2, 3  # schema versions: an older copy has none


def connect_readonly(path: str) -> sqlite3.Connection:
    """A connection that cannot write, beside a server or without one."""
    connection = _connect(path, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        # Even a reader makes -wal and -shm files beside a WAL database. Where it may not, a database that was
        # closed cleanly has no log, and may be read as a file that never changes. With a log that would be wrong.
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CANTOPEN or size_of(path + "-wal"):
            raise
        connection = _connect(path, _UNCHANGING)
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _connect(path: str, options: str) -> sqlite3.Connection:
    uri = f"{Path(path).absolute().as_uri()}?{options}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY)


def size_of(path: str) -> int:
    """The bytes of a file; 0 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def stamp() -> str:
    """The time in the names of copies."""
    return time.strftime("%Y%m%d-%H%M%S")


# --- making copies
def copy_to(source: sqlite3.Connection, target: str, database: str = "") -> None:
    """Copy a database to a file, whole or not at all, and durably; it may be written meanwhile."""
    if database and os.path.exists(target) and os.path.samefile(target, database):
        raise Refused(f"{target} is the database itself", code="bad_backup", hint="name another file")
    part = beside(target, f"{os.getpid()}.part")
    try:
        make_private(part)
        with explained(target):
            # nolock: nobody else uses this name, and the copy may be on a network file system.
            uri = f"{Path(part).as_uri()}?nolock=1"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as copy:
                source.backup(copy)
        os.replace(part, target)
    except OSError as error:
        raise unwritable(target, error) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
    sync_folder(os.path.dirname(target))


def back_up(path: str, target: str | None = None) -> str:
    """Copy a database, with or without a server on it, as of now; returns the path of the copy."""
    path = _existing(path)
    target = os.path.abspath(target) if target is not None else f"{_folder(path)}/shoal-{stamp()}.db"
    with reading(path) as connection:
        version_of(connection, path)
        copy_to(connection, target, path)
    return target


def keep_before_migration(connection: sqlite3.Connection, path: str) -> str:
    """Copy a database that is about to be migrated; returns the path, empty if there is nothing to keep."""
    version = version_of(connection, path)
    if not 0 < version < newest():
        return ""
    target = f"{_folder(path)}/before-schema-{newest()}-{stamp()}.db"
    copy_to(connection, target, path)
    kept = sorted(glob.glob(f"{glob.escape(_folder(path))}/before-schema-*.db"), key=os.path.getmtime)
    for old in kept[:-KEPT_BEFORE]:
        os.unlink(old)
    return target


def _folder(path: str) -> str:
    """The directory of backups, created if it is missing."""
    folder = os.path.join(os.path.dirname(path), BACKUPS)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from None
    return folder


# --- checking files
def check_file(path: str, full: bool = True, hint: str = "") -> list[str]:
    """The damage of a database file; empty: it is sound. Refused if it is not a database of Shoal."""
    path = _existing(path)
    with reading(path, hint) as connection:
        version_of(connection, path)
        try:
            return check_connection(connection, full)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            return [str(error)]


def check_connection(connection: sqlite3.Connection, full: bool) -> list[str]:
    """The damage that SQLite finds, twenty lines at most; `full` also compares indexes with their tables."""
    found = [str(line) for (line,) in connection.execute(f"PRAGMA {'integrity_check' if full else 'quick_check'}(20)")]
    return [] if found == ["ok"] else [line for text in found for line in text.splitlines()]


def _existing(path: str) -> str:
    location = os.path.realpath(path)
    if not os.path.isfile(location):
        raise NotFound(
            f"there is no file {location}", code="no_database", hint="name a database or its state directory"
        )
    return location


@contextlib.contextmanager
def reading(path: str, hint: str = "") -> Iterator[sqlite3.Connection]:
    """A connection to read a file that may be a live database, or a copy that is not to be changed."""
    is_copy = not os.path.exists(path + "-wal")
    with explained(path, hint):
        connection = _connect(path, _UNCHANGING) if is_copy else connect_readonly(path)
        with contextlib.closing(connection):
            yield connection


# --- restoring
def restore(source: str, path: str) -> str:
    """Replace a database by a checked copy while no server runs; returns where the replaced one is kept, if any.

    The next start raises the incarnation as every start does, so that pilots of the replaced database are not believed;
    and the bases as after a crash, because such pilots may hold first attempts that the copy does not have.
    """
    source, path = _existing(source), os.path.realpath(path)
    if os.path.exists(path) and os.path.samefile(source, path):
        raise Refused(f"{source} is the database itself", code="bad_backup", hint="name a backup of it")
    check_location(path)
    with contextlib.closing(Lock(path)):
        older = "try an older backup"
        wrong = check_file(source, hint=older)
        if wrong:
            raise Refused(f"{source} is damaged: {wrong[0]}", code="corrupt", hint=older)
        part = f"{path}.{os.getpid()}.restored"
        try:
            with reading(source) as connection:
                copy_to(connection, part)
            _amend(path, part)
            kept = _put_away(path)
            os.replace(part, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
        sync_folder(os.path.dirname(path))
    return kept


def restored_at(path: str) -> float:
    """When a copy was put in this database's place last, by the replaced ones that are still here; 0.0: never."""
    times = [0.0]
    for name in glob.glob(f"{glob.escape(os.path.realpath(path))}.replaced-*"):
        with contextlib.suppress(FileNotFoundError):
            times.append(os.stat(name).st_ctime)  # changed when it got this name
    return max(times)


def _amend(path: str, part: str) -> None:
    """Change what a copy must not bring back: a clean shutdown, tokens revoked since, and the pilots they enrolled."""
    revoked = _revoked(path)
    with explained(part), contextlib.closing(sqlite3.connect(part)) as connection, connection:
        version = version_of(connection, part)
        if version:
            connection.execute(SQL["set_meta"], {"key": "ended", "value": 0})
        if version >= _TOKENS_SINCE:
            connection.executemany(SQL["keep_revoked"], revoked)
            connection.execute(SQL["expel_revoked"], {"now": time.time()})
        if version >= _CHUNKS_SINCE:
            connection.execute(SQL["drop_expelled_chunks"])


def _revoked(path: str) -> list[tuple[float, str]]:
    """The times and names of revoked tokens, if the database that is replaced can be read."""
    if not os.path.exists(path):
        return []
    try:
        with reading(path) as old:
            return old.execute(SQL["revoked_tokens"]).fetchall()
    except (sqlite3.Error, Refused):
        return []


def _put_away(path: str) -> str:
    """Give a database a second name, with its log; its own name stays until the copy takes it."""
    if not os.path.exists(path):
        for suffix in LOG_FILES:  # of a database that was removed: they would be replayed into the copy
            with contextlib.suppress(FileNotFoundError):
                os.replace(path + suffix, f"{path}.replaced-{stamp()}{suffix}")
        return ""
    _fold_log(path)
    kept = f"{path}.replaced-{stamp()}"
    count = 1
    while os.path.exists(kept):
        count += 1
        kept = f"{path}.replaced-{stamp()}-{count}"
    os.link(path, kept)
    for suffix in LOG_FILES:
        with contextlib.suppress(FileNotFoundError):
            os.replace(path + suffix, kept + suffix)
    return kept


def _fold_log(path: str) -> None:
    """Write the log of a killed server into its database, if that is still possible."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=BUSY)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
