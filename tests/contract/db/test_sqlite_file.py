"""What only a database in a file can get wrong: who may open it, what a kill leaves behind, backups, migrations."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from shoal.db import backups
from shoal.db import migrate as migration
from shoal.db.accounts import AccountQuery
from shoal.db.migrate import Migration, migrations, newest
from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.model.errors import NotFound, Refused
from tests.contract.db.rows import event, run_row, task_row


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shoal.db")


def refusal(path: str) -> Refused:
    with pytest.raises(Refused) as caught:
        Database.open(path)
    assert "\n" not in caught.value.line
    return caught.value


# --- who may open it


def test_a_second_server_is_refused_and_told_of_the_first(path: str, tmp_path: Path) -> None:
    (tmp_path / "other.db").symlink_to(path)
    with Database.open(path):
        for name in (path, str(tmp_path / "other.db")):
            refused = refusal(name)
            assert refused.code == "in_use"
            assert f"process {os.getpid()}" in refused.line
    Database.open(path).close()


@pytest.mark.parametrize("content", [b"hello", b"not a database\n" * 1_000, b"SQLite format 4\0" + b"\0" * 5_000])
def test_a_file_that_is_not_a_database_is_refused_and_left_alone(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    assert refusal(path).code == "not_a_database"
    with pytest.raises(Refused):
        Reader(path)
    assert Path(path).read_bytes() == content


def test_a_database_of_another_program_is_refused_and_left_alone(path: str) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (x)")
    other.close()
    before = Path(path).read_bytes()
    assert refusal(path).code == "not_a_database"
    assert Path(path).read_bytes() == before


def test_a_database_of_a_newer_shoal_is_refused(path: str) -> None:
    with Database.open(path) as database:
        database.connection.execute("PRAGMA user_version = 99")
    refused = refusal(path)
    assert refused.code == "newer_database"
    assert "made by a newer Shoal" in refused.line
    with pytest.raises(Refused, match="newer Shoal"):
        Reader(path)


def test_a_reader_does_not_read_an_older_schema(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Database.open(path).close()
    monkeypatch.setattr("shoal.db.reader.newest", lambda: newest() + 1)
    with pytest.raises(Refused) as caught:
        Reader(path)
    assert caught.value.code == "older_database"


def test_an_empty_file_becomes_a_database_but_cannot_be_read(path: str) -> None:
    Path(path).touch()
    with pytest.raises(NotFound):
        Reader(path)
    Database.open(path).close()
    Reader(path).close()


@pytest.mark.parametrize("place", ["missing/shoal.db", "file/shoal.db", "folder"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    assert refusal(str(tmp_path / place)).code == "unwritable"
    with pytest.raises(NotFound):
        Reader(tmp_path / place)


def test_a_directory_without_permission_is_refused() -> None:
    """Root may write everywhere, so as root the test is nobody for a moment."""
    place = Path(tempfile.mkdtemp(prefix="shoal-test-"))
    root = os.geteuid() == 0
    place.chmod(0o555)
    try:
        if root:
            os.seteuid(65534)
        assert refusal(str(place / "shoal.db")).code == "unwritable"
    finally:
        if root:
            os.seteuid(0)
        place.chmod(0o700)
        place.rmdir()


def test_only_the_owner_can_read_the_files(path: str, tmp_path: Path) -> None:
    with Database.open(path) as database:
        database.apply([run_row(1)])
        backups.back_up(path, str(tmp_path / "copy.db"))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert {"shoal.db", "shoal.db-wal", "shoal.db-shm", "shoal.db.lock", "copy.db"} == set(modes)
    assert set(modes.values()) == {0o600}


# --- schema


def schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def test_schema_is_that_of_the_migrations_from_zero(path: str) -> None:
    by_hand = sqlite3.connect(":memory:")
    for step in migrations():
        by_hand.executescript(step.sql)
    with Database.open(path) as database:
        assert schema(database.connection) == schema(by_hand)
        assert database.connection.execute("PRAGMA user_version").fetchone() == (newest(),)
    by_hand.close()


def test_opening_again_changes_nothing(path: str) -> None:
    with Database.open(path) as database:
        database.apply([run_row(1)])
    before = Path(path).read_bytes()
    with Database.open(path) as database:
        assert migration.migrate(database.connection, path) == 0
    assert Path(path).read_bytes() == before


def test_a_migration_that_fails_leaves_the_version_before(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Database.open(path).close()
    steps = (*migrations(), Migration(newest() + 1, "bad", "CREATE TABLE extra (x); INSERT INTO nowhere VALUES (1);"))
    with monkeypatch.context() as patch, pytest.raises(sqlite3.OperationalError, match="nowhere"):
        patch.setattr(migration, "migrations", lambda: steps)
        Database.open(path)
    with Database.open(path) as database:
        assert "extra" not in dict(schema(database.connection))


# --- settings, space, copies


def test_commits_are_durable_unless_asked_otherwise(path: str) -> None:
    for durability, level in (("full", 2), ("normal", 1)):
        with Database.open(path, durability=durability) as database:  # type: ignore[arg-type]  # from a tuple
            database.raise_incarnation(1.0)
            assert database.connection.execute("PRAGMA synchronous").fetchone() == (level,)
            assert database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_full_disk_refuses_the_batch_and_nothing_else(path: str) -> None:
    with Database.open(path) as database, Reader(path) as reader:
        pages = database.connection.execute("PRAGMA page_count").fetchone()[0]
        database.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(sqlite3.OperationalError) as caught:
            database.apply([task_row(1, n) for n in range(1, 1_000)])
        assert caught.value.sqlite_errorcode == sqlite3.SQLITE_FULL
        assert reader.tasks(1) == []
        database.connection.execute(f"PRAGMA max_page_count = {pages + 10_000}")
        database.apply([task_row(1, n) for n in range(1, 1_000)])
        assert len(reader.tasks(1)) == 999


def test_a_backup_is_a_whole_database(path: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "backup.db")
    with Database.open(path) as database:
        for n in range(1, 4):
            database.apply([run_row(n), event(n)])
            backups.back_up(path, copy)
            with Reader(copy) as reader:
                assert (len(reader.runs()), reader.last_seq()) == (n, n)
        with pytest.raises(Refused):
            backups.back_up(path, path)
    with Database.open(copy) as database:
        assert backups.check_file(copy, full=False) == []
        assert database.snapshot().next_run == 4
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_a_damaged_file_is_noticed(path: str) -> None:
    with Database.open(path) as database:
        database.apply([task_row(1, n, message="x" * 900) for n in range(1, 500)])
        assert backups.check_file(path, full=False) == []
    content = bytearray(Path(path).read_bytes())
    for page in range(60, 90):  # behind the schema
        content[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    Path(path).write_bytes(content)
    with Database.open(path) as database:
        assert backups.check_file(path, full=False)


# --- beside a server, without one, and after a kill


def test_a_reader_sees_each_commit_and_holds_nothing(path: str) -> None:
    with Database.open(path) as database, Reader(path) as reader:
        for n in range(1, 6):
            database.apply([run_row(n)])
            assert len(reader.runs()) == n
        # A reader that held a snapshot would keep this from emptying the log.
        assert database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)


def test_a_reader_cannot_write(path: str) -> None:
    with Database.open(path), Reader(path) as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._connection.execute("DELETE FROM runs")


def test_a_reader_works_after_a_clean_close(path: str) -> None:
    with Database.open(path) as database:
        database.apply([run_row(1)])
    assert not os.path.exists(path + "-wal")
    for _ in range(2):
        with Reader(path) as reader:
            assert len(reader.runs()) == 1
    with Database.open(path) as database:
        database.apply([run_row(2)])


CHILD = """
import sys
from shoal.db.sqlite import Database
from tests.contract.db.rows import acct_add, event, task_row
database, n = Database.open(sys.argv[1]), int(sys.argv[2])
while True:
    rows = [task_row(1, 3 * n + k, host="h" * 300) for k in (1, 2, 3)]
    database.apply([*rows, event(2 * n + 1), event(2 * n + 2), acct_add(tasks=3, useful=1.5)])
    n += 1
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
"""


def test_acknowledged_batches_survive_kill_9_whole(path: str) -> None:
    rng, acknowledged, root = random.Random(4), 0, Path(__file__).resolve().parents[3]
    for round_ in range(20 if os.environ.get("SHOAL_PROVE") == "1" else 6):
        argv = [sys.executable, "-c", CHILD, path, str(acknowledged)]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=root)
        assert child.stdout is not None
        lines = [child.stdout.readline()]
        time.sleep(rng.uniform(0.0, 0.04))
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines()
        child.stdout.close()
        assert child.wait() == -signal.SIGKILL
        told = int([line for line in lines if line.strip()][-1])
        assert told > acknowledged
        # Every other round a reader comes first, and must replay the dead server's log without a server.
        if round_ % 2:
            with Reader(path) as reader:
                assert reader.last_seq() >= 2 * told
        with Database.open(path) as database, Reader(path) as reader:
            elements = [row.element for row in reader.task_rows(1, ["succeeded"])]
            batches = len(elements) // 3
            assert batches in (told, told + 1)  # one may have been committed but not yet told
            assert elements == list(range(1, 3 * batches + 1))
            assert database.snapshot().next_seq == 2 * batches + 1
            assert len(reader.events(after=2 * batches - 2)) == 2
            (line,) = reader.acct(AccountQuery(), 1e6)["lines"]
            assert (line["tasks"], line["useful"]) == (3 * batches, 1.5 * batches), "each batch is added once"
            assert database.snapshot().spent == [("ann", "local", 2, 1.5 * batches)]
            assert backups.check_file(path, full=False) == []
        acknowledged = batches
