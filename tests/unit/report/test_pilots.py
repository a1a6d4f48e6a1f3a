"""Rows of pilots as expressions see them."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.engine.matching.pilot_attributes import ENDLESS
from shoal.model.errors import BadInput
from shoal.report.pilots import choose, facts_of, parse_columns, parse_where, unknown_notes, value_of

NOW = 1_000.0


def row(pilot: str = "p1", **more: Any) -> dict[str, Any]:
    """A pilot as the server lists it."""
    return {
        "pilot": pilot, "state": "idle", "reason": "", "owner": "ann", "group": "", "site": "east", "host": "h1", "cores": 4,
        "memory": 8 << 30, "disk": 3 << 20, "gpus": 1, "tags": {"arch": "x86_64", "load": 0.5}, "joined": 1.0, "ended": None,
        "ends": None, "free": 3, **more,
    }  # fmt: skip


def chosen(where: str, *rows: dict[str, Any]) -> list[str]:
    return [found["pilot"] for found, _ in choose(rows, parse_where(where), NOW)]


def test_facts_come_from_the_row_and_no_tag_stands_over_them() -> None:
    found = facts_of(row(tags={"cores": 64, "site": "heaven", "gpu": "A100"}, ends=NOW + 60), NOW)
    assert found == {
        "gpu": "A100", "pilot": "p1", "state": "idle", "host": "h1", "site": "east", "owner": "ann", "group": "", "slots": 4,
        "cores": 4, "memory_mb": 8192, "disk_mb": 3, "gpus": 1, "time_left": 60.0, "free_slots": 3, "free_cores": 3,
    }  # fmt: skip
    assert facts_of(row(ends=NOW - 5), NOW)["time_left"] == 0.0
    assert facts_of(row(), NOW)["time_left"] == ENDLESS


def test_a_row_of_the_database_alone_has_no_free_cores() -> None:
    told = {name: value for name, value in row(grp="phys").items() if name not in ("free", "group", "ends")}
    found = facts_of(told, NOW)
    assert found["group"] == "phys" and "free_cores" not in found


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("cores >= 8", ["p2"]),
        ('site == "east" and free_cores > 2', ["p1"]),
        ("load < 1", ["p1"]),
        ("not (load < 1)", []),  # a missing tag is undefined, and undefined is not true
        ("has(load) or cores > 4", ["p1", "p2"]),
        ("my.stage == 2", ["p2"]),
        ("ann.stage == 2", []),
        ("time_left > 3600", ["p1"]),
        ('state in ["busy", "draining"]', ["p2"]),
    ],
)
def test_a_filter_takes_the_pilots_for_which_it_holds(where: str, wanted: list[str]) -> None:
    other = row("p2", cores=16, owner="bob", site="west", state="busy", tags={"bob.stage": 2}, ends=NOW + 60, free=0)
    assert chosen(where, row(), other) == wanted


def test_a_filter_that_speaks_of_a_task_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        parse_where("cores >= task.cores")
    assert (caught.value.code, caught.value.field) == ("unknown_attribute", "where")
    with pytest.raises(BadInput) as caught:
        parse_where("cores >=")
    assert (caught.value.code, caught.value.field) == ("bad_expression", "where")


def test_columns_are_names_with_the_pilot_first() -> None:
    assert parse_columns("site, load,pilot,site") == ["pilot", "site", "load"]
    for text in ("", "site,,load", ","):
        with pytest.raises(BadInput):
            parse_columns(text)


def test_a_tag_that_no_pilot_has_is_noted_with_the_nearest() -> None:
    where = parse_where('arhc == "x86_64" and cores > 1')
    notes = unknown_notes([row()], where, ["lod", "load", "my.x"], NOW)
    assert notes == ["no pilot has the tag arhc (did you mean arch)", "no pilot has the tag lod (did you mean load)"]
    assert unknown_notes([], where, ["x"], NOW) == []


def test_a_value_is_read_by_the_name_that_people_write() -> None:
    found = facts_of(row(tags={"arch": "x86_64", "ann.x": 7, "bob.x": 8}), NOW)
    assert [value_of(found, name) for name in ("arch", "my.x", "bob.x", "nothing")] == ["x86_64", 7, 8, None]


def test_the_servers_facts_of_this_moment_stand_over_the_row() -> None:
    """What matching reads is what the listing goes by [GWP G6]."""
    told = row(facts={"free_memory_mb": 100, "state": "draining", "free_cores": 2})
    assert chosen("free_memory_mb > 50 and free_cores == 2", told) == ["p1"]
    assert chosen('state == "draining"', told) == ["p1"]
