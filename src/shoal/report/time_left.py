"""How long a run will still take: what is seen of its tasks, made into a forecast [docs/adr/0039-time-left.md].

numpy is imported with the first forecast, because that takes as long as a short command.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shoal.report.data_source import Json
from shoal.report.summary import done_of, units_of

if TYPE_CHECKING:
    from shoal.sched.vector.forecast import Forecast

KEPT = 1_000  # ends that are kept, the latest
READ = 200  # ends that are read from rows
LOOKED_THROUGH = 20_000  # tasks of a run whose rows are searched for those that run; of more the ages say little
MOST_LATER = 0.1  # share of tasks that wait for others, beyond which too little is known
TOLD_LATE = 1.0  # seconds by which a pilot may tell late that a task began; a longer one was fetched ahead
LATELY, ENOUGH_ENDS = 10.0, 20  # seconds, and ends within them that say how many slots are busy
A_MOMENT = 0.3  # seconds until the next task of a slot is known
CLOCK = 0.001  # seconds by which the start of a task may seem to be before the end of the one before
SCORED_FROM = 0.25  # share of tasks that are final: the first forecast from there on is scored


class Rows(Protocol):
    """Where rows of tasks are read: a client, or a source of data."""

    def tasks(self, run: str, after: int, limit: int, states: Sequence[str], /) -> Json: ...


class End(NamedTuple):
    """The end of one attempt that ran."""

    pilot: str
    duration: float
    started: float | None  # by the clock of its host
    time: float  # when it was reported


class Running(NamedTuple):
    """A task that runs."""

    pilot: str
    age: float


class Observed:
    """What was seen of a run: how its tasks ended, and how often attempts were repeated."""

    def __init__(self) -> None:
        self._ends: deque[End] = deque(maxlen=KEPT)
        self._finals = self._repeated = 0

    def take(self, event: Mapping[str, Any]) -> None:
        """Add one event."""
        if event["kind"] == "task_finished":
            self.add_end(str(event.get("pilot") or ""), event.get("data") or {}, event.get("time") or 0.0)
        elif event["kind"] in ("task_retried", "task_lost_pilot"):
            self._repeated += 1

    def add_end(self, pilot: str, end: Mapping[str, Any], time: float) -> None:
        """Add the end of a task, by its event or its row."""
        duration, started = end.get("duration"), end.get("started")
        if end.get("state") in ("succeeded", "failed") and isinstance(duration, (int, float)) and not end.get("reused"):
            self._finals += 1
            self._ends.append(End(pilot, float(duration), float(started) if started else None, float(time)))

    def read(self, rows: Rows, row: Mapping[str, Any]) -> None:
        """Take some ends from rows instead of events: those of the elements that ended last, if they begin in order."""
        after = max(0, done_of(row) - READ)
        for task in rows.tasks(str(row["run"]), after, READ, ("succeeded", "failed"))["tasks"]:
            self.add_end(str(task.get("pilot") or ""), task, task.get("ended") or 0.0)

    def busy_slots(self, now: float) -> int:
        """In how many slots tasks ran lately, by how many ended and how long they took; 0 if they were too few to say.

        Of short tasks that pilots fetch ahead no row says that they run.
        """
        lately = [end for end in self._ends if end.time > now - LATELY]
        if len(lately) < ENOUGH_ENDS:
            return 0
        first = min(end.time for end in lately)
        later = [end.duration for end in lately if end.time > first]
        idle = idle_times(lately)
        each = sum(later) / max(1, len(later)) + (sum(idle) / len(idle) if idle else 0.0)
        return round(each * len(later) / (now - first)) if now > first else 0

    def just_ended(self, now: float) -> int:
        """How many tasks ended a moment ago."""
        return sum(1 for end in self._ends if end.time > now - A_MOMENT)

    def forecast(self, row: Mapping[str, Any], running: Sequence[Running], slots: int) -> Forecast | None:
        """The forecast of a run with this row, in which so many tasks run at once; None if too little is known."""
        if units_of(row):
            return None  # how many pieces there will be, and how long they will take, is decided as they are cut
        left, later = row["total"] - done_of(row), int(row["counts"].get("waiting", 0))
        slots = min(max(slots, len(running)), left - later)
        if not self._ends or slots < 1 or later > MOST_LATER * row["total"]:
            return None
        from shoal.sched.vector.forecast import Seen, forecast_seen

        pilots = {name: at for at, name in enumerate(dict.fromkeys([end.pilot for end in self._ends]))}
        unseen = [(-1, math.nan)] * (slots - len(running))
        return forecast_seen(
            Seen(
                ended=[(pilots[end.pilot], end.duration) for end in self._ends],
                running=[(pilots.get(task.pilot, -1), task.age) for task in running[:slots]] + unseen,
                waiting=left - later - slots, later=later, idle=idle_times(self._ends),
                failing=self._repeated / (self._repeated + self._finals),
            )
        )  # fmt: skip


def idle_times(ends: Iterable[End]) -> list[float]:
    """How long a slot was idle before a task: from the latest end at its pilot that no other task followed yet."""
    moments: dict[str, list[tuple[float, bool]]] = {}
    for end in ends:
        if end.started is not None:
            moments.setdefault(end.pilot, []).extend(((end.started, True), (end.started + end.duration - CLOCK, False)))
    found = []
    for of_pilot in moments.values():
        free: list[float] = []
        for moment, is_start in sorted(of_pilot):
            if not is_start:
                free.append(moment)
            elif free:
                found.append(max(0.0, moment - free.pop() - CLOCK))
    return found


def running_tasks(rows: Rows, row: Mapping[str, Any], now: float, most: int) -> list[Running]:
    """The tasks of a run that run, and for how long; at most so many, which is how many slots there are.

    A pilot tells with its next message that a task began, so one that was leased just now counts as running, too.
    """
    if row["total"] > LOOKED_THROUGH:
        return []
    found, begins = [], []
    for task in rows.tasks(str(row["run"]), 0, KEPT, ("running", "leased"))["tasks"]:
        leased, started = task.get("leased") or now, task.get("started") or 0.0
        age = max(0.0, now - (started if started - leased > TOLD_LATE else leased))
        if task["state"] == "running":
            found.append(Running(str(task.get("pilot") or ""), age))
        elif age < TOLD_LATE:
            begins.append(Running(str(task.get("pilot") or ""), age))
    return (found + begins)[:most]


def forecast_by_rows(rows: Rows, row: Mapping[str, Any], now: float, slots: int) -> Forecast | None:
    """The forecast of a run by rows of its tasks alone; None if it is over, has not begun, or too little is known."""
    running = int(row["counts"].get("running", 0))
    if row["finished"] is not None or row["total"] < 2 or not running or not done_of(row):
        return None
    observed = Observed()
    observed.read(rows, row)
    tasks = running_tasks(rows, row, now, slots)
    # A slot whose task has just ended has its next one in a moment.
    busy = max(observed.busy_slots(now), max(running, len(tasks)) + observed.just_ended(now))
    return observed.forecast(row, tasks, min(slots, busy))


class Score(NamedTuple):
    """A forecast and when it was made, to be compared with the end."""

    made_at: float  # seconds since 1970
    forecast: Forecast

    def document(self, took: float | None) -> Json:
        """The forecast with how long it took from there on, and whether 9 in 10 was enough."""
        rounded = {name: round(value, 3) for name, value in self.forecast._asdict().items()}
        end = None if took is None else round(took, 3)
        return {"made_at": self.made_at, **rounded, "took": end, "held": None if end is None else end <= rounded["p90"]}
