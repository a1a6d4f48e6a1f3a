"""Sizes and durations with units, read and written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_BYTES, MAX_SECONDS

_SIZE = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,6})?)\s*([KMGTP]?)(iB|B)?\s*")
_POWER: dict[str, int] = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,6})?)s?)?")
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(\d{1,6}):(\d{1,2})(?::(\d{1,2}))?")
_SIZE_HINT = 'write for example "512M", "4G" or "1.5T"; K, M, G are powers of 1024'
_TIME_HINT = 'write seconds, or for example "90s", "15m", "2h", "1h30m", "1d", "02:30:00"'
LAST_PORT = 65_535


def parse_size(value: object, field: str = "memory") -> int:
    """Bytes from `"4G"`, `"512M"`, or a whole number of bytes. KB, MB, GB are powers of 1000; K and KiB of 1024."""
    bytes_ = -1
    if isinstance(value, int) and not isinstance(value, bool):
        bytes_ = value
    elif isinstance(value, str):
        found = _SIZE.fullmatch(value)
        if found and not (found[3] and not found[2] and found[3] == "iB"):
            base = 1000 if found[3] == "B" else 1024
            bytes_ = int(float(found[1]) * base ** _POWER[found[2]])
    if not 1 <= bytes_ <= MAX_BYTES:
        raise BadInput(f"{echo(value)!r} is not a size", code="bad_size", field=field, hint=_SIZE_HINT)
    return bytes_


def parse_duration(value: object, field: str = "time") -> float:
    """Seconds from a number, `"1h30m"`, or `"D-HH:MM:SS"`."""
    seconds = -1.0
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= MAX_SECONDS else -1.0
    elif isinstance(value, str):
        text = value.strip()
        clock = _CLOCK.fullmatch(text)
        plain = _DURATION.fullmatch(text)
        if clock:
            days, first, second, third = (int(g) if g else 0 for g in clock.groups())
            # Two fields are H:M, as people write it; three are H:M:S.
            seconds = float(days * 86400 + first * 3600 + second * 60 + third)
        elif plain and text:
            days_, hours, minutes, rest = plain.groups()
            seconds = int(days_ or 0) * 86400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(rest or 0)
    if not 0 < seconds <= MAX_SECONDS:
        raise BadInput(f"{echo(value)!r} is not a duration", code="bad_duration", field=field, hint=_TIME_HINT)
    return seconds


def many(count: int, noun: str, nouns: str = "") -> str:
    """`1 task`, `2 tasks`, `1,000 entries`."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def first_of(names: Sequence[str], most: int, count: int = 0) -> str:
    """`a, b, c`, or `a, b and 3 more` if there are more than are named; `count`: of all, if these are only the first."""
    left = max(count, len(names)) - min(most, len(names))
    return ", ".join(names[:most]) + (f" and {left:,} more" if left > 0 else "")


def show_size(bytes_: float) -> str:
    """`4294967296` -> `4.0G`."""
    for unit in ("B", "K", "M", "G", "T"):
        if abs(bytes_) < 1024 or unit == "T":
            return f"{bytes_:.0f}{unit}" if unit == "B" else f"{bytes_:.1f}{unit}"
        bytes_ /= 1024
    return f"{bytes_:.1f}T"


def show_duration(seconds: float) -> str:
    """`5400` -> `1h30m`; short ones keep their milliseconds."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours}h"
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def rate_text(rate: float) -> str:
    """Tasks per second, minute or hour: whichever gives a number a person can read."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if rate * seconds >= 1 or unit == "h":
            return f"{rate * seconds:,.1f}/{unit}"
    return ""


def bar_text(done: int, total: int, width: int = 16) -> str:
    """A progress bar: `#####.....`"""
    filled = width * done // total if total else 0
    return "#" * filled + "." * (width - filled)


def parse_ports(text: str) -> range:
    """`A` or `A-B`: the ports from A to B; 0 alone is any that is free. BadInput for anything else."""
    first, dash, last = text.partition("-")
    last = last if dash else first
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit() and len(text) <= 11):
        raise BadInput(f"{echo(text)!r} is no range of ports", code="range", hint="e.g. 9700-9799")
    low, high = int(first), int(last)
    if high > LAST_PORT or low > high or (low == 0 and high != 0):
        raise BadInput(
            f"{echo(text)!r} is no range of ports", code="range", hint=f"from 1 to {LAST_PORT}, the lower one first"
        )
    return range(low, high + 1)
