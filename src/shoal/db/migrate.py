"""Numbered migrations: `migrations/0001_walk.sql` and on. A database's `user_version` is the last one it had.

Rule for authors: expand, then contract. A migration adds what the next code needs, and takes away only what the
code before it had already stopped using. A file that was released is never edited.
"""

from __future__ import annotations

import re
import sqlite3
from functools import cache
from pathlib import Path

from shoal.model.errors import Refused
from shoal.model.lazy_dataclass import dataclass

APPLICATION = 0x73686F61  # "shoa", set by the first migration
_FILE = re.compile(r"([0-9]{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Every step there is, in order and without gaps."""
    found = []
    for entry in Path(__file__).with_name("migrations").iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), entry.name, entry.read_text(encoding="utf-8")))
    found.sort(key=lambda step: step.number)
    if [step.number for step in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations are not numbered 1, 2, 3 ...: {[step.name for step in found]}")
    return tuple(found)


def newest() -> int:
    """The schema version of this code."""
    return len(migrations())


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """The schema of a database, 0 for an empty one; refused if it is another program's or a newer Shoal's."""
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if application != APPLICATION and not (empty and version == 0 and application == 0):
        hint = "name another file, or move this one away"
        raise Refused(f"{path} is a database of another program", code="not_a_database", hint=hint)
    if version > newest():
        raise Refused(
            f"{path} was made by a newer Shoal (schema {version}, this one knows up to {newest()})", code="newer_database",
            hint="use the newer Shoal, or restore a backup from before the upgrade",
        )  # fmt: skip
    return version


def migrate(connection: sqlite3.Connection, path: str) -> int:
    """Bring a database up to this code's schema; return how many steps it took.

    One transaction a step; a new database gets all of them in one, because each is synced to the disk.
    """
    version = version_of(connection, path)
    steps = [f"{step.sql}\nPRAGMA user_version = {step.number};" for step in migrations()[version:]]
    for sql in ["\n".join(steps)] if not version and steps else steps:
        try:
            # PRAGMA user_version is part of the transaction, so schema and number change together.
            connection.executescript(f"BEGIN IMMEDIATE;\n{sql}\nCOMMIT;")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return newest() - version
