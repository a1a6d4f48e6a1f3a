"""Windows of the calendar against dates that can be looked up."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from shoal.sched.time_windows import occurrence


def at(text: str) -> float:
    """`2024-02-28 13:30` in UTC as seconds."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("when", "now", "opens", "closes", "is_open"),
    [
        ("day", "2024-02-28 13:30", "2024-02-28 00:00", "2024-02-29 00:00", True),
        ("day", "2024-02-29 00:00", "2024-02-29 00:00", "2024-03-01 00:00", True),
        ("week", "2024-02-28 13:30", "2024-02-26 00:00", "2024-03-04 00:00", True),  # a wednesday
        ("week", "2024-03-03 23:59", "2024-02-26 00:00", "2024-03-04 00:00", True),
        ("week", "2024-03-04 00:00", "2024-03-04 00:00", "2024-03-11 00:00", True),
        ("month", "2024-02-29 23:59", "2024-02-01 00:00", "2024-03-01 00:00", True),
        ("month", "2023-12-31 01:00", "2023-12-01 00:00", "2024-01-01 00:00", True),
        ("month", "1969-12-31 01:00", "1969-12-01 00:00", "1970-01-01 00:00", True),
        ("mon-fri 08-18", "2024-02-28 13:30", "2024-02-28 08:00", "2024-02-28 18:00", True),
        ("mon-fri 08-18", "2024-02-28 18:00", "2024-02-28 18:00", "2024-02-29 08:00", False),
        ("mon-fri 08-18", "2024-03-02 12:00", "2024-03-01 18:00", "2024-03-04 08:00", False),
        ("sun", "2024-02-28 13:30", "2024-02-26 00:00", "2024-03-03 00:00", False),
        ("sat,sun", "2024-03-02 13:30", "2024-03-02 00:00", "2024-03-03 00:00", True),
        ("fri 22-06", "2024-03-02 03:00", "2024-03-01 22:00", "2024-03-02 06:00", True),
        ("fri 22-06", "2024-03-02 23:00", "2024-03-02 06:00", "2024-03-08 22:00", False),
        ("22-06", "2024-03-02 23:00", "2024-03-02 22:00", "2024-03-03 06:00", True),
    ],
)
def test_a_moment_is_in_the_right_occurrence(when: str, now: str, opens: str, closes: str, is_open: bool) -> None:
    assert occurrence(when, at(now)) == (at(opens), at(closes), is_open)


def test_always_has_no_ends() -> None:
    assert occurrence("always", 5.0) == (-math.inf, math.inf, True)


@pytest.mark.parametrize("when", ["day", "week", "month", "mon-fri 08-18", "sun 22-06", "mon", "00-24"])
def test_occurrences_and_gaps_follow_each_other_without_holes(when: str) -> None:
    now = at("2024-02-20 00:00")
    opens, closes, _ = occurrence(when, now)
    for _ in range(60):
        assert opens <= now < closes and opens % 3600 == 0
        assert occurrence(when, math.nextafter(closes, 0))[:2] == (opens, closes)
        now = closes
        opens, closes, _ = occurrence(when, now)
        assert opens == now
