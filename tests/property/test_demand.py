"""Properties of the demand policies: no bound is crossed, whatever the policy and whatever waits."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.sched.demand import POLICIES, DemandRule, Need, Plan, SiteView, plan

REQUIRES = st.sampled_from(["", "site == 'x'", "cores > 2"])
NEEDS = st.lists(
    st.builds(
        Need, st.integers(0, 500), st.integers(1, 6), st.integers(0, 8), st.just(0),
        st.none() | st.floats(0.1, 30_000), REQUIRES, st.sampled_from(["", "cores"]), st.floats(0, 9),
    ),
    max_size=4,
)  # fmt: skip
SMALL = st.integers(0, 6)
RULES = st.builds(DemandRule, st.sampled_from(POLICIES), pool=SMALL, extra=SMALL, per_site=SMALL, per_round=SMALL)


@st.composite
def a_site(draw: st.DrawFn, name: str) -> SiteView:
    """A site whose counts agree with each other."""
    queued, idle, busy, each = draw(SMALL), draw(SMALL), draw(SMALL), draw(st.integers(1, 4))
    return SiteView(
        name, queued, idle, busy, queued * each, idle * each, (idle + busy) * each,
        draw(st.integers(0, 20)), draw(SMALL), draw(SMALL), draw(SMALL), draw(st.integers(1, 8)),
        draw(st.floats(60, 90_000)), draw(st.floats(0, 900)), draw(st.none() | st.floats(0, 90_000)),
        draw(st.dictionaries(REQUIRES.filter(bool), st.booleans())), draw(st.floats(-9, 9)), draw(st.floats(0, 1)),
        draw(st.booleans()), draw(st.integers(0, 40)), draw(st.none() | st.floats(-100, 200_000)),
        draw(st.none() | st.floats(-7_200, 0)), draw(st.none() | st.integers(1, 2**36)),
        hosts=draw(st.sampled_from((1, 1, 2, 3))),
    )  # fmt: skip


SITES = st.lists(st.sampled_from("abcd"), unique=True, max_size=4).flatmap(
    lambda names: st.tuples(*(a_site(name) for name in names))
)


def _plan(rule: DemandRule, needs: list[Need], sites: tuple[SiteView, ...], seed: int = 0) -> Plan:
    return plan(rule, needs, sites, 0.0, Random(seed).random)


def _cores(found: Plan) -> int:
    return sum(ask.cores * ask.count for ask in found.asks)


@given(RULES, NEEDS, SITES)
def test_no_bound_of_a_site_is_crossed(rule: DemandRule, needs: list[Need], sites: tuple[SiteView, ...]) -> None:
    found = _plan(rule, needs, sites)
    by_name = {site.name: site for site in sites}
    asked: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for ask in found.asks:
        site = by_name[ask.site]
        assert ask.count > 0 and 1 <= ask.cores <= site.pilot_cores and ask.why
        assert 1 <= ask.seconds <= site.max_seconds and not site.is_banned
        assert ask.count % site.hosts == 0, "whole allocations"
        assert site.pilot_memory is None or ask.memory <= site.pilot_memory
        asked[ask.site] += ask.count
        spent[ask.site] += ask.count * ask.cores * ask.seconds
    for name, count in asked.items():
        site = by_name[name]
        assert count + site.pilots <= site.max_pilots and count + site.queued <= site.max_queued
        assert site.budget_left is None or spent[name] <= site.budget_left
        assert name not in found.cancel and name not in found.release, "it is not asked for what is given up"
    assert set(found.reasons) == set(by_name) and all(found.reasons.values())


@settings(max_examples=50)
@given(RULES, SITES)
def test_without_tasks_only_what_is_kept_is_asked_for_and_the_rest_ends(
    rule: DemandRule, sites: tuple[SiteView, ...]
) -> None:
    found = _plan(rule, [Need(0), Need(0, seconds=5.0)], sites)
    for site in sites:
        asked = sum(ask.count for ask in found.asks if ask.site == site.name)
        gone = found.cancel.get(site.name, 0) + found.release.get(site.name, 0)
        assert found.cancel.get(site.name, 0) <= site.queued and found.release.get(site.name, 0) <= site.idle
        kept = max(0, site.min_pilots - site.pilots) + max(0, site.min_idle - site.idle)
        assert asked <= kept + 2 * (site.hosts - 1), "each of both may be rounded up to whole allocations"
        assert site.pilots - gone >= min(site.pilots, site.min_pilots)
        if not site.min_pilots and not site.min_idle:
            assert asked == 0 and gone == site.idle + site.queued


@settings(max_examples=30)
@given(RULES, NEEDS, SITES)
def test_the_same_is_planned_twice(rule: DemandRule, needs: list[Need], sites: tuple[SiteView, ...]) -> None:
    assert _plan(rule, needs, sites, 7) == _plan(rule, needs, sites, 7)


@settings(max_examples=25)
@pytest.mark.parametrize("policy", [one for one in POLICIES if one != "pilotmonitor"])
@given(st.integers(0, 300), st.integers(0, 300), st.none() | st.floats(1, 9_000), st.integers(1, 4), SITES)
def test_more_tasks_get_no_fewer_cores(
    policy: str, tasks: int, more: int, seconds: float | None, cores: int, sites: tuple[SiteView, ...]
) -> None:
    """For one group; as printed, the PilotMonitor sends fewer once a group is as large as the free slots."""
    sites = tuple(site._replace(budget_left=None, fitness=1.0, max_seconds=14_400.0, hosts=1) for site in sites)
    few, many = (
        _plan(DemandRule(policy), [Need(count, cores, 0, 0, seconds)], sites) for count in (tasks, tasks + more)
    )
    assert _cores(few) <= _cores(many)
