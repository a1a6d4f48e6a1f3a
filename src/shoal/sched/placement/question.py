"""Placement: to which sites tasks of which kinds are directed, as a question and an answer [SPHINX S5; ADR 0057].

Plain data and the comparison `round_robin`; the linear program is in `sched/vector/placement.py`, since it takes numpy. A
plan is a preference: a site that could start a task sooner than the one it is directed to gets it all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

OBJECTIVES = ("completion-time", "cost", "balance")
ROUND_ROBIN_HOW = "round-robin"
NOWHERE = math.inf  # work of a task at a site where it cannot run


class Kind(NamedTuple):
    """Ready tasks that are alike."""

    name: int  # the serial of their class
    tasks: int
    cores: int  # of one task
    seconds: float  # of one task, on a core of speed 1
    input_bytes: Mapping[str, float]  # by site: what one task would have to fetch there
    sites: frozenset[str]  # where it may run


class Place(NamedTuple):
    """A site with what a plan counts on there."""

    name: str
    cores: float  # of pilots that take tasks
    start: float = 0.0  # seconds until those are free, by what they run now
    more: float = 0.0  # cores that can be asked for
    delay: float = 0.0  # seconds until cores that are asked for now have their first task
    speed: float = 1.0  # of its cores
    bandwidth: float = math.inf  # bytes per second
    latency: float = 0.0  # seconds that a task waits for its inputs beside their bytes
    failure: float = 0.0  # share of the attempts that have to be repeated
    price: float = 1.0  # of a core second


class Limit(NamedTuple):
    """A quota of the policy: it covers some kinds at some sites."""

    kinds: tuple[int, ...]  # positions
    sites: tuple[int, ...]
    cores: Optional[float] = None  # at once
    core_seconds: Optional[float] = None  # that are left


class Question(NamedTuple):
    """Everything that a plan looks at."""

    kinds: Sequence[Kind]
    places: Sequence[Place]
    limits: Sequence[Limit] = ()


class Plan(NamedTuple):
    """The answer. What a kind has more than what is directed waits for quotas."""

    directed: Mapping[int, Mapping[str, float]]  # tasks, by kind and site
    wanted: Mapping[str, float]  # cores that are asked for at a site, beside those that it has
    end: float  # seconds until the last task that is directed has ended, by what is expected
    how: str


def work_of(kind: Kind, place: Place) -> float:
    """Core seconds that one task takes up at a site, with the transfer of its inputs and what has to be repeated."""
    if place.name not in kind.sites:
        return NOWHERE
    fetched = kind.input_bytes.get(place.name, 0.0)
    transfer = fetched / place.bandwidth + place.latency if fetched else 0.0
    return max(1, kind.cores) * (kind.seconds / place.speed + transfer) / max(0.05, 1.0 - place.failure)


def round_robin(question: Question, turn: int = 0) -> Plan:
    """Every site in turn gets a task, whatever is known of it: the comparison of the paper [SPHINX results]. `turn`: at which
    site it begins."""
    directed: dict[int, dict[str, float]] = {}
    loads = {place.name: 0.0 for place in question.places}
    wanted = dict.fromkeys(loads, 0.0)
    for kind in question.kinds:
        sites = [one.name for one in question.places if one.name in kind.sites and one.cores + one.more > 0]
        if not sites:
            continue
        each, rest = divmod(kind.tasks, len(sites))
        shares = {name: float(each) for name in sites}
        for at in range(rest):
            shares[sites[(turn + at) % len(sites)]] += 1.0
        turn += rest
        directed[kind.name] = {name: count for name, count in shares.items() if count}
        for place in question.places:
            if place.name in shares:
                loads[place.name] += shares[place.name] * work_of(kind, place)
                wanted[place.name] += shares[place.name] * kind.cores
    end = 0.0
    for place in question.places:
        wanted[place.name] = min(place.more, max(0.0, wanted[place.name] - place.cores))
        if loads[place.name]:
            end = max(end, _time_for(place, loads[place.name], wanted[place.name]))
    return Plan(directed, {name: cores for name, cores in wanted.items() if cores}, end, ROUND_ROBIN_HOW)


def _time_for(place: Place, load: float, more: float) -> float:
    """Seconds until a site has done so much work with what it has and so many cores that are asked for."""
    parts = sorted(
        [(place.start, place.cores)] * (place.cores > 0) + [(place.delay, more)] * (more > 0),
    )
    rate, done, at = 0.0, 0.0, 0.0
    for start, cores in parts:
        if rate and done + rate * (start - at) >= load:
            break
        done += rate * (start - at)
        rate, at = rate + cores, start
    return at + (load - done) / rate if rate else math.inf
