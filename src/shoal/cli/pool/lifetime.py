"""`--lifetime` and `--until`: when a pilot ends by itself, outside a batch system that would say it."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

import click

from shoal.cli.tasks.options import options
from shoal.model.errors import BadInput, echo
from shoal.model.quantities import parse_duration

LIFETIME_OPTIONS = options(
    click.option("--lifetime", metavar="TIME", help="End so long after the start, in order, e.g. 2h."),
    click.option("--until", metavar="TIME", help="End at this time, in order, e.g. 18:00 or 2026-11-16T08:00."),
)
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})")


def lifetime_options(lifetime: str | None, until: str | None) -> tuple[tuple[str, object], ...]:
    """The options of the pilot for what was given, checked."""
    found: list[tuple[str, object]] = []
    if lifetime is not None:
        found.append(("--lifetime", parse_duration(lifetime, "--lifetime")))
    if until is not None:
        found.append(("--until", str(round(parse_until(until, time.time())))))
    return tuple(found)


def parse_until(text: str, now: float) -> float:
    """The Unix time of `18:00`, today or else tomorrow, or of `2026-11-16T08:00`, on this machine's clock."""
    clock = _CLOCK.fullmatch(text.strip())
    try:
        if clock:
            here = datetime.fromtimestamp(now)
            at = here.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
            at = at if at > here else at + timedelta(days=1)
        else:
            at = datetime.fromisoformat(text.strip())
        found = at.timestamp()
    except (ValueError, OverflowError, OSError):
        hint = "write 18:00, or 2026-11-16T08:00; --lifetime 2h counts from the start"
        raise BadInput(f"{echo(text)!r} is not a time", code="bad_time", field="--until", hint=hint) from None
    if found <= now:
        raise BadInput(f"{echo(text)!r} has passed", code="bad_time", field="--until", hint="name a time to come")
    return found
