"""The accounts as a database gives them: sums by any words, time that pilots offered, what retention leaves."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.db import accounts
from shoal.db.accounts import DAY, HOUR, KEEP, WINDOW, AccountQuery
from shoal.db.migrate import migrations
from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import AcctAdd
from shoal.model.errors import BadInput
from tests.contract.db.rows import acct_add, event, pilot_row

NOW = 100 * DAY
TODAY = 2400  # the hour of NOW


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "shoal.db", durability="normal") as database:
        yield database


@pytest.fixture
def reader(database: Database) -> Iterator[Reader]:
    with Reader.on(database) as reader:
        yield reader


def line(hour: int, owner: str, pilot: str, run: int, **sums: float) -> AcctAdd:
    site = "east" if pilot in ("p1", "p2") else "west"
    return acct_add(hour, owner, site=site, host=f"h-{pilot}", pilot=pilot, run=run, **sums)


def fill(database: Database) -> None:
    """Ann on three pilots and bob on one, today and the day before."""
    database.apply(
        [
            line(TODAY - 1, "ann", "p1", 1, useful=10.0, tasks=2, queued=4.0, staging=0.5),
            line(TODAY - 1, "ann", "p2", 1, failed=3.0, tasks=1),
            line(TODAY - 30, "ann", "p3", 2, lost=2.0, tasks=1),
            line(TODAY - 30, "bob", "p1", 3, duplicated=7.0, tasks=4),
        ]
    )  # fmt: skip
    database.apply([line(TODAY - 1, "ann", "p1", 1, useful=5.0, tasks=1)])


def told(reader: Reader, by: str, what: str = "tasks", **more: Any) -> dict[tuple[Any, ...], float]:
    lines = reader.acct(AccountQuery(by, **more), NOW)["lines"]
    return {tuple(row[word] for word in by.split(",")): row[what] for row in lines}


def test_lines_are_summed_by_any_words(database: Database, reader: Reader) -> None:
    fill(database)
    assert told(reader, "owner") == {("ann",): 5, ("bob",): 4}
    assert told(reader, "owner,site") == {("ann", "east"): 4, ("ann", "west"): 1, ("bob", "east"): 4}
    assert told(reader, "host,run") == {("h-p1", 1): 3, ("h-p1", 3): 4, ("h-p2", 1): 1, ("h-p3", 2): 1}
    assert told(reader, "pilot", "useful") == {("p1",): 15.0, ("p2",): 0.0, ("p3",): 0.0}
    assert told(reader, "day") == {("1970-04-09",): 5, ("1970-04-10",): 4}
    assert told(reader, "owner,day", "duplicated")[("bob", "1970-04-09")] == 7.0
    (row,) = reader.acct(AccountQuery("owner", owners=["ann"]), NOW)["lines"]
    assert row == {
        "owner": "ann", "useful": 15.0, "failed": 3.0, "lost": 2.0, "duplicated": 0.0, "tasks": 5, "queued": 4.0,
        "staging": 0.5,
    }  # fmt: skip


def test_words_come_once_and_in_one_order(reader: Reader) -> None:
    assert reader.acct(AccountQuery("day, site,owner,site"), NOW)["by"] == ["owner", "site", "day"]


def test_a_time_is_whole_hours(database: Database, reader: Reader) -> None:
    fill(database)
    assert told(reader, "owner", since=NOW - 0.5 * HOUR) == {("ann",): 4}
    assert told(reader, "owner", until=NOW - 0.5 * HOUR) == {("ann",): 5, ("bob",): 4}
    assert told(reader, "owner", until=NOW - HOUR) == {("ann",): 1, ("bob",): 4}
    answer = reader.acct(AccountQuery("owner", since=NOW - 1.5 * HOUR, until=NOW - 0.5 * HOUR), NOW)
    assert (answer["since"], answer["until"]) == (NOW - 2 * HOUR, NOW)


def test_each_sees_the_owners_they_are_given(database: Database, reader: Reader) -> None:
    fill(database)
    assert told(reader, "site", owners=["bob"]) == {("east",): 4}
    assert told(reader, "site", owners=["bob", "ann", "eve"]) == {("east",): 8, ("west",): 1}
    assert told(reader, "site", owners=["eve"]) == told(reader, "site", owners=[]) == {}


def places(reader: Reader, by: str, **more: Any) -> dict[tuple[Any, ...], tuple[float, float]]:
    found = reader.acct(AccountQuery(by, **more), NOW)["places"]
    return {tuple(row[word] for word in by.split(",")): (row["offered"], row["used"]) for row in found}


def test_what_pilots_offered_is_told_by_place_and_day_with_everybodys_use(database: Database, reader: Reader) -> None:
    fill(database)
    database.apply(
        [
            pilot_row("p1", joined=NOW - 3 * DAY, cores=2, site="east", host="h-p1", state="busy"),
            pilot_row("p2", joined=NOW - DAY, ended=NOW - DAY / 2, cores=4, site="east", host="h-p2", state="gone"),
            pilot_row("p3", joined=NOW - 9 * DAY, ended=NOW - 8 * DAY, cores=4, site="west", host="h-p3", owner="bob"),
        ]
    )
    east = (2 * 3 * DAY + 4 * DAY / 2, 25.0)
    assert places(reader, "site") == {("east",): east, ("west",): (4 * DAY, 2.0)}
    assert places(reader, "site", holders=["ann"], owners=["ann"]) == {("east",): east}, "bob's tasks kept it busy"
    assert places(reader, "pilot", since=NOW - HOUR) == {("p1",): (2 * HOUR, 15.0)}
    assert places(reader, "site,day", holders=["ann"]) == {
        ("east", "1970-04-08"): (2 * DAY, 0.0),
        ("east", "1970-04-09"): (2 * DAY, 7.0),
        ("east", "1970-04-10"): (2 * DAY + 4 * DAY / 2, 18.0),
    }
    total = sum(offered for offered, _ in places(reader, "pilot,day").values())
    assert total == sum(offered for offered, _ in places(reader, "site").values())


@pytest.mark.parametrize("by", ["owner", "run", "owner,site", "run,day"])
def test_nobody_is_charged_with_what_stood_idle(database: Database, reader: Reader, by: str) -> None:
    fill(database)
    assert reader.acct(AccountQuery(by), NOW)["places"] is None


def test_what_is_under_way_is_not_idle(database: Database, reader: Reader) -> None:
    database.apply([pilot_row("p1", joined=NOW - 2 * HOUR, cores=1), pilot_row("p2", joined=NOW - HOUR, owner="bob")])
    running = {"p1": 600.0, "p2": 60.0, "p9": 1.0}
    assert places(reader, "pilot", running=running, holders=["ann"]) == {("p1",): (2 * HOUR, 600.0)}
    assert places(reader, "day", running=running, holders=["ann"], since=NOW - HOUR) == {
        ("1970-04-10",): (HOUR, 0.0),
        ("1970-04-11",): (0.0, 600.0),
    }, "it will be a line of the hour in which it ends"
    assert places(reader, "pilot", running=running, until=NOW - HOUR) == {("p1",): (HOUR, 0.0)}


@pytest.mark.parametrize(
    ("by", "hint"), [("ownr", "did you mean owner"), ("", "owner,site"), ("owner,,x", "owner,site")]
)
def test_an_unknown_word_is_refused_with_the_nearest(reader: Reader, by: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        reader.acct(AccountQuery(by), NOW)
    assert caught.value.code == "unknown_field" and hint in caught.value.line and "\n" not in caught.value.line


def test_a_time_that_ends_before_it_begins_is_refused(reader: Reader) -> None:
    with pytest.raises(BadInput):
        reader.acct(AccountQuery("owner", since=NOW, until=NOW - 1), NOW)
    assert reader.acct(AccountQuery("owner", since=NOW + DAY), NOW)["lines"] == []


def test_more_lines_than_an_answer_holds_are_refused(
    database: Database, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MAX_ACCT_LINES", 3)
    database.apply([line(TODAY - 1, "ann", "p1", run, tasks=1) for run in range(4)])
    with pytest.raises(BadInput) as caught:
        reader.acct(AccountQuery("run"), NOW)
    assert caught.value.code == "too_many_lines"
    assert told(reader, "owner") == {("ann",): 4}


def test_old_lines_go_with_retention_and_what_was_ever_spent_stays(database: Database, reader: Reader) -> None:
    hour = 20_000
    now = hour * HOUR
    ages = [0, 24, WINDOW - 1, WINDOW + 1, 39 * 24, 399 * 24, 401 * 24, 500 * 24]
    database.apply([line(hour - age, who, "p1", 1, useful=float(n + 1)) for n, age in enumerate(ages) for who in "ab"])
    database.raise_incarnation(now)
    before = database.snapshot().spent
    assert [row[1:] for row in before if row[0] == "a"] == [
        ("east", hour - WINDOW, 4 + 5 + 6 + 7 + 8.0), ("east", hour - WINDOW + 1, 3.0), ("east", hour - 24, 2.0),
        ("east", hour, 1.0),
    ]  # fmt: skip
    for _ in range(2):  # again is harmless
        database.prune(now - 30 * DAY, 1 << 40)
        assert database.snapshot().spent == before
    assert reader.acct(AccountQuery("owner"), now)["lines"][0]["useful"] == sum(range(1, 7))
    assert database.connection.execute("SELECT count(*) FROM acct").fetchone() == (12,)
    kept = database.connection.execute("SELECT hour FROM spent WHERE owner = 'a' ORDER BY hour").fetchall()
    assert kept == [(0,), (hour - 39 * 24,), (hour - WINDOW - 1,), (hour - WINDOW + 1,), (hour - 24,), (hour,)]
    database.apply([pilot_row("p1", joined=1.0)])
    (place,) = reader.acct(AccountQuery("site"), now)["places"]
    assert place["offered"] == 4 * (30 * DAY + KEEP), "time of which the lines are gone is not idle time"


def test_a_pilot_that_worked_before_there_were_accounts_did_not_idle(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = sqlite3.connect(path)
    for step in migrations()[:3]:
        old.executescript(f"{step.sql}\nPRAGMA user_version = {step.number};")
    pilot, said = pilot_row("p1", joined=10.0)[:20], event(1, time=NOW - HOUR)
    old.execute(f"INSERT INTO pilots VALUES ({', '.join('?' * len(pilot))})", pilot)
    old.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{}', '')", said[:8])
    old.commit()
    old.close()
    with Database.open(path) as database, Reader.on(database) as reader:
        assert database.snapshot().pilots[0].ends is None
        (place,) = reader.acct(AccountQuery("site"), NOW)["places"]
        assert place == {"site": "local", "offered": 4 * HOUR, "used": 0.0}
