"""Workloads of planning worlds: bags of tasks, workflows of two steps, and whatever else is made of jobs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from shoal.model.errors import Refused
from shoal.model.limits import MAX_PARENTS, MAX_SPECS
from shoal.sim.distributions import Constant, Distribution

SERIAL, SPLITTING, MERGING = "serial", "splitting", "merging"


class Job(NamedTuple):
    """A task, as far as a planning world cares: seconds at speed 1, and the jobs that must have succeeded before."""

    seconds: float
    after: tuple[int, ...] = ()
    cores: int = 1
    failure: float = 0.0  # probability of one attempt
    input_mb: float = 0.0
    output_mb: float = 0.0
    failed: tuple[float, ...] = ()  # seconds of its first attempts, which fail


class Batch(NamedTuple):
    """Jobs that are submitted together as one run; numbers in `after` count within it."""

    jobs: Sequence[Job]
    at: float = 0.0
    retries: int = 3
    units: int = 0  # of divisible work, of which the only job is one
    at_once: int = 0  # jobs of it that may run at once; 0: no bound. All of them are alike then
    rank: str = ""  # of its jobs, over tags of pilots
    publishes: str = ""  # the tag by which its jobs tell the speed of their host, when they end


class Bag(NamedTuple):
    """Independent jobs of one kind."""

    tasks: int
    seconds: Distribution
    cores: int = 1
    failure: float = 0.0
    input_mb: float = 0.0
    output_mb: float = 0.0
    at: float = 0.0
    retries: int = 3

    def draw(self, rng: Random) -> Batch:
        """The jobs, with durations drawn anew."""
        if isinstance(self.seconds, Constant):
            jobs = [self._job(self.seconds.value)] * self.tasks
        else:
            jobs = [self._job(self.seconds.draw(rng)) for _ in range(self.tasks)]
        return Batch(jobs, self.at, self.retries)

    def _job(self, seconds: float) -> Job:
        return Job(seconds, (), self.cores, self.failure, self.input_mb, self.output_mb)


class TwoSteps(NamedTuple):
    """A workflow of two steps [LBO IV; CMS 4]: serial (one second for each first), splitting (some for each first), merging
    (one for some firsts)."""

    kind: str
    first: int
    seconds: Distribution
    fan: int = 1  # seconds for each first if splitting, firsts for each second if merging
    input_mb: float = 0.0
    output_mb: float = 0.0
    at: float = 0.0
    retries: int = 3

    def draw(self, rng: Random) -> Batch:
        """The jobs: all of the first step, then all of the second."""
        jobs = [Job(self.seconds.draw(rng), (), 1, 0.0, self.input_mb, self.output_mb) for _ in range(self.first)]
        for parents in self._parents():
            jobs.append(Job(self.seconds.draw(rng), parents, 1, 0.0, self.input_mb, self.output_mb))
        return Batch(jobs, self.at, self.retries)

    def _parents(self) -> Iterable[tuple[int, ...]]:
        if self.kind == MERGING:
            step = max(1, self.fan)
            return [tuple(range(at, min(at + step, self.first))) for at in range(0, self.first, step)]
        each = self.fan if self.kind == SPLITTING else 1
        return [(at,) for at in range(self.first) for _ in range(each)]


class Divisible(NamedTuple):
    """Divisible work, cut by the engine: what one unit takes at speed 1, and moves."""

    units: int
    seconds: float
    input_mb: float = 0.0
    output_mb: float = 0.0
    at: float = 0.0
    retries: int = 3

    def draw(self, rng: Random) -> Batch:
        """One job that stands for each unit; nothing is drawn."""
        job = Job(self.seconds, input_mb=self.input_mb, output_mb=self.output_mb)
        return Batch([job], self.at, self.retries, self.units)


class Shuffled(NamedTuple):
    """Independent jobs that are known one by one, submitted in any order."""

    batch: Batch

    def draw(self, rng: Random) -> Batch:
        """The jobs in an order of chance."""
        jobs = list(self.batch.jobs)
        rng.shuffle(jobs)
        return self.batch._replace(jobs=jobs)


class Given(NamedTuple):
    """Jobs that are known one by one, as of a trace or a journal."""

    batch: Batch

    def draw(self, rng: Random) -> Batch:
        """The jobs; nothing is drawn."""
        return self.batch


Part = Bag | TwoSteps | Divisible | Given | Shuffled
Workload = Sequence[Part]


def tables(batch: Batch) -> list[dict[str, Any]]:
    """A batch as the task tables of a submission: neighbours that are alike, with the same parents and children, become
    arrays."""
    if batch.units:
        return [{"command": ["payload"], "units": batch.units, "retries": batch.retries}]
    ends, has_children = _neighbours(batch.jobs)
    starts = [0, *ends[:-1]]
    names = {start: f"job{start}" for start in starts if has_children[start]}
    known: dict[int, list[str]] = {}  # by the identity of a tuple of parents, which many jobs may share
    found: list[dict[str, Any]] = []
    for start, end in zip(starts, ends, strict=True):
        job = batch.jobs[start]
        table: dict[str, Any] = {"command": ["payload"], "cores": job.cores, "retries": batch.retries}
        if end - start > 1:
            table["array"] = f"1-{end - start}" + (f"%{batch.at_once}" if batch.at_once else "")
        if batch.rank:
            table["rank"] = batch.rank
        if start in names:
            table["name"] = names[start]
        if job.after:
            if id(job.after) not in known:
                places = sorted({bisect_right(starts, parent) - 1 for parent in job.after})
                known[id(job.after)] = [names[starts[place]] for place in places]
            table["after"] = known[id(job.after)]
        found.append(table)
    _check_size(found)
    return found


def _neighbours(jobs: Sequence[Job]) -> tuple[list[int], list[bool]]:
    """The ends of the arrays that jobs make, and which jobs others wait for. Jobs have the same children if the same sets of
    parents have them in."""
    sets: dict[tuple[int, ...], int] = {}
    of_tuple: dict[int, int] = {}  # the same by identity: a set of thousands that jobs share is looked at once
    waits: list[int] = []  # the set of each job
    for job in jobs:
        if id(job.after) not in of_tuple:
            of_tuple[id(job.after)] = sets.setdefault(job.after, len(sets))
        waits.append(of_tuple[id(job.after)])
    children: list[list[int]] = [[] for _ in jobs]
    for parents, number in sets.items():
        for parent in set(parents):
            children[parent].append(number)
    kinds = [(job.cores, wait, tuple(child)) for job, wait, child in zip(jobs, waits, children, strict=True)]
    ends = [at for at in range(1, len(jobs) + 1) if at == len(jobs) or kinds[at] != kinds[at - 1]]
    return ends, [bool(child) for child in children]


def _check_size(found: Sequence[dict[str, Any]]) -> None:
    parents = max((len(table.get("after", ())) for table in found), default=0)
    if len(found) > MAX_SPECS or parents > MAX_PARENTS:
        raise Refused(
            f"this workflow is too large for one run: {len(found):,} kinds of tasks, one of which waits for {parents:,} others",
            code="workflow_too_large", hint=f"at most {MAX_SPECS:,}, and {MAX_PARENTS:,}: tasks next to each other with "
            "the same cores, parents and children are one kind",
        )  # fmt: skip
