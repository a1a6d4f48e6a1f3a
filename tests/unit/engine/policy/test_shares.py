"""Several owners on one pool: turns by share, newcomers, share 0, and what survives a restart [promise I13]."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shoal.model.ids import parse_attempt
from tests.unit.engine.stand import FakePilot, Stand, good

THREE = ("ann", "bob", "cid")


def pool(stand: Stand, cores: int = 12, *owners: str, **policy: Any) -> FakePilot:
    """One group's pilot, and a long queue of everybody."""
    stand.policy(**policy)
    stand.group("g", *owners)
    for owner in owners:
        stand.submit({"command": ["x", owner], "array": "1-400"}, owner=owner)
    return stand.pilot(cores, group="g")


def had(stand: Stand, pilot: FakePilot, rounds: int) -> Counter[str]:
    """How many slots each owner had over so many rounds in which everything ends and starts anew."""
    found: Counter[str] = Counter()
    pilot.pull()
    for _ in range(rounds):
        found.update(stand.engine.state.runs[parse_attempt(attempt).run].owner for attempt in pilot.held)
        stand.now += 60
        pilot.talk(*(good(attempt, duration=60.0) for attempt in list(pilot.held)))
    return found


def test_several_owners_on_one_groups_pilot_take_turns() -> None:
    stand = Stand()
    leases = pool(stand, 12, *THREE).pull()
    assert Counter(lease.command[-1] for lease in leases) == {"ann": 4, "bob": 4, "cid": 4}
    assert stand.sound()


def test_shares_decide_how_much_each_gets() -> None:
    stand = Stand()
    found = had(stand, pool(stand, 12, *THREE, share={"ann": 2}), 25)
    assert found["ann"] / 300 == pytest.approx(0.5, abs=0.03)
    assert found["bob"] / 300 == pytest.approx(0.25, abs=0.03)


def test_shares_of_groups_come_before_those_of_their_members() -> None:
    stand = Stand()
    stand.policy(share={"@g.a": 3})
    for owner, group in (("ann", "g.a"), ("abe", "g.a"), ("bob", "g.b")):
        stand.group(group, owner)
        stand.submit({"command": ["x", owner], "array": "1-400"}, owner=owner)
    found = had(stand, stand.pilot(16, group="g"), 20)
    assert found["bob"] / 320 == pytest.approx(0.25, abs=0.03)
    assert abs(found["ann"] - found["abe"]) <= 10


def test_nobody_elses_pilot_runs_ones_tasks_whatever_the_share() -> None:
    stand = Stand()
    stand.group("g", "ann", "bob")
    stand.submit({"array": "1-9"}, owner="cid")
    stand.submit({"array": "1-9"}, owner="bob")
    assert stand.pilot(group="g", host="a").pull()[0].attempt.startswith("r2.")
    assert stand.pilot(owner="cid", host="b").pull()[0].attempt.startswith("r1.")
    assert stand.pilot(owner="ann", host="c").pull() == []


def test_share_0_runs_only_when_nobody_else_can() -> None:
    stand = Stand()
    pilot = pool(stand, 4, "ann", "bob", share={"bob": 0})
    assert had(stand, pilot, 5) == {"ann": 20}
    stand.cancel(1)
    stand.now += 1
    assert {lease.command[-1] for lease in pilot.pull(held={})} == {"bob"}


def test_share_0_gets_what_others_cannot_use() -> None:
    stand = Stand()
    stand.group("g", "ann", "bob")
    stand.policy(share={"bob": 0})
    stand.submit({"command": ["x", "ann"], "array": "1-9", "memory": "6G"})
    stand.submit({"command": ["x", "bob"], "array": "1-9"}, owner="bob")
    leases = stand.pilot(4, group="g").pull()
    assert Counter(lease.command[-1] for lease in leases) == {"ann": 1, "bob": 3}


def test_a_newcomer_gets_the_next_slot_that_is_free() -> None:
    stand = Stand()
    pilot = pool(stand, 4, "ann", "bob")
    leases = pilot.pull()
    stand.group("g", "cid")
    stand.submit({"command": ["x", "cid"]}, owner="cid")
    stand.now += 60
    assert [lease.command[-1] for lease in pilot.talk(good(leases[0].attempt)).leases] == ["cid"]


def test_another_share_counts_from_the_next_slot_on() -> None:
    stand = Stand()
    pilot = pool(stand, 10, "ann", "bob")
    had(stand, pilot, 2)
    stand.policy(share={"ann": 9})
    had(stand, pilot, 1)
    found = had(stand, pilot, 10)
    assert found["ann"] > 3 * found["bob"]
    assert stand.sound()


@pytest.mark.parametrize("usage", [{}, {"kind": "window", "window": "2h", "buckets": 4}])
def test_usage_survives_a_restart(usage: dict[str, Any]) -> None:
    stand = Stand()
    pilot = pool(stand, 4, "ann", "bob", usage=usage)
    had(stand, pilot, 3)
    tree = stand.engine.state.accounting.tree
    used = {owner: tree.usage(owner, stand.now) for owner in ("ann", "bob", "@g", "")}
    assert used["ann"] > 0
    pilot.run()
    stand.restart()
    pilot.talk()
    again = stand.engine.state.accounting.tree
    assert {owner: again.usage(owner, stand.now) for owner in used} == pytest.approx(used, rel=0.05)
    assert stand.sound()


def test_usage_counted_in_another_way_begins_anew_and_still_adds_up() -> None:
    stand = Stand()
    pilot = pool(stand, 4, "ann", "bob")
    had(stand, pilot, 3)
    stand.policy(usage={"kind": "window", "window": "1d", "buckets": 24})
    assert stand.sound()
    pilot.run()
    assert stand.sound()
    pilot.talk(*(good(attempt) for attempt in list(pilot.held)))
    assert stand.sound()


def test_one_who_moves_to_another_group_takes_turns_there() -> None:
    stand = Stand()
    pilot = pool(stand, 4, "ann", "bob")
    stand.group("other", "bob")
    assert {lease.command[-1] for lease in pilot.pull()} == {"ann"}
    stand.group("g.inner", "bob")
    leases = stand.pilot(4, group="g", host="second").pull()
    assert "bob" in {lease.command[-1] for lease in leases}
    assert stand.sound()


def test_short_tasks_of_several_owners_are_fetched_ahead_in_turns() -> None:
    stand = Stand()
    pilot = pool(stand, 4, "ann", "bob")
    leases = pilot.pull()
    for _ in range(4):
        stand.now += 0.01
        leases = pilot.talk(*(good(attempt, duration=0.01) for attempt in list(pilot.held))).leases
        stand.sound()
    assert len(pilot.held) > 4
    assert leases
    both = stand.live("ann"), stand.live("bob")
    assert min(both) > 0
