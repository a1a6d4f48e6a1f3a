"""Whose fault a failure is, what follows for the task and for the place, and what is remembered
[promise I12; GWP G7; SPHINX S8]."""

from __future__ import annotations

import pytest

from shoal.engine.changes import Notice
from shoal.model.ids import parse_attempt
from shoal.model.states import Cause
from shoal.wire.messages import Lease, Report
from tests.unit.engine.stand import FakePilot, Stand, back, bad, brief, good, no_memory

GIGA = 1 << 30


def bans(stand: Stand) -> list[tuple[str, str]]:
    """Places that were banned, as the journal tells."""
    return [(event.data["place"], event.data["name"]) for event in stand.events("place_banned")]


def spoil(stand: Stand, *, hosts: int = 3, cores: int = 1) -> tuple[FakePilot, list[FakePilot], int]:
    """A pilot that fails everything at once among good ones, until it is banned; it, the others and the run."""
    run = stand.submit({"array": "1-5000"})
    others = [stand.pilot(cores, host=f"good{n}", site=f"site{n}") for n in range(hosts)]
    hole = stand.pilot(cores, host="hole", site="pit")
    for _ in range(40):
        stand.now += 0.5
        hole.talk(*(bad(attempt, duration=0.001) for attempt in list(hole.held)))
        for other in others:
            other.talk(*(good(attempt, duration=0.5) for attempt in list(other.held)))
    return hole, others, run


# --- black holes
@pytest.mark.parametrize("hosts", [1, 3])
def test_a_black_hole_wastes_at_most_six_tasks_and_burns_no_retry(hosts: int) -> None:
    stand = Stand()
    hole, _, run = spoil(stand, hosts=hosts)
    wasted = [event for event in stand.events("task_retried") if event.pilot == hole.name]
    assert 1 <= len(wasted) <= 6
    assert all(not event.data["burnt"] for event in wasted)
    assert not [event for event in stand.events("task_finished") if event.data["state"] == "failed"]
    assert all(task.retries == 0 for task in stand.engine.state.runs[run].arrays[0].tasks.values())
    assert stand.sound()


def test_a_black_hole_is_banned_aloud_with_reason_and_end() -> None:
    stand = Stand()
    notices: list[Notice] = []
    stand.submit({"array": "1-5000"})
    other, hole = stand.pilot(host="good", site="a"), stand.pilot(host="hole", site="pit")
    for _ in range(40):
        stand.now += 0.5
        hole.talk(*(bad(attempt, duration=0.001, message="no disk") for attempt in list(hole.held)))
        notices += stand.last.notices
        other.talk(*(good(attempt, duration=0.5) for attempt in list(other.held)))
    assert set(bans(stand)) == {("host", "hole"), ("pilot", hole.name)}
    (event, *_) = stand.events("place_banned")
    assert "no disk" in event.data["reason"]
    assert event.data["until"] > event.time
    assert {(n.kind, n.name) for n in notices if n.what == "banned"} == {("host", "hole"), ("pilot", hole.name)}


def test_a_black_hole_that_comes_first_waits_until_others_show_whose_fault_it_is() -> None:
    stand = Stand()
    stand.submit({"array": "1-100"})
    hole, other = stand.pilot(host="hole"), stand.pilot(host="good")
    failed = 0
    for _ in range(20):
        hole.talk(*(bad(attempt, duration=0.001) for attempt in list(hole.held)))
        failed = len(stand.events("task_retried"))
    assert failed <= 6
    assert bans(stand) == [], "nobody knows yet"
    other.pull()
    for _ in range(5):
        other.talk(*(good(attempt, duration=5.0) for attempt in list(other.held)))
    assert len(stand.events("task_retried")) <= 6
    assert stand.sound()


def test_what_failed_on_the_black_hole_succeeds_elsewhere() -> None:
    stand = Stand()
    run = stand.submit({"array": "1-6"})
    hole, other = stand.pilot(host="hole"), stand.pilot(host="good")
    for _ in range(12):
        stand.now += 1
        hole.talk(*(bad(attempt, duration=0.001) for attempt in list(hole.held)))
        other.talk(*(good(attempt, duration=1.0) for attempt in list(other.held)))
    assert {stand.state(run, element) for element in range(1, 7)} == {"succeeded"}


# --- bans end
def test_a_ban_expires_then_one_probe_is_sent_and_its_success_lifts_it() -> None:
    stand = Stand()
    hole, others, _ = spoil(stand, cores=4)
    assert bans(stand)
    assert hole.pull() == []
    probe = probe_of(stand, hole, others)
    assert hole.pull() == [], "one, though it has four slots"
    hole.talk(good(probe.attempt, duration=1.0))
    assert {event.data["place"] for event in stand.events("place_lifted")} == {"host", "pilot"}
    assert len(hole.held) > 1
    assert stand.sound()


def test_a_probe_that_fails_prolongs_the_ban() -> None:
    stand = Stand()
    hole, others, _ = spoil(stand)
    until = stand.engine.state.accounting.evidence_of("ann").places.streaks["host", "hole"].until
    probe = probe_of(stand, hole, others)
    assert hole.talk(bad(probe.attempt, duration=0.001)).leases == []
    later = stand.engine.state.accounting.evidence_of("ann").places.streaks["host", "hole"].until
    assert later > stand.now > until
    assert hole.pull() == []


@pytest.mark.parametrize("how", ["returned", "lost", "cancelled"])
def test_a_probe_that_tells_nothing_lets_another_one_begin(how: str) -> None:
    stand = Stand()
    hole, others, _ = spoil(stand)
    probe = probe_of(stand, hole, others)
    if how == "returned":
        hole.talk(back(probe.attempt))
    elif how == "cancelled":
        stand.cancel(parse_attempt(probe.attempt).task)
        hole.talk(Report(probe.attempt, "cancelled"))
    else:
        stand.bury(hole)
        hole = stand.pilot(host="hole", site="pit")
    stand.pass_time(1)
    assert len([*hole.took(), *hole.pull()]) == 1


def probe_of(stand: Stand, hole: FakePilot, others: list[FakePilot]) -> Lease:
    """Let the ban pass while everybody beats; the one task that is sent then."""
    for _ in range(200):
        stand.now += 30
        leases = hole.talk().leases
        if leases:
            assert len(leases) == 1, "one at a time"
            return leases[0]
        for other in others:
            other.talk(*(good(attempt, duration=1.0) for attempt in list(other.held)))
    raise AssertionError("no probe was sent")


def test_bans_survive_a_restart() -> None:
    stand = Stand()
    hole, others, _ = spoil(stand)
    ban = stand.engine.state.accounting.evidence_of("ann").places.verdict(hole.name, "hole", "pit", stand.now)
    assert ban is not None
    stand.restart()
    for pilot in (hole, *others):
        pilot.talk()
    assert stand.engine.state.accounting.evidence_of("ann").places.verdict(hole.name, "hole", "pit", stand.now) == ban
    assert hole.pull() == []


def test_a_lifted_ban_stays_lifted_after_a_restart() -> None:
    stand = Stand()
    hole, others, _ = spoil(stand)
    probe = probe_of(stand, hole, others)
    hole.talk(good(probe.attempt, duration=1.0))
    stand.restart()
    assert not stand.engine.state.accounting.evidence_of("ann").places.streaks


def test_a_site_is_banned_when_most_of_its_hosts_fail() -> None:
    stand = Stand()
    stand.submit({"array": "1-5000"})
    good_ones = [stand.pilot(host=f"good{n}", site="fine") for n in range(4)]
    bad_ones = [stand.pilot(host=f"bad{n}", site="pit") for n in range(3)]
    for _ in range(120):
        stand.now += 5
        for pilot in bad_ones:
            pilot.talk(*(bad(attempt, duration=0.001) for attempt in list(pilot.held)))
        for pilot in good_ones:
            pilot.talk(*(good(attempt, duration=5.0) for attempt in list(pilot.held)))
    assert ("site", "pit") in bans(stand)
    fresh = stand.pilot(host="fresh", site="pit")
    assert fresh.pull() == []
    assert "site pit" in stand.engine.why(fresh.name, stand.now)[1][0].text


# --- the task's own errors
def test_a_task_that_fails_everywhere_never_bans_a_host_and_is_final_after_its_tries() -> None:
    stand = Stand()
    run = stand.submit({"command": ["broken"], "retries": 2})
    pilots = [stand.pilot(host=f"n{n}") for n in range(4)]
    for _ in range(30):
        stand.now += 1
        for pilot in pilots:
            pilot.talk(*(bad(attempt) for attempt in list(pilot.held)))
    assert stand.state(run) == "failed"
    assert stand.row(run).retries == 2
    assert stand.row(run).cause == "task_error"
    assert bans(stand) == []
    assert stand.engine.state.accounting.evidence_of("ann").places.streaks == {}
    assert stand.sound()


def test_a_whole_sweep_of_broken_tasks_bans_nobody() -> None:
    stand = Stand()
    run = stand.submit({"command": ["broken", "{i}"], "array": "1-60"})
    pilots = [stand.pilot(2, host=f"n{n}") for n in range(3)]
    for _ in range(80):
        stand.now += 1
        for pilot in pilots:
            pilot.talk(*(bad(attempt) for attempt in list(pilot.held)))
    assert {stand.state(run, element) for element in range(1, 61)} == {"failed"}
    assert bans(stand) == []


def test_on_the_only_host_a_failure_is_the_tasks_own_at_once() -> None:
    stand = Stand()
    run = stand.submit({"retries": 1})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    (again,) = pilot.talk(bad(lease.attempt)).leases
    pilot.talk(bad(again.attempt))
    assert stand.state(run) == "failed"
    assert bans(stand) == []


def test_a_task_that_failed_avoids_the_host_until_no_other_could_run_it() -> None:
    stand = Stand()
    run = stand.submit({"require": "arch == 'x'", "retries": 5})
    one, two = (stand.pilot(host=host, tags={"arch": "x"}) for host in ("one", "two"))
    stand.pilot(host="three", tags={"arch": "y"})  # it can never run it, so nobody waits for it
    (lease,) = one.pull()
    assert one.talk(bad(lease.attempt)).leases == []
    assert stand.why(run).text == "a pilot has room and takes it with its next exchange"
    stand.bury(two)
    assert "failed on one" in stand.why(run).text
    stand.pass_time(1)
    assert [brief(lease.attempt) for lease in one.pull()] == ["r1.1#2@1"]
    assert stand.sound()


def test_a_task_that_a_person_retries_knows_nothing_of_what_it_avoided() -> None:
    stand = Stand()
    run = stand.submit({})
    one, two = stand.pilot(host="one"), stand.pilot(host="two")
    (lease,) = one.pull()
    one.talk(bad(lease.attempt))
    (lease,) = two.pull()
    two.talk(bad(lease.attempt))
    assert stand.state(run) == "failed"
    assert stand.retry(run) == 1
    stand.bury(two)
    stand.pass_time(1)
    assert stand.state(run) in ("leased", "ready")
    assert stand.row(run).state == stand.state(run), "the row is of the new try"
    assert len([*one.took(), *one.pull()]) == 1
    assert stand.sound()


# --- memory, time, set-up
def test_out_of_memory_is_tried_again_with_more_up_to_the_cap_and_the_lease_carries_it() -> None:
    stand = Stand()
    run = stand.submit({"memory": "1G"})
    pilot = stand.pilot()
    given, leases = [], pilot.pull()
    while leases:
        given.append(leases[0].room.memory)
        assert stand.sound()
        leases = pilot.talk(no_memory(leases[0].attempt, max_rss=given[-1])).leases
    assert given == [GIGA, 2 * GIGA, 4 * GIGA], "twice as much each time, four times at most"
    row = stand.row(run)
    assert (row.state, row.cause, row.retries) == ("failed", "out_of_memory", 0)
    assert bans(stand) == []


def test_more_memory_is_no_more_than_the_largest_host_has() -> None:
    stand = Stand()
    stand.submit({"memory": "5G"})
    small = stand.pilot(host="small")
    (lease,) = small.pull()
    (again,) = small.talk(no_memory(lease.attempt)).leases
    assert again.room.memory == 8 * GIGA
    assert small.talk(no_memory(again.attempt)).leases == []


def test_a_task_with_more_memory_keeps_it_over_a_restart_and_its_neighbours_do_not_get_it() -> None:
    stand = Stand()
    stand.policy(memory={"factor": 3.0, "cap": 3.0})
    stand.submit({"array": "1-2", "memory": "1G"})
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    pilot.talk(no_memory(lease.attempt))
    stand.restart()
    pilot.talk()
    found = {}
    for _ in range(2):
        leases = [*pilot.took(), *pilot.pull()]
        found.update({a.split("#")[0]: stand.task(1, int(a[3])).needs.memory for a in pilot.held})
        found.update({one.attempt.split("#")[0]: one.room.memory for one in leases})
        pilot.talk(*(good(attempt, duration=9.0) for attempt in list(pilot.held)))
        found.update({a.split("#")[0]: stand.task(1, int(a[3])).needs.memory for a in pilot.held})
    assert found == {"r1.1": 3 * GIGA, "r1.2": GIGA}
    assert stand.sound()


def test_a_task_over_its_time_goes_elsewhere_while_retries_are_left() -> None:
    stand = Stand()
    run = stand.submit({"time": "10s", "retries": 1})
    one, two = stand.pilot(host="one"), stand.pilot(host="two")
    (lease,) = one.pull()
    assert one.talk(bad(lease.attempt, cause="over_time", duration=10.0)).leases == []
    (lease,) = two.pull()
    two.talk(bad(lease.attempt, cause="over_time", duration=10.0))
    assert stand.row(run).cause == "over_time"
    assert stand.row(run).retries == 1
    assert bans(stand) == []


def test_over_time_counts_against_a_site_only_where_others_of_its_kind_fit() -> None:
    stand = Stand()
    stand.submit({"array": "1-40", "time": "10s", "retries": 9})
    other = stand.pilot(host="other", site="b")
    slow = stand.pilot(host="slow", site="a")
    slow.pull()
    slow.talk(*(bad(attempt, cause="over_time", duration=10.0) for attempt in list(slow.held)))
    assert stand.engine.state.accounting.evidence_of("ann").places.streaks == {}, (
        "the limit may be too short for everybody"
    )
    other.pull()
    for _ in range(20):
        stand.now += 1
        slow.talk(*(good(attempt, duration=1.0) for attempt in list(slow.held)))
    (attempt,) = slow.held
    slow.talk(bad(attempt, cause="over_time", duration=10.0))
    assert ("host", "slow") in stand.engine.state.accounting.evidence_of("ann").places.streaks


def test_setup_that_fails_on_three_hosts_is_the_tasks_error_and_bans_nobody() -> None:
    stand = Stand()
    run = stand.submit({"setup": ["module load gcc/99"], "retries": 0})
    pilots = [stand.pilot(host=f"n{n}") for n in range(5)]
    tries = 0
    for _ in range(5):
        for pilot in pilots:
            leases = [*pilot.took(), *pilot.pull()]
            if leases:
                tries += 1
                pilot.talk(bad(leases[0].attempt, cause="host_unfit", message="no module gcc/99", started=None))
    row = stand.row(run)
    assert (row.state, row.cause) == ("failed", "task_error")
    assert "setup" in row.message
    assert tries == 3
    assert bans(stand) == []


def test_setup_that_works_elsewhere_is_the_hosts_fault_and_burns_nothing() -> None:
    stand = Stand()
    run = stand.submit({"setup": ["module load gcc"], "array": "1-60"})
    fine, unfit = stand.pilot(host="fine", site="a"), stand.pilot(host="unfit", site="b")
    fine.pull()
    fine.talk(*(good(attempt, duration=9.0) for attempt in list(fine.held)))
    for _ in range(20):
        stand.now += 1
        unfit.talk(*(bad(a, cause="host_unfit", started=None, duration=0.01) for a in list(unfit.held)))
    assert ("host", "unfit") in bans(stand)
    wasted = [event for event in stand.events("task_retried") if event.pilot == unfit.name]
    assert len(wasted) <= 6
    assert not any(event.data["burnt"] for event in wasted)
    assert stand.engine.state.runs[run].finals.get("failed", 0) == 0


@pytest.mark.parametrize("cause", sorted(c.value for c in Cause))
def test_every_cause_ends_or_goes_on_and_the_books_add_up(cause: str) -> None:
    stand = Stand()
    stand.submit({"array": "1-3", "retries": 1})
    pilots = [stand.pilot(host=f"n{n}") for n in range(2)]
    for _ in range(20):
        stand.now += 1
        for pilot in pilots:
            pilot.talk(*(bad(attempt, cause=cause) for attempt in list(pilot.held)))
            assert stand.sound()
    assert stand.engine.state.runs[1].finished is not None or cause == "pilot_lost"
