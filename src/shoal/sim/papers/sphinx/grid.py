"""The grid of the SPHINX experiment: batch queues with other people's jobs, and planners that send jobs to them
[SPHINX results].

The planners bind early, as SPHINX did: a job that was sent to a site waits in its queue. They share the sites and see only
their own jobs and, where they have it, the weather: queue depths as the sites publish them, some minutes old.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from shoal.sched.placement.question import Kind, Place, Question
from shoal.sched.placement.weather import Series
from shoal.sched.vector.placement import plan
from shoal.sim.clock import Clock
from shoal.sim.distributions import Constant, LogNormal
from shoal.sim.planning.batch_queue import BatchQueue
from shoal.sim.planning.description import Background, PilotLimits, Site

HOUR = 3600.0
SPREAD = 1.0  # deviation of the logarithm of how long other people's jobs take
LEVELS = (4, 3, 3)  # jobs of a DAG by level; each waits for two of the level before
PARENTS = 2


class JobOfDag(NamedTuple):
    """A job of a workflow: how long it takes on a good site, and the positions of those that it waits for."""

    seconds: float
    after: tuple[int, ...]


class GridSite(NamedTuple):
    """A site as the world knows it; planners do not."""

    site: Site
    slots: int
    is_good: bool
    slow: float  # a job takes so many times as long as stated


def draw_sites(settings: Mapping[str, Any], seed: int) -> list[GridSite]:
    """The sites of a seed."""
    rng, found = Random(f"{seed}/sites"), []
    good = set(rng.sample(range(settings["sites"]), settings["good_sites"]))
    for at in range(settings["sites"]):
        slots = round(rng.uniform(settings["slots_low"], settings["slots_high"]))
        load = rng.uniform(settings["load_low"], settings["load_high"]) if settings["background"] else 0.0
        seconds = settings["other_h"] * HOUR
        others = (
            Background(
                load * slots / settings["other_h"], LogNormal(seconds * math.exp(-SPREAD * SPREAD / 2.0), SPREAD)
            )
            if load
            else None
        )
        slow = 1.0 if at in good else settings["bad_slow"]
        site = Site(
            f"s{at:02}", hosts=slots, speed=Constant(1.0 / slow), background=others, wall=12 * HOUR,
            limits=PilotLimits(max_pilots=settings["dags"]),
        )  # fmt: skip
        found.append(GridSite(site, slots, at in good, slow))
    return found


def draw_dags(settings: Mapping[str, Any], seed: int) -> list[list[JobOfDag]]:
    """The workflows, the same for every planner."""
    rng, dags = Random(f"{seed}/dags"), []
    for _ in range(settings["dags"]):
        jobs: list[JobOfDag] = []
        above: list[int] = []
        for count in LEVELS:
            first = len(jobs)
            for _ in range(count):
                after = tuple(sorted(rng.sample(above, PARENTS))) if above else ()
                jobs.append(JobOfDag(settings["job_s"] * rng.uniform(0.8, 1.2), after))
            above = list(range(first, len(jobs)))
        dags.append(jobs)
    return dags


class _Sent:
    """A job on its way through its six steps."""

    __slots__ = ("dag", "is_over", "job", "site", "started")

    def __init__(self, dag: int, job: int, site: str) -> None:
        self.dag, self.job, self.site = dag, job, site
        self.started: float | None = None
        self.is_over = False


class Planner:
    """One server with its workflows."""

    def __init__(self, grid: Grid, uses_weather: bool) -> None:
        self.grid, self.uses_weather = grid, uses_weather
        self.good = [one.site.name for one in grid.sites]  # as far as it knows
        self.completion: list[float] = []  # of each workflow that is over
        self.idle: list[float] = []  # seconds of each job in a remote queue
        self._began = 0.0
        self._done: list[set[int]] = [set() for _ in grid.dags]
        self._ready: list[tuple[int, int]] = []
        self._given: set[tuple[int, int]] = set()
        self._recent: dict[str, int] = dict.fromkeys(self.good, 0)  # jobs sent since the last weather
        self._turn = 0

    @property
    def is_done(self) -> bool:
        """True if all of its workflows are over."""
        return len(self.completion) == len(self.grid.dags)

    def probe(self) -> None:
        """One job to each site: which are good shows in how long it takes."""
        for name in list(self.good):
            self._send(-1, -1, name)

    def begin(self) -> None:
        """Submit all workflows."""
        self._began = self.grid.clock.now
        for dag in range(len(self.grid.dags)):
            self._release(dag)

    def note_weather(self) -> None:
        """The sites published how they are: what was sent before is in it."""
        self._recent = dict.fromkeys(self._recent, 0)

    def place(self) -> None:
        """Send what is ready."""
        ready, self._ready = self._ready, []
        if not ready:
            return
        sites = self._planned(len(ready)) if self.uses_weather else self._in_turn(len(ready))
        for (dag, job), site in zip(ready, sites, strict=True):
            self._send(dag, job, site)

    def _in_turn(self, count: int) -> list[str]:
        """Round robin over the sites that are good."""
        found = [self.good[(self._turn + at) % len(self.good)] for at in range(count)]
        self._turn += count
        return found

    def _planned(self, count: int) -> list[str]:
        """By the linear program, with the jobs that wait and run at each site [SPHINX policy]."""
        settings, places = self.grid.settings, []
        for name in self.good:
            waiting = self.grid.expect(name, "waiting") + self._recent[name]
            running, free = self.grid.expect(name, "running"), self.grid.expect(name, "free")
            delay = (1.0 + max(0.0, waiting - free)) / max(1.0, running) * settings["turnover_h"] * HOUR
            places.append(Place(name, cores=max(0.0, free - waiting), more=max(1.0, running), delay=delay))
        kind = Kind(0, count, 1, settings["job_s"], {}, frozenset(self.good))
        directed = dict(plan(Question([kind], places)).directed.get(0, {}))
        found: list[str] = []
        for _ in range(count):  # whole jobs: where most of the share is left
            best = max(directed, key=lambda name: (directed[name], name)) if directed else self.good[0]
            directed[best] = directed.get(best, 0.0) - 1.0
            found.append(best)
        return found

    def _send(self, dag: int, job: int, site: str) -> None:
        """Make the environment and transfer inputs; then the job is in the queue of the site."""
        self._recent[site] += 1
        sent = _Sent(dag, job, site)
        settings = self.grid.settings
        self.grid.clock.after(settings["step_s"] + settings["transfer_s"], lambda: self._enter(sent))

    def _enter(self, sent: _Sent) -> None:
        since = self.grid.clock.now
        self.grid.queues[sent.site].submit(lambda: self._start(sent, since))

    def _start(self, sent: _Sent, since: float) -> None:
        grid, settings = self.grid, self.grid.settings
        if sent.dag >= 0:
            self.idle.append(grid.clock.now - since)
        stated = grid.dags[sent.dag][sent.job].seconds if sent.dag >= 0 else settings["job_s"]
        takes = stated * grid.by_name[sent.site].slow
        longest = settings["cut"] * settings["job_s"] if settings["cuts"] else float("inf")
        if takes > longest:
            grid.clock.after(longest, lambda: self._cut(sent))
        else:
            grid.clock.after(takes, lambda: self._executed(sent))

    def _cut(self, sent: _Sent) -> None:
        """It takes far longer than stated: killed, sent elsewhere, and the site is not good [SPHINX results]."""
        self.grid.queues[sent.site].release()
        if sent.site in self.good and len(self.good) > 1:
            self.good.remove(sent.site)
        if sent.dag >= 0:
            self._ready.append((sent.dag, sent.job))

    def _executed(self, sent: _Sent) -> None:
        """Transfer the output, publish where it is, clean up."""
        settings = self.grid.settings
        self.grid.queues[sent.site].release()
        if sent.dag >= 0:
            after = settings["transfer_s"] + 2 * settings["step_s"]
            self.grid.clock.after(after, lambda: self._finished(sent.dag, sent.job))

    def _finished(self, dag: int, job: int) -> None:
        self._done[dag].add(job)
        if len(self._done[dag]) == len(self.grid.dags[dag]):
            self.completion.append(self.grid.clock.now - self._began)
        else:
            self._release(dag)

    def _release(self, dag: int) -> None:
        for at, job in enumerate(self.grid.dags[dag]):
            if (dag, at) not in self._given and self._done[dag].issuperset(job.after):
                self._given.add((dag, at))
                self._ready.append((dag, at))


class Grid:
    """Sites, and two planners that compete for them."""

    def __init__(self, settings: Mapping[str, Any], seed: int) -> None:
        self.settings, self.clock = settings, Clock()
        self.sites: Sequence[GridSite] = draw_sites(settings, seed)
        self.by_name = {one.site.name: one for one in self.sites}
        self.dags = draw_dags(settings, seed)
        self.queues = {one.site.name: BatchQueue(one.site, self.clock, seed) for one in self.sites}
        self._series = {name: {what: Series() for what in ("waiting", "running", "free")} for name in self.by_name}
        self.without = Planner(self, uses_weather=False)
        self.with_weather = Planner(self, uses_weather=bool(settings["weather"]))

    def run(self) -> None:
        """Until both are done."""
        both = (self.without, self.with_weather)
        self._observe()
        for planner in both:
            planner.probe()
            self.clock.after(self.settings["probe_h"] * HOUR, planner.begin)
        self._plan()
        while not all(planner.is_done for planner in both):
            self.clock.step()

    def expect(self, site: str, what: str) -> float:
        """The forecast of a quantity of a site."""
        found = self._series[site][what].forecast()
        return max(0.0, found.value) if found is not None else 0.0

    def scores(self) -> tuple[float, float]:
        """Share of what came that lay in the forecast's interval, and the mean error over that of the last value."""
        known = [series.score() for of in self._series.values() for series in of.values()]
        found = [one for one in known if one is not None]
        count = sum(one.compared for one in found)
        naive = sum(one.compared * one.naive for one in found)
        inside = sum(one.compared * one.inside for one in found) / max(1, count)
        return inside, sum(one.compared * one.error for one in found) / naive if naive else 1.0

    def _observe(self) -> None:
        for name, queue in self.queues.items():
            now, of = self.clock.now, self._series[name]
            of["waiting"].note(now, float(queue.waiting))
            of["running"].note(now, float(queue.running))
            of["free"].note(now, float(self.by_name[name].slots - queue.running))
        for planner in (self.without, self.with_weather):
            planner.note_weather()
        self.clock.after(self.settings["monitor_s"], self._observe)

    def _plan(self) -> None:
        for planner in (self.without, self.with_weather):
            planner.place()
        self.clock.after(self.settings["plan_s"], self._plan)
