"""Hosts as expressions see them: filters and columns over what each of them did; and how the allocations of sites did."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

from shoal.model.errors import BadInput, echo
from shoal.report.data_source import Json, Source
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


# --- sites
ALLOCATION_EVENTS = ("allocation_submitted", "allocation_started", "allocation_ended")


class SiteWeather(NamedTuple):
    """One site over the whole journal."""

    site: str
    backend: str
    submitted: int
    started: int
    ended: int
    wait: float | None  # median seconds from submission to start
    core_hours: float
    last_reason: str  # of the last end that had one


def read_weather(source: Source) -> dict[str, SiteWeather]:
    """Every site that an allocation was submitted to: how its allocations did."""
    found: dict[str, SiteWeather] = {}
    submitted: dict[str, float] = {}
    waits: dict[str, list[float]] = {}
    for event in source.events(kinds=ALLOCATION_EVENTS):
        data = event["data"]
        one, site = data["allocation"], str(data["site"])
        name = str(one["name"])
        row = found.get(site) or SiteWeather(site, str(data.get("backend", "")), 0, 0, 0, None, 0.0, "")
        if event["kind"] == ALLOCATION_EVENTS[0]:
            submitted[name] = event["time"]
            row = row._replace(submitted=row.submitted + 1)
        elif event["kind"] == ALLOCATION_EVENTS[1]:
            if name in submitted:
                waits.setdefault(site, []).append(max(0.0, event["time"] - submitted[name]))
            row = row._replace(started=row.started + 1)
        else:
            hours = one.get("cores", 0) * one.get("seconds", 0.0) / 3600.0
            reason = str(one.get("reason") or row.last_reason)
            row = row._replace(ended=row.ended + 1, core_hours=row.core_hours + hours, last_reason=reason)
        found[site] = row
    return {
        site: row._replace(wait=statistics.median(waits[site]) if site in waits else None)
        for site, row in found.items()
    }
