"""Numbers as options take them; notes on those without a unit, which mean something else to people who come from Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import click

from shoal.model.quantities import many, parse_duration, parse_size, show_duration

_BARE = re.compile(r"[0-9]+(\.[0-9]+)?")
_TWO_PARTS = re.compile(r"[0-9]+:[0-9]{1,2}")
_PLAUSIBLE = 1 << 20  # bytes from which on a size without a unit may well be meant in bytes
_TIMES = {"time": "--time", "deadline": "--deadline"}
_SIZES = {"memory": "--memory", "disk": "--disk"}


class FiniteRange(click.FloatRange):
    """Numbers of a range, of which neither `nan` nor `inf` is one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number of a text."""
        found = super().convert(value, param, ctx)
        if not isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


def unit_notes(options: Mapping[str, Any]) -> Iterator[str]:
    """What was taken for each time and size that has no unit, if Slurm would take another."""
    for name, option in _TIMES.items():
        text = str(options.get(name) or "").strip()
        if _BARE.fullmatch(text) and parse_duration(text) > 0:
            unit = "second" if float(text) == 1 else "seconds"
            yield f"{option} {text} is taken as {text} {unit}, not minutes as in Slurm; write {text}s or {text}m"
        elif _TWO_PARTS.fullmatch(text):
            hours, minutes = text.split(":")
            taken = show_duration(parse_duration(text))
            yield (
                f"{option} {text} is taken as {taken} (hours:minutes), not minutes:seconds as in Slurm;"
                f" write {hours}h{minutes}m or {hours}m{minutes}s"
            )
    for name, option in _SIZES.items():
        text = str(options.get(name) or "").strip()
        if _BARE.fullmatch(text) and (size := parse_size(text, name)) < _PLAUSIBLE:
            yield f"{option} {text} is taken as {many(size, 'byte')}, not megabytes as in Slurm; write {text}M"
