"""The papers' policies: the PilotMonitor of [CMS IV.A], the agent factories of [DIANE 4.7, 4.8], the guided one of [GWP 4.3].

A pilot of the papers runs one task at a time. Here it runs as many as its cores suffice for, and a group of tasks counts as
the pilots that it fills; with pilots of one core that is the papers' own rule. Shapes are the largest that a site gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shoal.model.quantities import many
from shoal.sched.factory import FactoryRule, choose_element, missing
from shoal.sched.provisioning.bounds import SiteBounds
from shoal.sched.provisioning.guided_factory import GuidedRule, Site, TaskKind, place, require_any, wanted
from shoal.sched.provisioning.view import HEURISTIC, HYBRID, DemandRule, Need, SiteView, core_share, misfit

Draw = Callable[[], float]


def pilot_monitor(needs: Sequence[Need], bounds: Mapping[str, SiteBounds], repaired: bool) -> None:
    """[CMS IV.A], for one site after another. As printed, a group that is not smaller than the free slots gets no pilot
    (steps 9 and 10); repaired, it gets as many as there are slots, and pilots that wait cover a part of a group."""
    waiting = [need.tasks for need in needs]  # tasks that are not marked as covered
    for bound in bounds.values():
        _monitor_site(needs, waiting, bound, repaired)


def _monitor_site(needs: Sequence[Need], waiting: list[int], bound: SiteBounds, repaired: bool) -> None:
    site = bound.site
    slots = site.max_pilots - site.pilots  # step 2
    if slots <= 0:  # steps 3 and 4
        return
    inactive, sent = site.queued, 0
    for at, need in enumerate(needs):  # steps 5 and 6
        if not waiting[at] or misfit(need, site):
            continue
        each = max(1, site.pilot_cores // core_share(need, site))  # tasks of a pilot
        pilots = -(-waiting[at] // each)
        if repaired:
            covered = min(inactive, pilots)
            more = min(slots, pilots - covered)
            inactive, slots, sent = inactive - covered, slots - more, sent + more
            waiting[at] = max(0, waiting[at] - (covered + more) * each)
        elif pilots < inactive:  # steps 7 and 8
            inactive, waiting[at] = inactive - pilots, 0
        elif slots > pilots:  # steps 9 and 10
            slots, sent, waiting[at] = slots - pilots, sent + pilots, 0
    _send(bound, sent, f"{sent} pilots cover the groups of tasks that wait")
    lacking = site.min_idle - site.idle  # steps 11 and 12
    if lacking > 0:
        _send(bound, lacking, f"{site.min_idle} pilots are kept idle")
    lacking = site.min_pilots - site.pilots - bound.asked  # steps 13 and 14
    if lacking > 0:
        _send(bound, lacking, f"{site.min_pilots} pilots are kept")


def fill_pool(rule: DemandRule, needs: Sequence[Need], bounds: Mapping[str, SiteBounds], draw: Draw) -> None:
    """The agent factories [DIANE 4.7.2, 4.7.3, 4.8.2]: fill the pool; the site by chance, by fitness, or by fitness scaled
    with the rank. The generic slot, and the simple factory, leave the choice to chance, as to a broker."""
    sites = {name: bound.site for name, bound in bounds.items() if any(not misfit(need, bound.site) for need in needs)}
    pool = rule.pool or sum(site.max_pilots for site in sites.values())
    pending = sum(site.queued for site in sites.values())
    running = sum(site.idle + site.busy for site in sites.values())
    lacking = missing(FactoryRule(pool, rule.max_pending or pool), running, pending)
    fit = _fitness(rule, sites)
    while lacking > 0:
        open_sites = sorted(name for name in sites if bounds[name].open)
        if not open_sites:
            break
        chosen = choose_element({name: fit[name] for name in open_sites if name in fit}, draw())
        name = open_sites[min(len(open_sites) - 1, int(draw() * len(open_sites)))] if chosen is None else chosen
        sent = _send(bounds[name], 1, f"the pool of {pool} pilots is filled")
        lacking -= sent
        if not sent:
            break  # of its budget nothing is left, though it has room: the draw is not repeated for ever


def _fitness(rule: DemandRule, sites: Mapping[str, SiteView]) -> dict[str, float]:
    if rule.policy not in (HEURISTIC, HYBRID):
        return {}
    best = max((site.rank for site in sites.values()), default=0.0) if rule.policy == HYBRID else 0.0
    return {name: site.fitness * (max(0.0, site.rank) / best if best > 0.0 else 1.0) for name, site in sites.items()}


def follow_tasks(rule: DemandRule, needs: Sequence[Need], bounds: Mapping[str, SiteBounds], draw: Draw) -> None:
    """The guided factory [GWP 3.4, 4.3]: as many pilots as tasks, a part of them where requirements and ranks point. Tasks
    that run and the pilots that run them are left out on both sides."""
    kinds = [TaskKind(need.require, need.rank, need.priority, need.tasks) for need in needs]
    require = require_any(kinds)
    sites = [bound.site for bound in bounds.values()]
    # A task counts as the part of a pilot that it fills, by the largest pilots there are.
    largest = max((site.pilot_cores for site in sites), default=1)
    tasks = sum(-(-need.tasks // max(1, largest // max(1, need.cores))) for need in needs)
    options = GuidedRule(1 << 30, rule.extra, rule.guided, rule.per_site, rule.per_round)
    count = wanted(options, tasks, sum(site.queued + site.idle for site in sites))
    places = [
        Site(site.name, site.pilots, site.meets.get(require, any(not misfit(need, site) for need in needs)), site.rank)
        for site in sites
        # A departure: the unguided part, too, goes only where a task could run. Tasks may name their sites.
        if bounds[site.name].open and not all(site.name in need.unfit_sites for need in needs)
    ]
    while count > 0 and places:
        full = set()
        for order in place(options, count, places, guided=draw()):
            sent = 0
            if order.site not in full and count > 0:
                sent = _send(bounds[order.site], 1, f"{many(tasks, 'pilot')} for the tasks that wait")
            count -= sent
            if not sent:
                full.add(order.site)
        if not full:
            break
        # A site that is full by its own bounds leaves the list, and the others get what it could not take.
        places = [one for one in places if one.name not in full]


def _send(bound: SiteBounds, count: int, why: str) -> int:
    return bound.ask(bound.site.pilot_cores, bound.site.max_seconds, count, why) if count > 0 else 0
