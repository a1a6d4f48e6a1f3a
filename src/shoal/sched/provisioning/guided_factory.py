"""Pilots from what tasks ask for: the factory of [GWP 3.4, 4.3, table 3]. Nothing is submitted here.

How many: as many as there are tasks that are not final, and some more if told so, up to bounds. Where: a part of them is
guided by the tasks' own words, that is, by the requirement that any of them has and by the sum of their ranks; the rest
explores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from shoal.model.lazy_dataclass import dataclass
from shoal.sched.expr.parse import parse
from shoal.sched.expr.tree import Chain, Constant, Either, Vertex, show


@dataclass(frozen=True)
class GuidedRule:
    """The options of the factory [GWP table 3, table 4]."""

    most: int  # pilots that run or wait, at most
    over: int = 0  # pilots beyond the tasks that there are
    guided: float = 0.0  # the part of submissions that follows requirements and ranks, from 0 to 1
    per_site: int = 0  # pilots that run or wait at one site, at most; 0: no bound
    per_round: int = 0  # submissions in one round, at most; 0: no bound
    suspension: float = 1_800.0  # seconds that a pilot may wait in a queue before it is given up


class TaskKind(NamedTuple):
    """Tasks that are alike."""

    require: str  # "": any pilot
    rank: str  # "": no preference
    priority: float
    tasks: int


class Site(NamedTuple):
    """A place to submit to, as the caller sees it now."""

    name: str
    pilots: int  # that run or wait there
    meets: bool = True  # it meets the guided requirement, as far as is known
    rank: float = 0.0  # the guided rank there
    is_banned: bool = False


class Waiting(NamedTuple):
    """A pilot in a queue."""

    name: str
    since: float


class Order(NamedTuple):
    """Submit one pilot to a site."""

    site: str
    is_guided: bool


def require_any(kinds: Iterable[TaskKind]) -> str:
    """The requirement of a guided pilot: that of any of the tasks. Empty if one of them takes any pilot, or there is none."""
    texts = sorted({kind.require.strip() for kind in kinds if kind.tasks > 0})
    if not texts or "" in texts:
        return ""
    parts: list[Vertex] = []
    for text in texts:
        root = parse(text).root
        parts.extend(root.parts if isinstance(root, Either) else (root,))
    return show(Either(tuple(parts)) if len(parts) > 1 else parts[0])


def rank_all(kinds: Sequence[TaskKind]) -> str:
    """The rank of a guided pilot: the sum of priority x rank x number of tasks / all tasks. Empty if no task has one."""
    total = sum(kind.tasks for kind in kinds)
    weights: dict[str, float] = {}
    for kind in kinds:
        text = kind.rank.strip()
        if text and kind.tasks > 0:
            weights[text] = weights.get(text, 0.0) + kind.priority * kind.tasks / total
    terms: list[Vertex] = [
        Chain(Constant(weight), (("*", parse(text, "rank").root),))
        for text, weight in sorted(weights.items())
        if weight
    ]
    if not terms:
        return ""
    return show(Chain(terms[0], tuple(("+", term) for term in terms[1:])) if len(terms) > 1 else terms[0])


def rank_sites(kinds: Iterable[tuple[TaskKind, Mapping[str, float]]]) -> dict[str, float]:
    """What each site is worth to all tasks together, from what it is worth to each kind: the sum of priority x rank x number of
    tasks / all tasks [GWP 4.3]. Priorities here begin anywhere, and are 0 for most, so they are counted from the lowest on."""
    found = list(kinds)
    total = sum(kind.tasks for kind, _ in found)
    lowest = min((kind.priority for kind, _ in found), default=0.0)
    worth: dict[str, float] = {}
    for kind, ranks in found:
        for site, rank in ranks.items():
            worth[site] = worth.get(site, 0.0) + (1.0 + kind.priority - lowest) * rank * kind.tasks / max(1, total)
    return worth


def wanted(rule: GuidedRule, tasks: int, pilots: int) -> int:
    """How many pilots to submit now, for tasks that are not final and pilots that run or wait."""
    lacking = max(0, min(rule.most, tasks + rule.over if tasks else 0) - pilots)
    return min(lacking, rule.per_round) if rule.per_round else lacking


def overdue(rule: GuidedRule, waiting: Iterable[Waiting], now: float) -> list[str]:
    """Pilots that wait in queues for too long: to be cancelled, and replaced."""
    return [one.name for one in waiting if now - one.since >= rule.suspension]


def place(rule: GuidedRule, count: int, sites: Sequence[Site], sent: int = 0, guided: float = 0) -> list[Order]:
    """Where so many pilots go, as far as sites have room. `sent` and `guided`: submissions before, and those of them that
    were guided, so that the part holds over rounds; who does not count passes a number from [0, 1) as the latter, anew each
    time, so that it holds on average. Guided pilots go to the best site that meets the requirement, the others
    to the one with the fewest pilots."""
    load = {site.name: site.pilots for site in sites if not site.is_banned}
    ranks = {site.name: site.rank for site in sites if site.meets and site.name in load}
    orders: list[Order] = []
    while len(orders) < count:
        sent += 1
        is_guided = guided < rule.guided * sent
        name = _best(rule, ranks, load) if is_guided else None
        if name is None:
            is_guided, name = False, _emptiest(rule, load)
        if name is None:
            break
        load[name] += 1
        guided += is_guided
        orders.append(Order(name, is_guided))
    return orders


def _best(rule: GuidedRule, ranks: Mapping[str, float], load: Mapping[str, int]) -> Optional[str]:
    open_sites = [name for name in ranks if not rule.per_site or load[name] < rule.per_site]
    return max(open_sites, key=lambda name: (ranks[name], -load[name]), default=None)


def _emptiest(rule: GuidedRule, load: Mapping[str, int]) -> Optional[str]:
    open_sites = [name for name in load if not rule.per_site or load[name] < rule.per_site]
    return min(open_sites, key=lambda name: load[name], default=None)
