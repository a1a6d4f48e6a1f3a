"""The named SQL: each statement is used, explained, and agrees with the row types."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal.db
from shoal.db.named_queries import SQL, parse
from shoal.db.sqlite import Database
from shoal.engine.changes import (
    AcctAdd,
    ArrayRow,
    HostRow,
    PilotRow,
    PlaceRow,
    PolicyRow,
    RunRow,
    SpanRow,
    TaskRow,
    UsageRow,
)  # fmt: skip
from shoal.model.blobs import BlobRefRow, BlobRow
from shoal.model.event import Event
from shoal.model.people import AuditRow, GroupRow, TokenRow, UserRow
from shoal.model.states import FINAL, TaskState

FOLDER = Path(shoal.db.__file__).parent
ROWS: dict[str, tuple[str, ...]] = {
    "runs": RunRow._fields,
    "arrays": ArrayRow._fields,
    "tasks": TaskRow._fields,
    "spans": SpanRow._fields,
    "pilots": PilotRow._fields,
    "events": Event._fields,
    "hosts": HostRow._fields,
    "users": UserRow._fields,
    "groups": GroupRow._fields,
    "tokens": TokenRow._fields,
    "audit": AuditRow._fields,
    "blobs": BlobRow._fields,
    "blob_refs": BlobRefRow._fields,
    "acct": AcctAdd._fields,
    "usage": UsageRow._fields,
    "places": PlaceRow._fields,
    "policy": PolicyRow._fields,
}
WRITES = {
    "runs": "put_run",
    "arrays": "add_array",
    "tasks": "put_task",
    "spans": "add_span",
    "pilots": "put_pilot",
    "events": "add_event",
    "hosts": "put_host",
    "users": "put_user",
    "groups": "put_group",
    "tokens": "put_token",
    "audit": "add_audit",
    "blobs": "put_blob",
    "blob_refs": "put_blob_ref",
    "acct": "add_acct",
    "usage": "put_usage",
    "places": "put_place",
    "policy": "add_policy",
}
# These read a table from end to end: at a start, for counts, or because the table is small.
# Small tables, and lists in the order of their keys that are cut after a page.
WHOLE_TABLE = {
    *("count_all", "living_pilots", "list_pilots", "gone_pilots", "list_hosts", "failed_runs"),
    *("live_tokens", "list_tokens", "revoked_tokens", "drop_tokens", "drop_audit"),
    *("expel_revoked", "drop_expelled_chunks"),  # at a restore
    *("all_blobs", "all_blob_refs", "all_chunks", "all_usage", "all_places", "all_sites", "pilots_between"),
    *("newest_spent", "all_spent", "fold_spent", "drop_spent"),  # folded to some hundred lines an owner and site
    *("sum_acct", "sum_used", "drop_acct"),  # they group; how they find lines has a test of its own
}


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with Database.open(":memory:") as database:
        yield database


def values(sql: str) -> dict[str, int] | tuple[int, ...]:
    names = re.findall(r":(\w+)", sql)
    return dict.fromkeys(names, 1) if names else (1,) * sql.count("?")


def plan(database: Database, sql: str) -> list[str]:
    return [row[3] for row in database.connection.execute(f"EXPLAIN QUERY PLAN {sql}", values(sql))]


def test_every_named_query_is_used() -> None:
    used = {
        vertex.value
        for file in FOLDER.glob("*.py")
        for vertex in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(vertex, ast.Constant) and isinstance(vertex.value, str)
    }
    assert set(SQL) - used == set()


def test_there_is_no_sql_on_rows_outside_the_files() -> None:
    pattern = re.compile(r"\b(SELECT .* FROM (?!sqlite_master)|INSERT INTO|DELETE FROM|UPDATE \w+ SET)\b")
    texts = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.py")}
    assert [name for name, text in texts.items() if pattern.search(text)] == []


@pytest.mark.parametrize("name", sorted(SQL))
def test_query_is_one_statement_with_one_sentence(database: Database, name: str) -> None:
    texts = [file.read_text(encoding="utf-8") for file in (FOLDER / "queries").glob("*.sql")]
    assert sum(len(re.findall(rf"^-- name: {name}\n-- [A-Z][^.]*\.\n(?!--)", text, re.M)) for text in texts) == 1
    assert SQL[name].count(";") == 1
    assert SQL[name].endswith(";")
    plan(database, SQL[name])  # it compiles


@pytest.mark.parametrize("name", sorted(SQL))
def test_query_never_asks_the_clock_or_chance(name: str) -> None:
    assert not re.search(r"current_|now'|datetime|strftime|julianday|unixepoch|random", SQL[name], re.I)


@pytest.mark.parametrize("name", sorted(set(SQL) - WHOLE_TABLE))
def test_query_goes_by_key_or_index_and_never_sorts(database: Database, name: str) -> None:
    steps = plan(database, SQL[name])
    scans = [step for step in steps if step.startswith("SCAN") and "INDEX" not in step]
    assert [step for step in scans if step not in allowed_scans(name)] == []
    assert not [step for step in steps if "TEMP B-TREE" in step]


def allowed_scans(name: str) -> list[str]:
    """By row number from one end, up to the limit: that is an order, not a search. And values that are given are read."""
    given = ["SCAN CONSTANT ROW", "SCAN (subquery-1)", "SCAN 2 CONSTANT ROWS"]
    if name == "removed_runs":
        return ["SCAN found"]  # its own queue of runs: the table itself is searched by key
    if name == "state_block":
        return ["SCAN (subquery-1)"]  # the rows of its block, which are searched by key
    return ["SCAN events"] if name == "oldest_events" else given if name.startswith("add_success") else []


@pytest.mark.parametrize("table", sorted(ROWS))
def test_columns_are_the_fields_of_the_row_type(database: Database, table: str) -> None:
    columns = [row[1] for row in database.connection.execute(f"PRAGMA table_info({table})")]
    assert tuple(columns) == ROWS[table]
    written = re.search(r"INSERT INTO \w+ \(([^)]*)\)", SQL[WRITES[table]])
    assert written is not None
    assert tuple(re.findall(r"\w+", written[1])) == ROWS[table]


@pytest.mark.parametrize(("table", "keys"), [("runs", 1), ("tasks", 2), ("pilots", 1), ("usage", 1), ("places", 3)])
def test_an_upsert_overwrites_every_column_but_the_key(table: str, keys: int) -> None:
    changed = re.findall(r"(\w+) = excluded\.(\w+)", SQL[WRITES[table]])
    assert tuple(before for before, _ in changed) == tuple(after for _, after in changed) == ROWS[table][keys:]


def test_what_is_told_of_the_accounts_is_added_to_every_sum_of_its_line() -> None:
    changed = re.findall(r"(\w+) = (\w+) \+ excluded\.(\w+)", SQL["add_acct"])
    assert [*changed] == [(name, name, name) for name in AcctAdd._fields[AcctAdd._fields.index("useful") :]]


@pytest.mark.parametrize("name", ["sum_acct", "sum_used"])
def test_lines_of_the_accounts_are_found_by_owner_and_hour(database: Database, name: str) -> None:
    steps = plan(database, SQL[name])
    assert "SEARCH acct USING PRIMARY KEY (owner=? AND hour>? AND hour<?)" in steps
    assert [step for step in steps if step.startswith("SCAN") and step != "SCAN people"] == []


def test_states_in_queries_are_the_states_of_the_model() -> None:
    final = {state.value for state in FINAL}
    wanted = {
        "open_tasks": {state.value for state in TaskState} - final,
        "final_states": final,
        "settled_tasks": final,
        "failed_tasks": final - {"succeeded"},
    }
    for name, states in wanted.items():
        assert set(re.findall(r"'(\w+)'", SQL[name])) == states


def test_a_file_is_read_into_names_comments_and_statements() -> None:
    text = "-- About the file.\n\n-- name: one\n-- First.\nSELECT 1;\n\n-- name: two\n-- Second\n-- line.\nSELECT\n    2;\n"
    assert list(parse(text)) == [("one", "SELECT 1;"), ("two", "SELECT\n    2;")]
