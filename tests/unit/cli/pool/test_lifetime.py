"""When a pilot ends by itself, as people write it."""

from __future__ import annotations

from datetime import datetime

import pytest

from shoal.cli.pool.lifetime import lifetime_options, parse_until
from shoal.model.errors import BadInput

NOON = datetime(2026, 11, 16, 12, 0).timestamp()


def test_a_time_of_the_day_is_the_next_one() -> None:
    assert parse_until("18:00", NOON) == NOON + 6 * 3600
    assert parse_until("06:30", NOON) == NOON + 18.5 * 3600
    assert parse_until("2026-11-16T12:01", NOON) == NOON + 60


@pytest.mark.parametrize(("text", "line"), [
    ("25:00", "--until: '25:00' is not a time (write 18:00"), ("soon", "--until: 'soon' is not a time"),
    ("2026-11-16T11:59", "--until: '2026-11-16T11:59' has passed (name a time to come)"),
])  # fmt: skip
def test_what_is_no_time_to_come_is_refused(text: str, line: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_until(text, NOON)
    assert refusal.value.line.startswith(line)


def test_the_pilot_gets_seconds_and_a_unix_time() -> None:
    assert lifetime_options("1h30m", None) == (("--lifetime", 5400.0),)
    ((option, moment),) = lifetime_options(None, "18:00")
    assert option == "--until" and str(moment).isdecimal()
