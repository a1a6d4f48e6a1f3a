"""Pilots as expressions see them: filters and columns over the attributes of a listed pilot [GWP G3, G12].

Attributes are the tags that a pilot reported, those that tasks published there (`OWNER.NAME`), and the columns of its
row, which no tag can override.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.model.errors import BadInput, echo
from shoal.report.data_source import Json
from shoal.sched.expr.names import OWN, key_of, nearest, unknown_tags
from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import holds
from shoal.sched.expr.tree import Expr

_MEGA = 1 << 20


def facts_of(row: Mapping[str, Any], now: float) -> Json:
    """Every attribute of a pilot by its name; what only a running server knows is there if the row has it."""
    from shoal.engine.matching.pilot_attributes import ENDLESS  # a plain listing needs no engine

    ends = row.get("ends")
    found: Json = {
        **(row.get("tags") or {}), "pilot": row["pilot"], "state": row["state"], "host": row["host"], "site": row["site"],
        "owner": row["owner"], "group": row.get("group", row.get("grp", "")), "slots": row["cores"], "cores": row["cores"],
        "memory_mb": row["memory"] // _MEGA, "disk_mb": row["disk"] // _MEGA, "gpus": row["gpus"],
        "time_left": ENDLESS if ends is None else max(0.0, ends - now),
    }  # fmt: skip
    if "free" in row:
        found["free_slots"] = found["free_cores"] = row["free"]
    # For a pilot that runs the server sends the attributes that matching reads now: these count.
    return {**found, **(row.get("facts") or {})}


def value_of(facts: Mapping[str, Any], name: str) -> Any:
    """An attribute of a pilot by its name, None if it has none; `my.x`: as its owner's tasks published it."""
    return facts.get(key_of(name, str(facts["owner"])))


def parse_where(text: str) -> Expr:
    """Parse a filter of pilots; it may not use attributes of a task, because there is none."""
    expr = parse(text, field="where")
    if expr.attributes:
        name = sorted(expr.attributes)[0]
        raise BadInput(
            f"task.{echo(name)} means nothing here: pilots are listed, not matched with a task", code="unknown_attribute",
            field="where", hint="use tags of pilots, e.g. cores >= 8",
        )  # fmt: skip
    return expr


def parse_columns(text: str) -> list[str]:
    """`site,cpu,load` as names of tags, each once and behind that of the pilot."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise BadInput(
            "an empty name", code="bad_columns", field="columns", hint="name tags, e.g. --columns site,cpu,load"
        )
    return list(dict.fromkeys(["pilot", *names]))


class ListedPilot(NamedTuple):
    """A pilot of the listing: its row, and its attributes by name."""

    row: Json
    facts: Json


def choose(rows: Iterable[Json], where: Expr | None, now: float) -> list[ListedPilot]:
    """The pilots for which a filter holds."""
    listed = [ListedPilot(row, facts_of(row, now)) for row in rows]
    return [one for one in listed if where is None or holds(where, one.facts, {"owner": one.facts["owner"]})]


def unknown_notes(rows: Iterable[Json], where: Expr | None, columns: Sequence[str], now: float) -> list[str]:
    """A note for each tag in the filter or columns that no pilot has, with the nearest that one has [input E28]."""
    rows = list(rows)
    if not rows:
        return []
    known = {name for row in rows for name in facts_of(row, now)}
    unknown = dict(unknown_tags(where, known)) if where is not None else {}
    for name in columns:
        if name not in known and not name.startswith(OWN):
            unknown[name] = nearest(name, sorted(known))
    return [
        f"no pilot has the tag {echo(name)}" + (f" (did you mean {near})" if near else "")
        for name, near in unknown.items()
    ]
