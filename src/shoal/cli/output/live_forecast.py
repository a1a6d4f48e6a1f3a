"""The forecast of a run's end while somebody waits for it: made now and then, counted down in between, scored at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.cli.output.progress_display import TimeLeft
from shoal.client.client import Client
from shoal.report.data_source import Json
from shoal.sched.vector.time_left import SCORED_FROM, Observed, Score, running_tasks
from shoal.wire.http.run_counts import done_of

AFTER = 3.0  # seconds of a run before its end is forecast: a shorter one does not import what that takes
EVERY, SHARE = 2.0, 30  # seconds between two forecasts, which take at most one part in so many of the time
STILL_THERE = 3.0  # seconds for which a slot is believed in that nothing runs in


class LiveForecast:
    """Forecasts of one run; if they are not shown, only the one that is scored is made."""

    def __init__(
        self, is_shown: bool, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._is_shown, self._clock, self._wall = is_shown, clock, wall
        self._observed = Observed()
        self._ahead: float | None = None  # seconds by which the server's clock is ahead of this one
        self._made_at = self._next = 0.0
        self._shown: TimeLeft | None = None
        self._seen: deque[tuple[float, int]] = deque()  # when so many tasks were seen to run
        self._score: Score | None = None

    def take(self, events: Sequence[Mapping[str, Any]], is_new: bool) -> None:
        """Add a page of events; `is_new`: they came while they were waited for."""
        for event in events:
            self._observed.take(event)
        if is_new and events and events[-1].get("time"):
            ahead = float(events[-1]["time"]) - self._wall()
            self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)

    def read_ends(self, client: Client, row: Mapping[str, Any]) -> None:
        """Read some ends of a run whose events before now are not read."""
        self._observed.read(client, row)

    def look(self, client: Client, row: Mapping[str, Any], running: int, slots: int) -> TimeLeft | None:
        """What is left of a run with this row, in which so many tasks run in so many slots; None if nothing is shown yet."""
        if row["total"] < 2 or row["finished"] is not None:
            return None
        now, age = self._clock(), self._server_time() - row["created"]
        self._see(int(row["counts"].get("running", 0)) or running)
        is_scored = self._score is None and done_of(row) >= SCORED_FROM * row["total"]
        if now >= self._next and age >= AFTER and (self._is_shown or is_scored):
            self._make(client, row, slots, is_scored)
        if not self._is_shown:
            return None
        if self._shown is None or self._shown.about is None or self._shown.within is None:
            return self._shown
        passed = self._clock() - self._made_at
        about, within = max(0.0, self._shown.about - passed), max(0.0, self._shown.within - passed)
        return TimeLeft(about, within, self._shown.chance)

    def _see(self, running: int) -> int:
        """Note that so many tasks run; returns the most of the last seconds: between two tasks a slot is still there."""
        now = self._clock()
        self._seen.append((now, running))
        while self._seen[0][0] < now - STILL_THERE:
            self._seen.popleft()
        return max(count for _, count in self._seen)

    def _make(self, client: Client, row: Mapping[str, Any], slots: int, is_scored: bool) -> None:
        began, server_time = self._clock(), self._server_time()
        tasks = running_tasks(client, row, server_time, slots)
        busy = min(slots, self._observed.busy_slots(server_time))
        ends = self._observed.ends(row, tasks, self._see(max(len(tasks), busy)))
        found, self._shown = None, TimeLeft()
        if ends is not None:
            from shoal.sched.vector.deadline import chance_of
            from shoal.sched.vector.forecast import quantiles

            found = quantiles(ends)
            chance = chance_of(ends, row["due"] - server_time) if row.get("due") is not None else None
            self._shown = TimeLeft(found.p50, found.p90, chance)
        self._made_at = began
        took = self._clock() - began if self._next else 0.0  # the first one imports what it takes
        self._next = began + max(EVERY, SHARE * took)
        if found is not None and is_scored:
            self._score = Score(server_time, found)

    def _server_time(self) -> float:
        return self._wall() + (self._ahead or 0.0)

    def document(self, finished: float | None) -> Json | None:
        """The forecast that was scored, if there is one, with how long it took from there to the run's end."""
        if self._score is None:
            return None
        return self._score.document(None if finished is None else finished - self._score.made_at)
