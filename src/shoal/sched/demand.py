"""How many pilots, of which shape, where [CMS IV.A] [DIANE 4.7] [GWP 4.3], and Shoal's own policy. Pure: a provisioner and the
simulator ask `plan` again and again, and do what it says.

Whatever the policy, a site's bounds hold: pilots, pilots in its queue, budget, bans, and the pause after pilots that got no
task. When nothing waits that a site could run, its pilots that wait are cancelled and its idle ones released, except those
that it is told to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from shoal.sched.provisioning.bounds import SiteBounds
from shoal.sched.provisioning.own_policy import Supply, ask_for_work
from shoal.sched.provisioning.paper_policies import fill_pool, follow_tasks, pilot_monitor
from shoal.sched.provisioning.view import (
    GUIDED,
    PILOTMONITOR,
    PILOTMONITOR_REPAIRED,
    POLICIES,
    RULE_LIMITS,
    SHOAL,
    Ask,
    DemandRule,
    Need,
    Plan,
    SiteView,
    memory_of,
    misfit,
)

__all__ = ["POLICIES", "RULE_LIMITS", "Ask", "DemandRule", "Need", "Plan", "SiteView", "plan"]


def plan(
    rule: DemandRule, needs: Sequence[Need], sites: Sequence[SiteView], now: float, draw: Callable[[], float]
) -> Plan:
    """What to ask for, to cancel and to release now. `draw` gives numbers from [0, 1)."""
    needs = [need for need in needs if need.tasks > 0]
    bounds = {site.name: SiteBounds(rule, site, now) for site in sites}
    supply: Mapping[str, Supply] = {}
    if rule.policy in (PILOTMONITOR, PILOTMONITOR_REPAIRED):
        pilot_monitor(needs, bounds, rule.policy == PILOTMONITOR_REPAIRED)
    elif rule.policy == GUIDED:
        follow_tasks(rule, needs, bounds, draw)
    elif rule.policy == SHOAL:
        supply = ask_for_work(rule, needs, bounds)
    else:
        fill_pool(rule, needs, bounds, draw)
    cancel: dict[str, int] = {}
    release: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for site in sites:
        bound = bounds[site.name]
        if rule.policy not in (PILOTMONITOR, PILOTMONITOR_REPAIRED):
            _keep_minimum(bound)
        why = _surplus(site, needs, bound, supply.get(site.name), cancel, release)
        reasons[site.name] = bound.reason(why)
    asks = [_with_memory(rule, ask, needs, bound.site) for bound in bounds.values() for ask in bound.asks]
    return Plan(asks, cancel, release, reasons)


def _with_memory(rule: DemandRule, ask: Ask, needs: Sequence[Need], site: SiteView) -> Ask:
    """A pilot that no group of tasks was the reason for gets memory for any of them that it may run."""
    if ask.memory:
        return ask
    return ask._replace(
        memory=max((memory_of(rule, need, site, ask.cores) for need in needs if not misfit(need, site)), default=0)
    )


def _keep_minimum(bound: SiteBounds) -> None:
    """Ask for the pilots that a site always has, and for those that are always idle."""
    site = bound.site
    lacking = site.min_pilots - site.pilots - bound.asked
    if lacking > 0:
        bound.ask(site.pilot_cores, site.max_seconds, lacking, f"{site.min_pilots} pilots are kept there")
    lacking = site.min_idle - site.idle - site.queued - bound.asked
    if lacking > 0:
        bound.ask(site.pilot_cores, site.max_seconds, lacking, f"{site.min_idle} pilots are kept idle there")


def _surplus(
    site: SiteView,
    needs: Sequence[Need],
    bound: SiteBounds,
    supply: Optional[Supply],
    cancel: dict[str, int],
    release: dict[str, int],
) -> str:
    """Note what a site has too much of; why it gets nothing, unless a bound is the reason."""
    words = [misfit(need, site) for need in needs]
    if not needs or all(words):
        spare = max(0, site.pilots - site.min_pilots)  # busy ones count as kept
        ended = min(spare, max(0, site.idle - site.min_idle))
        dropped = min(spare - ended, max(0, site.queued - max(0, site.min_idle - site.idle)))
        if ended:
            release[site.name] = ended
        if dropped:
            cancel[site.name] = dropped
        return words[0] if words else "nothing waits"
    if supply is None or bound.asks:
        return "what runs and waits there covers the tasks"
    if supply.kept > 0 and site.queued_cores > 0:
        each = site.queued_cores / max(1, site.queued)
        lowest = max(site.min_pilots - site.idle - site.busy, site.min_idle - site.idle, 0)
        dropped = min(int(supply.kept / each), max(0, site.queued - lowest))
        if dropped:
            cancel[site.name] = dropped
            return "more pilots wait there than the tasks are worth"
    return "pilots that run or wait, here and elsewhere, cover the tasks"
