"""What a plan is asked: the ready tasks of all owners by class, the sites that could run them, and what the policy allows
[SPHINX S5; ADR 0057]. It is read off the state in one go, so everything here is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from shoal.engine.matching.classes import TaskClass
from shoal.engine.matching.demand import can_run
from shoal.engine.pilots.site_reports import excludes, valid_reports
from shoal.engine.placement.weather import weather_of
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.limits import MAX_COMPARED_CACHES, MAX_PLANNED_CLASSES, MAX_PLANNED_SITES
from shoal.sched.hold import BANDWIDTH, LATENCY
from shoal.sched.placement.question import Kind, Limit, Place, Question

LOOKED_AT = 4  # pilots of a site that are looked at for each class: they are much alike
MOST_TASKS = 1_000_000  # tasks of one class that are counted
RUNNING_READ = 64  # tasks of a pilot whose rest is estimated
REST = 0.25  # of the mean: what a task that runs for longer than that is expected to take still
USUAL_DELAY = 300.0  # seconds until a pilot starts at a site that has no history
HOUR = 3600.0


class _Pool(NamedTuple):
    """Pilots of a site."""

    pilots: list[Pilot]
    cores: int
    rest: float  # core seconds that what runs there is expected to take


def question_of(state: State) -> Question | None:
    """What to plan; None: there are not two sites, or nothing waits whose duration is known."""
    if not state.queue.has_work():
        return None
    pools = _pools(state)
    places = _places(state, pools)
    if len(places) < 2:
        return None
    classes: list[TaskClass] = []
    owners = [owned for owned in state.queue.owners.values() if owned.order]
    each = max(1, MAX_PLANNED_CLASSES // max(1, len(owners)))
    for owned in owners:
        found = (owned.classes[where.serial] for where in islice(owned.order, each))
        classes += [cls for cls in found if _seconds(cls) is not None]
    classes = classes[:MAX_PLANNED_CLASSES]
    kinds = [kind for cls in classes if (kind := _kind(state, cls, pools, places)).tasks and kind.sites]
    if not kinds:
        return None
    return Question(kinds, list(places.values()), _limits(state, classes, kinds, list(places)))


def _seconds(cls: TaskClass) -> float | None:
    return cls.base.mean if cls.base.mean is not None else cls.key.time


def _pools(state: State) -> dict[str, _Pool]:
    found: dict[str, _Pool] = {}
    for pilot in state.pilots.values():
        if pilot.draining or pilot.unfit or pilot.suspect or state.ban_of(pilot) is not None:
            continue
        pool = found.get(pilot.site)
        if pool is None:
            if len(found) >= MAX_PLANNED_SITES:
                continue
            pool = _Pool([], 0, 0.0)
        pool.pilots.append(pilot)
        found[pilot.site] = pool._replace(cores=pool.cores + pilot.room.cores, rest=pool.rest + _rest(state, pilot))
    return found


def _rest(state: State, pilot: Pilot) -> float:
    """Core seconds that the tasks of a pilot still take; short ones, which are sent many at a time, do not count."""
    total = 0.0
    for attempt in islice(pilot.live.values(), RUNNING_READ):
        mean = state.queue.class_of(state.task_of(attempt.id).array).base.mean
        if mean is not None and not attempt.lends:
            ran = state.now - (attempt.started or attempt.leased)
            total += attempt.needs.cores * max(mean - ran, REST * mean)
    return total


def _places(state: State, pools: Mapping[str, _Pool]) -> dict[str, Place]:
    """Sites with pilots, and those whose provisioner may ask for some."""
    rule, more = state.accounting.policy.placement, dict[str, tuple[str, int, float | None]]()
    for owner in {owner for owner, _ in state.site_reports}:
        for site, report in valid_reports(state, owner):
            status = report.status
            cores = status.pilot_cores * status.open_pilots
            if not status.trouble and (site in pools or len({*pools, *more}) < MAX_PLANNED_SITES):
                known = more.get(site, (owner, 0, None))
                more[site] = (owner, known[1] + cores, status.wait)
    found: dict[str, Place] = {}
    for site in sorted({*pools, *more}):
        pool, (owner, open_cores, wait) = pools.get(site, _Pool([], 0, 0.0)), more.get(site, ("", 0, None))
        if not pool.cores and not open_cores:
            continue
        holder = pool.pilots[0].holder if pool.pilots else owner
        seen = state.weathers.get((holder, site)) or weather_of(state, owner).get(site)
        speed, bandwidth, latency, failure, delay = 1.0, BANDWIDTH, LATENCY, 0.0, USUAL_DELAY if wait is None else wait
        if seen is not None:
            speed = min(10.0, max(0.1, seen.expect("speed", speed)))
            bandwidth = max(1.0, seen.expect("bandwidth", bandwidth))
            latency = max(LATENCY, seen.expect("round_trip", latency))
            failure = min(0.95, seen.expect("failure", failure))
            delay = seen.expect("start_delay", delay)
        start = pool.rest / pool.cores if pool.cores else 0.0
        price = rule.price_of(site) / HOUR
        found[site] = Place(
            site, float(pool.cores), start, float(open_cores), delay, speed, bandwidth, latency, failure, price
        )
    return found


def _kind(state: State, cls: TaskClass, pools: Mapping[str, _Pool], places: Mapping[str, Place]) -> Kind:
    sites = set()
    reported = {site for site, _ in valid_reports(state, cls.key.owner)}
    for site in places:
        mine = [pilot for pilot in pools[site].pilots if state.serves(pilot, cls.key.owner)] if site in pools else []
        if any(can_run(state, pilot, cls) for pilot in mine[:LOOKED_AT]) or (
            not mine and site in reported and not excludes(cls, site)
        ):
            sites.add(site)
    seconds = _seconds(cls)
    assert seconds is not None
    return Kind(
        cls.serial, cls.ready(MOST_TASKS), cls.needs.cores, max(0.001, seconds), _missing(cls, places), frozenset(sites)
    )


def _missing(cls: TaskClass, places: Mapping[str, Place]) -> dict[str, float]:
    """Bytes that the first task of a class would have to fetch to each site; empty if it reads nothing that travels."""
    head = cls.head()
    if head is None or head.array.inputs is None:
        return {}
    files = head.array.inputs.of(head.element or head.array.first_plain())
    total = float(sum(file.bytes for file in files))
    found = dict.fromkeys(places, total)
    for file in files:
        for site in {cache.key[3] for cache in islice(file.caches, MAX_COMPARED_CACHES)}:
            if site in found:
                found[site] -= file.bytes
    return found


def _limits(state: State, classes: list[TaskClass], kinds: list[Kind], places: list[str]) -> list[Limit]:
    """Quotas of the policy, as far as they cover what is planned [SPHINX S4]."""
    if not state.accounting.policy.quotas:
        return []
    owner_of = {cls.serial: cls.key.owner for cls in classes}
    bounds = state.accounting.ledger.bounds({owner_of[kind.name] for kind in kinds}, places, state.now)
    return [
        Limit(
            tuple(at for at, kind in enumerate(kinds) if owner_of[kind.name] in bound.owners),
            tuple(at for at, name in enumerate(places) if name in bound.sites),
            bound.cores, bound.core_seconds,
        )
        for bound in bounds
    ]  # fmt: skip
