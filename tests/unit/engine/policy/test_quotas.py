"""Limits hold for every lease that is granted: chunks, tasks fetched ahead, backups and re-adopted copies too
[promise I14; input E75]."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import Conflict
from shoal.model.ids import parse_attempt
from tests.unit.engine.stand import OWNER, FakePilot, Stand, back, good

HOUR = 3600.0


def limited(*rules: dict[str, Any], stand: Stand | None = None) -> Stand:
    """A stand with these quotas."""
    stand = stand or Stand()
    stand.policy(quota=list(rules))
    return stand


def leases_of(pilots: list[FakePilot]) -> int:
    return sum(len(pilot.pull()) for pilot in pilots)


# --- running cores
def test_running_cores_are_never_more_than_the_quota_on_several_pilots_together() -> None:
    stand = limited({"who": OWNER, "cores": 5})
    stand.submit({"array": "1-99"})
    pilots = [stand.pilot(4, host=f"n{n}") for n in range(3)]
    assert leases_of(pilots) == 5
    assert stand.live(OWNER) == 5
    (first, *_) = pilots[0].held
    pilots[0].talk(good(first, duration=50.0))
    leases_of(pilots)
    assert stand.live(OWNER) == 5
    assert stand.sound()


def test_wide_tasks_count_by_their_cores_and_a_narrow_one_takes_what_is_left() -> None:
    stand = limited({"who": OWNER, "cores": 7})
    stand.submit({"array": "1-9", "cores": 3, "command": ["wide"]}, {"array": "1-9", "command": ["narrow"]})
    leases = stand.pilot(16).pull()
    assert sorted(lease.command[0] for lease in leases) == ["narrow", "wide", "wide"]


def test_a_chunk_is_no_longer_than_the_quota_allows() -> None:
    stand = limited({"who": OWNER, "cores": 3})
    stand.submit({"array": "1-99", "command": ["x"]})
    pilot = stand.pilot(16)
    pilot.pull()
    assert len(stand.engine.state.pilots[pilot.name].chunks) == 1
    assert stand.live(OWNER) == 3


def test_what_is_fetched_ahead_counts() -> None:
    stand = limited({"who": OWNER, "cores": 6})
    stand.submit({"array": "1-500", "command": ["x"]})
    pilot = stand.pilot(2)
    most = 0
    pilot.pull()
    for _ in range(20):
        stand.now += 0.01
        pilot.talk(*(good(attempt, duration=0.001) for attempt in list(pilot.held)))
        most = max(most, len(pilot.held))
        assert stand.live(OWNER) <= 6
    assert most == 6, "more than its slots, no more than the quota"
    assert stand.sound()


def _straggler(cores: int) -> tuple[Stand, FakePilot]:
    stand = limited({"who": OWNER, "cores": cores})
    stand.submit({"array": "1-4", "cwd": "own"})
    slow = stand.pilot(host="slow")
    for _ in range(3):
        (attempt,) = slow.held or [slow.pull()[0].attempt]
        slow.talk(good(attempt, duration=5.0))
    slow.run()
    idle = stand.pilot(host="idle")
    idle.wait()
    stand.now += 9
    slow.talk()
    idle.pull()
    stand.pass_time(9)
    return stand, idle


def test_a_backup_copy_counts_and_is_not_made_where_the_quota_is_used_up() -> None:
    stand, idle = _straggler(cores=1)
    assert idle.took() == []
    assert stand.live(OWNER) == 1
    stand, idle = _straggler(cores=2)
    assert len(idle.took()) == 1, "the same with room for it"
    assert stand.live(OWNER) == 2
    assert stand.sound()


def test_copies_that_come_back_after_a_restart_count_before_anything_else_starts() -> None:
    stand = limited({"who": OWNER, "cores": 4})
    stand.submit({"array": "1-50"})
    old = stand.pilot(4, host="old")
    old.pull()
    old.run()
    stand.restart()
    fresh = stand.pilot(4, host="fresh")
    assert fresh.pull() == []
    old.talk()
    assert fresh.pull() == []
    assert stand.live(OWNER) == 4
    assert stand.sound()


def test_a_copy_that_the_server_forgot_is_not_adopted_beyond_the_quota() -> None:
    stand = limited({"who": OWNER, "cores": 2})
    stand.submit({"array": "1-50"})
    old = stand.pilot(2, host="old")
    stand.commit()
    old.pull()
    old.run()  # leased in the gap before a commit
    stand.crash()
    stand.pass_time(20)  # the quarantine is over
    fresh = stand.pilot(2, host="fresh")
    assert len(fresh.pull()) == 2
    told = old.orders("cancel")
    assert len(told) == 2
    assert stand.live(OWNER) == 2
    assert stand.sound()


def test_lowering_a_quota_kills_nothing_and_starts_nothing() -> None:
    stand = limited({"who": OWNER, "cores": 6})
    stand.submit({"array": "1-50"})
    pilot = stand.pilot(8)
    pilot.pull()
    pilot.run()
    stand.policy(quota=[{"who": OWNER, "cores": 4}])
    assert pilot.talk().orders == []
    assert stand.live(OWNER) == 6
    for left in (5, 4, 4):
        stand.now += 1
        pilot.talk(good(next(iter(pilot.held)), duration=50.0))
        assert stand.live(OWNER) == left
    stand.policy()
    pilot.pull()
    assert stand.live(OWNER) == 8
    assert stand.sound()


# --- who, where
def test_a_groups_quota_is_for_its_members_together_and_the_tightest_rule_on_the_path_decides() -> None:
    stand = Stand()
    stand.group("phys.hep", "ann")
    stand.group("phys.bio", "bob")
    limited({"who": "@phys", "cores": 5}, {"who": "bob", "cores": 2}, stand=stand)
    for owner in ("ann", "bob"):
        stand.submit({"array": "1-50"}, owner=owner)
    stand.pilot(16, group="phys").pull()
    assert stand.live("bob") <= 2
    assert stand.live("ann") + stand.live("bob") == 5


def test_a_quota_of_a_site_holds_for_the_sites_inside_of_it_together() -> None:
    stand = limited({"site": "eu", "cores": 3}, {"site": "eu.cern", "cores": 2})
    stand.submit({"array": "1-50"})
    cern, desy, us = (stand.pilot(4, host=site, site=site) for site in ("eu.cern", "eu.desy", "us"))
    assert [len(p.pull()) for p in (cern, desy, us)] == [2, 1, 4]
    assert stand.live(OWNER, "eu.cern", "eu.desy") == 3


def test_a_share_of_a_site_follows_the_cores_that_are_there() -> None:
    stand = limited({"who": OWNER, "site": "eu", "share": 0.5})
    stand.submit({"array": "1-50"})
    first = stand.pilot(8, host="a", site="eu")
    assert len(first.pull()) == 4
    second = stand.pilot(4, host="b", site="eu")
    assert len(second.pull()) == 2
    stand.drain(second)
    first.talk(good(next(iter(first.held)), duration=50.0))
    assert stand.live(OWNER, "eu") == 5, "4 are allowed now: one ended, none started"


def test_one_owners_quota_does_not_stop_another() -> None:
    stand = limited({"who": "ann", "cores": 1})
    stand.group("g", "ann", "bob")
    for owner in ("ann", "bob"):
        stand.submit({"array": "1-50"}, owner=owner)
    stand.pilot(8, group="g").pull()
    assert (stand.live("ann"), stand.live("bob")) == (1, 7)


def test_at_most_so_many_run_on_one_site() -> None:
    stand = Stand()
    stand.policy(match={"max_running": 3})
    stand.submit({"array": "1-50"})
    pilots = [stand.pilot(2, host=f"n{n}", site="eu") for n in range(3)]
    assert leases_of(pilots) == 3
    assert len(stand.pilot(4, host="us", site="us").pull()) == 3


# --- core hours
def test_core_hours_are_reserved_by_the_time_limit_and_spent_by_what_it_took() -> None:
    stand = limited({"who": OWNER, "core_hours": 4.0})
    stand.submit({"array": "1-50", "time": "1h"})
    pilot = stand.pilot(8)
    assert len(pilot.pull()) == 4
    pilot.run()
    stand.now += 1800
    done = list(pilot.held)
    assert len(pilot.talk(*(good(attempt, duration=1800.0) for attempt in done)).leases) == 2, "2 of 4 hours are left"
    assert stand.sound()


def test_core_hours_of_a_window_come_back_with_the_next_and_survive_a_restart() -> None:
    stand = limited({"who": OWNER, "when": "day", "core_hours": 1.0})
    stand.now = 10 * 24 * HOUR
    stand.submit({"array": "1-50", "time": "1h"})
    pilot = stand.pilot(4)
    (lease,) = pilot.pull()
    assert pilot.talk(good(lease.attempt, duration=HOUR)).leases == []
    stand.restart()
    stand.now += 20
    assert pilot.pull() == [], "what was spent is remembered"
    stand.now = 11 * 24 * HOUR + 1
    assert len(pilot.pull()) == 1


def test_a_rule_for_a_part_of_the_day_exists_only_then() -> None:
    stand = limited({"who": OWNER, "when": "08-18", "cores": 0})
    stand.now = 10 * 24 * HOUR + 9 * HOUR
    stand.submit({"array": "1-50"})
    pilot = stand.pilot(4)
    assert pilot.pull() == []
    stand.now += 9 * HOUR
    assert len(pilot.pull()) == 4


def test_a_returned_task_gives_its_reservation_back() -> None:
    stand = limited({"who": OWNER, "core_hours": 1.0})
    stand.submit({"time": "1h"})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    assert len(pilot.talk(back(lease.attempt)).leases) == 1


# --- queued
def test_a_submission_beyond_the_queued_quota_is_refused_whole() -> None:
    stand = limited({"who": OWNER, "queued": 10})
    stand.submit({"array": "1-8"})
    before = stand.engine.state.next_run
    with pytest.raises(Conflict) as refused:
        stand.submit({"array": "1-3"})
    assert refused.value.code == "over_quota"
    assert "10 tasks" in str(refused.value)
    assert stand.engine.state.next_run == before
    assert stand.sound()
    stand.submit({"array": "1-2"})
    assert stand.sound()


def test_what_is_final_no_longer_counts_as_queued_also_after_a_restart() -> None:
    stand = limited({"who": OWNER, "queued": 4})
    run = stand.submit({"array": "1-4"})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    pilot.talk(good(lease.attempt, duration=50.0))
    stand.restart()
    with pytest.raises(Conflict):
        stand.submit({"array": "1-2"})
    stand.submit({})
    stand.cancel(run)
    stand.submit({"array": "1-3"})
    assert stand.sound()


def test_a_retry_beyond_the_queued_quota_is_refused_whole() -> None:
    stand = limited({"who": OWNER, "queued": 4})
    run = stand.submit({"array": "1-3"})
    stand.cancel(run)
    stand.submit({"array": "1-2"})
    with pytest.raises(Conflict) as refused:
        stand.retry(run)
    assert refused.value.code == "over_quota"
    assert stand.state(run) == "cancelled"
    assert stand.sound()
    stand.policy()
    assert stand.retry(run) == 3
    assert stand.sound()


def test_queued_tasks_of_a_group_count_together() -> None:
    stand = Stand()
    stand.group("g", "ann", "bob")
    limited({"who": "@g", "queued": 5}, stand=stand)
    stand.submit({"array": "1-3"}, owner="ann")
    with pytest.raises(Conflict):
        stand.submit({"array": "1-3"}, owner="bob")
    stand.submit({"array": "1-3"}, owner="cid")


# --- licences
def test_licences_are_never_exceeded() -> None:
    stand = Stand()
    stand.policy(licences={"matlab": 3})
    stand.submit({"array": "1-9", "licences": {"matlab": 2}}, {"array": "1-9", "licences": ["matlab"]})
    pilots = [stand.pilot(4, host=f"n{n}") for n in range(2)]
    assert leases_of(pilots) == 2
    assert stand.engine.state.accounting.licences == {"matlab": 3}
    assert stand.sound()


def test_a_licence_is_free_again_when_its_task_ends_and_survives_a_restart() -> None:
    stand = Stand()
    stand.policy(licences={"matlab": 1})
    stand.submit({"array": "1-3", "licences": ["matlab"]})
    pilot, other = stand.pilot(host="a"), stand.pilot(host="b")
    first = pilot.work()
    assert other.pull() == []
    stand.restart()
    pilot.talk()
    assert other.pull() == []
    pilot.talk(good(first, duration=50.0))
    assert len(pilot.held) + len(other.held) + len(other.took()) == 1
    assert stand.engine.state.accounting.licences == {"matlab": 1}
    assert stand.sound()


def test_a_licence_that_the_server_does_not_have_starts_nothing_and_stops_nobody_else() -> None:
    stand = Stand()
    stand.submit({"licences": ["abaqus"]}, {"command": ["plain"]})
    assert [lease.command for lease in stand.pilot(4).pull()] == [["plain"]]


def test_the_books_follow_a_pilot_that_enrols_again_on_another_site() -> None:
    stand = limited({"site": "a", "cores": 1})
    stand.submit({"array": "1-3"})
    pilot = stand.pilot(host="h", site="a")
    pilot.work()
    again = stand.pilot(former=pilot, host="h", site="b")
    again.run()
    assert stand.sound()
    assert stand.live(OWNER, "b") == 1
    assert len(stand.pilot(host="h2", site="a").pull()) == 1
    assert parse_attempt(next(iter(again.held))).element == 1


def test_what_an_exclusive_orphan_holds_counts_after_a_restart_too() -> None:
    stand = limited({"who": OWNER, "cores": 1})
    stand.submit({"rerun": "exclusive"}, {"command": ["other"]})
    pilot = stand.pilot(host="p")
    pilot.work()
    stand.bury(pilot)
    assert stand.pilot(host="q").pull() == []
    stand.restart()
    stand.pass_time(20)
    assert stand.pilot(host="r").pull() == [], "it may still run there"
    stand.pilot(former=pilot, host="p").talk()
    assert stand.live(OWNER) == 1
    assert stand.sound()


def test_a_copy_that_lives_is_not_adopted_beyond_the_licences_or_the_bound_of_its_site() -> None:
    for policy in ({"licences": {"k": 1}}, {"licences": {"k": 9}, "match": {"max_running": 1}}):
        stand = Stand()
        stand.policy(**policy)
        stand.submit({"array": "1-2", "licences": ["k"]})
        old = stand.pilot(host="old")
        old.work()
        stand.bury(old)
        new = stand.pilot(host="new")
        new.work()
        again = stand.pilot(former=old, host="old")
        assert len(again.orders("cancel")) == 1
        assert stand.live(OWNER) == 1
