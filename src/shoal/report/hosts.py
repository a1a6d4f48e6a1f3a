"""Hosts as expressions see them: filters and columns over what each of them did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal.model.errors import BadInput, echo
from shoal.report.data_source import Json
from shoal.sched.expr.scalar import holds
from shoal.sched.expr.tree import Expr
from shoal.wire.did_you_mean import did_you_mean

# Names of expressions and columns; `core_seconds` is what its tasks took, `seen` and `known` are seconds ago.
NAMES = (
    "host", "site", "owner", "group", "pilots", "pilots_ever", "succeeded", "failed", "lost", "core_seconds", "known", "seen",
)  # fmt: skip


def facts_of(row: Json, now: float) -> Json:
    """Everything known about a host, by its name."""
    return {
        "host": row["host"], "site": row["site"], "owner": row["owner"], "group": row["group"], "pilots": row["living"],
        "pilots_ever": row["pilots"], "succeeded": row["succeeded"], "failed": row["failed"], "lost": row["lost"],
        "core_seconds": row["busy"], "known": max(0.0, now - row["first"]), "seen": max(0.0, now - row["seen"]),
    }  # fmt: skip


def check_names(names: Iterable[str], field: str) -> None:
    """Refuse names that no host has."""
    for name in names:
        if name not in NAMES:
            hint = did_you_mean(name, list(NAMES))
            raise BadInput(f"hosts have no {echo(name)!r}", code="unknown_attribute", field=field, hint=hint)


def parse_columns(text: str) -> list[str]:
    """`host,failed,lost` as names, each once."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    check_names(names, "--columns")
    return names


def choose(rows: Iterable[Json], where: Expr | None, site: str | None, now: float) -> list[Json]:
    """The hosts of a site, if one is given, for which a filter holds."""
    found = [row for row in rows if site is None or row["site"] == site]
    return [row for row in found if where is None or holds(where, facts_of(row, now), {"owner": row["owner"]})]


def values_of(row: Json, names: Iterable[str], now: float) -> list[Any]:
    """The values of a host in these columns."""
    facts = facts_of(row, now)
    return [facts[name] for name in names]
