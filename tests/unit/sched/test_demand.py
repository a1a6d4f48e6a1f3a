"""The demand policies: the papers' own rules by example, and what Shoal's own does in the situations it was made for."""

from __future__ import annotations

from random import Random

import pytest

from shoal.sched.demand import DemandRule, Need, Plan, SiteView, plan

HOUR = 3_600.0


def _plan(policy: str, needs: list[Need], *sites: SiteView, now: float = 0.0, **numbers: float) -> Plan:
    return plan(DemandRule(policy, **numbers), needs, sites, now, Random(1).random)  # type: ignore[arg-type]  # ints too


def _counts(found: Plan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for ask in found.asks:
        counts[ask.site] = counts.get(ask.site, 0) + ask.count
    return counts


def test_an_unknown_policy_and_a_number_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="is no policy"):
        DemandRule("best")
    with pytest.raises(ValueError, match="over of a policy has to be from 0 to 10, not -1"):
        DemandRule("shoal", over=-1)


def test_the_pilot_monitor_as_printed_sends_none_for_a_group_as_large_as_the_free_slots() -> None:
    """[CMS IV.A], steps 9 and 10."""
    site = SiteView("a", max_pilots=10, max_queued=10)
    assert _counts(_plan("pilotmonitor", [Need(9)], site)) == {"a": 9}
    assert _counts(_plan("pilotmonitor", [Need(10)], site)) == {}
    assert _counts(_plan("pilotmonitor-repaired", [Need(10)], site)) == {"a": 10}
    assert _counts(_plan("pilotmonitor-repaired", [Need(500)], site)) == {"a": 10}


def test_the_pilot_monitor_lets_waiting_pilots_cover_a_smaller_group() -> None:
    """[CMS IV.A], steps 7 and 8."""
    site = SiteView("a", queued=5, max_pilots=20, max_queued=20)
    assert _counts(_plan("pilotmonitor", [Need(4), Need(3)], site)) == {"a": 3}
    assert _counts(_plan("pilotmonitor-repaired", [Need(4), Need(3)], site)) == {"a": 2}


def test_the_simple_factory_fills_the_pool() -> None:
    """[DIANE 4.7.2]"""
    sites = [SiteView(name, busy=2, max_pilots=50, max_queued=50) for name in "ab"]
    assert sum(_counts(_plan("simple", [Need(3)], *sites, pool=20)).values()) == 16


def test_the_heuristic_factory_prefers_fit_sites_and_the_hybrid_one_ranks_them() -> None:
    """[DIANE 4.7.3, 4.8.2]"""
    bad, good = SiteView("bad", fitness=0.0), SiteView("good")
    sites = [site._replace(max_pilots=500, max_queued=500) for site in (bad, good)]
    counts = _counts(_plan("heuristic", [Need(3)], *sites, pool=400))
    assert 60 < counts["bad"] < 140, "only by the generic slot, which every site gets a part of"
    slow, fast = (site._replace(rank=rank, fitness=1.0) for site, rank in zip(sites, (0.0, 9.0), strict=True))
    assert _counts(_plan("hybrid", [Need(3)], slow, fast, pool=400))["good"] > 260


def test_the_guided_factory_follows_requirements_and_ranks() -> None:
    """[GWP 4.3]"""
    sites = [
        SiteView("far", rank=9.0, meets={"has(gpu)": False}, max_queued=9),
        SiteView("near", rank=1.0, meets={"has(gpu)": True}, max_queued=9),
        SiteView("other", rank=0.5, meets={"has(gpu)": True}, max_queued=9),
    ]
    need = [Need(8, require="has(gpu)", rank="cores", priority=1.0)]
    assert _counts(_plan("guided", need, *sites)) == {"near": 8}
    assert _counts(_plan("guided", need, *sites, per_site=5)) == {"near": 5, "other": 3}


def test_the_guided_factory_replaces_a_pilot_while_others_are_busy() -> None:
    site = SiteView("a", busy=8, idle=1, queued=1, cores=9, max_pilots=20, max_queued=20)
    assert _counts(_plan("guided", [Need(3)], site)) == {"a": 1}, "as the paper: 11 tasks that are not final, 10 pilots"


def test_a_part_of_the_pilots_is_guided_also_if_they_are_sent_one_by_one() -> None:
    sites = [SiteView("best", rank=9.0, max_queued=9, queued=1), SiteView("empty", rank=1.0, max_queued=9)]
    rule = DemandRule("guided", guided=0.5)
    sent = [plan(rule, [Need(2)], sites, 0.0, lambda at=at: at / 10).asks[0].site for at in range(10)]  # type: ignore[misc]
    assert sent.count("best") == 5


def _exact(needs: list[Need], *sites: SiteView, **numbers: float) -> Plan:
    """By Shoal's own policy, without what it asks for since queues are uncertain, and with walls as short as the work."""
    return _plan("shoal", needs, *sites, **{"over": 0.0, "shortest": 0.0, **numbers})


def test_a_task_that_is_left_when_pilots_start_is_worth_a_core_and_short_ones_follow_each_other() -> None:
    site = SiteView("a", max_pilots=200, max_queued=200, wait=0.0)
    assert _counts(_exact([Need(100, seconds=600.0)], site)) == {"a": 100}
    assert _counts(_exact([Need(100, seconds=600.0)], site, turnovers=2.0)) == {"a": 50}
    assert _counts(_exact([Need(100, seconds=1.0)], site._replace(wait=540.0))) == {"a": 2}, "60 s for a wait of 600 s"


def test_more_is_asked_for_than_wanted_because_queues_are_uncertain() -> None:
    site = SiteView("a", max_pilots=200, max_queued=200, wait=0.0)
    assert _counts(_exact([Need(100, seconds=600.0)], site, over=0.5)) == {"a": 150}
    waiting = site._replace(queued=150, queued_cores=150)
    assert not _exact([Need(100, seconds=600.0)], waiting, over=0.5).asks, "and not again at the next look"


def test_a_queue_takes_no_more_than_its_limit_at_once() -> None:
    site = SiteView("a", max_pilots=10, max_queued=4, queued=1, queued_cores=1, busy=7, cores=7, wait=0.0)
    found = _plan("shoal", [Need(100, seconds=600.0)], site)
    assert _counts(found) == {"a": 2} and "10 pilots" in found.reasons["a"]
    found = _plan("shoal", [Need(100, seconds=600.0)], site._replace(busy=0, cores=0))
    assert _counts(found) == {"a": 3} and "4 pilots wait" in found.reasons["a"]


def test_pilots_have_the_shape_of_the_tasks_and_live_as_long_as_they_have_work() -> None:
    site = SiteView("a", pilot_cores=8, max_pilots=2, max_queued=2, wait=0.0)
    (full, rest) = _exact([Need(5, cores=2, seconds=1_000.0)], site).asks
    assert (full.cores, full.count, rest.cores, rest.count) == (8, 1, 2, 1)
    assert full.seconds == 5_100, "the end of a run: one task, though it take five times as long"
    (ask,) = _exact([Need(30, cores=2, seconds=500.0)], site).asks
    assert (ask.cores, ask.count, ask.seconds) == (8, 2, 7_560), "ten tasks and half as much more, and the start"
    (ask,) = _exact([Need(100_000, seconds=1_000.0)], site).asks
    assert ask.seconds == 14_400, "there is work for longer than a pilot may live"
    (ask,) = _exact([Need(3, seconds=100.0)], site._replace(max_pilots=1), shortest=7_200.0).asks
    assert ask.seconds == 7_200, "what is known of tasks may be of the short ones only"


def test_a_fast_site_comes_first_and_a_slow_one_gets_what_is_left_then() -> None:
    fast = SiteView("fast", max_pilots=10, max_queued=10, wait=60.0)
    slow = SiteView("slow", max_pilots=100, max_queued=100, wait=1_000.0)
    assert _counts(_exact([Need(10, seconds=600.0)], slow, fast)) == {"fast": 10}
    found = _counts(_exact([Need(100, seconds=600.0)], slow, fast))
    assert found == {"fast": 10, "slow": 80}, "each core of the first does two before those of the second have done one"


def test_pilots_of_a_site_that_never_started_one_are_not_counted_on() -> None:
    known, new = (SiteView(name, max_pilots=10, max_queued=10, wait=wait) for name, wait in (("b", 400.0), ("a", None)))
    assert _counts(_exact([Need(10, seconds=600.0)], known, new)) == {"a": 10, "b": 10}


def test_pilots_that_run_or_wait_count_first() -> None:
    site = SiteView("a", queued=3, busy=4, queued_cores=3, cores=4, max_pilots=100, max_queued=100, wait=600.0)
    assert _counts(_exact([Need(20, seconds=600.0)], site)) == {"a": 13}, "each busy core does one of them until then"
    assert not _exact([Need(7, seconds=600.0)], site).asks
    assert not _exact([Need(4, seconds=600.0)], site).cancel, "those that wait may start at once"
    idle = site._replace(busy=0, idle=4, free_cores=4)
    found = _exact([Need(2, seconds=600.0)], idle)
    assert found.cancel == {"a": 2} and not found.release and "more pilots wait" in found.reasons["a"]


def test_pilots_whose_allocation_ends_too_soon_are_not_counted_on() -> None:
    site = SiteView("a", busy=4, cores=4, max_pilots=100, max_queued=100, wait=600.0)
    need = [Need(4, seconds=600.0)]
    assert not _exact(need, site._replace(lives=((4, 3_600.0),))).asks
    assert _counts(_exact(need, site._replace(lives=((2, 3_600.0), (2, 500.0))))) == {"a": 2}


def test_at_the_end_of_a_run_no_pilot_is_asked_for_that_would_come_when_the_work_is_over() -> None:
    """The last tasks are packed onto what runs, and what has nothing to do ends."""
    site = SiteView("a", busy=10, cores=10, max_pilots=100, max_queued=100, wait=3_600.0)
    assert not _exact([Need(9, seconds=600.0)], site).asks
    found = _exact([], site._replace(idle=4, busy=6, free_cores=4, queued=2, queued_cores=2))
    assert found.release == {"a": 4} and found.cancel == {"a": 2} and not found.asks


def test_tasks_of_unknown_duration_get_scouts_and_more_when_these_run() -> None:
    sites = [SiteView(name, max_pilots=100, max_queued=100, wait=60.0) for name in "abc"]

    def asked(tasks: int, tried_for: float | None, *views: SiteView) -> int:
        return sum(_counts(_exact([Need(tasks, tried_for=tried_for)], *(views or sites))).values())

    assert asked(90, None) == 90, "nobody runs any, so that waiting for news would be in vain"
    assert asked(90, 61.0) == 90, "the first take their time"
    assert asked(90, 0.0) == 9
    assert asked(9, 5.0) == 4
    assert asked(9, 5.0, *(site._replace(queued=2, queued_cores=2) for site in sites)) == 0
    assert asked(90, 5.0, *(site._replace(busy=4, cores=4) for site in sites)) == 12, "as many again as run"
    assert asked(2, 5.0) == 2


def test_pilots_that_got_no_task_throttle_their_site() -> None:
    site = SiteView("a", max_pilots=100, max_queued=64, wait=0.0, empty=3, empty_at=0.0)
    need = [Need(1_000, seconds=600.0)]
    early = _plan("shoal", need, site, now=239.0)
    assert not early.asks and "rests for 240 s" in early.reasons["a"]
    assert _counts(_plan("shoal", need, site, now=240.0)) == {"a": 8}
    assert _counts(_plan("shoal", need, site._replace(empty=99), now=HOUR)) == {"a": 1}


def test_a_budget_shortens_pilots_before_it_refuses_them() -> None:
    site = SiteView("a", max_pilots=100, max_queued=100, wait=0.0, min_seconds=60.0, budget_left=1_000.0)
    found = _plan("shoal", [Need(4, seconds=600.0)], site)
    assert [(ask.seconds, ask.count) for ask in found.asks] == [(1_000, 1)]
    assert "budget" in found.reasons["a"]
    assert not _plan("shoal", [Need(4, seconds=600.0)], site._replace(budget_left=500.0)).asks


def test_a_site_that_no_task_fits_says_why() -> None:
    site = SiteView(
        "a", pilot_cores=4, idle=2, queued=1, cores=8, free_cores=8, queued_cores=4, pilot_memory=8, pilot_gpus=0
    )
    for need, word in (
        (Need(1, cores=5), "5 cores"),
        (Need(1, seconds=1e6), "lives"),
        (Need(1, memory=9), "memory"),
        (Need(1, gpus=1), "GPUs"),
    ):
        found = _plan("shoal", [need], site)
        assert word in found.reasons["a"] and found.release == {"a": 2} and found.cancel == {"a": 1}
    met = site._replace(meets={"has(x)": False})
    assert "does not meet" in _plan("shoal", [Need(1, require="has(x)")], met).reasons["a"]


def test_memory_takes_up_cores() -> None:
    site = SiteView("a", pilot_cores=4, pilot_memory=8, max_pilots=9, max_queued=9, wait=0.0)
    (ask,) = _exact([Need(4, memory=4, seconds=600.0)], site._replace(max_pilots=2)).asks
    assert (ask.cores, ask.count) == (4, 2), "a task takes up two cores' memory"


def test_what_a_site_keeps_is_asked_for_without_tasks() -> None:
    site = SiteView("a", min_pilots=3, min_idle=1, busy=1)
    assert _counts(_plan("shoal", [], site)) == {"a": 2}
    assert _plan("shoal", [], site._replace(idle=2, queued=2)).release == {"a": 1}


def test_a_site_whose_pilots_fail_gets_one_at_a_time() -> None:
    site = SiteView("a", max_pilots=99, max_queued=99, wait=0.0, fitness=0.1)
    assert _counts(_plan("shoal", [Need(99, seconds=600.0)], site)) == {"a": 1}
    waiting = _plan("shoal", [Need(99, seconds=600.0)], site._replace(queued=1, queued_cores=1))
    assert not waiting.asks and "did well" in waiting.reasons["a"]


# --- memory, and several hosts
GIB = 1 << 30


def test_a_pilot_gets_the_memory_of_the_tasks_that_it_runs_at_once() -> None:
    site = SiteView("a", pilot_cores=16, max_pilots=100, max_queued=100, wait=0.0)
    found = _plan("shoal", [Need(10_000, memory=GIB, seconds=100.0)], site)
    assert {(ask.cores, ask.is_learned) for ask in found.asks} == {(16, True)}
    assert all(16 * GIB < ask.memory < 17 * GIB for ask in found.asks), "and a little for the pilot itself"
    assert [ask.memory for ask in _plan("shoal", [Need(10_000, seconds=100.0)], site).asks] == [0], (
        "what the site gives"
    )


def test_fewer_tasks_share_a_pilot_where_memory_is_short() -> None:
    site = SiteView("a", pilot_cores=16, pilot_memory=8 * GIB, max_pilots=1000, max_queued=1000, wait=0.0)
    (ask,) = _plan("shoal", [Need(800, memory=2 * GIB, seconds=100.0)], site).asks
    assert (ask.cores, ask.memory) == (16, 8 * GIB), "four tasks at once, and no more than a host has"
    plenty = sum(one.count for one in _plan("shoal", [Need(800, seconds=100.0)], site).asks)
    assert ask.count >= 3 * plenty


@pytest.mark.parametrize("policy", ["shoal", "guided", "simple", "pilotmonitor-repaired"])
def test_every_policy_asks_for_memory_and_for_whole_allocations(policy: str) -> None:
    site = SiteView("a", pilot_cores=4, max_pilots=11, max_queued=11, hosts=3, wait=0.0)
    found = _plan(policy, [Need(400, memory=GIB, seconds=600.0)], site)
    assert sum(ask.count for ask in found.asks) == 9, "three allocations; a fourth would bring a twelfth pilot"
    assert all(ask.count % 3 == 0 and 4 * GIB < ask.memory < 5 * GIB for ask in found.asks)


def test_a_budget_counts_the_cores_of_all_hosts() -> None:
    site = SiteView("a", pilot_cores=4, max_pilots=100, max_queued=100, hosts=2, wait=0.0, max_seconds=HOUR)
    found = _plan("guided", [Need(400)], site._replace(budget_left=20 * HOUR))
    assert [(ask.count, ask.cores, ask.seconds) for ask in found.asks] == [(4, 4, HOUR)], "16 of 20 core hours"


def test_a_test_pilot_comes_with_a_whole_allocation() -> None:
    assert _counts(_plan("shoal", [], SiteView("a", min_pilots=1, hosts=2))) == {"a": 2}
