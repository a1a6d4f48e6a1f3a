"""The record of a run, read from its rows and events: attempts, pilots and ends of tasks [DIANE U9].

The last attempt of a task is in its row. Earlier ones are in events that say how long they ran; where events were pruned, or
were written before they said so, only the last attempts are known. Times are the server's: a host's clock is believed where
it agrees with it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from shoal.model.ids import parse_attempt
from shoal.model.lazy_dataclass import dataclass
from shoal.model.states import FINAL
from shoal.report.data_source import Json, Source, all_rows
from shoal.report.history import Attempt, Ending, PilotLife, RunRecord
from shoal.wire.task import parse_spec

OTHER_RUNS = 200  # that are looked at, to say that they were there
CLOCK_AGREES = 10.0  # seconds between the end by a host's clock and the server's, most of it the way of the report
_FINAL = frozenset(state.value for state in FINAL)
# Events that end an attempt which is not the task's last -> what became of it.
ENDED = {
    "task_retried": "failed",
    "task_returned": "returned",
    "task_lost_pilot": "lost",
    "task_checkpointed": "checkpointed",
}
_COPIED = "task_backed_up"
_ADDED = "tasks_added"
_AGAIN = ("run_reopened", "tasks_reset")


@dataclass
class Found:
    """A run as it was read."""

    info: Json
    record: RunRecord
    states: Counter[str] = field(default_factory=Counter)  # of tasks that were run here or closed
    reused: set[int] = field(default_factory=set)  # tasks whose result an earlier run had
    other_runs: int = 0  # that were open meanwhile and may have used the same slots
    added: bool = False  # tasks came after the submission


def read_record(source: Source, run: str, now: float | None) -> Found:
    """Read a run; `now` is None where no server runs, so that nothing is known of the time after the last event."""
    info = source.run(run)
    start = float(info["created"])
    reader = _Reader(info)
    for row in all_rows(source, run):
        reader.take_row(row)
    for span in info["spans"]:
        reader.take_span(span)
    reader.take_events(source, run)
    pilots = [_life(row) for row in source.pilots()["pilots"]]
    end = info["finished"]
    if end is None:
        times = [one.end for one in reader.attempts] + [one.time for one in reader.endings] + [start]
        end = max(times) if now is None else max(now, start)
    if info["finished"] is None or reader.unreported:
        reader.take_started(source, run, float(end))
    record = RunRecord(start, float(end), reader.demand, reader.attempts, [], reader.endings)
    record.pilots = [life for life in pilots if life.joined < record.end and life.ended > start]
    return Found(info, record, reader.states, reader.reused, _other_runs(source, run, start, record.end), reader.added)


def _life(row: Mapping[str, Any]) -> PilotLife:
    ended = row["ended"]
    return PilotLife(
        row["pilot"], row["host"], int(row["cores"]), float(row["joined"]), math.inf if ended is None else float(ended)
    )


def _other_runs(source: Source, run: str, start: float, end: float) -> int:
    rows = source.runs(limit=OTHER_RUNS)["runs"]
    others = [row for row in rows if row["run"] != run and row["created"] < end]
    return sum(row["finished"] is None or row["finished"] > start for row in others)


class _Reader:
    """Adds up rows, spans and events of one run."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        arrays = sorted((int(a["first"]), int(a["count"]), parse_spec(a["task"]).cores) for a in info["arrays"])
        self._firsts = [first for first, _, _ in arrays]
        self._cores = [cores for _, _, cores in arrays]
        self._changed: dict[int, int] = {}  # cores that `shoal set` gave to an element
        self._winners: dict[int, int] = {}  # of final tasks that took more than one attempt, the one that decided
        self._final_at: dict[int, float] = {}  # the same tasks: when they were over
        self._ended: set[tuple[int, int]] = set()  # attempts that events tell of
        self.demand = sum(count * cores for _, count, cores in arrays)
        self.attempts: list[Attempt] = []
        self.endings: list[Ending] = []
        self.states: Counter[str] = Counter()
        self.reused: set[int] = set()
        self.added = False
        self._is_final: set[int] = set()
        self.unreported: dict[int, tuple[float, str]] = {}  # tasks that became final with an attempt: when, and as what

    def _slots(self, element: int) -> int:
        at = bisect_right(self._firsts, element) - 1
        return self._changed.get(element) or (self._cores[at] if at >= 0 else 1)

    def take_row(self, row: Mapping[str, Any]) -> None:
        """Add a task's row: its end and its last attempt."""
        element, state = int(row["element"]), str(row["state"])
        cores = ((row.get("special") or {}).get("changed") or {}).get("cores")
        if cores:
            self.demand += int(cores) - self._slots(element)
            self._changed[element] = int(cores)
        slots = self._slots(element)
        if row["reused"]:
            self.reused.add(element)
            self.demand -= slots
            return
        if state not in _FINAL:
            return
        self.states[state] += 1
        self._is_final.add(element)
        number = int(str(row["winner"]).partition("@")[0] or row["attempt"] or 0)
        ran = _interval(row.get("started"), row.get("duration"), row["ended"]) if row["pilot"] else None
        end = float(row["ended"]) if ran is None else ran[1]
        if ran is not None:
            self.attempts.append(Attempt(element, number, str(row["pilot"]), *ran, slots, state))
        if row["attempt"] > 1:
            self._winners[element], self._final_at[element] = number, end
        if ran is None and row["attempt"]:
            self.unreported[element] = end, state
        self.endings.append(Ending(end, int(ran is not None), slots))

    def take_span(self, span: Mapping[str, Any]) -> None:
        """Add tasks that became final together without having run."""
        count = int(span["high"]) - int(span["low"])
        self.states[str(span["state"])] += count
        self.endings.append(Ending(float(span["ended"]), 0, count * self._slots(int(span["low"]))))

    def take_events(self, source: Source, run: str) -> None:
        """Add the attempts before the last ones."""
        again = False
        for event in source.events(run, kinds=(*ENDED, _COPIED, _ADDED, *_AGAIN)):
            self.added = self.added or event["kind"] == _ADDED
            again = again or event["kind"] in _AGAIN
            if event["kind"] in ENDED:
                self._take_end(event)
            elif event["kind"] == _COPIED:
                self._take_copy(event)
        if again:
            # Somebody had tasks run once more: how they had ended before is only in the events.
            for event in source.events(run, kinds=("task_finished",)):
                self._take_former_end(event)

    def _take_end(self, event: Mapping[str, Any]) -> None:
        element, number = int(event["task"]), int(event["attempt"] or 0)
        seconds = float(event["data"].get("seconds") or 0.0)
        is_known = (element, number) in self._ended  # a lost exclusive task is told of twice
        self._ended.add((element, number))
        if seconds > 0.0 and event["pilot"] and not is_known:
            end = float(event["time"])
            outcome = ENDED[event["kind"]]
            self.attempts.append(
                Attempt(element, number, event["pilot"], end - seconds, end, self._slots(element), outcome)
            )

    def _take_copy(self, event: Mapping[str, Any]) -> None:
        """Of a task that ran twice at once, the attempt that did not decide."""
        element, number, data = int(event["task"]), int(event["attempt"]), event["data"]
        end = self._final_at.get(element)
        if end is None:
            return
        if self._winners[element] == number:
            found = (number - 1, data.get("beside"), data.get("since"))
        else:
            found = (number, event["pilot"], event["time"])
        other, pilot, start = found
        if pilot and start and start < end and (element, other) not in self._ended:
            self.attempts.append(
                Attempt(element, other, str(pilot), float(start), end, self._slots(element), "duplicate")
            )

    def _take_former_end(self, event: Mapping[str, Any]) -> None:
        element, number, data = int(event["task"]), int(event["attempt"] or 0), event["data"]
        ran = _interval(data.get("started"), data.get("duration"), event["time"])
        if ran is not None and event["pilot"] and self._winners.get(element, number) != number:
            self.attempts.append(
                Attempt(element, number, event["pilot"], *ran, self._slots(element), str(data["state"]))
            )

    def take_started(self, source: Source, run: str, end: float) -> None:
        """Add the attempts that have begun and are not reported: those that run (neighbours that a pilot has together have no
        rows yet), and those that ended because somebody cancelled their task."""
        first = next(iter(source.events(run, kinds=("run_submitted",))), None)
        begun: dict[int, tuple[int, str, float]] = {}
        prefix = f"{run}."
        for event in source.events("", int(first["seq"]) if first is not None else 0, ("tasks_started",)):
            if event["time"] > end:
                break
            for name in event["data"].get("attempts", ()):
                if name.startswith(prefix):
                    attempt = parse_attempt(name)
                    begun[attempt.element] = attempt.number, str(event["pilot"]), float(event["time"])
        for element, (number, pilot, start) in begun.items():
            until, outcome = self.unreported.get(element, (end, "running"))
            is_open = element not in self._is_final or element in self.unreported
            if is_open and (element, number) not in self._ended and start < until:
                self.attempts.append(Attempt(element, number, pilot, start, until, self._slots(element), outcome))


def _interval(started: float | None, duration: float | None, ended: float | None) -> tuple[float, float] | None:
    """From when to when an attempt ran, by the server's clock; None if it never began."""
    if started is None or ended is None:
        return None
    took = float(duration or 0.0)
    if abs(started + took - ended) <= CLOCK_AGREES:
        return float(started), float(started) + took
    return float(ended) - took, float(ended)
