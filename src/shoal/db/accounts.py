"""The accounts [GWP G12]: what a starting engine and readers get of them, and how long their lines are kept.

A line belongs to the hour in which its attempts ended: what ran over midnight counts for the day it ended on.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from shoal.db.named_queries import SQL
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_ACCT_LINES
from shoal.wire.checks import did_you_mean

BY = ("owner", "site", "host", "pilot", "run", "day")  # what lines can be summed by, in the order of the answer
PLACES = frozenset({"site", "host", "pilot", "day"})  # by these alone, time that nobody used is known
SUMS = ("useful", "failed", "lost", "duplicated", "tasks", "queued", "staging")
HOUR, DAY = 3_600.0, 86_400.0
KEEP = 370 * DAY  # seconds that lines stay longer than events: 400 days with the usual 30
WINDOW = 32 * 24  # hours that a quota looks back at most, but for "always"

Row = dict[str, Any]
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class AccountQuery:
    """Which lines: summed by which words, of which time, of whose tasks (None: all) and on whose pilots."""

    by: str = "owner"
    since: float = 0.0
    until: float = math.inf
    owners: Sequence[str] | None = None
    holders: Sequence[str] | None = None
    running: Mapping[str, float] = field(default_factory=dict)  # core seconds of attempts under way, by pilot


def words_of(text: str) -> list[str]:
    """`owner,site` as the words that lines are summed by."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in BY:
            raise BadInput(
                f"accounts cannot be summed by {echo(word)!r}", code="unknown_field", field="by",
                hint=did_you_mean(word, list(BY)) if word else f"one or more of {','.join(BY)}",
            )  # fmt: skip
    return [word for word in BY if word in words]


def read(connection: sqlite3.Connection, asked: AccountQuery, now: float) -> Row:
    """Sums of the lines asked for and, where it is known, what the pilots offered and how much of it was used."""
    by = words_of(asked.by)
    if not asked.since < asked.until:
        raise BadInput("the time asked for ends before it begins", code="range", field="until")
    low, high = math.floor(asked.since / HOUR), math.ceil(min(asked.until, now + HOUR) / HOUR)
    values: Row = {word: int(word in by) for word in BY}
    values |= {"since": low, "until": high, "owners": _listed(asked.owners), "limit": MAX_ACCT_LINES + 1}
    lines = [] if asked.owners == [] else connection.execute(SQL["sum_acct"], values).fetchall()
    places = None
    if PLACES.issuperset(by):
        places = _places(connection, asked, by, (low, high), now)
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
    """The words that were asked for with what they are on one line; days as dates."""
    found = {word: value for word, value in zip(BY, values, strict=True) if word in by}
    if "day" in found:
        found["day"] = date.fromordinal(_EPOCH + int(found["day"])).isoformat()
    return found


def _places(
    connection: sqlite3.Connection, asked: AccountQuery, by: Sequence[str], hours: tuple[int, int], now: float
) -> list[Row]:
    """Core seconds that pilots offered, and that anybody used of them: who sees a pilot sees how busy it is."""
    (kept,) = connection.execute(SQL["get_meta"], {"key": "acct_since"}).fetchone()
    low, high = max(hours[0] * HOUR, kept), min(hours[1] * HOUR, now)
    by_day = "day" in by
    pilots: dict[str, tuple[str, str]] = {}
    found: dict[tuple[Any, ...], list[float]] = {}

    def cell(pilot: str, day: int | None) -> list[float]:
        site, host = pilots[pilot]
        wanted = {"site": site, "host": host, "pilot": pilot, "day": day}
        return found.setdefault(tuple(wanted[word] if word in by else None for word in BY), [0.0, 0.0])

    if low < high:
        values = {"since": low, "until": high, "holders": _listed(asked.holders)}
        for pilot, site, host, cores, joined, ended in connection.execute(SQL["pilots_between"], values):
            pilots[pilot] = (site, host)
            for day, seconds in _days(max(joined, low), high if ended is None else min(ended, high), by_day):
                cell(pilot, day)[0] += cores * seconds
    used = {"since": hours[0], "until": hours[1], "day": int(by_day)}
    for pilot, day, seconds in connection.execute(SQL["sum_used"], used):
        if pilot in pilots:
            cell(pilot, day)[1] += seconds
    if high >= now:  # what is under way will be a line of the hour in which it ends
        for pilot, seconds in asked.running.items():
            if pilot in pilots:
                cell(pilot, int(now // DAY) if by_day else None)[1] += seconds
    # In one grouping a word is of one kind on every line, so the keys can be put in order.
    return [{**_named(by, key), "offered": sums[0], "used": sums[1]} for key, sums in sorted(found.items(), key=_key)]


def _key(item: tuple[tuple[Any, ...], list[float]]) -> tuple[Any, ...]:
    return tuple(value for value in item[0] if value is not None)


def _days(low: float, high: float, by_day: bool) -> Iterator[tuple[int | None, float]]:
    """A time cut at midnights (UTC), or whole."""
    if not by_day:
        yield None, high - low
        return
    while low < high:
        day = int(low // DAY)
        upto = min(high, (day + 1) * DAY)
        yield day, upto - low
        low = upto


def spent(connection: sqlite3.Connection, started: float) -> list[tuple[str, str, int, float]]:
    """Core seconds by owner, site and hour, as quotas count them; what is too old for a window is under its first hour."""
    (newest,) = connection.execute(SQL["newest_spent"]).fetchone()
    oldest = max(0, max(newest, int(started // HOUR)) - WINDOW)
    return connection.execute(SQL["all_spent"], {"oldest": oldest}).fetchall()


def prune(connection: sqlite3.Connection, before: float) -> None:
    """Forget lines that are too old, if events from before that time are; what was ever spent stays known."""
    hour = int((before - KEEP) // HOUR)
    if hour > 0:
        connection.execute(SQL["drop_acct"], {"before": hour})
        (kept,) = connection.execute(SQL["get_meta"], {"key": "acct_since"}).fetchone()
        connection.execute(SQL["set_meta"], {"key": "acct_since", "value": max(kept, hour * HOUR)})
    window = int(before // HOUR) - WINDOW
    if window > 0:
        connection.execute(SQL["fold_spent"], {"before": window})
        connection.execute(SQL["drop_spent"], {"before": window})


def _listed(names: Iterable[str] | None) -> str:
    """Names as one text for SQL, empty for all."""
    return "" if names is None else f",{','.join(names)},"
