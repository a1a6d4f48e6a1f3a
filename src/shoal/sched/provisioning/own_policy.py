"""Shoal's own policy: as many cores as the work is worth, in pilots that fit it, from the site that gives them soonest.

For each group of tasks, the wanted cores are its work (tasks x cores x seconds) over a horizon: a few tasks one after another
on each core, or the shortest queue wait if that is longer. Sites are walked from the shortest wait on. At each, the work
that is left when its pilots would start is what earlier ones do not do until then; pilots that run or wait count first, and
what is still lacking is asked for. Of tasks whose duration is not known, a few scouts run first, and twice as many as run
already after that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shoal.sched.provisioning.bounds import SiteBounds
from shoal.sched.provisioning.view import DemandRule, Need, SiteView, core_share, memory_of, misfit

POOR = 0.2  # fitness below which one pilot waits at a site at once
MINUTE = 60.0


class Supply:
    """Cores of a site that no group of tasks counts on yet."""

    def __init__(self, site: SiteView) -> None:
        self.running = max(0, site.cores)
        self.queued = max(0, site.queued_cores)
        self.kept = max(0, site.queued_cores)  # as `queued`, with more than what is wanted counted as of use

    def take(self, cores: float, keep: float) -> tuple[int, int]:
        """Count on so many cores, as far as they are there: those that run, and those that wait."""
        self.kept -= min(self.kept, max(0, math.ceil(keep) - self.running))
        running = min(self.running, math.ceil(cores))
        queued = min(self.queued, max(0, math.ceil(cores) - running))
        self.running -= running
        self.queued -= queued
        return running, queued


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
    if need.seconds is None:
        _scout(rule, need, order, bounds, supply)
        return
    seconds = max(1.0, need.seconds)
    horizon = max(rule.turnovers * seconds, min(waits.values()))
    coming: list[_Coming] = []
    for site in order:
        share, wait = core_share(need, site), waits[site.name]
        work = need.tasks * share * seconds
        left = work - sum(one.cores * max(0.0, wait - one.after) for one in coming)
        useful = min(left / horizon, float(need.tasks * share)) - sum(one.cores for one in coming)
        if useful <= 0.0:
            continue
        useful = math.ceil(useful / share - 1e-9) * share  # whole tasks
        running, queued = supply[site.name].take(useful, useful * rule.keep)
        lacking = useful - running - queued
        asked = 0
        if lacking > 0:
            # By what can come, not by what is wanted: a pilot that ends early costs another wait in the queue.
            there = sum(one.cores for one in coming) + running + queued
            room = bounds[site.name].open * site.pilot_cores
            asked = _ask_cores(
                rule, need, site, bounds[site.name], lacking, left / max(1.0, there + min(lacking, room))
            )
        if running:
            coming.append(_Coming(running, 0.0))
        if queued or asked:
            coming.append(_Coming((queued + asked) * site.fitness / (1.0 + rule.over), wait))


def _scout(
    rule: DemandRule,
    need: Need,
    order: Sequence[SiteView],
    bounds: Mapping[str, SiteBounds],
    supply: Mapping[str, Supply],
) -> None:
    """Tasks of unknown duration: a few cores, spread over the first sites, and twice what runs once they run."""
    running = sum(supply[site.name].running for site in order)
    first = max(rule.scouts, math.ceil(rule.scout_share * need.tasks)) * max(1, need.cores)
    target = min(need.tasks * max(1, need.cores), max(first, 2 * running))
    for site in order:
        target -= sum(supply[site.name].take(target, target * rule.keep))
    each = max(1, math.ceil(target / max(1, need.cores) / len(order)))  # tasks of one site
    for attempt in (each, need.tasks):  # what one site cannot take goes to the others
        for site in order:
            if target > 0:
                share = core_share(need, site)
                cores = min(attempt * share, math.ceil(target / share) * share)
                why = f"{need.tasks} tasks wait whose duration is not known yet, so a few pilots try them first"
                target -= _split(rule, need, bounds[site.name], cores, rule.scout_seconds, why, site.min_seconds)


def _ask_cores(
    rule: DemandRule, need: Need, site: SiteView, bound: SiteBounds, cores: float, seconds_left: float
) -> int:
    """Ask for cores for `seconds_left` of work each; how many were granted."""
    assert need.seconds is not None
    seconds = max(1.0, need.seconds)
    one = seconds * rule.margin + rule.start_seconds
    rounds = max(1.0, math.ceil(seconds_left / seconds - 1e-9))
    if rounds > 1.0:  # not at the end of a run: pilots that end while much waits cost another wait each
        rounds = max(rounds, rule.rounds, rule.waits * expected_wait(rule, site) / seconds)
    # One task in twenty takes longer than its 0.95 quantile, and it would be killed again and again in a pilot made for that.
    work = max(rounds * rule.margin, rule.tail) * seconds
    wall = math.ceil((work + rule.start_seconds) / MINUTE) * MINUTE
    why = f"{need.tasks} tasks of about {seconds:.0f} s wait, and {cores:.0f} more cores are worth their start"
    return _split(rule, need, bound, math.ceil(cores), wall, why, min(one, site.max_seconds))


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
