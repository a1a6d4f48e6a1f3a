"""Shoal's own policy: all the cores that let the work end sooner, in pilots that fit it, and none that come too late.

For each group of tasks the sites are walked from the shortest wait on. At each, the tasks are counted that will still be left
when a pilot asked for now has done its first ones: cores that run, or come from sites with shorter waits, do whole tasks until
then. Each task that is left is worth a core. Pilots that wait already cover a part, and the rest is asked for, as far as the
site's bounds allow. Pilots of a site that never started one are not counted on, so the others are asked, too. Pilots that
wait are cancelled if the tasks would end without them, though there were some more of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shoal.sched.provisioning.bounds import SiteBounds
from shoal.sched.provisioning.view import DemandRule, Need, SiteView, core_share, memory_of, misfit

POOR = 0.2  # fitness below which one pilot waits at a site at once
MINUTE = 60.0
ROUNDING = 1e-9


class Supply:
    """Cores of a site that no group of tasks counts on yet."""

    def __init__(self, site: SiteView) -> None:
        self.free = max(0, min(site.free_cores, site.cores))
        self.busy = max(0, site.cores - self.free)
        self.queued = max(0, site.queued_cores)
        self.kept = max(0, site.queued_cores)  # as `queued`, with more than what is wanted counted as of use

    def take_running(self, cores: int, ending: int) -> tuple[int, int]:
        """Count on so many cores of pilots that run, as far as they are there: free ones, and busy ones. `ending`: cores of
        pilots that end before they could do another task."""
        cores = min(cores, max(0, self.free + self.busy - ending))
        free = min(self.free, cores)
        busy = min(self.busy, cores - free)
        self.free -= free
        self.busy -= busy
        return free, busy

    def take_queued(self, cores: int, keep: int) -> int:
        """Count on so many cores of pilots that wait, as far as they are there; `keep` of them are of some use."""
        self.kept -= min(self.kept, keep)
        queued = min(self.queued, cores)
        self.queued -= queued
        return queued


class _Coming(NamedTuple):
    """Cores that work from some time on."""

    cores: float
    after: float


def ask_for_work(rule: DemandRule, needs: Sequence[Need], bounds: Mapping[str, SiteBounds]) -> Mapping[str, Supply]:
    """Ask for what the needs lack; what remains of each site's supply is of no use to any of them."""
    supply = {name: Supply(bound.site) for name, bound in bounds.items()}
    fitting = [
        (need, [bound.site for bound in bounds.values() if not bound.site.is_banned and not misfit(need, bound.site)])
        for need in needs
    ]
    # Those with few sites first: the others may go elsewhere.
    for need, sites in sorted(fitting, key=lambda one: (len(one[1]), -one[0].priority)):
        if sites:
            _ask_for_need(rule, need, sites, bounds, supply)
    return supply


def _ask_for_need(
    rule: DemandRule,
    need: Need,
    sites: Sequence[SiteView],
    bounds: Mapping[str, SiteBounds],
    supply: Mapping[str, Supply],
) -> None:
    waits = {site.name: expected_wait(rule, site) for site in sites}
    order = sorted(sites, key=lambda site: (_octave(waits[site.name]), -site.rank, waits[site.name], site.name))
    seconds = rule.usual_seconds if need.seconds is None else max(1.0, need.seconds)
    turns = max(1, int(max(rule.turnovers, rule.worth * min(waits.values()) / seconds)))  # tasks of one core
    running: list[_Coming] = []
    for site in order:
        # What a busy core does now is half done on average.
        ending = sum(cores for cores, left in site.lives if left < 1.5 * seconds) if need.seconds is not None else 0
        free, busy = supply[site.name].take_running(need.tasks * core_share(need, site), ending)
        running += [_Coming(free, 0.0), _Coming(busy, seconds / 2.0)]
    tasks = need.tasks if need.seconds is not None else _scouts(rule, need, running)
    queued = {site.name: _Coming(supply[site.name].queued * _trust(rule, site), waits[site.name]) for site in order}
    for site in order:
        share = core_share(need, site)
        others = [*running, *(one for name, one in queued.items() if name != site.name)]
        useful = _cores_for(tasks, share, waits[site.name], turns, seconds, others)
        # Which of them start first is not known; of a single one, no second is asked for.
        wanted = max(useful, int(useful * (1.0 + rule.over) / share + ROUNDING) * share)
        # A pilot that waits may start now: it is given up only if the tasks would end without it even then.
        kept = max(wanted, _cores_for(rule.keep * tasks, share, 0.0, turns, seconds, running))
        there = supply[site.name].take_queued(wanted, kept)
        if wanted > there:
            # By what can come, not by what is wanted: a pilot that ends early costs another wait in the queue.
            room = there + min(wanted - there, bounds[site.name].open * site.pilot_cores)
            each = tasks * share / max(1.0, sum(one.cores for one in others) + room)
            there += _ask_cores(rule, need, site, bounds[site.name], wanted - there, each)
        queued[site.name] = _Coming(there * _trust(rule, site), waits[site.name])


def _trust(rule: DemandRule, site: SiteView) -> float:
    """The part of a site's waiting cores that is counted on: none where no pilot ever started."""
    return 0.0 if site.wait is None else site.fitness / (1.0 + rule.over)


def _cores_for(tasks: float, share: int, wait: float, turns: int, seconds: float, coming: Sequence[_Coming]) -> int:
    """Cores for the tasks that are left when those that start after a wait have done their turns. The others do whole tasks
    until then."""
    end = wait + turns * seconds
    done = sum(one.cores * max(0, int((end - one.after) / seconds + ROUNDING)) for one in coming) / share
    return math.ceil(max(0.0, tasks - done) / turns - ROUNDING) * share


def _scouts(rule: DemandRule, need: Need, coming: Sequence[_Coming]) -> int:
    """Of tasks whose duration is not known: how many are counted. While the first run, a few, and as many again as run: short
    ones tell in a moment which pilots fit the others. All of them, if nobody runs any, or if the first take their time."""
    if need.tried_for is None or need.tried_for >= rule.scout_patience:
        return need.tasks
    running = sum(one.cores for one in coming) / max(1, need.cores)
    return min(need.tasks, max(rule.scouts, math.ceil(rule.scout_share * need.tasks), int(running)))


def _ask_cores(rule: DemandRule, need: Need, site: SiteView, bound: SiteBounds, cores: int, tasks_each: float) -> int:
    """Ask for cores for so many tasks each, one after another; how many were granted."""
    if need.seconds is None:
        why = f"{need.tasks} tasks wait whose duration is not known yet"
        return _split(rule, need, bound, cores, rule.scout_seconds, why, site.min_seconds)
    seconds = max(1.0, need.seconds)
    one = seconds * rule.margin + rule.start_seconds
    rounds = max(1.0, math.ceil(tasks_each - ROUNDING))
    if rounds > 1.0:  # not at the end of a run: pilots that end while much waits cost another wait each
        rounds = max(rounds, rule.rounds, rule.waits * expected_wait(rule, site) / seconds)
    # One task in twenty takes longer than its 0.95 quantile, and it would be killed again and again in a pilot made for that.
    work = max(rounds * rule.margin, rule.tail) * seconds + rule.start_seconds
    # The first tasks that end are the short ones, so what is learned at first is too little: `shortest` covers the others.
    wall = max(rule.shortest, math.ceil(work / MINUTE) * MINUTE)
    why = f"{need.tasks} tasks of about {seconds:.0f} s wait, and {cores} more cores let them end sooner"
    return _split(rule, need, bound, cores, wall, why, min(one, site.max_seconds))


def _split(rule: DemandRule, need: Need, bound: SiteBounds, cores: int, wall: float, why: str, least: float) -> int:
    """Ask for these cores in pilots as large as the site gives, and one for the rest."""
    site = bound.site
    share, is_learned = core_share(need, site), need.seconds is not None
    if site.fitness < POOR and (site.queued or bound.asked):
        bound.held_back = bound.held_back or "hardly any of its pilots did well, so one waits at a time"
        return 0
    full = site.pilot_cores // share * share
    count, rest = divmod(cores, full)
    if site.fitness < POOR:
        count, rest = (1, 0) if count else (0, rest)
    granted = (
        full * bound.ask(full, wall, count, why, least, memory_of(rule, need, site, full), is_learned) if count else 0
    )
    if rest and granted == full * count:
        rest = -(-rest // share) * share
        granted += rest * bound.ask(rest, wall, 1, why, least, memory_of(rule, need, site, rest), is_learned)
    return granted


def expected_wait(rule: DemandRule, site: SiteView) -> float:
    """Seconds until a pilot that is asked for now has its first task; longer where pilots fail, since they are repeated."""
    wait = rule.usual_wait if site.wait is None else max(0.0, site.wait)
    return (wait + rule.start_seconds) / max(0.05, min(1.0, site.fitness))


def _octave(wait: float) -> int:
    """Waits that differ by less than about two are alike: the rank decides among them."""
    return int(math.log2(max(1.0, wait / MINUTE)))
