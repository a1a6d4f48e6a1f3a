"""Who has a database, what is noticed when its files go, and copies: backups, rescue, restoring, checking."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from shoal.db import backups
from shoal.db import migrate as migration
from shoal.db.migrate import Migration, migrations, newest
from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import ChunkRow
from shoal.engine.restore import restore
from shoal.model.errors import NotFound, Refused
from shoal.model.ids import start_count
from shoal.model.people import TokenRow
from shoal.model.timing import Timing
from tests.contract.db.rows import array_row, event, pilot_row, run_row, task_row

ROOT = Path(__file__).resolve().parents[3]
OPEN = """
import sys
from shoal.db.sqlite import Database
from shoal.model.errors import Refused
try:
    Database.open(sys.argv[1]).close()
except Refused as error:
    print(error.code)
else:
    print("opened")
"""

ARRAY = '{"command": ["true"], "array": "1-10"}'
RAISE = "database.raise_incarnation(1.0)"
ADD = "database.apply([run_row(2), run_row(3)])"
KILLED = """
import os, sys
from shoal.db.sqlite import Database
from tests.contract.db.rows import run_row
database = Database.open(sys.argv[1])
{what}
os._exit(9)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shoal.db")


def open_elsewhere(path: str, *before: str) -> str:
    """What another process gets that opens a database as a server does."""
    argv = [*before, sys.executable, "-c", OPEN, path]
    return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=True, timeout=60).stdout.strip()


def kill_after(path: str, what: str) -> None:
    """A server that writes something and dies."""
    argv = [sys.executable, "-c", KILLED.format(what=what), path]
    assert subprocess.run(argv, cwd=ROOT, check=False, timeout=60).returncode == 9


def damage(path: str) -> None:
    content = bytearray(Path(path).read_bytes())
    for page in range(60, 90):  # behind the schema
        content[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    Path(path).write_bytes(content)


def fill(path: str, count: int = 500) -> None:
    with Database.open(path) as database:
        database.apply([run_row(1), *(task_row(1, n, message="x" * 900) for n in range(1, count))])


# --- the lock belongs to the database


@pytest.mark.parametrize("how", ["same name", "symbolic link", "hard link", "another mount"])
def test_without_the_lock_file_a_second_server_is_refused_all_the_same(path: str, tmp_path: Path, how: str) -> None:
    other, before = path, []
    with Database.open(path) as database:
        database.apply([run_row(1)])
        (tmp_path / "there").mkdir()
        if how == "symbolic link":
            other = str(tmp_path / "there" / "link.db")
            os.symlink(path, other)
        elif how == "hard link":
            other = str(tmp_path / "there" / "hard.db")
            os.link(path, other)
        elif how == "another mount":
            if os.geteuid() != 0:
                pytest.skip("only root makes mounts")
            other = str(tmp_path / "there" / "shoal.db")
            script = f'mount --bind "{tmp_path}" "{tmp_path}/there" && exec "$@"'
            before = ["unshare", "-m", "sh", "-c", script, "sh"]
        os.unlink(path + ".lock")
        assert open_elsewhere(other, *before) == "in_use"
        database.apply([run_row(2)])
        with Reader(path) as reader:  # readers are not kept out
            assert len(reader.runs()) == 2
        assert database.displaced() == ""
    if how != "hard link":  # which has no log of that name
        assert open_elsewhere(path) == "opened"


def test_the_lock_of_the_database_and_those_of_sqlite_do_not_meet(path: str) -> None:
    """Readers of other processes come and go, and the writer checkpoints beside them."""
    with Database.open(path) as database:
        for n in range(1, 4):
            database.apply([run_row(n)])
            ask = "import sys; from shoal.db.reader import Reader; print(len(Reader(sys.argv[1]).runs()))"
            done = subprocess.run(
                [sys.executable, "-c", ask, path], capture_output=True, text=True, cwd=ROOT, check=True
            )
            assert int(done.stdout) == n
            assert database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
            assert open_elsewhere(path) == "in_use"


# --- files that go


def test_files_that_are_removed_replaced_or_cut_are_noticed(path: str, tmp_path: Path) -> None:
    def displaced(do: str) -> str:
        with contextlib.ExitStack() as stack:
            database = stack.enter_context(Database.open(path))
            database.apply([run_row(1)])
            database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.apply([run_row(2)])
            assert database.displaced() == ""
            subprocess.run(["sh", "-c", do], cwd=tmp_path, check=True)
            said = database.displaced()
            saved = database.rescue() if "cut" not in said else ""
            if saved:
                with Reader(saved) as reader:
                    assert [row["run"] for row in reader.runs()] == [2, 1], (
                        "the rescued copy has all that was committed"
                    )
                os.unlink(saved)
        for name in tmp_path.iterdir():
            name.unlink()
        return said

    assert displaced("rm shoal.db") == f"{path} was removed while the server ran"
    assert displaced("cp shoal.db other; mv other shoal.db") == f"{path} was replaced while the server ran"
    assert displaced("rm shoal.db-wal").endswith("-wal, the database's log, was removed while the server ran")
    said = displaced("cp shoal.db-shm x; mv x shoal.db-shm")
    assert said.endswith("-shm, the database's log, was replaced while the server ran")
    assert displaced("truncate -s 4096 shoal.db") == f"{path} was cut short while the server ran"
    assert displaced("true") == ""


def test_a_file_that_grows_while_two_threads_look_was_not_cut(path: str) -> None:
    """One thread looks, then another, which sees the file grown, and only then the first one compares."""
    with Database.open(path) as database:
        database.apply([run_row(1)])
        database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert database._lock is not None
        look = database._lock.stat

        def slow() -> os.stat_result | None:
            seen = look()
            assert seen is not None
            database._size = seen.st_size + 4096
            return seen

        database._lock = SimpleNamespace(stat=slow, close=database._lock.close)  # type: ignore[assignment]
        assert database.displaced() == ""
        assert database._size == os.path.getsize(path) + 4096, "the larger of the two is remembered"
        assert database.displaced().endswith("was cut short while the server ran")


def test_what_is_done_at_the_lock_is_not_done_by_a_second_server(path: str) -> None:
    done: list[str] = []
    with Database.open(path, on_locked=lambda: done.append("first")), pytest.raises(Refused):
        Database.open(path, on_locked=lambda: done.append("second"))
    assert done == ["first"]


def test_a_database_that_was_rescued_does_not_begin_anew_by_itself(path: str) -> None:
    with Database.open(path) as database:
        database.apply([run_row(1)])
        os.unlink(path)
        saved = database.rescue()
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
    with pytest.raises(Refused) as caught:
        Database.open(path)
    assert caught.value.code == "database_gone"
    assert f"shoal server restore --state {os.path.dirname(path)} {saved}" in caught.value.line
    assert backups.restore(saved, path) == ""
    with Database.open(path) as database:
        assert database.snapshot().next_run == 2


# --- damage


def test_a_start_after_a_kill_looks_for_damage(path: str) -> None:
    fill(path)
    kill_after(path, RAISE)
    assert os.path.getsize(path + "-wal") > 0
    with Database.open(path) as database:
        assert database.notes == ["the last server did not end in order; the database was checked and is sound"]
    with Database.open(path) as database:
        assert database.notes == [], "it ended in order, so there is nothing to look for"
    kill_after(path, RAISE)
    damage(path)
    backup = os.path.join(os.path.dirname(path), "backups")
    os.mkdir(backup)
    Path(backup, "shoal-1.db").touch()
    with pytest.raises(Refused) as caught:
        Database.open(path)
    assert caught.value.code == "corrupt" and "\n" not in caught.value.line
    assert f"shoal server restore --state {os.path.dirname(path)} {backup}/shoal-1.db" in caught.value.line


def test_checking_tells_a_sound_file_from_a_damaged_one(path: str, tmp_path: Path) -> None:
    fill(path)
    assert backups.check_file(path) == []
    damage(path)
    assert backups.check_file(path) and backups.check_file(path, full=False)
    with pytest.raises(NotFound):
        backups.check_file(str(tmp_path / "missing.db"))
    (tmp_path / "text").write_text("hello " * 1_000)
    with pytest.raises(Refused) as caught:
        backups.check_file(str(tmp_path / "text"))
    assert caught.value.code == "not_a_database"


# --- backup and restore


def test_a_backup_of_a_running_server_and_of_a_killed_one_is_whole(path: str, tmp_path: Path) -> None:
    with Database.open(path) as database:
        database.apply([run_row(1), event(1)])
        first = backups.back_up(path)
        assert first.startswith(str(tmp_path / "backups" / "shoal-"))
        assert os.stat(first).st_mode & 0o777 == 0o600
        database.apply([run_row(2), event(2)])
        second = backups.back_up(path, str(tmp_path / "second.db"))
        with pytest.raises(Refused, match="the database itself"):
            backups.back_up(path, path)
    backups.back_up(path, str(tmp_path / "third.db"))
    for name, runs in ((first, 1), (second, 2), (str(tmp_path / "third.db"), 2)):
        assert backups.check_file(name) == []
        with Reader(name) as reader:
            assert len(reader.runs()) == runs


def test_restoring_keeps_what_was_there_and_refuses_what_is_wrong(path: str, tmp_path: Path) -> None:
    with Database.open(path) as database:
        database.raise_incarnation(1.0)
        database.apply([run_row(1)])
        backup = backups.back_up(path)
        database.apply([run_row(2)])
        with pytest.raises(Refused) as caught:
            backups.restore(backup, path)
        assert caught.value.code == "in_use"
        assert len(Reader(path).runs()) == 2
    with pytest.raises(Refused, match="the database itself"):
        backups.restore(path, path)
    bad = str(tmp_path / "bad.db")
    fill(bad)
    damage(bad)
    with pytest.raises(Refused) as caught:
        backups.restore(bad, path)
    assert caught.value.code == "corrupt" and "older backup" in caught.value.hint
    assert len(Reader(path).runs()) == 2, "a refusal changes nothing"
    kept = backups.restore(backup, path)
    assert len(Reader(path).runs()) == 1 and len(Reader(kept).runs()) == 2
    with Database.open(path) as database:
        assert start_count(database.raise_incarnation(2.0)) == 2, "the next start counts on"


def test_a_token_that_was_revoked_since_the_backup_stays_revoked(path: str) -> None:
    row = TokenRow("t1", "submit", "d1", "ann", "", "", "read", None, None, "", "ann", 1.0, 1e12, None, None, "")
    other = row._replace(token="t2", digest="d2")
    with Database.open(path) as database:
        database.apply([row, other])
        backup = backups.back_up(path)
        database.apply([row._replace(revoked=5.0)])
    backups.restore(backup, path)
    with Database.open(path) as database:
        assert [token.token for token in database.people(10.0).tokens] == ["t2"]
    assert sorted(os.listdir(os.path.dirname(path)))[:2] == ["backups", "shoal.db"], "no files of the copying are left"


def test_a_pilot_that_was_expelled_since_the_backup_does_not_come_back(path: str) -> None:
    """Nor does what it held stay with it: an engine starts from what was restored."""
    row = TokenRow("t1", "enrol", "d1", "ann", "", "", "", None, None, "", "ann", 1.0, 1e12, None, None, "")
    other = row._replace(token="t2", digest="d2")
    pilots = [
        pilot_row("p1", "busy", token="t1", session="1" * 64),
        pilot_row("p2", "busy", token="t2", session="2" * 64),
        pilot_row("p3", "gone", token="t1", session="3" * 64, ended=4.0, reason="told to"),
    ]
    held = [ChunkRow(1, 1, 4, 1, 1, "p1", 2.0), ChunkRow(1, 4, 7, 1, 1, "p2", 2.0)]
    with Database.open(path) as database:
        database.raise_incarnation(1.0)
        database.apply([row, other, run_row(1), array_row(1, task=ARRAY), *pilots, *held])
        backup = backups.back_up(path)
        database.apply([row._replace(revoked=5.0)])
    backups.restore(backup, path)
    with Database.open(path) as database:
        database.raise_incarnation(6.0)
        snapshot = database.snapshot()
    assert [pilot.pilot for pilot in snapshot.pilots] == ["p2"]
    gone = {pilot.pilot: pilot for pilot in snapshot.gone}
    assert gone["p1"].revoked and gone["p1"].reason == "its enrolment token was revoked" and gone["p1"].ended
    assert gone["p3"].revoked and (gone["p3"].reason, gone["p3"].ended) == ("told to", 4.0)
    state = restore(snapshot, Timing(), Random(1), 7.0)
    assert list(state.sessions) == ["2" * 64]
    todo = state.runs[1].arrays[0].todo
    assert [element in todo for element in (1, 3, 4, 6, 7)] == [True, True, False, False, True]


def test_after_a_restore_first_attempts_take_new_numbers(path: str) -> None:
    """A copy of a database that ended in order would begin with numbers that pilots got since [ADR 0015]."""
    with Database.open(path) as database:
        database.raise_incarnation(1.0)
        database.apply([run_row(1)])
        database.end_in_order()
    backup = backups.back_up(path)
    with Database.open(path) as database:
        database.raise_incarnation(2.0)
        assert [run.base for run in database.snapshot().runs] == [0]
        database.end_in_order()
    backups.restore(backup, path)
    with Database.open(path) as database:
        database.raise_incarnation(3.0)
        assert [run.base for run in database.snapshot().runs] == [1]


@pytest.mark.parametrize("version", range(newest() + 1))
def test_a_backup_of_any_older_schema_is_restored(path: str, tmp_path: Path, version: int) -> None:
    row = TokenRow("t1", "enrol", "d1", "ann", "", "", "", None, None, "", "ann", 1.0, 1e12, 5.0, None, "")
    with Database.open(path) as database:
        database.apply([row])
    old = str(tmp_path / "old.db")
    with contextlib.closing(sqlite3.connect(old)) as connection:
        for step in migrations()[:version]:
            connection.executescript(f"{step.sql}\nPRAGMA user_version = {step.number};")
    backups.restore(old, path)
    with Database.open(path) as database:
        assert start_count(database.raise_incarnation(1.0)) == 1


def test_when_a_copy_was_put_in_place_is_known_afterwards(path: str) -> None:
    fill(path)
    assert backups.restored_at(path) == 0.0
    backup = backups.back_up(path)
    os.utime(path, (1.0, 1.0))  # how old the replaced database is does not matter
    before = os.stat(backup).st_ctime
    backups.restore(backup, path)
    assert backups.restored_at(path) >= before


def test_restoring_over_a_killed_server_keeps_its_log_and_does_not_replay_it(path: str, tmp_path: Path) -> None:
    fill(path)
    backup = backups.back_up(path)
    kill_after(path, ADD)
    damage(path)  # its log cannot be folded in, whatever state it is in
    kept = backups.restore(backup, path)
    with Database.open(path) as database:
        assert database.snapshot().next_run == 2 and backups.check_file(path, full=False) == []
    assert os.path.exists(kept)


# --- before a migration


def test_a_migration_keeps_the_database_as_it_was_and_the_last_two_of_them(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path, 10)
    steps = list(migrations())
    for number in range(newest() + 1, newest() + 4):
        steps.append(Migration(number, f"{number:04d}_more.sql", f"CREATE TABLE more{number} (x);"))
        for module in (migration, backups):
            monkeypatch.setattr(module, "newest", lambda n=number: n)
        monkeypatch.setattr(migration, "migrations", lambda s=tuple(steps): s)
        with Database.open(path) as database:
            (note,) = database.notes
        kept = note.rpartition(" ")[2]
        assert f"/backups/before-schema-{number}-" in kept
        with contextlib.closing(sqlite3.connect(kept)) as copy:
            assert copy.execute("PRAGMA user_version").fetchone() == (number - 1,)
            assert copy.execute("SELECT count(*) FROM tasks").fetchone() == (9,)
        with Database.open(path) as database:
            assert database.notes == []
    assert len(list((tmp_path / "backups").iterdir())) == 2
