"""One workflow of two steps on pilots that keep files, with the paper's task queue: who gets which job, what is read from a
cache and what from the storage element, what fails [CMS IV; CMS V].

A model on the virtual clock. Who gets which job is said by `task_queue.py`, and which files a cache keeps is decided by the
product's own `data/catalogue.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from shoal.data.catalogue import Catalogue
from shoal.sim.clock import Clock
from shoal.sim.distributions import Normal
from shoal.sim.papers.cms.task_queue import Pilot, TaskQueue
from shoal.sim.planning.workloads import TwoSteps

MB = 1_000_000
NO_CACHE, SINGLE, PER_HOST = "none", "single", "host"  # how pilots keep files


class Scheme(NamedTuple):
    """How pilots keep files, and whether jobs wait for a pilot that has theirs [CMS V]."""

    caches: str
    waits_for_data: bool


class Condition(NamedTuple):
    """How loaded the storage element is [CMS V]."""

    delay: float  # the delay factor
    failure: float  # probability of one access


class Workflow(NamedTuple):
    """How many jobs the first step has, and how the second one depends on it."""

    kind: str
    first: int
    fan: int


class JobTimes(NamedTuple):
    """The attempt of a job that succeeded, in seconds."""

    stage_in: float
    execution: float  # all that its pilot was busy with it


class Run(NamedTuple):
    """What came of a workflow."""

    turnaround: float
    jobs: list[JobTimes]
    reads: int  # accesses to data, of all attempts
    hits: int  # those that found it in a cache


class CachedRun:
    """A workflow that runs. The settings are those of the experiments `c.hit-ratio`, `c.stagein` and `c.turnaround`."""

    def __init__(
        self, settings: Mapping[str, Any], workflow: Workflow, scheme: Scheme, condition: Condition, seed: str
    ) -> None:
        self._settings, self._condition, self._seed = settings, condition, seed
        self._clock = Clock(0.0)
        self._file_bytes = int(settings["file_mb"]) * MB
        seconds = Normal(settings["job_s"], settings["job_spread"] * settings["job_s"])
        self._jobs = TwoSteps(workflow.kind, workflow.first, seconds, workflow.fan).draw(Random(f"{seed}/jobs")).jobs
        count, together = int(settings["pilots"]), int(settings["host_slots"]) if scheme.caches == PER_HOST else 1
        most = 0 if scheme.caches == NO_CACHE else int(settings["cache_mb"]) * MB
        caches = [Catalogue(most * together, int(settings["reserve_mb"]) * MB) for _ in range(-(-count // together))]
        self._pilots = [Pilot(number, caches[number // together]) for number in range(count)]
        self._queue = TaskQueue(scheme.waits_for_data, lambda file: self._file_bytes)
        for pilot in self._pilots:
            self._queue.join(pilot)
        self._uncreated = list(range(len(self._jobs)))
        self._attempts = [0] * len(self._jobs)
        self._done: dict[int, JobTimes] = {}
        self._reads = self._hits = 0

    def run(self) -> Run:
        """Let the workflow run to its end."""
        phases = Random(f"{self._seed}/phases")
        self._create()
        for pilot in self._pilots:
            at = phases.uniform(0.0, self._settings["pull_s"])
            self._clock.at(at, lambda pilot=pilot: self._ask(pilot))  # type: ignore[misc]  # bound now
        while len(self._done) < len(self._jobs) and self._clock.step():
            pass
        jobs = [self._done[job] for job in range(len(self._jobs))]
        return Run(self._clock.now, jobs, self._reads, self._hits)

    def _create(self) -> None:
        """Jobs whose files are there are created, or again after a failure, every so often."""
        possible = [job for job in self._uncreated if all(one in self._done for one in self._jobs[job].after)]
        for job in possible:
            self._uncreated.remove(job)
            self._queue.add(job, tuple(map(str, self._jobs[job].after)))
        self._clock.after(self._settings["create_s"], self._create)

    def _ask(self, pilot: Pilot) -> None:
        job = self._queue.take(pilot)
        if job is None:
            pilot.is_idle = True
            self._clock.after(self._settings["pull_s"], lambda: self._ask(pilot))
            return
        pilot.is_idle = False
        self._attempts[job] += 1
        self._stage_in(pilot, job)

    def _stage_in(self, pilot: Pilot, job: int) -> None:
        """The inputs, one after another; the job fails with the first access that fails."""
        seconds = 0.0
        for number, file in enumerate(self._jobs[job].after):
            self._reads += 1
            if str(file) in pilot.cache:
                self._hits += 1
                pilot.cache.use(str(file), self._clock.now)
                seconds += self._settings["local_s"]
                continue
            taken, fails = self._access(job, f"in{number}")
            seconds += taken
            if fails:
                self._clock.after(seconds, lambda: self._fail(pilot, job))
                return
        written, fails = self._access(job, "out")
        busy = seconds + self._jobs[job].seconds + written
        if fails:
            self._clock.after(busy, lambda: self._fail(pilot, job))
        else:
            self._clock.after(busy, lambda: self._succeed(pilot, job, JobTimes(seconds, busy)))

    def _access(self, job: int, which: str) -> tuple[float, bool]:
        """An access to the storage element: its seconds, and whether it fails at its end. The same attempt of a job meets the
        same in all schemes."""
        rng = Random(f"{self._seed}/access/{job}/{self._attempts[job]}/{which}")
        mean = self._settings["delay_s"] * self._condition.delay
        return max(0.0, rng.gauss(mean, self._settings["delay_spread"] * mean)), rng.random() < self._condition.failure

    def _fail(self, pilot: Pilot, job: int) -> None:
        self._uncreated.append(job)
        self._ask(pilot)

    def _succeed(self, pilot: Pilot, job: int, times: JobTimes) -> None:
        self._done[job] = times
        self._queue.keep(str(job), pilot.cache, self._clock.now)
        self._ask(pilot)
