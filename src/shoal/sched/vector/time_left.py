"""How long a run will still take: what is seen of its tasks, made into a forecast [docs/adr/0039-time-left.md].

numpy is imported with the first forecast, because that takes as long as a short command.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shoal.wire.http.run_counts import done_of, units_of

if TYPE_CHECKING:
    from shoal.sched.vector.deadline import Fresh
    from shoal.sched.vector.forecast import Forecast
    from shoal.sched.vector.slots import Floats

Json = dict[str, Any]
KEPT = 1_000  # ends that are kept, the latest
READ = 200  # ends that are read from rows
LOOKED_THROUGH = 20_000  # tasks of a run whose rows are searched for those that run; of more the ages say little
MOST_LATER = 0.1  # share of tasks that wait for others, beyond which too little is known
TOLD_LATE = 1.0  # seconds by which a pilot may tell late that a task began; a longer one was fetched ahead
LATELY, ENOUGH_ENDS = 10.0, 20  # seconds, and ends within them that say how many slots are busy
A_MOMENT = 0.3  # seconds until the next task of a slot is known
CLOCK = 0.001  # seconds by which the start of a task may seem to be before the end of the one before
MOST_PILOTS = 10_000  # whose first task is remembered
USUAL = 0.8  # share of the times between two tasks that say how long a slot is idle: longer ones are pauses of a run
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
        self._began: dict[str, float] = {}  # pilot -> when its first task began, by the clock of its host
        self._first_end = math.inf
        self._lost: set[str] = set()  # pilots that were lost with tasks of the run

    def take(self, event: Mapping[str, Any]) -> None:
        """Add one event."""
        if event["kind"] == "task_finished":
            self.add_end(str(event.get("pilot") or ""), event.get("data") or {}, event.get("time") or 0.0)
        elif event["kind"] in ("task_retried", "task_lost_pilot"):
            self._repeated += 1
            if event["kind"] == "task_lost_pilot":
                self._lost.add(str(event.get("pilot") or ""))

    def add_end(self, pilot: str, end: Mapping[str, Any], time: float) -> None:
        """Add the end of a task, by its event or its row."""
        duration, started = end.get("duration"), end.get("started")
        if end.get("state") in ("succeeded", "failed") and isinstance(duration, (int, float)) and not end.get("reused"):
            self._finals += 1
            found = End(pilot, float(duration), float(started) if started else None, float(time))
            self._ends.append(found)
            if found.started is not None and (pilot in self._began or len(self._began) < MOST_PILOTS):
                self._began[pilot] = min(found.started, self._began.get(pilot, math.inf))
                self._first_end = min(self._first_end, found.started + found.duration)

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

    def fresh(self, tasks: int, slots: int) -> Fresh:
        """A run of so many tasks like those that were seen, which has not begun."""
        from shoal.sched.vector.deadline import Fresh

        durations = tuple(end.duration for end in self._ends)
        failing = self._repeated / (self._repeated + self._finals) if self._finals else 0.0
        idle = sorted(idle_times(self._ends))
        return Fresh(tasks, durations, slots, tuple(idle[: math.ceil(USUAL * len(idle))]), failing)

    def forecast(self, row: Mapping[str, Any], running: Sequence[Running], slots: int) -> Forecast | None:
        """The forecast of a run with this row, in which so many tasks run at once; None if too little is known."""
        ends = self.ends(row, running, slots)
        if ends is None:
            return None
        from shoal.sched.vector.forecast import quantiles

        return quantiles(ends)

    def ends(self, row: Mapping[str, Any], running: Sequence[Running], slots: int) -> Floats | None:
        """Seconds until the end of such a run in each draw; None if too little is known."""
        if units_of(row):
            return None  # how many pieces there will be, and how long they will take, is decided as they are cut
        left, later = row["total"] - done_of(row), int(row["counts"].get("waiting", 0))
        slots = min(max(slots, len(running)), left - later)
        if not self._ends or slots < 1 or later > MOST_LATER * row["total"]:
            return None
        from shoal.sched.vector.forecast import Seen, ends_seen
        from shoal.sched.vector.pool_changes import Pool

        pilots = {name: at for at, name in enumerate(dict.fromkeys([end.pilot for end in self._ends]))}
        free = [(pilots[name], math.nan) for name in self._free_at(running, slots - len(running))]
        unseen = free + [(-1, math.nan)] * (slots - len(running) - len(free))
        return ends_seen(
            Seen(
                ended=[(pilots[end.pilot], end.duration) for end in self._ends],
                running=[(pilots.get(task.pilot, -1), task.age) for task in running[:slots]] + unseen,
                waiting=left - later - slots, later=later, idle=idle_times(self._ends),
                failing=self._repeated / (self._repeated + self._finals),
                pool=Pool(
                    pilots=max(1, len({task.pilot for task in running}) or len(pilots)), lost=len(self._lost),
                    joined=sum(began > self._first_end for began in self._began.values()),
                    progress=done_of(row) / row["total"],
                ),
            )
        )  # fmt: skip

    def _free_at(self, running: Sequence[Running], most: int) -> list[str]:
        """The pilots of slots that nothing runs in just now: those whose tasks ended last, and nothing began there since.
        A forecast is often made at the end of a task, and the slot is one of a fast or of a slow host."""
        latest = max(end.time for end in self._ends)
        ages: dict[str, list[float]] = {}
        for task in sorted(running, key=lambda task: -task.age):
            ages.setdefault(task.pilot, []).append(task.age)
        found: list[str] = []
        for end in reversed(self._ends):
            if len(found) >= most:
                break
            here = ages.get(end.pilot)
            if here and here[-1] <= latest - end.time:
                here.pop()  # the next one of that slot
            else:
                found.append(end.pilot)
        return found


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
    ends = ends_by_rows(rows, row, now, slots)
    if ends is None:
        return None
    from shoal.sched.vector.forecast import quantiles

    return quantiles(ends)


def ends_by_rows(rows: Rows, row: Mapping[str, Any], now: float, slots: int) -> Floats | None:
    """Seconds until the end of a run in each draw, likewise."""
    running = int(row["counts"].get("running", 0))
    if row["finished"] is not None or row["total"] < 2 or not running or not done_of(row):
        return None
    observed = Observed()
    observed.read(rows, row)
    tasks = running_tasks(rows, row, now, slots)
    # A slot whose task has just ended has its next one in a moment.
    busy = max(observed.busy_slots(now), max(running, len(tasks)) + observed.just_ended(now))
    return observed.ends(row, tasks, min(slots, busy))


class Score(NamedTuple):
    """A forecast and when it was made, to be compared with the end."""

    made_at: float  # seconds since 1970
    forecast: Forecast

    def document(self, took: float | None) -> Json:
        """The forecast with how long it took from there on, and whether 9 in 10 was enough."""
        rounded = {name: round(value, 3) for name, value in self.forecast._asdict().items()}
        end = None if took is None else round(took, 3)
        return {"made_at": self.made_at, **rounded, "took": end, "held": None if end is None else end <= rounded["p90"]}
