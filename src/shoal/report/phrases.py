"""The counts of a run as text, the same in every command and in one fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FINAL = ("succeeded", "failed", "cancelled", "lost")


def done_of(row: Mapping[str, Any]) -> int:
    """How many tasks of a run are final."""
    return sum(int(row["counts"].get(state, 0)) for state in FINAL)


def live_of(row: Mapping[str, Any]) -> int:
    """How many tasks of a run are with pilots: leased or running, because pilots fetch tasks ahead of free slots."""
    return int(row["counts"].get("live", 0))


def counts_text(row: Mapping[str, Any]) -> str:
    """How many tasks of a run are in which state; what is empty is left out."""
    counts, live = row["counts"], live_of(row)
    left = row["total"] - done_of(row) - live
    # The row counts ready and waiting tasks together; only tasks that name others can wait.
    may_wait = any(array["task"].get("after") for array in row.get("arrays", ()))
    shown = [
        ("succeeded", counts.get("succeeded", 0)),
        ("with pilots", live),
        ("ready or waiting" if may_wait else "ready", left),
        *((state, counts.get(state, 0)) for state in FINAL[1:]),
    ]
    return ", ".join(f"{count:,} {state}" for state, count in shown if count > 0)
