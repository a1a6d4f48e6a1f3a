"""Windows of the calendar, in UTC: which one a moment is in, from when until when [SPHINX policy]."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from shoal.model.policy import ALWAYS, DAY, MONTH, WEEK, When, parse_when

HOUR = 3_600
_DAY = 24 * HOUR
_MONDAY = 4 * _DAY  # 1970-01-05


def occurrence(text: str, now: float) -> tuple[float, float, bool]:
    """Start and end of the window's occurrence that holds `now`, and True; or those of the gap it is in, and False.

    Each day of a part of the week is an occurrence of its own.
    """
    when = _read(text)
    if when.kind == ALWAYS:
        return -math.inf, math.inf, True
    midnight = math.floor(now / _DAY) * _DAY
    if when.kind == DAY:
        return midnight, midnight + _DAY, True
    if when.kind == WEEK:
        monday = midnight - (midnight - _MONDAY) % (7 * _DAY)
        return monday, monday + 7 * _DAY, True
    if when.kind == MONTH:
        return (*_month(midnight), True)
    return _part(when, now, midnight)


@lru_cache(maxsize=1_000)
def _read(text: str) -> When:
    return parse_when(text)


def _month(midnight: int) -> tuple[float, float]:
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)  # a date in any year, also before 1970
    first = (epoch + timedelta(seconds=midnight)).replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return (first - epoch).total_seconds(), (following - epoch).total_seconds()


def _part(when: When, now: float, midnight: int) -> tuple[float, float, bool]:
    """The occurrence of a part of the day, or the gap around `now`."""
    hours = when.end - when.start if when.end > when.start else when.end + 24 - when.start
    ended = -math.inf
    for ahead in range(-8, 9):  # a day of the week is at most seven days away
        day = midnight + ahead * _DAY
        if (day - _MONDAY) // _DAY % 7 not in when.days:
            continue
        opens = day + when.start * HOUR
        closes = opens + hours * HOUR
        if opens <= now < closes:
            return opens, closes, True
        if opens > now:
            return ended, opens, False
        ended = closes
    raise AssertionError(f"no day of {when} within eight days")
