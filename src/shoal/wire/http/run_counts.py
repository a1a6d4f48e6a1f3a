"""How far a run is, by the counts in its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.model.states import FINAL


def done_of(row: Mapping[str, Any]) -> int:
    """How many tasks of a run are final."""
    return sum(int(row["counts"].get(state, 0)) for state in FINAL)


def units_of(row: Mapping[str, Any]) -> int:
    """How many units of divisible work a run has; 0 if it has no such work."""
    return int(row["counts"].get("units", 0))
