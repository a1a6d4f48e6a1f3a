"""A provisioner in a planning world: asks `sched/demand.py` again and again, and submits, cancels and releases as it says.

What it knows is what the product's provisioner knows: tasks that are ready, durations of tasks that ended, and what became
of its own pilots. It never sees durations of tasks to come, waits of a queue, or speeds.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from shoal.model.ids import parse_attempt
from shoal.model.lazy_dataclass import dataclass
from shoal.sched.demand import Ask, Need, Plan, SiteView, plan
from shoal.sched.factory import COMPLETED, FAILED, PENDING, RUNNING, FactoryRule, SentPilot, fitness, remembered
from shoal.sched.provisioning.durations import LIKELY, likely_seconds
from shoal.sched.provisioning.guided_factory import GuidedRule, Waiting, overdue
from shoal.sim.clock import Clock
from shoal.sim.planning.description import Provision, Site
from shoal.sim.planning.outcome import Recorder
from shoal.sim.planning.workloads import Batch

LEARNED = 3  # tasks of a kind that have ended, from which on their duration is known
RECENT = 20  # waits that are remembered for each site
OPEN = (PENDING, RUNNING)
DEFAULT_WALL = 14_400.0


class PilotOnHost(Protocol):
    """A pilot that was started, as the provisioner sees it."""

    @property
    def is_busy(self) -> bool:
        """True if it runs a task."""

    def release(self) -> None:
        """End it, since nothing waits for it."""


@dataclass
class Allocation:
    """A pilot that was asked for."""

    site: str
    cores: int
    wall: float
    submitted: float
    status: str = PENDING
    changed: float = 0.0
    cancelled: bool = False
    had_task: bool = False
    idle_since: float | None = None
    pilot: PilotOnHost | None = None


class SimProvisioner:
    """Keeps the allocations of a world."""

    def __init__(
        self,
        provision: Provision,
        sites: Sequence[Site],
        clock: Clock,
        seed: int,
        ledger: Recorder,
        submit: Callable[[Allocation], None],
    ) -> None:
        self._provision, self._sites, self._clock, self._ledger = provision, sites, clock, ledger
        self._submit = submit
        self._draw = Random(f"{seed}/provisioner").random
        self._allocations: list[Allocation] = []  # those that wait or run
        self._ended: defaultdict[str, list[SentPilot]] = defaultdict(list)  # by site; those that are remembered
        self.ended_at: Counter[str] = Counter()  # site -> how many of its pilots ended so far
        self._speeds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
        self._waits: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
        self._empty: Counter[str] = Counter()
        self._empty_at: dict[str, float] = {}
        self._read = 0  # attempts of the record that were looked at
        self._done: defaultdict[int, set[int]] = defaultdict(set)  # run -> elements that succeeded
        self._durations: defaultdict[tuple[int, int], list[float]] = defaultdict(list)  # by run and cores
        self._cut: defaultdict[tuple[int, int], float] = defaultdict(float)  # the longest of those that were cut off
        self._counted: dict[int, tuple[int, Counter[int]]] = {}  # run -> successes, and what was ready then
        self.reasons: dict[str, str] = {}

    @property
    def has_pilots(self) -> bool:
        """True if any pilot waits or runs."""
        return bool(self._allocations)

    def step(self, runs: dict[int, Batch], settled: dict[int, int]) -> None:
        """Look at what waits, and act. `settled`: of each open run, how many tasks are final."""
        for one in list(self._allocations):
            self._look_at(one)
        self._end_overdue()
        mine: defaultdict[str, list[Allocation]] = defaultdict(list)
        for one in self._allocations:
            mine[one.site].append(one)
        views = [self._view(site, mine[site.name]) for site in self._sites]
        found = plan(self._provision.rule, self._needs(runs, settled), views, self._clock.now, self._draw)
        self.reasons = found.reasons
        if not self._provision.keeps_surplus:
            self._drop(found)
        for ask in found.asks:
            self._ask(ask)

    def _drop(self, found: Plan) -> None:
        """Cancel and release what a plan says."""
        for name, count in found.cancel.items():
            queued = [one for one in self._allocations if one.site == name and one.status == PENDING]
            for one in queued[-count:]:  # the newest would have waited longest
                self._cancel(one)
        for name, count in found.release.items():
            self._release(name, count)

    def _look_at(self, one: Allocation) -> None:
        """Note whether a pilot works; one that has had nothing to do for a while ends, whatever waits."""
        if one.pilot is None:
            return
        idle_end = self._provision.idle_end
        if one.pilot.is_busy:
            one.had_task, one.idle_since = True, None
        elif one.idle_since is None:
            one.idle_since = self._clock.now
        elif idle_end is not None and self._clock.now - one.idle_since >= idle_end:
            one.pilot.release()

    def note_speed(self, site: str, speed: float) -> None:
        """A task told how fast its host is."""
        self._speeds[site].append(speed)

    def _cancel(self, one: Allocation) -> None:
        one.cancelled = True
        self._allocations.remove(one)

    def _end_overdue(self) -> None:
        """Give up pilots that wait in a queue for too long."""
        suspension = self._provision.suspension
        if suspension is None:
            return
        queued = {str(at): one for at, one in enumerate(self._allocations) if one.status == PENDING}
        waiting = [Waiting(name, one.submitted) for name, one in queued.items()]
        for name in overdue(GuidedRule(0, suspension=suspension), waiting, self._clock.now):
            self._cancel(queued[name])

    def _release(self, name: str, count: int) -> None:
        idle = [one for one in self._allocations if one.site == name and one.pilot is not None]
        for one in [one for one in idle if one.pilot is not None and not one.pilot.is_busy][:count]:
            assert one.pilot is not None
            one.pilot.release()

    def _ask(self, ask: Ask) -> None:
        for _ in range(ask.count):
            one = Allocation(ask.site, ask.cores, float(ask.seconds), self._clock.now, changed=self._clock.now)
            self._allocations.append(one)
            self._submit(one)

    # --- what becomes of them
    def started(self, one: Allocation) -> None:
        """Its job has a host."""
        one.status, one.changed = RUNNING, self._clock.now
        self._waits[one.site].append(self._clock.now - one.submitted)

    def ended(self, one: Allocation, well: bool) -> None:
        """Its job is over."""
        if one not in self._allocations:
            return
        self._allocations.remove(one)
        one.had_task = one.had_task or (one.pilot is not None and one.pilot.is_busy)
        one.status, one.changed = COMPLETED if well else FAILED, self._clock.now
        self._ended[one.site].append(SentPilot(one.site, one.status, one.changed))
        self.ended_at[one.site] += 1
        if one.had_task:
            self._empty[one.site] = 0
        elif not well:
            self._empty[one.site] += 1
            self._empty_at[one.site] = self._clock.now

    # --- what a policy sees
    def _needs(self, runs: dict[int, Batch], settled: dict[int, int]) -> list[Need]:
        self._learn(runs)
        running: defaultdict[tuple[int, int], list[float]] = defaultdict(list)  # seconds so far
        for name, since in self._ledger.running_since.items():
            attempt = parse_attempt(name)
            running[attempt.run, runs[attempt.run].jobs[attempt.element - 1].cores].append(self._clock.now - since)
        needs = []
        for run, final in sorted(settled.items()):
            done, batch = self._done[run], runs[run]
            ready = self._ready(run, batch)
            failed = max(0, final - len(done))  # for good: which they are does not matter here
            for cores, count in sorted(ready.items()):
                known = self._durations[run, cores]
                seconds = likely_seconds(known, running[run, cores]) if len(known) >= LEARNED else None
                if seconds is not None and count <= (1.0 - LIKELY) * len(batch.jobs):
                    seconds = max(seconds, 2.0 * self._cut[run, cores])  # what is left may be what takes longest
                left = count - len(running[run, cores]) - failed
                if batch.at_once:
                    left = min(left, batch.at_once - len(running[run, cores]))
                if left > 0:
                    tried = max(running[run, cores], default=None)
                    needs.append(Need(left, cores, seconds=seconds, rank=batch.rank, tried_for=tried))
        return needs

    def _ready(self, run: int, batch: Batch) -> Counter[int]:
        """Tasks of a run that wait for no other, by their cores. Looked at anew only when another one has succeeded."""
        done = self._done[run]
        if batch.at_once:  # alike and after no other: they need not be looked at one by one
            return Counter({batch.jobs[0].cores: len(batch.jobs) - len(done)})
        looked, found = self._counted.get(run, (-1, Counter()))
        if looked != len(done):
            found = Counter(
                job.cores
                for at, job in enumerate(batch.jobs)
                if at not in done and all(parent in done for parent in job.after)
            )
            self._counted[run] = (len(done), found)
        return found

    def _learn(self, runs: dict[int, Batch]) -> None:
        attempts = self._ledger.record.attempts
        for one in attempts[self._read :]:
            if one.outcome == "succeeded":
                run, at = self._ledger.locate(one.task)
                self._done[run].add(at)
                self._durations[run, runs[run].jobs[at].cores].append(one.end - one.start)
            else:
                run, at = self._ledger.locate(one.task)
                key = (run, runs[run].jobs[at].cores)
                self._cut[key] = max(self._cut[key], one.end - one.start)
        self._read = len(attempts)

    def _view(self, site: Site, mine: Sequence[Allocation]) -> SiteView:
        queued = [one for one in mine if one.status == PENDING]
        running = [one for one in mine if one.status == RUNNING]
        busy = [
            one for one in running if one.pilot is None or one.pilot.is_busy
        ]  # one that starts is on its way to work
        self._ended[site.name] = remembered(
            FactoryRule(0, 0, memory=self._provision.memory), self._ended[site.name], self._clock.now
        )
        alive = [SentPilot(site.name, one.status, one.changed) for one in running]
        fit = fitness([*self._ended[site.name], *alive])
        limits, wall, speeds = site.limits, site.wall or DEFAULT_WALL, self._speeds[site.name]
        rank = sum(speeds) / len(speeds) if speeds else limits.rank
        return SiteView(
            site.name, len(queued), len(running) - len(busy), len(busy), sum(one.cores for one in queued),
            sum(one.cores for one in running if one not in busy), sum(one.cores for one in running),
            limits.max_pilots, limits.min_pilots, limits.min_idle, limits.max_queued, site.slots, wall,
            min(limits.min_wall, wall), self._wait(site.name, queued), {}, rank, fit.get(site.name, 1.0), False,
            self._empty[site.name], None, self._empty_at.get(site.name),
            lives=tuple((one.cores, one.changed + one.wall - self._clock.now) for one in running),
        )  # fmt: skip

    def _wait(self, name: str, queued: Sequence[Allocation]) -> float | None:
        """The mean of the last waits; the longest of those that still wait if it is longer."""
        seen = self._waits[name]
        longest = max((self._clock.now - one.submitted for one in queued), default=0.0)
        if not seen:
            return None if longest < self._provision.rule.usual_wait else longest
        return max(sum(seen) / len(seen), longest)
