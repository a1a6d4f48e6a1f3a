"""Where the tasks of a run run, what they were seen to take, and what is asked of its owner's sites."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from shoal.engine.matching.learned import learned_of
from shoal.engine.pilots.site_reports import report_rows
from shoal.engine.state import State


class Machines(NamedTuple):
    """All of it at one moment, in the types of JSON."""

    running: dict[str, int]  # tasks of the run, by site
    learned: dict[str, Any] | None  # of its largest array; None: no task like that came back yet
    sites: list[dict[str, Any]]  # the last report of each


def machines_of(state: State, number: int) -> Machines:
    """The machines of a run; of one that is over nothing is known."""
    run = state.runs.get(number)
    if run is None:
        return Machines({}, None, [])
    running: Counter[str] = Counter()
    for pilot in state.pilots.values():
        alone = sum(1 for one in pilot.live.values() if one.running and one.id.run == number)
        together = sum(len(chunk.left) for chunk in pilot.chunks.values() if chunk.array.run is run)
        running[pilot.site] += min(alone + together, pilot.room.cores)  # a chunk is run one task after another
    largest = max(run.arrays, key=lambda array: array.count, default=None)
    learned = learned_of(state.queue.class_of(largest)) if largest is not None else None
    sites = report_rows(state, run.owner)
    return Machines(
        {site: count for site, count in running.items() if count}, None if learned is None else learned._asdict(), sites
    )
