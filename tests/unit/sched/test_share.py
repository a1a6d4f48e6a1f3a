"""What is due to whom, and who is next."""

from __future__ import annotations

import pytest

from shoal.model.policy import UsageRule
from shoal.sched.share import FRESH, LAST, LATER, Tree

RULE = UsageRule()


def tree(shares: dict[str, float] | None = None, groups: dict[str, str] | None = None) -> Tree:
    return Tree(shares or {}, groups or {}, RULE)


def fill(tree: Tree, owners: list[str], slots: int, now: float = 0.0) -> dict[str, int]:
    """Give free slots one by one to whoever is next."""
    got = dict.fromkeys(owners, 0)
    for _ in range(slots):
        first = tree.order(owners, now)[0]
        tree.start(first, now, 1)
        got[first] += 1
    return got


# --- what is due
def test_without_use_plain_shares_are_due() -> None:
    shares = tree({"a": 2, "b": 1, "c": 1})
    assert shares.due(["a", "b", "c"], 0.0) == {"a": 0.5, "b": 0.25, "c": 0.25}
    assert shares.due(["b", "c"], 0.0) == {"b": 0.5, "c": 0.5}, "only those with work"
    assert shares.due([], 0.0) == {}


def test_groups_divide_first_and_their_members_what_is_theirs() -> None:
    shares = tree({"@phys": 3, "b": 2}, {"a": "phys", "b": "phys.hep", "c": "phys.hep", "d": ""})
    due = shares.due(["a", "b", "c", "d"], 0.0)
    assert due == pytest.approx({"d": 0.25, "a": 0.375, "b": 0.25, "c": 0.125})


def test_a_newcomer_is_due_more_until_usages_level_out() -> None:
    shares = tree()
    shares.start("a", 0.0, 1)
    shares.end("a", 1000.0, 1, 0.0)
    # a: U = 1, s = 1/2: weight 1/3; b: weight 1
    assert shares.due(["a", "b"], 1000.0) == pytest.approx({"a": 0.25, "b": 0.75})
    shares.start("b", 1000.0, 1)
    assert shares.due(["a", "b"], 2000.0)["b"] == pytest.approx(0.5, abs=0.01), "running work counts"


def test_a_groups_use_is_that_of_all_its_members() -> None:
    shares = tree({}, {"a": "phys", "b": "phys"})
    shares.start("a", 0.0, 1)
    shares.end("a", 1000.0, 1, 0.0)
    assert shares.due(["b", "c"], 1000.0) == pytest.approx({"b": 0.25, "c": 0.75})
    assert shares.usage("@phys", 1000.0) == pytest.approx(shares.usage("a", 1000.0)) and shares.usage("b", 1000.0) == 0
    assert shares.usage("", 1000.0) == pytest.approx(shares.usage("a", 1000.0)) and shares.usage("nobody", 0.0) == 0


def test_a_share_of_zero_runs_only_when_nobody_else_can() -> None:
    shares = tree({"idle": 0, "@low": 0}, {"low1": "low"})
    assert shares.due(["idle", "a", "low1"], 0.0) == {"idle": 0, "a": 1.0, "low1": 0}
    assert shares.due(["idle", "low1"], 0.0) == {"idle": 0.5, "low1": 0.5}
    assert fill(shares, ["idle", "a"], 10) == {"idle": 0, "a": 10}
    assert shares.order(["idle", "a"], 0.0) == ["a", "idle"] and shares.key("idle", 0.0)[0] == LAST
    shares.rest("a", 0.0)
    assert shares.order(["idle"], 0.0) == ["idle"]


# --- who is next
def test_free_slots_go_out_in_proportion() -> None:
    assert fill(tree({"a": 3}), ["a", "b", "c"], 20) == {"a": 12, "b": 4, "c": 4}


def test_who_comes_starts_first_once() -> None:
    shares = tree({"late": 0.01})
    fill(shares, ["a", "b"], 20)
    shares.wake("late", 5.0)
    assert shares.key("late", 5.0)[0] == FRESH and shares.order(["a", "b", "late"], 5.0)[0] == "late"
    shares.end("a", 5.0, 1, 0.0)
    shares.start("late", 5.0, 1)
    assert shares.key("late", 5.0)[0] == LATER and shares.order(["a", "b", "late"], 5.0)[-1] == "late"


def test_going_and_coming_back_does_not_give_first_starts_again_and_again() -> None:
    shares = tree({"small": 0.01})
    fill(shares, ["a", "b"], 20)
    shares.wake("small", 5.0)
    shares.start("small", 5.0, 1)
    shares.rest("small", 5.0)
    shares.end("small", 15.0, 1, 5.0)
    shares.wake("small", 15.0)
    assert shares.order(["a", "b", "small"], 15.0)[-1] == "small", "it had an advance"


def test_idleness_earns_no_credit() -> None:
    shares = tree()
    fill(shares, ["a"], 20)
    shares.wake("b", 0.0)
    shares.rest("b", 100.0)
    for now in (100.0, 10_000.0):
        shares.wake("b", now)
        shares.start("b", now, 1)
        shares.end("b", now, 1, now, 0.0)
        assert shares.key("b", now)[1] == pytest.approx(-shares.due(["a", "b"], now)["b"] * 21, rel=0.1)
        shares.rest("b", now)


def test_who_was_short_of_its_due_gets_more_than_its_part_for_a_while() -> None:
    shares = tree()
    shares.load({"a": [0.0, 1e6], "b": [0.0, 1e6]})  # so much that the last minutes hardly change what is due
    assert fill(shares, ["a", "b"], 3) == {"a": 1, "b": 2}
    shares.end("b", 100.0, 1, 0.0)
    assert fill(shares, ["a", "b"], 2, 100.0) == {"a": 2, "b": 0}, "half a core for 100 s is owed to a"
    assert fill(shares, ["a", "b"], 4, 1_000.0)["b"] > 2, "and paid back long ago"


def test_owners_with_as_much_stand_in_the_order_of_their_names() -> None:
    shares = tree()
    for name in ("c", "b", "a"):
        shares.wake(name, 0.0)
        shares.start(name, 0.0, 1)
    assert shares.order(["c", "a", "b"], 0.0) == ["a", "b", "c"]


def test_what_was_fetched_ahead_counts_when_it_ends() -> None:
    shares = tree()
    fill(shares, ["a", "b"], 2)
    for _ in range(100):
        shares.start("a", 0.0, 0)
        shares.end("a", 1.0, 0, 0.0, 0.5)
    assert shares.usage("a", 1.0) == pytest.approx(51.0, rel=1e-3)
    assert shares.order(["a", "b"], 1.0) == ["b", "a"]


def test_what_a_task_really_took_replaces_the_time_its_lease_was_held() -> None:
    shares = tree()
    shares.wake("a", 0.0)
    shares.start("a", 0.0, 4)
    shares.end("a", 100.0, 4, 0.0, 40.0)
    assert shares.usage("a", 100.0) == pytest.approx(40.0, rel=1e-3)


# --- changes and restarts
def test_other_shares_and_groups_count_from_now_on() -> None:
    shares = tree({"a": 3})
    fill(shares, ["a", "b"], 4)
    shares.end("b", 50.0, 1, 0.0)
    shares.reshape({"b": 3}, {"a": "phys", "b": "chem", "c": "chem"}, 100.0)
    assert shares.usage("@phys", 200.0) == pytest.approx(600.0, rel=0.01), "what runs goes on to count"
    assert shares.usage("@chem", 200.0) == pytest.approx(50.0, rel=0.01)
    assert shares.usage("", 200.0) == pytest.approx(650.0, rel=0.01)
    fresh = tree({"b": 3}, {"b": "chem", "c": "chem"})
    assert shares.due(["c", "b"], 200.0)["c"] > fresh.due(["c", "b"], 200.0)["c"] == 0.25, "b has used something"


def test_usage_survives_a_restart_with_tasks_running() -> None:
    before = tree({}, {"a": "phys"})
    before.start("a", 0.0, 2)
    before.start("b", 0.0, 1)
    before.start("a", 500.0, 1)
    before.end("a", 1000.0, 2, 0.0, 1500.0)
    before.end("b", 1000.0, 1, 0.0)
    rows = before.rows()
    assert set(rows) == {"a", "b"} and all(len(row) == 2 for row in rows.values())
    after = tree({}, {"a": "phys"})
    after.load(rows)
    after.start("a", 2000.0, 1, began=500.0)
    for name in ("a", "b", "@phys", ""):
        assert after.usage(name, 3000.0) == pytest.approx(before.usage(name, 3000.0))
    for shares in (before, after):
        shares.end("a", 4000.0, 1, 500.0, 100.0)
    assert after.usage("a", 4000.0) == pytest.approx(before.usage("a", 4000.0))
    assert after.rows()["a"] == pytest.approx(before.rows()["a"])


def test_a_clock_that_goes_back_breaks_nothing() -> None:
    shares = tree()
    fill(shares, ["a", "b"], 4, 1000.0)
    shares.end("a", 900.0, 1, 1000.0)
    shares.start("a", 800.0, 1)
    assert sorted(shares.order(["a", "b"], 700.0)) == ["a", "b"]
    assert shares.usage("a", 700.0) >= 0
