"""Runs with a deadline are looked at now and then while they go on: one that will probably miss it is at risk, which is an
event, and is told to whom the run notifies [SPHINX S6; ADR 0054].

The forecast needs numpy and some tenths of a second, so it is made on a thread, for one run after another, seldom, and
only where there is a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from typing import Any

from shoal.db.reader import Reader
from shoal.engine.commands import NoteChance
from shoal.model.ids import parse_run, run_text
from shoal.server.service import Service

log = logging.getLogger(__name__)
EVERY, SHARE = 10.0, 100  # seconds between two looks at a run, which take at most one part in so many of the time


class ReaderRows:
    """Rows of tasks, as the forecast reads them."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def tasks(self, run: str, after: int, limit: int, states: Sequence[str], /) -> dict[str, Any]:
        """A page of them."""
        return {"tasks": self._reader.tasks(parse_run(run), after=after, limit=limit, states=states)}


def chance_at(path: str, number: int, counts: dict[str, int], slots: int, left: float, now: float) -> float | None:
    """The chance that a run is over within so many seconds; None if too little is known. On a thread of its own."""
    if left <= 0.0:
        return 0.0
    from shoal.sched.vector.deadline import chance_of
    from shoal.sched.vector.time_left import ends_by_rows

    with Reader(path) as reader:
        row = reader.run(number)
        if row is None:
            return None
        shown = {**row, "run": run_text(number), "counts": {**row["counts"], **counts}}
        ends = ends_by_rows(ReaderRows(reader), shown, now, slots)
    return chance_of(ends, left) if ends is not None else None


class DeadlineWatch:
    """Looks at the deadlines of runs."""

    def __init__(self, service: Service, path: str, every: float = EVERY) -> None:
        self._service, self._path, self._every = service, path, every
        self._next: dict[int, float] = {}

    async def run(self) -> None:
        """Look at one run after another, each in its time."""
        while True:
            await asyncio.sleep(self._every / 4)
            state = self._service.engine.state
            if self._service.is_rebuilding:
                continue
            due = {run.number: run.due for run in state.runs.values() if run.due is not None and run.finished is None}
            self._next = {number: at for number, at in self._next.items() if number in due}
            for number, moment in due.items():
                now = self._service.clock()
                if now >= self._next.get(number, 0.0):
                    began = time.monotonic()
                    await self._look(number, moment, now)
                    self._next[number] = now + max(self._every, SHARE * (time.monotonic() - began))

    async def _look(self, number: int, due: float, now: float) -> None:
        """Forecast the end of one run, and tell the engine how likely it meets its deadline."""
        run = self._service.engine.state.runs.get(number)
        if run is None:
            return
        pilots = self._service.engine.state.pilots.values()
        running = sum(1 for pilot in pilots for one in pilot.live.values() if one.running and one.id.run == number)
        waiting = sum(len(array.todo) for array in run.arrays if array.waiting)
        kinds = {array.spec.needs for array in run.arrays}  # each is looked for among all pilots
        slots = max((self._service.engine.slots_for(run.owner, needs) for needs in kinds), default=0)
        counts = {"running": min(running, run.live), "waiting": waiting, "live": run.live}
        try:
            chance = await asyncio.to_thread(chance_at, self._path, number, counts, slots, due - now, now)
            if chance is not None and not math.isnan(chance):
                await self._service.command(NoteChance(number, chance))
        except Exception as error:  # a forecast that goes wrong must not end the server
            log.error("the deadline of %s cannot be looked at: %s: %s", run_text(number), type(error).__name__, error)
