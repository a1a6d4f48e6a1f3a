"""The accounts add up with the reports: useful, failed, lost and duplicated core time [GWP G12]."""

from __future__ import annotations

import pytest

from tests.unit.engine.stand import FakePilot, Stand, back, bad, good, later


def sums(stand: Stand) -> dict[str, float]:
    """Core seconds by fate, and tasks."""
    names = ("useful", "failed", "lost", "duplicated", "tasks")
    found = {name: sum(getattr(line, name) for line in stand.accounts) for name in names}
    return {name: value for name, value in found.items() if value}


def test_successes_and_failures_count_by_their_cores() -> None:
    stand = Stand()
    stand.submit({"array": "1-2", "cores": 3, "retries": 1})
    pilot = stand.pilot(6)
    one, two = (lease.attempt for lease in pilot.pull())
    pilot.talk(good(one, duration=10.0), bad(two, duration=4.0))
    (again,) = pilot.held
    pilot.talk(good(again, duration=5.0))
    assert sums(stand) == {"useful": 45.0, "failed": 12.0, "tasks": 3}


def test_a_chunk_counts_as_its_elements_would() -> None:
    stand = Stand()
    stand.submit({"array": "1-9", "command": ["x"]})
    pilot = stand.pilot(4)
    for _ in range(9):
        leases = pilot.pull()
        pilot.talk(*(good(attempt, duration=2.0) for attempt in list(pilot.held)))
        if not leases and not pilot.held:
            break
    assert sums(stand) == {"useful": 18.0, "tasks": 9}


def test_what_a_lost_pilot_ran_is_lost_and_what_it_had_not_begun_is_nothing() -> None:
    stand = Stand()
    stand.submit({"array": "1-2"})
    pilot = stand.pilot(2)
    first, _ = (lease.attempt for lease in pilot.pull())
    pilot.run(first)
    stand.now += 30
    stand.bury(pilot)
    assert sums(stand) == {"lost": 30.0, "tasks": 1}


def test_what_was_given_back_after_it_began_is_lost() -> None:
    stand = Stand()
    stand.submit({})
    pilot = stand.pilot()
    pilot.talk(back(pilot.work(), duration=7.0, started=1.0))
    assert sums(stand)["lost"] == 7.0


def test_a_part_that_ended_with_a_checkpoint_is_useful() -> None:
    stand = Stand()
    stand.submit({"checkpoint": ["state"]})
    pilot = stand.pilot()
    (lease,) = pilot.talk(later(pilot.work(), "sha256:" + "a" * 64, duration=7.0)).leases
    pilot.talk(good(lease.attempt, duration=3.0))
    assert sums(stand)["useful"] == 10.0


def test_the_copy_that_came_second_is_duplicated() -> None:
    stand, slow, idle, attempt = _copied()
    copy = idle.took()[0].attempt
    idle.run(copy)
    stand.now += 5
    slow.talk(good(attempt, duration=20.0))
    found = sums(stand)
    assert (found["useful"], found["duplicated"]) == (35.0, 5.0)
    assert stand.sound()


def _copied() -> tuple[Stand, FakePilot, FakePilot, str]:
    stand = Stand()
    stand.submit({"array": "1-4", "cwd": "own"})
    slow = stand.pilot(host="slow")
    leases = slow.pull()
    for _ in range(3):
        leases = slow.talk(good(leases[0].attempt, duration=5.0)).leases
    slow.run()
    idle = stand.pilot(host="idle")
    idle.wait()
    stand.now += 9
    slow.talk()
    idle.pull()
    stand.pass_time(9)
    return stand, slow, idle, leases[0].attempt


def test_the_time_it_waited_counts_once_and_staging_each_time() -> None:
    stand = Stand()
    stand.submit({"retries": 1})
    stand.now += 40
    pilot = stand.pilot()
    (lease,) = pilot.pull()
    (again,) = pilot.talk(bad(lease.attempt, staging=1.5)).leases
    pilot.talk(good(again.attempt, staging=2.0))
    assert sum(line.queued for line in stand.accounts) == 40.0
    assert sum(line.staging for line in stand.accounts) == 3.5


def test_lines_are_by_hour_owner_site_host_pilot_and_run() -> None:
    stand = Stand()
    stand.now = 7200.0
    run = stand.submit({})
    pilot = stand.pilot(host="n17", site="eu")
    pilot.talk(good(pilot.work()))
    (line,) = stand.accounts
    assert (line.hour, line.owner, line.site, line.host, line.pilot, line.run) == (
        2, "ann", "eu", "n17", pilot.name, run,
    )  # fmt: skip


def test_what_the_accounts_say_is_what_the_share_and_the_quota_count() -> None:
    stand = Stand()
    stand.policy(quota=[{"who": "ann", "core_hours": 100.0}], usage={"kind": "window", "window": "30d", "buckets": 30})
    stand.submit({"array": "1-20", "retries": 1})
    pilot = stand.pilot(4)
    pilot.pull()
    for at in range(6):
        stand.now += 60
        attempts = list(pilot.held)
        pilot.talk(*(bad(a, duration=60.0) if at == 2 else good(a, duration=60.0) for a in attempts))
    (standing,) = stand.engine.state.accounting.ledger.standings(stand.now)
    total = sum(line.useful + line.failed for line in stand.accounts)
    assert total > 0
    running = sum(a.reserved for p in stand.engine.state.pilots.values() for a in p.live.values())
    assert standing.used * 3600 == pytest.approx(total + running)
