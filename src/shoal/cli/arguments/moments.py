"""Times of the clock as people write them: `08:00` is the next time that the clock shows it, here."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from shoal.model.errors import BadInput, echo
from shoal.model.quantities import parse_duration

_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_HINT = "write 08:00 for the next time the clock shows it, or 2026-11-20T08:00"


def parse_by(text: str, now: datetime) -> datetime:
    """The moment that `--by` names, in local time unless it has a zone; BadInput if it is none, or is over."""
    found = _CLOCK.fullmatch(text.strip())
    try:
        if found is not None:
            at = now.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0, tzinfo=None)
            at = (at if at > now.replace(tzinfo=None) else at + timedelta(days=1)).astimezone()
        else:
            at = datetime.fromisoformat(text.strip().replace(" ", "T", 1).replace("Z", "+00:00")).astimezone()
    except (ValueError, OverflowError):
        raise BadInput(f"{echo(text)!r} is no time", code="bad_duration", field="by", hint=_HINT) from None
    if at <= now:
        raise BadInput(f"{at:%Y-%m-%d %H:%M} is over", code="range", field="by", hint=_HINT)
    return at


def deadline_of(by: str | None, within: str | None, now: datetime) -> str | None:
    """The value of the field `deadline` that `--by` or `--within` stands for; None if neither is given."""
    if by is not None:
        return parse_by(by, now).isoformat(timespec="seconds")
    if within is None:
        return None
    if parse_duration(within, "within") <= 0:
        raise BadInput("there is no time left", code="range", field="within", hint="write for example 6h")
    return within


def clock_text(moment: float, now: float) -> str:
    """A moment as the clock shows it, with its date if that is another day's."""
    if 0 <= moment - now < 600:
        return f"{datetime.fromtimestamp(moment):%H:%M:%S}"
    at, today = datetime.fromtimestamp(moment), datetime.fromtimestamp(now)
    if at.date() == today.date() or 0 <= moment - now < 43_200:
        return f"{at:%H:%M}"
    return f"{at:%a %H:%M}" if 0 <= moment - now < 6 * 86_400 else f"{at:%Y-%m-%d %H:%M}"
