"""The summary of a run: counts, rate, durations, failures by cause, lost pilots and kept results.

A `Tally` adds up events one by one; its size is bounded, whatever the run's size.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from shoal.model.lazy_dataclass import dataclass
from shoal.model.quantities import first_of, many, rate_text, show_duration
from shoal.report.data_source import Json, Source
from shoal.sched.vector.deadline import chance_text
from shoal.wire.http.run_counts import done_of, units_of

FINAL = ("succeeded", "failed", "cancelled", "lost")
SAMPLE = 10_000  # durations kept for the median; beyond that a random sample
MAX_GROUPS = 100
MAX_NAMES = 1_000
MAX_ROWS = 1_000  # of failed and of succeeded tasks that stand for all, where the events are not read
# What a person should try next, by cause.
NEXT: dict[str, str] = {
    **dict.fromkeys(("task_error", "signal", "initializer"), "shoal logs {task} --stderr"),
    "over_time": "submit it again with --resume and a longer --time",
    "out_of_memory": "submit it again with --resume and more --memory",
    "host_unfit": "shoal pilots",
    **dict.fromkeys(("pilot_lost", "cancelled"), "shoal retry {run}"),
    "goal_reached": "shoal partial {run}",
    **dict.fromkeys(("stage_in", "stage_out", "output_missing", "poison", "dependency_failed"), "shoal show {task}"),
}
STATED, AT_RISK = "deadline_stated", "deadline_at_risk"  # kinds of events on deadlines
_MERGED = ("task_finished", "task_retried")  # events of attempts whose report was taken
_AGAIN = ("task_lost_pilot", "task_returned")  # and of those whose task is begun again
# Kinds of events that are only counted -> the field of a Tally.
COUNTED = {"task_adopted": "adopted", "report_refused": "refused", "task_returned": "returned"}


@dataclass
class Failure:
    """Tasks that ended for one reason: how many, and one of them."""

    cause: str
    what: str
    count: int = 0
    example: str = ""
    message: str = ""
    tail: str = ""


@dataclass
class Tally:
    """The sums over a run's events."""

    run: str = ""
    states: Counter[str] = field(default_factory=Counter)
    failures: dict[tuple[str, str], Failure] = field(default_factory=dict)
    retried: Counter[str] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    raised: dict[str, str] = field(default_factory=dict)  # tasks that ran out of memory and got more: the last change
    lost_pilots: dict[str, int] = field(default_factory=dict)
    adopted: int = 0
    refused: int = 0
    returned: int = 0
    reused: int = 0
    reused_from: list[str] = field(default_factory=list)
    reset: int = 0
    first: Failure | None = None  # the first failure, with its tail
    finished: bool = False
    not_whole: dict[str, str] = field(default_factory=dict)  # tasks that succeeded, and what of their output is missing
    _sample: list[float] = field(default_factory=list)
    _seen: int = 0
    _rng: Any = None  # a `random.Random`, once there are more times than are kept

    def _random(self) -> Any:
        if self._rng is None:
            from random import Random  # a command with few tasks does not import it

            self._rng = Random(0)
        return self._rng

    def take(self, event: Mapping[str, Any]) -> None:
        """Add one event."""
        kind, data = event["kind"], event.get("data") or {}
        if kind == "task_finished":
            self.add_end(task_of(event), data)
        elif kind == "tasks_closed":
            self._close(event, data)
        elif kind == "task_retried":
            self.retried[str(data.get("cause", "task_error"))] += 1
            if data.get("memory") and (task_of(event) in self.raised or len(self.raised) < MAX_NAMES):
                self.raised[task_of(event)] = str(data.get("why", ""))
        elif kind == "task_lost_pilot":
            pilot = str(event.get("pilot") or "?")
            if pilot in self.lost_pilots or len(self.lost_pilots) < MAX_NAMES:
                self.lost_pilots[pilot] = self.lost_pilots.get(pilot, 0) + 1
        elif kind in COUNTED:
            setattr(self, COUNTED[kind], getattr(self, COUNTED[kind]) + 1)
        elif kind == "tasks_reused":
            self.reused += int(data.get("count", 0))
            self.states["succeeded"] += int(data.get("count", 0))
            self.reused_from = [str(origin) for origin in data.get("origins", [])]
        elif kind in ("run_reopened", "tasks_reset"):
            self._reset(int(data.get("tasks", 0)))
        elif kind == "run_finished":
            self.finished = True

    def add_end(self, task: str, data: Mapping[str, Any]) -> None:
        """Add the end of a task, by its event or its row."""
        state = str(data.get("state", ""))
        self.states[state] += 1
        if data.get("host") and (data["host"] in self.hosts or len(self.hosts) < MAX_NAMES):
            self.hosts[str(data["host"])] += 1
        if state == "succeeded" and data.get("message") and len(self.not_whole) < MAX_NAMES:
            self.not_whole[task] = str(data["message"])
        if state == "succeeded" and isinstance(data.get("duration"), (int, float)):
            self._learn(float(data["duration"]))
        elif state in ("failed", "lost"):
            self._fail(task, data, 1)

    def _close(self, event: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Add tasks that were cancelled, or failed with their parents, in bulk and without starting."""
        count = int(data.get("count", 0))
        state = str(data.get("state", "cancelled"))
        self.states[state] += count
        if state == "failed" and count:
            ranges = data.get("ranges") or [[0, 0]]
            self._fail(f"{run_of(event)}.{ranges[0][0]}", data, count)

    def _fail(self, task: str, data: Mapping[str, Any], count: int) -> None:
        failure = Failure(
            str(data.get("cause") or "task_error"), what_of(data), count, task,
            str(data.get("message") or data.get("why") or ""), str(data.get("stderr_tail") or ""),
        )  # fmt: skip
        if self.first is None:
            self.first = failure
        known = self.failures.get((failure.cause, failure.what))
        if known is not None:
            known.count += count
        elif len(self.failures) < MAX_GROUPS:
            self.failures[failure.cause, failure.what] = Failure(**vars(failure))

    def _reset(self, tasks: int) -> None:
        """After `shoal retry`: failures so far do not count any more."""
        self.reset += tasks
        self.finished = False
        self.failures.clear()
        for state in ("failed", "cancelled", "lost"):
            self.states[state] = 0

    def forget_ends(self) -> None:
        """Keep the events on the way, but not how tasks ended."""
        self.states.clear()
        self.failures.clear()
        self.not_whole.clear()
        self._sample.clear()
        self._seen = 0

    def _learn(self, duration: float) -> None:
        self._seen += 1
        if len(self._sample) < SAMPLE:
            self._sample.append(duration)
        elif (at := self._random().randrange(self._seen)) < SAMPLE:
            self._sample[at] = duration

    def adds_up(self, info: Mapping[str, Any]) -> bool:
        """True if the events add up to the run's counts, so that none was deleted or left unread."""
        return all(self.states[state] == info["counts"].get(state, 0) for state in FINAL)

    def sorted_failures(self) -> list[Failure]:
        """The failures by cause, the most frequent first."""
        return sorted(self.failures.values(), key=lambda failure: -failure.count)

    def quantile(self, share: float) -> float | None:
        """The duration that this share of successful tasks stays within."""
        if not self._sample:
            return None
        ordered = sorted(self._sample)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def happened(self) -> list[str]:
        """Unusual events, one sentence for each kind; empty if there were none."""
        sentences: list[str] = []
        if self.reused:
            origin = f" from {first_of(self.reused_from, 3)}" if self.reused_from else ""
            sentences.append(f"{many(self.reused, 'task')} not run again: the results were taken over{origin}.")
        if self.retried:
            causes = ", ".join(f"{cause} {count}" for cause, count in self.retried.most_common())
            sentences.append(f"{many(sum(self.retried.values()), 'attempt')} failed and went again ({causes}).")
        if self.raised:
            task, change = next(iter(self.raised.items()))
            was = "needed" if len(self.raised) == 1 else "each needed"
            sentences.append(
                f"{many(len(self.raised), 'task')} {was} more memory than stated ({task}: {change});"
                " --max-memory bounds what they are given."
            )
        if self.lost_pilots:
            names = first_of(sorted(self.lost_pilots), 5)
            count = sum(self.lost_pilots.values())
            sentences.append(
                f"{many(len(self.lost_pilots), 'pilot')} went silent or ended ({names}) with {many(count, 'task')};"
                " such tasks run elsewhere and burn no retry."
            )
        if self.adopted:
            was = "was" if self.adopted == 1 else "were"
            sentences.append(
                f"{many(self.adopted, 'result or copy', 'results or copies')} of attempts given up {was} kept."
            )
        if self.returned:
            sentences.append(f"{many(self.returned, 'attempt')} given back by a pilot and handed out again.")
        if self.refused:
            sentences.append(
                f"{many(self.refused, 'report')} came too late and did not count: each result stands once."
            )
        if self.states["cancelled"]:
            sentences.append(f"{many(self.states['cancelled'], 'task')} cancelled.")
        if self.reset:
            sentences.append(f"{many(self.reset, 'task')} made ready again by `shoal retry`.")
        return sentences


def run_of(event: Mapping[str, Any]) -> str:
    """The id of an event's run."""
    run = event.get("run")
    return run if isinstance(run, str) else f"r{run}"


def task_of(event: Mapping[str, Any]) -> str:
    """The id of an event's task."""
    task = event.get("task")
    return task if isinstance(task, str) else f"{run_of(event)}.{task}"


def what_of(data: Mapping[str, Any]) -> str:
    """The signal or exit code of a failed task."""
    if data.get("signal"):
        return f"signal {data['signal']}"
    if data.get("exit_code"):
        return f"exit code {data['exit_code']}"
    return ""


def tally_run(source: Source, run: str, info: Mapping[str, Any], most: int = 20_000) -> Tally:
    """The tally of a run: from its events if there are few, else from rows of its tasks."""
    tally = Tally(run)
    if info["total"] <= most:
        for event in source.events(run):
            tally.take(event)
        if tally.adds_up(info):
            return tally
        tally.forget_ends()  # some events were deleted or reset: the rows have the ends
    for states in (("failed", "lost"), ("succeeded",)):
        for row in source.tasks(run, 0, MAX_ROWS, states)["tasks"]:
            tally.add_end(f"{run}.{row['element']}", row)
    for span in info["spans"]:
        tally.take({"kind": "tasks_closed", "run": run, "data": span_data(span)})
    tally.states = Counter({state: info["counts"].get(state, 0) for state in FINAL})
    return tally


def span_data(span: Mapping[str, Any]) -> Json:
    """A span as the data of the event that made it."""
    count = span["high"] - span["low"]
    return {**span, "count": count, "ranges": [[span["low"], span["high"] - 1]], "why": span.get("message", "")}


def summary_lines(info: Mapping[str, Any], tally: Tally, wall: float | None) -> list[str]:
    """The summary in a few lines: counts, times, failures by cause with what to type next."""
    counts, total, run = info["counts"], info["total"], str(info["run"])
    parts = [f"{counts[state]:,} {state}" for state in FINAL if counts.get(state)]
    left = total - done_of(info)
    if left:
        parts.append(f"{left:,} not finished")
    if units_of(info):
        parts.append(units_text(info))
    line = f"{run}{' ' + info['name'] if info['name'] else ''}: {many(total, 'task')}: {', '.join(parts)}"
    if wall is not None:
        line += f" in {show_duration(wall)}"
        ran = counts.get("succeeded", 0) - tally.reused
        if ran > 1 and wall > 0:
            line += f" ({rate_text(ran / wall)})"
    lines = [line]
    median, slow = tally.quantile(0.5), tally.quantile(0.95)
    if median is not None and slow is not None and total > 1:
        hosts = f" on {many(len(tally.hosts), 'host')}" if tally.hosts else ""
        lines.append(f"  a task took {show_duration(median)} (median), {show_duration(slow)} (95 %){hosts}")
    return [*lines, *(failure_line(run, failure) for failure in tally.sorted_failures())]


def failure_line(run: str, failure: Failure) -> str:
    """One group of failures: how many, why, one example, and what to type next."""
    what = f" ({failure.what})" if failure.what else ""
    message = f": {failure.message}" if failure.message and not failure.what else ""
    todo = NEXT.get(failure.cause, "shoal show {task}").format(task=failure.example, run=run)
    return f"  {failure.count:,} {failure.cause}{what}, e.g. {failure.example}{message}  ->  {todo}"


def live_of(row: Mapping[str, Any]) -> int:
    """How many tasks of a run are with pilots: leased or running, because pilots fetch tasks ahead of free slots."""
    return int(row["counts"].get("live", 0))


def running_of(row: Mapping[str, Any]) -> int:
    """How many tasks of a run are known to run; of an older server, and without one, how many are with pilots."""
    return int(row["counts"].get("running", live_of(row)))


def units_text(row: Mapping[str, Any]) -> str:
    """`300 of 1,000 units done`; empty without divisible work."""
    units = units_of(row)
    return f"{int(row['counts'].get('units_done', 0)):,} of {many(units, 'unit')} done" if units else ""


def counts_text(row: Mapping[str, Any]) -> str:
    """How many tasks of a run are in which state; what is empty is left out."""
    counts, live = row["counts"], live_of(row)
    running = min(live, int(counts.get("running", 0)))
    waiting = int(counts.get("waiting", 0))
    left = row["total"] - done_of(row) - live - waiting
    # The row of a database counts ready and waiting tasks together; only tasks that name others can wait.
    may_wait = any(array["task"].get("after") or array["task"].get("after_any") for array in row.get("arrays", ()))
    shown = [
        ("succeeded", counts.get("succeeded", 0)),
        ("running", running),
        ("with pilots" if not running else "more with pilots", live - running),
        ("ready or waiting" if may_wait and "waiting" not in counts else "ready", left),
        ("waiting", waiting),
        *((state, counts.get(state, 0)) for state in FINAL[1:]),
    ]
    parts = [f"{count:,} {state}" for state, count in shown if count > 0]
    return ", ".join([*parts, *filter(None, [units_text(row)])])


# --- the deadline of a run
def deadline_document(source: Source, run: Mapping[str, Any]) -> Json:
    """The deadline of a run as `deadline`; nothing if it has none. `met` is null while it is not over."""
    if run.get("due") is None:
        return {}
    events = list(source.events(str(run["run"]), kinds=(STATED, AT_RISK)))
    stated = next((event["data"].get("chance") for event in events if event["kind"] == STATED), None)
    due = datetime.fromtimestamp(run["due"], UTC).isoformat(timespec="seconds")
    met = None if run["finished"] is None else run["finished"] <= run["due"]
    risks = sum(event["kind"] == AT_RISK for event in events)
    return {"deadline": {"due": due, "stated": stated, "at_risk": risks, "met": met}}


def deadline_lines(source: Source, run: Mapping[str, Any]) -> list[str]:
    """What became of the deadline, in a sentence."""
    found = deadline_document(source, run).get("deadline")
    if found is None:
        return []
    stated = f"; it was told P {chance_text(found['stated'])}" if found["stated"] is not None else ""
    if found["met"] is None:
        return [f"  deadline {found['due']}{stated}"]
    by = show_duration(abs(run["due"] - run["finished"]))
    return [f"  deadline {'met' if found['met'] else 'missed'} by {by}{stated}"]


# --- sites that went on by themselves
class Alone(NamedTuple):
    """One time in which a site went on by itself while the server was away, as the journal has it; nothing of it is guessed
    [LBO III.B; promise I18]."""

    site: str
    since: float | None  # None: that is not known yet, or was pruned
    until: float | None
    begun: int = 0  # of the run's tasks
    ended: int = 0  # of them, by the time that the server heard of them
    merged: int = 0  # whose reports count
    again: int = 0  # that had to be begun again all the same


def read_alone(source: Source, run: str) -> list[Alone]:
    """The times in which sites began tasks of a run by themselves, in order."""
    from shoal.model.event import BEGUN_BY_SITE  # a command that waits for a run does not load all events

    adopted = [
        event
        for event in source.events(run, kinds=("task_adopted",))
        if event["data"].get("how") == BEGUN_BY_SITE and event.get("site")
    ]
    if not adopted:
        return []
    became: dict[tuple[object, object], set[str]] = {}
    for event in source.events(run, after=adopted[0]["seq"] - 1, kinds=(*_MERGED, *_AGAIN)):
        became.setdefault((event["task"], event["attempt"]), set()).add(str(event["kind"]))
    backs = [event for event in source.events(kinds=("site_back",)) if event["data"].get("begun")]
    found: dict[tuple[str, int], Alone] = {}
    for event in adopted:
        site = str(event["site"])
        back = next((one for one in backs if one["data"].get("site") == site and one["seq"] > event["seq"]), None)
        data: Mapping[str, Any] = back["data"] if back is not None else {}
        key = (site, back["seq"] if back is not None else 0)
        one = found.get(key) or Alone(site, data.get("since"), data.get("until"))
        kinds = became.get((event["task"], event["attempt"]), set())
        is_merged = not kinds.isdisjoint(_MERGED)
        found[key] = one._replace(
            begun=one.begun + 1,
            ended=one.ended + bool(event["data"].get("ended")),
            merged=one.merged + is_merged,
            again=one.again + (not is_merged and not kinds.isdisjoint(_AGAIN)),
        )
    return list(found.values())


def alone_lines(found: list[Alone]) -> list[str]:
    """A sentence for each time."""
    return [
        f"site {one.site} worked on alone{_span(one)}: {many(one.begun, 'task')} begun, {one.ended} ended, {one.merged} merged,"
        f" {one.again} begun again"
        for one in found
    ]


def _span(one: Alone) -> str:
    if one.until is None:
        return ""
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.until))
    if one.since is None:
        return f" until {until}"
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.since))
    is_one_day = since[:10] == until[:10]
    return f" {since} to {until[11:] if is_one_day else until}"


def alone_document(found: list[Alone]) -> Json:
    """The same for programs, as `alone`; nothing if no site did."""
    rows = [{**one._asdict(), "since": _iso(one.since), "until": _iso(one.until)} for one in found]
    return {"alone": rows} if rows else {}


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
