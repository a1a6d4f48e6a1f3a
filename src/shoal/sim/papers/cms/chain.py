"""The Tier-0 chain as it grows: raw files are repacked into primary datasets, small files merged, merged files reconstructed
promptly in parts, merged, and what calibrates the detector is selected from that and merged, too [CMS III].

A model on the virtual clock, with the paper's task queue (`task_queue.py`). How many files a merge gathers is decided by the
product's own `flow/gather.py`, which files a cache keeps by its `data/catalogue.py`, and how many pilots are sent for jobs that
wait by its PilotMonitor, `sched/demand.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from shoal.data.catalogue import Catalogue
from shoal.flow.gather import Terms, WaitingFile, next_batch
from shoal.sched.demand import plan
from shoal.sched.provisioning.view import PILOTMONITOR_REPAIRED, DemandRule, Need, SiteView
from shoal.sim.clock import Action, Clock
from shoal.sim.papers.cms.cached_runs import MB, Condition
from shoal.sim.papers.cms.task_queue import Pilot, TaskQueue

DIRECT, DEMAND, WAITING = "direct", "demand", "waiting"  # jobs in the batch system; pilots sent for them; pilots there
REPACK, PROMPT, CALIBRATE, MERGE = "repack", "prompt", "calibrate", "merge"
STORED, CONSTANTS = "store", "constants"  # merged files that leave the chain, beside the merged raw ones


class Stage(NamedTuple):
    """What becomes of files of one kind."""

    reads: str
    step: str
    writes: str

    @property
    def is_merge(self) -> bool:
        """True if it gathers files."""
        return self.step == MERGE


STAGES = (
    Stage("raw", REPACK, "repacked"),
    Stage("repacked", MERGE, "merged"),
    Stage("merged", PROMPT, "reco"),
    Stage("reco", MERGE, STORED),
    Stage(STORED, CALIBRATE, "alca"),
    Stage("alca", MERGE, CONSTANTS),
)


class File(NamedTuple):
    """A file of the chain."""

    name: str
    dataset: int
    bytes: int
    raw: frozenset[int]  # the raw files whose events it has


class Way(NamedTuple):
    """How jobs come to hosts, and whether pilots keep files."""

    submission: str
    caches: bool


class Run(NamedTuple):
    """What came of a chain. Times are in seconds from the appearance of the first raw file."""

    end: float
    jobs: int
    stored: int  # bytes of merged files
    latency: dict[
        str, list[float]
    ]  # of each raw file, from its appearance until the last file of a kind with its events
    reads: int  # accesses to data that a job wrote, of all attempts
    hits: int


class _Job(NamedTuple):
    stage: int
    name: str
    inputs: tuple[File, ...]
    outputs: tuple[File, ...]
    seconds: float


class Chain:
    """A chain that runs. The settings are those of `c.tier0`; a raw file appears every `every` seconds, with 0 all at once."""

    def __init__(self, settings: Mapping[str, Any], way: Way, condition: Condition, every: float, seed: str) -> None:
        self._settings, self._way, self._condition, self._seed = settings, way, condition, seed
        self._clock = Clock(0.0)
        self._sizes: dict[str, int] = {}
        self._waiting: dict[tuple[str, int], list[File]] = {}  # files of which no job was made, by kind and dataset
        self._jobs: list[_Job] = []
        self._attempts: list[int] = []
        self._again: list[int] = []  # jobs that failed and are not created again yet
        self._open = [0] * len(STAGES)  # jobs that have not succeeded
        self._numbers: dict[tuple[str, int], int] = {}  # of jobs so far
        self._appeared: list[float] = []
        self._last: dict[str, dict[int, float]] = {STORED: {}, CONSTANTS: {}}
        self._stored = self._reads = self._hits = 0
        self._queue = TaskQueue(way.caches, self._sizes.__getitem__, settings["most_files"])
        self._delays = Random(f"{seed}/batch")
        self._phases = Random(f"{seed}/phases")
        self._slots: list[Pilot | None] = [None] * int(settings["machines"] * settings["machine_slots"])
        self._caches = [self._new_cache() for _ in range(int(settings["machines"]))]
        self._underway = self._unwanted = self._begun = (
            0  # pilots in the batch system, those that are cancelled, all so far
        )
        for number in range(int(settings["raw_files"])):
            self._clock.at(number * every, lambda number=number: self._appear(number))  # type: ignore[misc]  # bound now

    def run(self) -> Run:
        """Let the chain run to its end."""
        self._clock.after(0.0, self._create)
        if self._way.submission == DEMAND:
            self._clock.after(self._phases.uniform(0.0, self._settings["monitor_s"]), self._monitor)
        else:
            for _ in self._slots:
                self._begin()
        while not self._is_over() and self._clock.step():
            pass
        latency = {kind: [last[raw] - at for raw, at in enumerate(self._appeared)] for kind, last in self._last.items()}
        return Run(self._clock.now, len(self._jobs), self._stored, latency, self._reads, self._hits)

    def _is_over(self) -> bool:
        return self._is_drained(len(STAGES))

    def _is_drained(self, stage: int) -> bool:
        """True if no stage before this one has anything to do any more."""
        return (
            len(self._appeared) == int(self._settings["raw_files"])
            and not any(self._open[:stage])
            and not any(files for (kind, _), files in self._waiting.items() if _reader(kind) < stage)
        )

    # --- files and jobs
    def _appear(self, number: int) -> None:
        self._appeared.append(self._clock.now)
        size = int(self._settings["input_gb"] * 1_000 * MB / self._settings["raw_files"])
        self._enter("raw", File(f"raw/{number}", 0, size, frozenset((number,))))

    def _enter(self, kind: str, file: File) -> None:
        self._waiting.setdefault((kind, file.dataset), []).append(file)

    def _create(self) -> None:
        """Jobs whose files are there are created, or again after a failure, every so often."""
        again, self._again = self._again, []
        for job in again:
            self._submit(job)
        for at, stage in enumerate(STAGES):
            is_rest = self._is_drained(at)
            for kind, dataset in sorted(self._waiting):
                if kind == stage.reads:
                    self._make(at, self._waiting[kind, dataset], is_rest)
        self._clock.after(self._settings["create_s"], self._create)

    def _make(self, at: int, files: list[File], is_rest: bool) -> None:
        terms = Terms(int(self._settings["gather"]) if STAGES[at].is_merge else 1)
        while count := next_batch([WaitingFile(one.name, one.bytes, 0.0) for one in files], terms, 0.0, is_rest):
            taken = tuple(files[:count])
            del files[:count]
            for part in range(int(self._settings["split"]) if STAGES[at].step == PROMPT else 1):
                self._open[at] += 1
                self._jobs.append(self._job(at, taken, part))
                self._attempts.append(0)
                self._submit(len(self._jobs) - 1)

    def _job(self, at: int, files: tuple[File, ...], part: int) -> _Job:
        stage, settings = STAGES[at], self._settings
        dataset = files[0].dataset
        number = self._numbers[stage.writes, dataset] = self._numbers.get((stage.writes, dataset), 0) + 1
        name = f"{stage.writes}/{dataset}/{number}"
        size, raw = sum(one.bytes for one in files), frozenset().union(*(one.raw for one in files))
        mean = settings[f"{stage.step}_s"]
        seconds = max(0.0, Random(f"{self._seed}/job/{name}").gauss(mean, settings["job_spread"] * mean))
        if stage.step == REPACK:
            datasets = int(settings["datasets"])
            outputs = tuple(File(f"{name}/{one}", one, size // datasets, raw) for one in range(datasets))
        else:
            share = {MERGE: 1.0, PROMPT: settings["reco_share"] / settings["split"], CALIBRATE: settings["alca_share"]}
            outputs = (File(name, dataset, int(size * share[stage.step]), raw),)
        self._sizes |= {file.name: file.bytes for file in (*files, *outputs)}
        return _Job(at, name, files, outputs, seconds)

    def _submit(self, job: int) -> None:
        def enter() -> None:
            self._queue.add(job, tuple(one.name for one in self._jobs[job].inputs))
            if self._way.submission == DIRECT:  # the batch system gives a job to a free host at once
                for pilot in filter(None, self._slots):
                    if pilot.is_idle:
                        self._ask(pilot)

        if self._way.submission == DIRECT:
            self._clock.after(self._batch_delay(), enter)
        else:
            enter()

    def _batch_delay(self) -> float:
        mean = self._settings["batch_s"]
        return self._delays.expovariate(1.0 / mean) if mean else 0.0

    # --- pilots; hosts of the batch system where there are none
    def _new_cache(self) -> Catalogue:
        each = int(self._settings["cache_mb"]) * MB if self._way.caches else 0
        return Catalogue(each * int(self._settings["machine_slots"]), int(self._settings["reserve_mb"]) * MB)

    def _begin(self) -> None:
        """A pilot begins on a free slot; pilots of a machine share their files."""
        slot = self._slots.index(None)
        pilot = self._slots[slot] = Pilot(self._begun, self._caches[slot // int(self._settings["machine_slots"])])
        self._begun += 1
        self._queue.join(pilot)
        self._clock.after(self._phases.uniform(0.0, self._settings["pull_s"]), lambda: self._ask(pilot))

    def _end(self, pilot: Pilot) -> None:
        """A pilot ends; with the last one of a machine its files go."""
        slot = self._slots.index(pilot)
        self._slots[slot], pilot.is_idle = None, False
        if self._queue.leave(pilot):
            for file in list(pilot.cache):
                pilot.cache.remove(file)

    def _monitor(self) -> None:
        """The PilotMonitor looks: pilots are sent for jobs that wait, and end when none does."""
        idle = [one for one in self._slots if one is not None and one.is_idle]
        busy = sum(one is not None for one in self._slots) - len(idle)
        waiting, most = self._underway - self._unwanted, len(self._slots)
        site = SiteView("tier0", waiting, len(idle), busy, max_pilots=most, max_queued=most)
        found = plan(
            DemandRule(PILOTMONITOR_REPAIRED), [Need(len(self._queue))], [site], self._clock.now, self._delays.random
        )
        for _ in range(sum(ask.count for ask in found.asks)):
            self._underway += 1
            self._clock.after(self._batch_delay(), self._arrive)
        self._unwanted += found.cancel.get(site.name, 0)
        for pilot in idle[: found.release.get(site.name, 0)]:
            self._end(pilot)
        self._clock.after(self._settings["monitor_s"], self._monitor)

    def _arrive(self) -> None:
        self._underway -= 1
        if self._unwanted:
            self._unwanted -= 1
        else:
            self._begin()

    def _ask(self, pilot: Pilot) -> None:
        if pilot not in self._slots:
            return
        job = self._queue.take(pilot)
        if job is not None:
            pilot.is_idle = False
            self._attempts[job] += 1
            self._start(pilot, job)
            return
        pilot.is_idle = True
        if self._way.submission != DIRECT:
            self._clock.after(self._settings["pull_s"], lambda: self._ask(pilot))

    def _start(self, pilot: Pilot, job: int) -> None:
        """The inputs, one after another, the computing, and the outputs; the job fails with the first access that fails."""
        known, seconds = self._jobs[job], 0.0
        for file in known.inputs:
            self._reads += known.stage > 0
            if file.name in pilot.cache:
                self._hits += 1
                pilot.cache.use(file.name, self._clock.now)
                seconds += self._settings["local_s"]
                continue
            taken, fails = self._access(job, file.name)
            seconds += taken
            if fails:
                self._clock.after(seconds, lambda: self._fail(pilot, job))
                return
        seconds += known.seconds
        for file in known.outputs:
            taken, fails = self._access(job, file.name)
            seconds += taken
            if fails:
                self._clock.after(seconds, lambda: self._fail(pilot, job))
                return
        self._clock.after(seconds, lambda: self._succeed(pilot, job))

    def _access(self, job: int, file: str) -> tuple[float, bool]:
        """An access to the storage element: its seconds, and whether it fails at its end. The same attempt of a job meets the
        same in all ways."""
        rng = Random(f"{self._seed}/access/{self._jobs[job].name}/{self._attempts[job]}/{file}")
        mean = self._settings["delay_s"] * self._condition.delay
        return max(0.0, rng.gauss(mean, self._settings["delay_spread"] * mean)), rng.random() < self._condition.failure

    def _fail(self, pilot: Pilot, job: int) -> None:
        self._tell(lambda: self._again.append(job))
        self._ask(pilot)

    def _succeed(self, pilot: Pilot, job: int) -> None:
        for file in self._jobs[job].outputs:
            self._queue.keep(file.name, pilot.cache, self._clock.now)
        self._tell(lambda: self._know(job, self._clock.now))
        self._ask(pilot)

    def _tell(self, known: Action) -> None:
        """Pilots tell of an end at once, the batch system after a while."""
        if self._way.submission == DIRECT:
            self._clock.after(self._batch_delay(), known)
        else:
            known()

    def _know(self, job: int, now: float) -> None:
        done = self._jobs[job]
        self._open[done.stage] -= 1
        kind = STAGES[done.stage].writes
        for file in done.outputs:
            if STAGES[done.stage].is_merge:
                self._stored += file.bytes
            if kind in self._last:
                self._last[kind] |= dict.fromkeys(file.raw, now)
            if kind != CONSTANTS:
                self._enter(kind, file)


def _reader(kind: str) -> int:
    return next(at for at, stage in enumerate(STAGES) if stage.reads == kind)
