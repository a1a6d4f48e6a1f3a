"""Properties of the factories of pilots [DIANE 4.7] [GWP 4.3]."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from shoal.sched.expr.parse import parse
from shoal.sched.expr.scalar import holds, rank_of
from shoal.sched.factory import (
    COMPLETED,
    FAILED,
    PENDING,
    RUNNING,
    FactoryRule,
    SentPilot,
    choose_element,
    fitness,
    missing,
    next_submission,
    remembered,
)
from shoal.sched.provisioning.guided_factory import (
    GuidedRule,
    Site,
    TaskKind,
    Waiting,
    overdue,
    place,
    rank_all,
    require_any,
    wanted,
)

COUNT = st.integers(0, 2_000)
RULES = st.builds(FactoryRule, st.integers(0, 2_000), st.integers(0, 500), st.floats(0, 10), st.floats(0, 1e5))
STATUSES = st.sampled_from([PENDING, RUNNING, COMPLETED, FAILED])
SENT = st.lists(st.builds(SentPilot, st.sampled_from("abcde"), STATUSES, st.floats(0, 1e5)), max_size=60)
REQUIRES = st.sampled_from(["", "cores > 2", "site == 'x' or cores > 8", "has(gpu) and cores > 1", "not has(gpu)"])
RANKS = st.sampled_from(["", "cores", "cores / 2 + 1", "-mem", "cores * mem - 3"])
KINDS = st.lists(st.builds(TaskKind, REQUIRES, RANKS, st.floats(0, 100), st.integers(0, 1_000)), max_size=6)
TAGS = st.fixed_dictionaries(
    {"cores": st.integers(0, 16), "mem": st.integers(0, 64), "site": st.sampled_from("xy")},
    optional={"gpu": st.just(1)},
)
SITES = st.lists(st.integers(0, 30), min_size=1, max_size=6).flatmap(
    lambda loads: st.tuples(
        *(
            st.builds(Site, st.just(f"s{at}"), st.just(load), st.booleans(), st.floats(-10, 10), st.booleans())
            for at, load in enumerate(loads)
        )
    )
)


@given(RULES, COUNT, COUNT)
def test_the_pool_and_the_waiting_ones_keep_their_bounds(rule: FactoryRule, running: int, pending: int) -> None:
    count = missing(rule, running, pending)
    assert count >= 0
    if count:
        assert running + pending + count <= rule.pool and pending + count <= rule.max_pending
        assert running + pending + count == rule.pool or pending + count == rule.max_pending, "no more would be allowed"


@given(RULES, COUNT, COUNT, st.floats(0, 1e6), st.floats(0, 1e6))
def test_submissions_come_one_after_another(
    rule: FactoryRule, running: int, pending: int, latest: float, now: float
) -> None:
    due = next_submission(rule, running, pending, latest, now)
    assert (due is None) == (missing(rule, running, pending) == 0)
    assert due is None or due >= max(now, latest + rule.seconds_each)


@given(SENT)
def test_fitness_is_a_part_and_only_good_pilots_raise_it(sent: list[SentPilot]) -> None:
    fit = fitness(sent)
    assert set(fit) == {one.element for one in sent} and all(0.0 <= value <= 1.0 for value in fit.values())
    after = fitness([*sent, SentPilot("a", RUNNING, 0.0)])
    assert after["a"] >= fit.get("a", 0.0)


@given(RULES, SENT, st.floats(0, 1e5))
def test_old_endings_are_forgotten_and_nothing_else(rule: FactoryRule, sent: list[SentPilot], now: float) -> None:
    kept = remembered(rule, sent, now)
    for one in sent:
        assert (one in kept) == (one.status in (PENDING, RUNNING) or now - one.changed <= rule.memory)


@given(st.dictionaries(st.sampled_from("abcde"), st.floats(0, 1)), st.integers(0, 1_000))
def test_elements_are_chosen_in_proportion_and_the_generic_slot_never_dies_out(
    fit: dict[str, float], seed: int
) -> None:
    rng, draws = Random(seed), 2_000
    picks = [choose_element(fit, rng.random()) for _ in range(draws)]
    total = 1.0 + sum(fit.values())
    for element in [*fit, None]:
        expected = (1.0 if element is None else fit[element]) / total
        assert abs(picks.count(element) / draws - expected) < 0.07
    assert all(fit[one] > 0 for one in picks if one is not None)
    assert choose_element({}, rng.random()) is None, "at the beginning everything goes by the broker"


@given(KINDS, TAGS)
def test_a_guided_pilot_suits_exactly_where_one_of_the_tasks_would(
    kinds: list[TaskKind], tags: dict[str, object]
) -> None:
    text = require_any(kinds)
    asked = [kind for kind in kinds if kind.tasks]
    if any(not kind.require for kind in asked) or not asked:
        assert text == ""
    else:
        assert holds(parse(text), tags, {}) == any(holds(parse(kind.require), tags, {}) for kind in asked)


@given(KINDS, TAGS)
def test_the_guided_rank_is_the_weighted_sum(kinds: list[TaskKind], tags: dict[str, object]) -> None:
    text, total = rank_all(kinds), sum(kind.tasks for kind in kinds)
    ranked = [kind for kind in kinds if kind.rank and kind.tasks and kind.priority]
    terms = [kind.priority * rank_of(parse(kind.rank), tags, {}) * kind.tasks / total for kind in ranked]
    if ranked and text:
        assert abs(rank_of(parse(text), tags, {}) - sum(terms)) <= 1e-9 * (1.0 + sum(map(abs, terms)))
    else:
        assert not ranked or all(abs(term) < 1e-300 for term in terms)


@given(st.builds(GuidedRule, st.integers(0, 500), st.integers(0, 50), per_round=st.integers(0, 100)), COUNT, COUNT)
def test_as_many_pilots_as_tasks_up_to_the_bounds(rule: GuidedRule, tasks: int, pilots: int) -> None:
    count = wanted(rule, tasks, pilots)
    assert count >= 0 and (not count or pilots + count <= min(rule.most, tasks + rule.over))
    assert not rule.per_round or count <= rule.per_round
    assert wanted(rule, 0, pilots) == 0, "over-submission is for tasks that there are"


@given(
    st.builds(GuidedRule, st.just(99), guided=st.floats(0, 1), per_site=st.integers(0, 40)), st.integers(0, 60), SITES
)
def test_sites_keep_their_bound_and_the_guided_part_holds(
    rule: GuidedRule, count: int, sites: tuple[Site, ...]
) -> None:
    orders = place(rule, count, sites)
    by_name = {site.name: site for site in sites}
    assert len(orders) <= count
    for name, site in by_name.items():
        added = sum(order.site == name for order in orders)
        assert not added or (not site.is_banned and (not rule.per_site or site.pilots + added <= rule.per_site))
    guided = sum(order.is_guided for order in orders)
    assert guided <= rule.guided * len(orders) + 1
    assert all(by_name[order.site].meets for order in orders if order.is_guided)
    if not rule.per_site and any(site.meets and not site.is_banned for site in sites):
        assert len(orders) == count and guided >= rule.guided * count - 1
        best = max(site.rank for site in sites if site.meets and not site.is_banned)
        assert all(by_name[order.site].rank == best for order in orders if order.is_guided)


@given(st.lists(st.floats(0, 1e4), max_size=20), st.floats(0, 1e4))
def test_pilots_that_wait_for_too_long_are_given_up(since: list[float], now: float) -> None:
    rule = GuidedRule(10, suspension=600.0)
    waiting = [Waiting(str(at), one) for at, one in enumerate(since)]
    assert set(overdue(rule, waiting, now)) == {one.name for one in waiting if now - one.since >= 600.0}
