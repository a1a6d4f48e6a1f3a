"""A run of the past as a workload and pilots of a planning world, read from its journal.

Taken from it are submissions, durations, and when pilots came and ended; nothing of how tasks were placed. A duration is
the work of a task divided by the speed of its pilot: speeds are estimated from the durations, as for the time left.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from shoal.model.errors import Refused, echo
from shoal.model.task.spec import Spec
from shoal.report.history import Attempt, PilotLife
from shoal.report.run_record import Found
from shoal.sched.vector.forecast import estimate_speeds
from shoal.sim.planning.description import Arrival
from shoal.sim.planning.workloads import Batch, Given, Job, Shuffled
from shoal.wire.task import parse_spec

DONE = ("succeeded",)
PART = "checkpointed"  # an attempt from whose end the next one went on


class Journal(NamedTuple):
    """What a replay takes from a run."""

    work: Given
    arrivals: tuple[Arrival, ...]
    makespan: float  # as it was
    unknown: int  # tasks that never ran to their end: they are given the median duration
    ignored: tuple[str, ...]  # fields of the run and of its tasks that may have held tasks back, and do not in a replay
    other_runs: int  # that were open meanwhile


def read_journal(found: Found) -> Journal:
    """The journal of a run that has finished."""
    if found.info.get("open") or found.added:
        raise Refused(
            "tasks were added to this run while it ran: only what was submitted at once can be replayed",
            code="not_replayable",
        )
    record = found.record
    lengths = _lengths(record.attempts, _Kinds(found.info))
    if not lengths.done:
        raise Refused("no task of this run ran to its end, so there is nothing to replay", code="no_durations")
    middle = sorted(lengths.done.values())[len(lengths.done) // 2]
    jobs, unknown = _jobs(found, lengths, middle)
    arrivals = tuple(_arrival(life, record.start, lengths.speeds) for life in record.pilots)
    retries = max((len(one) for one in lengths.failed.values()), default=0)
    work = Given(Batch(jobs, 0.0, min(100, retries + 3)))
    took = record.end - record.start
    return Journal(work, arrivals, took, unknown, _ignored(found.info), found.other_runs)


def _ignored(info: Mapping[str, Any]) -> tuple[str, ...]:
    specs = [parse_spec(array["task"]) for array in info["arrays"]]
    has = {
        "max_running": info.get("max_running") is not None,
        "%N of an array": any(spec.throttle is not None for spec in specs),
        "memory": any(spec.memory for spec in specs),
        "gpus": any(spec.gpus for spec in specs),
        "require": any(spec.require for spec in specs),
    }
    return tuple(name for name, is_there in has.items() if is_there)


class _Lengths(NamedTuple):
    done: dict[int, float]  # task -> seconds at speed 1
    failed: dict[int, tuple[float, ...]]
    speeds: dict[str, float]  # of pilots


def _lengths(attempts: Sequence[Attempt], kinds: _Kinds) -> _Lengths:
    # A task that goes on from a checkpoint has done a part of its work before: its last attempt alone says nothing of speeds.
    parts = [one for one in attempts if one.outcome == PART]
    divided = {one.task for one in parts}
    ended = [one for one in attempts if one.outcome in (*DONE, "failed")]
    speeds = _speeds([one for one in ended if one.outcome in DONE and one.task not in divided], kinds)
    done: dict[int, float] = {}
    failed: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for one in ended:
        work = (one.end - one.start) * speeds.get(one.pilot, 1.0)
        if one.outcome in DONE:
            done[one.task] = work
        else:
            failed[one.task].append((one.number, work))
    for one in parts:
        if one.task in done:
            done[one.task] += (one.end - one.start) * speeds.get(one.pilot, 1.0)
    return _Lengths(done, {task: tuple(work for _, work in sorted(of)) for task, of in failed.items()}, speeds)


def _speeds(good: Sequence[Attempt], kinds: _Kinds) -> dict[str, float]:
    """The speeds of pilots. A duration is compared with the median of its own kind of tasks: a pilot that had the long ones
    is not slow."""
    import numpy as np

    if not good:
        return {}
    spent = [max(1e-3, one.end - one.start) / kinds.size(one.task) for one in good]
    by_kind: defaultdict[object, list[float]] = defaultdict(list)
    for one, seconds in zip(good, spent, strict=True):
        by_kind[kinds.kind(one.task)].append(seconds)
    medians = {kind: median(of) for kind, of in by_kind.items()}
    names = sorted({one.pilot for one in good})
    places = {name: at for at, name in enumerate(names)}
    relative = np.array([sec / medians[kinds.kind(one.task)] for one, sec in zip(good, spent, strict=True)])
    found = estimate_speeds([places[one.pilot] for one in good], relative, len(names))
    return {name: float(found[at]) for name, at in places.items()}


class _Kinds:
    """Which tasks of a run are alike: those of one array, and the units of one divisible work."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        arrays = sorted(info["arrays"], key=lambda one: int(one["first"]))
        self._firsts = [int(array["first"]) for array in arrays]
        self._units = [parse_spec(array["task"]).units for array in arrays]
        self._names = [str(array["name"]) for array in arrays]

    def kind(self, task: int) -> object:
        """The same for tasks that are alike."""
        at = self._at(task)
        return self._firsts[at] if self._units[at] is None else self._names[at]

    def size(self, task: int) -> int:
        """How many units a task has."""
        units = self._units[self._at(task)]
        return 1 if units is None else units.size

    def _at(self, task: int) -> int:
        return max(0, bisect_right(self._firsts, task) - 1)


def _jobs(found: Found, lengths: _Lengths, middle: float) -> tuple[list[Job], int]:
    """The tasks that a run ran, in the order of their numbers. What never ended well takes as long as its last failure did,
    after the others; what never ended at all takes the median time."""
    tables: list[tuple[Spec, list[int]]] = []
    named: defaultdict[str, list[int]] = defaultdict(list)  # jobs by the name of their table, which pieces share
    count = 0
    for array in sorted(found.info["arrays"], key=lambda one: int(one["first"])):
        first = int(array["first"])
        elements = [one for one in range(first, first + int(array["count"])) if one not in found.reused]
        tables.append((parse_spec(array["task"]), elements))
        named[array["name"]] += range(count, count + len(elements))
        count += len(elements)
    jobs: list[Job] = []
    unknown = 0
    known: dict[tuple[str, ...], tuple[int, ...]] = {}  # one tuple for all jobs with the same parents
    for spec, elements in tables:
        names = tuple(sorted({*spec.after, *spec.after_any}))
        if names not in known:
            known[names] = _parents(names, named)
        for element in elements:
            failed = lengths.failed.get(element, ())
            if element in lengths.done:
                seconds = lengths.done[element]
            elif failed:
                failed, seconds = failed[:-1], failed[-1]
            else:
                seconds = middle
                unknown += 1
            jobs.append(Job(seconds, known[names], spec.cores, failed=failed))
    return jobs, unknown


def _parents(names: Sequence[str], named: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    for name in names:
        if name not in named:
            raise Refused(
                f"tasks of this run waited for {echo(name)}, which is not in it: it cannot be replayed alone",
                code="not_replayable",
            )
    return tuple(sorted({parent for name in names for parent in named[name]}))


def _arrival(life: PilotLife, start: float, speeds: Mapping[str, float]) -> Arrival:
    until = None if math.isinf(life.ended) else max(0.0, life.ended - start)
    return Arrival(max(0.0, life.joined - start), life.slots, speeds.get(life.pilot, 1.0), until)


def in_order(work: Given, order: str) -> Given | Shuffled:
    """The same jobs submitted in another order; not of a workflow, whose order is its own."""
    batch = work.batch
    if order == "natural":
        return work
    if any(job.after for job in batch.jobs):
        raise Refused("tasks of this run wait for each other: their order cannot be chosen", code="has_parents")
    if order == "random":
        return Shuffled(batch)
    return Given(batch._replace(jobs=sorted(batch.jobs, key=lambda job: -job.seconds)))
