"""Free slots of pilots, for a `shoal.Run` that picks its next task itself [DIANE U1].

The run keeps its tasks and hands one out for each slot that is free, so what is picked binds as late as it can. The
server matches it all the same: a slot that somebody else's task takes meanwhile is not ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

LOOK_AGAIN = 1.0  # seconds between two looks for slots while tasks wait and nothing ends
Pilot = dict[str, Any]


class PoolView(NamedTuple):
    """The pilots at one moment, as the server lists them, and how many tasks of this run they have."""

    pilots: list[dict[str, Any]]
    live: int


def pilot_facts(row: Mapping[str, Any]) -> Pilot:
    """What is known of a pilot by name: its tags, and what the server knows of it."""
    own = {name: row[name] for name in ("pilot", "host", "site", "owner", "cores", "memory", "gpus")}
    return {**(row.get("tags") or {}), **(row.get("facts") or {}), **own, "free_cores": row.get("free", 0)}


def free_slots(rows: Iterable[Mapping[str, Any]], cores: int, on_the_way: int) -> list[Pilot]:
    """One entry for each slot that a task with so many cores can have now, the emptiest pilots first; tasks that are on
    the way to a slot have one already. If there is no pilot at all, the first task may be what one is started for: a
    slot of which nothing is known."""
    living = [row for row in rows if row["state"] in ("idle", "busy", "draining")]
    if not living:
        return [] if on_the_way else [{}]
    taking = [row for row in living if row["state"] != "draining" and not row.get("suspect") and not row.get("banned")]
    found = [pilot_facts(row) for row in taking for _ in range(row.get("free", 0) // max(1, cores))]
    found.sort(key=lambda pilot: -int(pilot["free_cores"]))
    return found[on_the_way:]
