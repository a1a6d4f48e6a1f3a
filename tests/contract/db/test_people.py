"""What a database keeps of people, tokens, their uses, hosts, and pilots that ended; and whose everything is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.db.migrate import migrations
from shoal.db.reader import Reader
from shoal.db.sqlite import KEEP_AUDIT, Database
from shoal.engine.changes import HostRow
from shoal.model.people import AuditRow, GroupRow, SiteRow, TokenRow, UserRow
from tests.contract.db.rows import event, pilot_row, run_row

DAY = 86_400.0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "shoal.db") as database:
        yield database


@pytest.fixture
def reader(database: Database) -> Iterator[Reader]:
    with Reader.on(database) as reader:
        yield reader


def token(name: str, kind: str = "submit", expires: float = 100.0, **more: Any) -> TokenRow:
    row = TokenRow(
        name, kind, f"digest-{name}", "ann", "", "", "read", None, None, "", "ann", 1.0, expires, None, None, ""
    )
    return row._replace(**more)


def use(seq: int, time: float = 1.0, owner: str = "ann") -> AuditRow:
    return AuditRow(seq, time, f"t{seq}", owner, "127.0.0.1", "POST /v1/runs", "r1", "ok", 1)


def test_people_come_back_and_only_tokens_that_may_still_be_used(database: Database) -> None:
    database.apply(
        [
            UserRow("ann", "phys", "admin", 1.0), UserRow("bob", "", "user", 2.0), GroupRow("phys", 1.0), token("t1"),
            token("t2", expires=5.0), token("t3", revoked=2.0), token("t4", "enrol", expires=5.0), use(1), use(2),
        ]
    )  # fmt: skip
    users, groups, tokens, _, next_audit = database.people(10.0)
    assert [user.name for user in users] == ["ann", "bob"] and groups == [GroupRow("phys", 1.0)]
    assert [row.token for row in tokens] == ["t1", "t4"], (
        "an enrolment that ended stays known: its pilots may come back"
    )
    assert next_audit == 3
    assert database.snapshot().groups == {"ann": "phys"}


def test_a_row_written_again_is_the_last_one(database: Database, reader: Reader) -> None:
    database.apply([UserRow("ann", "", "user", 1.0), token("t1"), token("t1", uses=3)])
    database.apply([UserRow("ann", "phys", "manager", 1.0), token("t1", used=7.0, address="10.0.0.9")])
    assert database.people(10.0).users == [UserRow("ann", "phys", "manager", 1.0)]
    (row,) = reader.tokens(now=10.0)
    assert (row["used"], row["address"]) == (7.0, "10.0.0.9") and "digest" not in row


def test_tokens_are_listed_by_owner_and_group_and_the_dead_if_asked_for(database: Database, reader: Reader) -> None:
    database.apply([token("t1"), token("t2", owner="bob"), token("t3", owner="", grp="phys"), token("t4", expires=1.0)])

    def names(**more: Any) -> set[str]:
        return {row["token"] for row in reader.tokens(now=10.0, **more)}

    assert names() == {"t1", "t2", "t3"} and names(dead=True) == {"t1", "t2", "t3", "t4"}
    assert names(owner="ann") == {"t1"} and names(owner="ann", group="phys") == {"t1", "t3"}


def test_the_audit_is_read_backwards_by_token_and_owner_and_ends_one_day(database: Database, reader: Reader) -> None:
    database.apply([use(n, time=n * DAY, owner="ann" if n % 2 else "bob") for n in range(1, 8)])
    assert [row["seq"] for row in reader.audit(limit=3)] == [7, 6, 5]
    assert [row["seq"] for row in reader.audit(before=5, owner="ann")] == [3, 1]
    assert [row["seq"] for row in reader.audit(token="t2")] == [2]
    database.prune(3.5 * DAY + KEEP_AUDIT, 1 << 40)
    assert [row["seq"] for row in reader.audit()] == [7, 6, 5, 4]


def test_hosts_and_pilots_are_shown_to_those_they_serve(database: Database, reader: Reader) -> None:
    def host(identity: str, owner: str, group: str = "") -> HostRow:
        return HostRow(identity, owner, group, "local", "h", 1.0, 2.0, 1, 5, 0, 0, 9.5)

    database.apply([host("a", "ann"), host("a", "bob"), host("b", "", "phys")])
    database.apply([host("a", "ann")._replace(pilots=2, seen=3.0)])
    assert [(row["identity"], row["pilots"]) for row in reader.hosts(holders=["ann", "@phys"])] == [("a", 2), ("b", 1)]
    assert len(database.snapshot().hosts) == 3
    database.apply([pilot_row("p1"), pilot_row("p2", owner="bob"), pilot_row("p3", owner="", grp="phys")])
    assert {row["pilot"] for row in reader.pilots(holders=["ann", "@phys"])} == {"p1", "p3"}
    assert {row["pilot"] for row in reader.pilots()} == {"p1", "p2", "p3"}


def test_pilots_that_ended_lately_are_remembered_with_their_token(database: Database) -> None:
    database.raise_incarnation(2 * DAY)
    gone = {"state": "gone", "token": "t1"}
    database.apply([pilot_row("p1", ended=0.5 * DAY, **gone), pilot_row("p2", ended=1.5 * DAY, revoked=1, **gone)])
    (row,) = database.snapshot().gone
    assert (row.pilot, row.token, row.revoked) == ("p2", "t1", 1)


def test_events_and_runs_are_their_owners(database: Database, reader: Reader) -> None:
    owners = ["ann", "bob", "@phys", ""]
    database.apply([event(n, owner=owners[n % 4]) for n in range(1, 9)])
    assert [e["seq"] for e in reader.events(after=0, holders=["ann", "@phys"])] == [2, 4, 6, 8]
    assert [e["seq"] for e in reader.events(after=0, holders=["bob"], until=4)] == [1]
    database.apply([run_row(1, counts='{"failed": 2}'), run_row(2, owner="bob", counts='{"lost": 1}')])
    database.apply([run_row(3, counts='{"succeeded": 1}')])
    found = [row.owner if (row := reader.run_row(n)) is not None else None for n in (1, 2, 9)]
    assert found == ["ann", "bob", None]
    assert reader.failed_runs(None) == [2, 1] and reader.failed_runs(["ann"]) == [1]


def test_sites_of_before_belong_to_all_who_had_tokens_for_them(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = sqlite3.connect(path)
    for step in migrations()[:4]:
        old.executescript(f"{step.sql}\nPRAGMA user_version = {step.number};")
    made = [
        ("t1", "anna", "", "box"),
        ("t2", "anna", "", "box"),
        ("t3", "", "phys", "box"),
        ("t4", "olaf", "", "local"),
    ]
    for name, owner, group, site in made:
        row = (name, "enrol", name, owner, group, site, "", None, None, "", owner, 5.0, 9.0, None, None, "")
        old.execute(f"INSERT INTO tokens VALUES ({', '.join('?' * len(row))})", row)
    old.execute("INSERT INTO places VALUES ('host', 'h', '[]')")
    old.commit()
    old.close()
    with Database.open(path) as database:
        (kept,) = database.people(0.0).sites
        assert (kept.name, sorted(kept.holders.split()), kept.created) == ("box", ["@phys", "anna"], 5.0)
        assert database.snapshot().places == [], "a ban that was nobody's is let go"
        database.apply([kept._replace(holders="*")])
        assert database.people(0.0).sites == [SiteRow("box", "*", 5.0)]
