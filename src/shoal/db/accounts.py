"""Accounting [GWP G12]: sums for readers, what a starting engine needs, and how long rows are kept.

A row belongs to the hour in which its attempts ended: what ran over midnight counts for the day it ended on.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import date
from typing import Any

from shoal.db.named_queries import SQL
from shoal.engine.snapshot import SpentRow
from shoal.model.errors import BadInput, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_ACCT_LINES
from shoal.wire.did_you_mean import did_you_mean

BY = ("owner", "site", "host", "pilot", "run", "day")  # columns to group by, in the order of the answer
PLACES = frozenset({"site", "host", "pilot", "day"})  # grouped by these alone, unused time is known
SUMS = ("useful", "failed", "lost", "duplicated", "tasks", "queued", "staging")
HOUR, DAY = 3_600.0, 86_400.0
KEEP = 370 * DAY  # seconds that rows stay longer than events: 400 days with the usual 30
WINDOW = 32 * 24  # hours that a quota looks back at most, but for "always"

Row = dict[str, Any]
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class AccountQuery:
    """Which rows: grouped by what, of which time, of whose tasks (None: all) and on whose pilots."""

    by: str = "owner"
    since: float = 0.0
    until: float = math.inf
    owners: Sequence[str] | None = None
    holders: Sequence[str] | None = None
    running: Mapping[str, float] = field(default_factory=dict)  # core seconds of attempts under way, by pilot


def parse_grouping(text: str) -> list[str]:
    """`owner,site` as the columns to group by."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in BY:
            raise BadInput(
                f"accounts cannot be summed by {echo(name)!r}", code="unknown_field", field="by",
                hint=did_you_mean(name, list(BY)) if name else f"one or more of {','.join(BY)}",
            )  # fmt: skip
    return [name for name in BY if name in names]


def read(connection: sqlite3.Connection, query: AccountQuery, now: float) -> Row:
    """Sums of the rows and, where it is known, what the pilots offered and how much of it was used."""
    by = parse_grouping(query.by)
    if not query.since < query.until:
        raise BadInput("the time asked for ends before it begins", code="range", field="until")
    low, high = math.floor(query.since / HOUR), math.ceil(min(query.until, now + HOUR) / HOUR)
    values: Row = {name: int(name in by) for name in BY}
    values |= {"since": low, "until": high, "owners": listed(query.owners), "limit": MAX_ACCT_LINES + 1}
    lines = [] if query.owners == [] else connection.execute(SQL["sum_acct"], values).fetchall()
    places = _utilisation(connection, query, by, (low, high), now) if PLACES.issuperset(by) else None
    if len(lines) > MAX_ACCT_LINES or len(places or ()) > MAX_ACCT_LINES:
        raise BadInput(
            f"that would be more than {MAX_ACCT_LINES} lines", code="too_many_lines", field="by",
            hint="sum by fewer words, or ask for a shorter time",
        )  # fmt: skip
    return {
        "by": by,
        "since": low * HOUR,
        "until": min(high * HOUR, now),
        "lines": [
            {**_named(by, line[: len(BY)]), **dict(zip(SUMS, line[len(BY) :], strict=True))} for line in lines
        ],
        "places": places,
    }  # fmt: skip


def _named(by: Sequence[str], values: Sequence[Any]) -> Row:
    """The columns of one group that were asked for, with days as dates."""
    found = {name: value for name, value in zip(BY, values, strict=True) if name in by}
    if "day" in found:
        found["day"] = date.fromordinal(_EPOCH + int(found["day"])).isoformat()
    return found


def _utilisation(
    connection: sqlite3.Connection, query: AccountQuery, by: Sequence[str], hours: tuple[int, int], now: float
) -> list[Row]:
    """Core seconds that pilots offered, and that anybody used of them: whoever sees a pilot sees how busy it is."""
    (kept,) = connection.execute(SQL["get_meta"], {"key": "acct_since"}).fetchone()
    low, high = max(hours[0] * HOUR, kept), min(hours[1] * HOUR, now)
    by_day = "day" in by
    pilots: dict[str, tuple[str, str]] = {}
    found: dict[tuple[Any, ...], list[float]] = {}

    def sums(pilot: str, day: int | None) -> list[float]:
        site, host = pilots[pilot]
        values = {"site": site, "host": host, "pilot": pilot, "day": day}
        return found.setdefault(tuple(values[name] if name in by else None for name in BY), [0.0, 0.0])

    if low < high:
        between = {"since": low, "until": high, "holders": listed(query.holders)}
        for pilot, site, host, cores, joined, ended in connection.execute(SQL["pilots_between"], between):
            pilots[pilot] = (site, host)
            for day, seconds in _days(max(joined, low), high if ended is None else min(ended, high), by_day):
                sums(pilot, day)[0] += cores * seconds
    used = {"since": hours[0], "until": hours[1], "day": int(by_day)}
    for pilot, day, seconds in connection.execute(SQL["sum_used"], used):
        if pilot in pilots:
            sums(pilot, day)[1] += seconds
    if high >= now:  # what is under way will be a row of the hour in which it ends
        for pilot, seconds in query.running.items():
            if pilot in pilots:
                sums(pilot, int(now // DAY) if by_day else None)[1] += seconds
    # In one grouping the same columns are None in every key, so that the rest can be compared.
    keys = sorted(found, key=lambda key: [value for value in key if value is not None])
    return [{**_named(by, key), "offered": found[key][0], "used": found[key][1]} for key in keys]


def _days(low: float, high: float, by_day: bool) -> Iterator[tuple[int | None, float]]:
    """An interval split at midnights (UTC), or whole."""
    if not by_day:
        yield None, high - low
        return
    while low < high:
        day = int(low // DAY)
        upto = min(high, (day + 1) * DAY)
        yield day, upto - low
        low = upto


def spent(connection: sqlite3.Connection, started: float) -> list[SpentRow]:
    """Core seconds by owner, site and hour, as quotas count them; older ones are summed under the window's first hour."""
    (newest,) = connection.execute(SQL["newest_spent"]).fetchone()
    oldest = max(0, max(newest, int(started // HOUR)) - WINDOW)
    return [SpentRow._make(row) for row in connection.execute(SQL["all_spent"], {"oldest": oldest})]


def prune(connection: sqlite3.Connection, before: float) -> None:
    """Delete rows that are too old, where `before` is the age limit of events; what was ever spent stays known."""
    hour = int((before - KEEP) // HOUR)
    if hour > 0:
        connection.execute(SQL["drop_acct"], {"before": hour})
        (kept,) = connection.execute(SQL["get_meta"], {"key": "acct_since"}).fetchone()
        connection.execute(SQL["set_meta"], {"key": "acct_since", "value": max(kept, hour * HOUR)})
    window = int(before // HOUR) - WINDOW
    if window > 0:
        connection.execute(SQL["fold_spent"], {"before": window})
        connection.execute(SQL["drop_spent"], {"before": window})


def listed(names: Iterable[str] | None) -> str:
    """Names as one text for SQL, empty for all. No name of ours contains a comma."""
    return "" if names is None else f",{','.join(names)},"
