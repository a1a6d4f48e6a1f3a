"""Quotas: who is covered, what is refused and why, and what a window forgets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shoal.model.policy import Rule
from shoal.sched.quota import NO_BOUND, Ledger

NOW = datetime(2024, 2, 28, 13, 30, tzinfo=UTC).timestamp()  # a wednesday
HOUR = 3600.0
GROUPS = {"anna": "phys.hep", "bert": "phys", "carl": "chem"}


def end(ledger: Ledger, owner: str, site: str, cores: int, expected: float, now: float, actual: float) -> None:
    """A lease ended after so many core seconds."""
    ledger.start(owner, site, -cores, -expected)
    ledger.spend(owner, site, now, actual)


def ledger(*rules: Rule) -> Ledger:
    return Ledger(rules, GROUPS)


def test_without_rules_everything_may_start() -> None:
    free = ledger()
    free.start("anna", "eu", 10**6, 1e12)
    assert free.room("anna", "eu", NOW) == NO_BOUND and free.blocks("anna", "eu", 10**6, 1e12, NOW) is None
    assert free.may_queue("anna", 10**9, NOW) is None and free.may_keep("anna", 10**15, NOW) is None


@pytest.mark.parametrize(
    ("rule", "covered"),
    [
        (Rule(cores=5), {"anna@eu", "anna@eu.cern", "bert@eu", "carl@us", "dora@us"}),
        (Rule("anna", cores=5), {"anna@eu", "anna@eu.cern"}),
        (Rule("@phys", cores=5), {"anna@eu", "anna@eu.cern", "bert@eu"}),
        (Rule("@phys.hep", cores=5), {"anna@eu", "anna@eu.cern"}),
        (Rule("@ph", cores=5), set()),
        (Rule(site="eu", cores=5), {"anna@eu", "anna@eu.cern", "bert@eu"}),
        (Rule(site="eu.cern", cores=5), {"anna@eu.cern"}),
        (Rule("@phys", "us", cores=5), set()),
    ],
)
def test_a_rule_covers_the_subtree_it_names(rule: Rule, covered: set[str]) -> None:
    places = [("anna", "eu"), ("anna", "eu.cern"), ("bert", "eu"), ("carl", "us"), ("dora", "us")]
    quota = ledger(rule)
    bound = {f"{owner}@{site}" for owner, site in places if quota.room(owner, site, NOW) == 5}
    assert bound == covered


def test_a_rule_counts_all_it_covers_together_and_the_tightest_decides() -> None:
    quota = ledger(Rule("@phys", cores=10), Rule("anna", cores=8), Rule("@phys", "eu", cores=4))
    quota.start("anna", "eu.cern", 3)
    quota.start("bert", "us", 2)
    assert quota.room("anna", "eu", NOW) == 1 and quota.room("anna", "us", NOW) == 5
    assert quota.blocks("anna", "eu", 1, 0, NOW) is None
    block = quota.blocks("bert", "eu", 2, 0, NOW)
    assert block is not None
    assert block.text == "at most 4 cores may run, 3 do, and this takes 2 (quota of who=@phys site=eu)"
    assert block.lifted is None
    end(quota, "anna", "eu.cern", 3, 0.0, NOW, 1.0)
    assert quota.blocks("bert", "eu", 2, 0, NOW) is None


def test_a_limit_below_what_runs_kills_nothing_and_nothing_starts() -> None:
    """A limit below what is used [input E75]."""
    quota = ledger()
    quota.start("anna", "eu", 20, 50.0)
    quota.change([Rule("anna", cores=5)], GROUPS)
    assert quota.room("anna", "eu", NOW) == 0
    block = quota.blocks("anna", "eu", 1, 0, NOW)
    assert block is not None and block.text.startswith("at most 5 cores may run, 20 do")


def test_a_share_of_the_cores_that_are_there_follows_the_pilots() -> None:
    quota = ledger(Rule("@phys", "eu", share=0.29, cores=1000))
    assert quota.room("anna", "eu.cern", NOW) == 0
    quota.capacity("eu.cern", 60)
    quota.capacity("eu", 40)
    quota.capacity("us", 1000)
    assert quota.room("anna", "eu.cern", NOW) == 29
    quota.start("anna", "eu", 29)
    block = quota.blocks("bert", "eu", 1, 0, NOW)
    assert block is not None and "at most 29 cores may run, 0.29 of 100, 29 do" in block.text
    quota.change([Rule("@phys", "eu", share=0.5)], GROUPS)
    assert quota.room("anna", "eu", NOW) == 21
    quota.capacity("eu", -40)
    assert quota.room("anna", "eu", NOW) == 1


def test_hours_are_spent_reserved_and_forgotten_at_the_end_of_the_window() -> None:
    quota = ledger(Rule("@phys", when="day", core_hours=10))
    quota.spend("anna", "eu", NOW, 4 * HOUR)
    quota.start("bert", "us", 4, 4 * HOUR)
    assert quota.blocks("anna", "eu", 1, 2 * HOUR, NOW) is None, "it fits to the last second"
    block = quota.blocks("anna", "eu", 1, 2 * HOUR + 1, NOW)
    assert block is not None
    assert block.text.startswith("10 core hours may be used, 4 are and 4 are reserved, and this may take 2")
    midnight = NOW + 10.5 * HOUR
    assert block.lifted == midnight
    end(quota, "bert", "us", 4, 4 * HOUR, NOW + HOUR, 6 * HOUR)
    assert quota.room("anna", "eu", NOW + HOUR) == 0, "all is spent, whatever is expected"
    assert quota.blocks("anna", "eu", 1, 0.0, NOW + HOUR) is not None
    assert quota.room("anna", "eu", midnight - 1) == 0 and quota.room("anna", "eu", midnight) == NO_BOUND
    assert quota.blocks("anna", "eu", 1, 10 * HOUR, midnight) is None


def test_what_is_told_late_counts_in_the_window_it_was_spent_in() -> None:
    quota = ledger(Rule(when="day", core_hours=1))
    assert quota.blocks("anna", "eu", 1, HOUR, NOW) is None
    quota.spend("anna", "eu", NOW - 24 * HOUR, HOUR)
    assert quota.blocks("anna", "eu", 1, HOUR, NOW) is None and quota.blocks("anna", "eu", 1, 1, NOW - 24 * HOUR)


def test_hours_for_always_are_never_given_back() -> None:
    quota = ledger(Rule(core_hours=1))
    quota.spend("anna", "eu", NOW, HOUR)
    block = quota.blocks("carl", "us", 1, 0, NOW + 1e8)
    assert block is not None and block.lifted is None


def test_a_rule_for_a_part_of_the_week_exists_only_then() -> None:
    quota = ledger(Rule("anna", when="mon-fri 08-18", cores=2, queued=3, stored=100, core_hours=1))
    quota.start("anna", "eu", 2)
    quota.queued("anna", 3)
    quota.stored("anna", 100)
    six = NOW + 4.5 * HOUR
    for block in (
        quota.blocks("anna", "eu", 1, 0, NOW),
        quota.may_queue("anna", 1, NOW),
        quota.may_keep("anna", 1, NOW),
    ):
        assert block is not None and block.lifted == six
    assert quota.blocks("anna", "eu", 1, 0, six) is None and quota.room("anna", "eu", six) == NO_BOUND
    assert quota.may_queue("anna", 1, six) is None and quota.may_keep("anna", 1, six) is None
    end(quota, "anna", "eu", 2, 0.0, six, 10 * HOUR)
    assert quota.blocks("anna", "eu", 1, HOUR, six + 14 * HOUR) is None, "what ended outside does not count"


def test_queued_tasks_and_stored_bytes_are_bounded_to_the_last_one() -> None:
    quota = ledger(Rule("@phys", queued=10, stored=1 << 30))
    quota.queued("anna", 6)
    quota.stored("bert", (1 << 30) - 5)
    assert quota.may_queue("bert", 4, NOW) is None and quota.may_keep("anna", 5, NOW) is None
    block = quota.may_queue("bert", 5, NOW)
    assert block is not None and block.text.startswith("at most 10 tasks may wait or run, there are 6, and 5 more came")
    block = quota.may_keep("anna", 6, NOW)
    assert block is not None and "may be kept" in block.text and block.lifted is None
    assert quota.may_queue("carl", 10**6, NOW) is None


def test_what_is_spent_survives_a_restart() -> None:
    rules = (Rule("@phys", when="day", core_hours=10), Rule(core_hours=100))
    before, after = Ledger(rules, GROUPS), Ledger(rules, GROUPS)
    assert after.standings(NOW)[1].used == 0
    lines = [
        ("anna", "eu", NOW - 50 * 24 * HOUR, 7 * HOUR), ("anna", "eu", NOW - 24 * HOUR, 5 * HOUR),
        ("anna", "eu", NOW, 3 * HOUR), ("carl", "us", NOW, 1 * HOUR),
    ]  # fmt: skip
    for owner, site, at, seconds in lines:
        before.spend(owner, site, at, seconds)
    after.load([(owner, site, int(at // HOUR), seconds) for owner, site, at, seconds in lines])
    assert [round(s.used, 9) for s in after.standings(NOW)] == [3, 16], "hours before the last month are in the total"
    assert after.standings(NOW) == before.standings(NOW)


def test_an_owner_that_changes_its_group_takes_its_counts_along() -> None:
    quota = ledger(Rule("@phys", cores=10), Rule("@chem", cores=10))
    quota.start("anna", "eu", 4)
    quota.change([Rule("@phys", cores=10), Rule("@chem", cores=10)], {**GROUPS, "anna": "chem"})
    assert quota.room("bert", "eu", NOW) == 10 and quota.room("carl", "eu", NOW) == 6


def test_standings_show_each_limit_with_what_is_used() -> None:
    quota = ledger(Rule("anna", cores=5, share=0.5, queued=7, stored=9, core_hours=2.5), Rule(when="sat", cores=1))
    quota.capacity("eu", 8)
    quota.start("anna", "eu", 2, HOUR)
    quota.queued("anna", 3)
    quota.stored("anna", 4)
    found = [(s.kind, s.limit, s.used, s.open) for s in quota.standings(NOW)]
    assert found == [
        ("cores", 5, 2, True), ("share", 4, 2, True), ("core_hours", 2.5, 1.0, True), ("queued", 7, 3, True),
        ("stored", 9, 4, True), ("cores", 1, 2, False),
    ]  # fmt: skip
