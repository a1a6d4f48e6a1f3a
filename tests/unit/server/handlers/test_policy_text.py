"""A policy in words: what a change changes, what it means for what runs, and who reads which line."""

from __future__ import annotations

from random import Random

from shoal.engine.commands import Regroup, SetPolicy
from shoal.engine.engine import Engine
from shoal.engine.snapshot import Snapshot
from shoal.model.policy import BanRule, Policy, Rule, UsageRule
from shoal.model.timing import Timing
from shoal.sched.quota import Standing
from shoal.server.handlers.policy_text import differences, lifted, over_use, row_of, visible
from shoal.wire.policy import dump_policy

DAY = 86_400.0


def test_equal_policies_differ_in_nothing() -> None:
    assert differences(Policy(shares={"anna": 2.0}), Policy(shares={"anna": 2.0})) == []
    assert differences(Policy(shares={"anna": 1.0}), Policy()) == [], "a share of 1 is what everybody has"


def test_each_change_is_a_line() -> None:
    before = Policy(
        shares={"anna": 2.0}, quotas=(Rule("anna", cores=10, queued=5), Rule("ben", cores=1)), licences={"matlab": 5}
    )
    after = Policy(
        shares={"@phys": 0.5},
        usage=UsageRule(half_life=3_600.0),
        quotas=(Rule("anna", cores=20), Rule("*", "eu", "day", stored=1 << 30)),
        ban=BanRule(hook=("/bin/true",)),
    )
    assert differences(before, after) == [
        "share.@phys: 1 -> 0.5",
        "share.anna: 2 -> 1",
        "usage.half_life: 86400 -> 3600",
        "quota of who=anna: cores 10 -> 20, queued 5 -> none",
        "- quota of who=ben: cores 1",
        "+ quota of site=eu when=day: stored 1.0G",
        "licences.matlab: 5 -> none",
        "ban.hook: [] -> ['/bin/true']",
    ]


def test_rules_at_one_place_are_not_mixed_up() -> None:
    before = Policy(quotas=(Rule("anna", cores=1), Rule("anna", queued=2)))
    after = Policy(quotas=(Rule("anna", cores=1), Rule("anna", queued=3)))
    assert differences(before, after) == ["quota of who=anna: queued 2 -> 3"]
    assert differences(before, Policy(quotas=before.quotas[::-1])) == []
    assert differences(Policy(), before) == ["+ quota of who=anna: cores 1", "+ quota of who=anna: queued 2"]


def test_a_limit_below_what_is_used_says_so_and_leaves_the_ledger_as_it_was() -> None:
    old = (Rule("ben", cores=1),)
    engine = Engine(Snapshot(), Timing(), Random(0), 0.0)
    engine.handle(Regroup("anna", "phys"), 0.0)
    engine.handle(SetPolicy(Policy(quotas=old), "{}", "boss"), 0.0)
    ledger = engine.state.accounting.ledger
    ledger.start("anna", "s", 12, 0.0)
    ledger.queued("anna", 3)
    engine.count_stored("anna", 2048)
    ledger.spend("anna", "s", 0.0, 7_200.0)
    new = (*old, Rule("anna", cores=10), Rule("@phys", queued=2, stored=1024, core_hours=1.0), Rule(queued=3))
    said = over_use(engine.standings_under(new, 0.0), old)
    assert said == [
        "quota of who=anna: 12 cores run now, nothing is stopped, nothing new starts",
        "quota of who=@phys: 2 core hours are used already, nothing is stopped, nothing new starts",
        "quota of who=@phys: 3 tasks wait or run now, none is cancelled, no more are taken",
        "quota of who=@phys: 2.0K are kept now, nothing is deleted, nothing new is taken",
    ]
    assert [found.rule for found in ledger.standings(0.0)] == [*old]


def test_a_rule_that_was_there_before_is_not_told_again() -> None:
    rule = Rule("anna", cores=1)
    assert over_use([Standing(rule, "cores", 1, 2, True)], [rule]) == []
    assert over_use([Standing(rule, "cores", 1, 2, False)], []) == [], "not at this time"


def test_what_begins_anew_says_when() -> None:
    now = 10 * DAY + 3_600.0  # 1970-01-11, a sunday, 01:00
    assert lifted(Standing(Rule("a", when="day", core_hours=1.0), "core_hours", 1, 0, True), now) == 11 * DAY
    assert lifted(Standing(Rule("a", when="day", cores=1), "cores", 1, 0, True), now) is None
    assert lifted(Standing(Rule("a", when="sun 00-02", cores=1), "cores", 1, 0, True), now) == 10 * DAY + 7_200.0
    assert lifted(Standing(Rule("a", core_hours=1.0), "core_hours", 1, 0, True), now) is None
    row = row_of(Standing(Rule("a", "eu", "day", core_hours=1.0), "core_hours", 1, 0.5, True), now)
    assert row == {
        "who": "a", "site": "eu", "when": "day", "kind": "core_hours", "limit": 1, "used": 0.5, "open": True,
        "lifted": 11 * DAY,
    }  # fmt: skip


def test_a_reader_is_shown_no_line_about_others_and_not_the_hook() -> None:
    policy = Policy(
        shares={"anna": 2.0, "olaf": 3.0},
        quotas=(Rule("*", cores=9), Rule("olaf", cores=1), Rule("@phys", cores=2)),
        ban=BanRule(hook=("/bin/tell",)),
    )
    document = dump_policy(policy)
    seen, hidden = visible(document, {"*", "anna", "@phys"}.__contains__)
    assert (seen["share"], [row["who"] for row in seen["quota"]], seen["ban"]["hook"]) == (
        {"anna": 2.0},
        ["*", "@phys"],
        [],
    )
    assert hidden == 3
    assert document == dump_policy(policy), "the document itself is whole"
