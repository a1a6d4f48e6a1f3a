"""Names of people, groups and sites [input E76], and the rows they are kept in."""

from __future__ import annotations

import pytest

from shoal.db.named_queries import SQL
from shoal.model.errors import BadInput
from shoal.model.people import AuditRow, GroupRow, TokenRow, UserRow, check_name


@pytest.mark.parametrize("name", ["a", "anna", "_x", "a.b-c_d", "a1", "x" * 64, "adm", "root2", "locale"])
def test_a_plain_name_is_taken(name: str) -> None:
    assert check_name(name, "name") == name


@pytest.mark.parametrize(
    "name",
    [
        "", "root", "admin", "local", "all", "none", "x" * 65, "x" * 1_000, "Anna", "ANNA", "1a", ".a", "-a", "../x", "a/b",
        "a b", " a", "a ", "a\n", "\na", "a\0b", "a,b", "@phys", "a@b", "a'b", 'a"b', "a;b", "a%b", "a*", "a?", "[a]", "a\\b",
        "é", "\u0430nna", "a\u202eb", "a\u200bb", "\uff41nna", "😀",
    ],
)  # fmt: skip
def test_a_name_that_could_mean_something_else_is_refused(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_name(name, "owner")
    assert (caught.value.code, caught.value.field) == ("bad_name", "owner")
    assert "\n" not in caught.value.line and len(caught.value.message) < 130


def test_no_name_holds_what_lists_in_sql_are_made_with() -> None:
    # `_listed` of db/reader.py joins names by commas, and a group's stand behind an @.
    for mark in (",", "@", "'"):
        with pytest.raises(BadInput):
            check_name(f"a{mark}b", "name")


@pytest.mark.parametrize(
    ("row", "query"),
    [(UserRow, "put_user"), (GroupRow, "put_group"), (TokenRow, "put_token"), (AuditRow, "add_audit")],
)
def test_a_row_has_the_columns_of_its_statement_in_their_order(row: type, query: str) -> None:
    columns = SQL[query].partition("(")[2].partition(")")[0]
    fields: tuple[str, ...] = row._fields  # type: ignore[attr-defined]  # every row is a named tuple
    assert tuple(word.strip() for word in columns.split(",")) == fields
