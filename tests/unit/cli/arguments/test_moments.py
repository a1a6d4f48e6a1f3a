"""Times of the clock: the next time that it shows them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from shoal.cli.arguments.moments import clock_text, deadline_of, parse_by
from shoal.model.errors import BadInput

NOW = datetime(2026, 11, 19, 22, 15, 30).astimezone()


@pytest.mark.parametrize(
    ("text", "shown"),
    [("23:00", "2026-11-19 23:00"), ("08:00", "2026-11-20 08:00"), ("22:15", "2026-11-20 22:15"), (" 8:05 ", "2026-11-20 08:05"),
     ("2026-11-21T06:30", "2026-11-21 06:30"), ("2026-11-21 06:30", "2026-11-21 06:30")],
)  # fmt: skip
def test_a_time_is_the_next_one_that_the_clock_shows(text: str, shown: str) -> None:
    assert f"{parse_by(text, NOW):%Y-%m-%d %H:%M}" == shown


@pytest.mark.parametrize(
    "text", ["25:00", "08:61", "eight", "", "8", "2026-13-01T00:00", "2026-11-19T22:00", "0001-01-01T00:00"]
)
def test_what_is_no_time_or_over_is_one_error(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_by(text, NOW)
    assert caught.value.field == "by" and caught.value.hint


def test_a_deadline_is_by_a_time_or_within_one() -> None:
    assert deadline_of(None, None, NOW) is None
    assert deadline_of(None, "6h", NOW) == "6h"
    found = deadline_of("23:00", None, NOW)
    assert found is not None and datetime.fromisoformat(found) == NOW.replace(hour=23, minute=0, second=0)
    for wrong in ("0s", "soon"):
        with pytest.raises(BadInput):
            deadline_of(None, wrong, NOW)


@pytest.mark.parametrize(
    ("after", "shown"),
    [(timedelta(seconds=90), "22:17:00"), (timedelta(hours=1), "23:15"), (timedelta(hours=10), "08:15"),
     (timedelta(days=2), "Sat 22:15"), (timedelta(days=30), "2026-12-19 22:15"), (timedelta(days=-1), "2026-11-18 22:15")],
)  # fmt: skip
def test_a_moment_is_shown_as_short_as_it_is_clear(after: timedelta, shown: str) -> None:
    assert clock_text((NOW + after).timestamp(), NOW.timestamp()) == shown
