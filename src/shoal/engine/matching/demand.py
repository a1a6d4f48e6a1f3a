"""What a person's ready tasks need that pilots might be asked for, and the pilots that there are [CMS C2; GWP G8]."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from shoal.engine.locality.kept import kept_of
from shoal.engine.matching.classes import TaskClass
from shoal.engine.matching.eligibility import static_misfit
from shoal.engine.matching.learned import request_of
from shoal.engine.matching.pilot_attributes import attributes, lookup
from shoal.engine.pilots.site_reports import excludes, report_rows, valid_reports
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.engine.windows.window import reserved
from shoal.sched.expr.scalar import holds, rank_of
from shoal.sched.provisioning.durations import likely_seconds

MOST_NEEDS = 100  # groups of tasks that are told apart
LOOKED_AT = 4  # pilots of a site that are looked at for each group: they are much alike, and this is asked every second
MOST_TASKS = 1_000_000  # tasks of one group that are counted


class NeedRow(NamedTuple):
    """Ready tasks that are alike, as they travel to a provisioner."""

    tasks: int
    cores: int
    memory: int  # that one takes: stated, or learned; 0: not known
    gpus: int
    seconds: float | None  # that one takes: learned, or its time limit
    is_learned: bool
    require: str
    rank: str
    priority: float
    unfit_sites: list[str]  # where every connected pilot cannot run it
    tried_for: float | None  # seconds that the oldest of them runs, 0 if one is about to; None: nobody runs any
    ranks: dict[str, float]  # of sites: the mean rank of pilots there that can run them
    directed: dict[str, float]  # tasks by site, as far as a plan directs them


class PilotRow(NamedTuple):
    """A pilot that serves the person."""

    name: str
    site: str
    allocation: str  # the allocation that it came with; empty: none
    state: str
    cores: int
    free_cores: int
    held: int
    joined: float
    is_proven: bool  # a task succeeded there
    is_kept: bool = False  # it has no task, and alone at its site has files that ready tasks read


class Demand(NamedTuple):
    """All of it at one moment."""

    needs: list[NeedRow]
    pilots: list[PilotRow]
    unfinished: int  # tasks of the person that are not final
    sites: list[dict[str, Any]]  # what their provisioner last reported of each of their sites


def demand_of(state: State, owner: str) -> Demand:
    """The demand of a person."""
    pilots = [pilot for pilot in state.pilots.values() if state.serves(pilot, owner)]
    queue = state.queue.owners.get(owner)
    classes = [queue.classes[where.serial] for where in queue.order[:MOST_NEEDS]] if queue is not None else []
    ages, at_sites, free = _ages(state, pilots), dict[str, list[Pilot]](), dict[str, int]()
    for pilot in pilots:
        at_sites.setdefault(pilot.site, []).append(pilot)
        free[pilot.site] = max(free.get(pilot.site, 0), pilot.free.cores)
    looked_at = {site: found[:LOOKED_AT] for site, found in at_sites.items()}
    windowed = reserved(state, owner) if state.windows else {}
    needs = [
        _need(state, cls, looked_at, free, ages.get(cls.base.serial, ()), windowed.get(cls.serial, 0))
        for cls in classes
    ]
    unfinished = sum(run.total - run.settled for run in state.runs.values() if run.owner == owner)
    sites = report_rows(state, owner)
    return Demand([need for need in needs if need.tasks], [_pilot(state, pilot) for pilot in pilots], unfinished, sites)


def _ages(state: State, pilots: list[Pilot]) -> dict[int, list[float]]:
    """How long tasks have run that run now, by the class where their durations are learned."""
    found: dict[int, list[float]] = {}
    for pilot in pilots:
        for attempt in pilot.live.values():
            if attempt.started is not None:
                cls = state.queue.class_of(state.task_of(attempt.id).array)
                found.setdefault(cls.base.serial, []).append(state.now - attempt.started)
    return found


def _need(
    state: State, cls: TaskClass, pilots: Mapping[str, list[Pilot]], free: Mapping[str, int], ages: Sequence[float],
    windowed: int,
) -> NeedRow:  # fmt: skip
    """`pilots`: some of each site; `free`: the most cores that one pilot of a site has free; `windowed`: tasks in windows."""
    key, learned = cls.key, likely_seconds([sample.duration for sample in cls.base.recent], ages)
    by_site = {site: not excludes(cls, site) for site, _ in valid_reports(state, key.owner)}
    able = {site: [pilot for pilot in found if can_run(state, pilot, cls)] for site, found in pilots.items()}
    by_site.update((site, bool(found)) for site, found in able.items())
    is_free = any(found and free[site] >= cls.needs.cores for site, found in able.items())
    ranks = {site: _mean_rank(state, found, cls) for site, found in able.items() if found and cls.rank is not None}
    return NeedRow(
        cls.ready(MOST_TASKS) + windowed, cls.needs.cores, request_of(cls), cls.needs.gpus,
        learned if learned is not None else key.time, learned is not None, key.require, key.rank, key.priority,
        sorted(site for site, can in by_site.items() if not can), max(ages, default=0.0 if is_free else None),
        {site: rank for site, rank in ranks.items() if math.isfinite(rank)}, _directed(state, cls),
    )  # fmt: skip


def _directed(state: State, cls: TaskClass) -> dict[str, float]:
    found = state.placed.plan.directed.get(cls.serial, {}) if state.placed is not None else {}
    left = (
        {site: count - state.placed.given.get((cls.serial, site), 0) for site, count in found.items()}
        if state.placed
        else {}
    )
    return {site: round(count, 3) for site, count in left.items() if count >= 0.5}


def _mean_rank(state: State, pilots: Sequence[Pilot], cls: TaskClass) -> float:
    """What a site is worth to tasks, by pilots of it [GWP G8]; not finite where their rank says nothing."""
    assert cls.rank is not None
    task = attributes(state, cls.key)
    return fmean(rank_of(cls.rank, lookup(state, pilot, cls.key.owner, cls), task) for pilot in pilots)


def can_run(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """Could the pilot run tasks of a class, were it free? What changes with the moment is not looked at."""
    if static_misfit(pilot, cls) is not None:
        return False
    if cls.require is None or cls.is_volatile:
        return True
    return holds(cls.require, lookup(state, pilot, cls.key.owner), attributes(state, cls.key))


def _pilot(state: State, pilot: Pilot) -> PilotRow:
    return PilotRow(
        pilot.name, pilot.site, str(pilot.tags.get("allocation", "")), "draining" if pilot.draining else str(pilot.state),
        pilot.room.cores, pilot.free.cores, pilot.held, pilot.joined, pilot.proven,
        kept_of(state, pilot) is not None,
    )  # fmt: skip
