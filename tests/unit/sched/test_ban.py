"""Bans: the formula with its figures, bursts, probes, and what pilots, hosts and sites have to do with each other."""

from __future__ import annotations

import json
from math import exp

import pytest

from shoal.sched.ban import (
    BURST,
    MIN_BAN,
    PROBE_LONG,
    Banned,
    Places,
    Streak,
    ban_time,
    fail,
    forgive,
    is_banned,
    is_on_trial,
    may_probe,
)

LONGEST, SCALE = 3_600.0, 600.0


def places(kept: int = 1_000) -> Places:
    return Places(LONGEST, SCALE, kept)


def failing(*times: float) -> Streak:
    streak: Streak | None = None
    for now in times:
        streak = fail(streak, now, "exit code 1", LONGEST, SCALE)
    assert streak is not None
    return streak


def test_a_ban_grows_towards_the_longest_with_the_time_from_first_to_latest_failure() -> None:
    streak = failing(100.0, 700.0)
    assert streak.until - 700.0 == pytest.approx(3_600 * (1 - exp(-1)))
    assert failing(0.0, 60_000.0).until - 60_000.0 == pytest.approx(3_600)


def test_a_first_failure_bans_nobody() -> None:
    streak = failing(100.0)
    assert not is_banned(streak, 100.0) and not is_on_trial(streak, 200.0)
    assert not is_banned(None, 0.0) and not may_probe(None, 0.0)


def test_a_ban_of_less_than_a_second_is_none() -> None:
    assert ban_time(0.1, 2, LONGEST, SCALE) == 0.0
    assert ban_time(0.2, 2, LONGEST, SCALE) > 1.0


def test_a_place_that_fails_at_once_is_banned_for_a_minute_at_its_sixth_failure() -> None:
    times = [0.001 * n for n in range(BURST + 1)]
    assert not is_banned(failing(*times[:-1]), times[-2])
    assert failing(*times).until == pytest.approx(times[-1] + MIN_BAN)


def test_no_ban_is_longer_than_the_policys_longest_and_zero_turns_bans_off() -> None:
    assert ban_time(1e9, 100, 30.0, SCALE) == 30.0
    assert ban_time(1e9, 100, 0.0, SCALE) == 0.0
    assert ban_time(10.0, 2, 30.0, 0.0) == 30.0, "no scale: the longest at once"


def test_after_the_ban_one_probe_at_a_time_may_go_there() -> None:
    streak = failing(0.0, 600.0)
    assert is_banned(streak, streak.until - 1) and not may_probe(streak, streak.until - 1)
    assert may_probe(streak, streak.until)
    running = streak._replace(probing=streak.until)
    assert not may_probe(running, streak.until + 1)
    assert may_probe(running, streak.until + PROBE_LONG), "a probe that runs so long did not fail at once"


def test_a_failed_probe_bans_for_longer() -> None:
    streak = failing(0.0, 600.0)
    again = fail(streak._replace(probing=streak.until), streak.until + 1, "again", LONGEST, SCALE)
    assert again.until - again.latest > streak.until - streak.latest
    assert again.probing is None and again.reason == "again"


def test_a_forgiven_failure_no_longer_counts() -> None:
    assert forgive(failing(0.0)) is None
    two = forgive(failing(0.0, 600.0))
    assert two is not None and two.failures == 1 and not is_banned(two, 600.0)
    three = forgive(failing(0.0, 600.0, 700.0))
    assert three is not None and three.failures == 2 and is_banned(three, 700.0)


# --- places
def test_blame_falls_on_pilot_and_host_and_is_told_with_reason_and_end() -> None:
    known = places()
    assert known.blame("p1", "h1", "s", 0.0, "exit code 3", 10) == []
    told = known.blame("p1", "h1", "s", 600.0, "exit code 3", 10)
    assert [(b.kind, b.name, b.reason) for b in told] == [("pilot", "p1", "exit code 3"), ("host", "h1", "exit code 3")]
    assert all(b.until == pytest.approx(600 + 3_600 * (1 - exp(-1))) for b in told)
    other_pilot = known.verdict("p2", "h1", "s", 700.0)
    assert other_pilot is not None and other_pilot.kind == "host"
    assert known.verdict("p3", "h2", "s", 700.0) is None


def test_a_site_is_blamed_when_three_of_its_hosts_and_half_of_them_fail() -> None:
    known = places()
    for n in range(4):
        known.blame(f"p{n}", f"h{n}", "s", 0.0, "x", 10)
    assert ("site", "s") not in known.streaks, "4 of 10"
    known.blame("p4", "h4", "s", 0.0, "x", 10)
    known.blame("p4", "h4", "s", 600.0, "x", 10)
    verdict = known.verdict("p9", "h9", "s", 700.0)
    assert verdict is not None and (verdict.kind, verdict.name) == ("site", "s")


def test_two_of_two_hosts_are_not_yet_a_site() -> None:
    known = places()
    for n in range(20):
        known.blame("p", f"h{n % 2}", "s", 100.0 * n, "x", 2)
    assert ("site", "s") not in known.streaks


def test_hosts_that_recovered_no_longer_count_against_their_site() -> None:
    known = places()
    known.blame("p0", "h0", "s", 0.0, "x", 4)
    known.blame("p1", "h1", "s", 0.0, "x", 4)
    known.clear("p0", "h0", "s")
    known.blame("p2", "h2", "s", 0.0, "x", 4)
    assert ("site", "s") not in known.streaks
    known.blame("p2", "h2", "other", 0.0, "x", 4)  # it moved
    known.blame("p3", "h3", "s", 0.0, "x", 4)
    assert ("site", "s") not in known.streaks


def test_a_success_ends_the_streaks_of_pilot_host_and_site_and_says_what_was_lifted() -> None:
    known = places()
    for now in (0.0, 600.0):
        for n in range(3):
            known.blame(f"p{n}", f"h{n}", "s", now, "x", 3)
    assert known.clear("p0", "h0", "s") == [("pilot", "p0"), ("host", "h0"), ("site", "s")]
    assert known.verdict("p0", "h0", "s", 601.0) is None
    still = known.verdict("p1", "h1", "s", 601.0)
    assert still is not None and still.kind == "pilot"
    assert known.clear("p0", "h0", "s") == []


def test_a_place_on_trial_gets_one_probe_and_a_probe_without_result_makes_room_for_another() -> None:
    known = places()
    where = ("p", "h", "s")
    known.blame(*where, 0.0, "x", 9)
    known.blame(*where, 600.0, "x", 9)
    over = known.streaks["host", "h"].until
    assert not known.is_on_trial(*where, over - 1) and known.is_on_trial(*where, over)
    assert known.verdict(*where, over) is None
    known.probe(*where, over)
    assert known.verdict(*where, over + 1) == Banned("pilot", "p", "x", over, probing=True)
    known.release(*where)
    assert known.verdict(*where, over + 1) is None
    known.probe(*where, over + 1)
    known.clear(*where)
    assert not known.is_on_trial(*where, over + 2) and known.verdict(*where, over + 2) is None


def test_of_several_bans_the_one_that_ends_last_is_told() -> None:
    known = places()
    known.blame("p", "h", "s", 0.0, "x", 9)
    known.blame("p", "h", "s", 300.0, "x", 9)
    known.blame("p2", "h", "s", 900.0, "y", 9)
    verdict = known.verdict("p", "h", "s", 901.0)
    assert verdict is not None and (verdict.kind, verdict.reason) == ("host", "y")


def test_failures_that_were_left_open_count_when_the_blame_falls_at_last() -> None:
    known = places()
    told = known.blame("p", "h", "s", 5.0, "x", 9, failures=BURST + 1)
    assert [b.until for b in told] == [5.0 + MIN_BAN] * 2


def test_a_forgiven_failure_lifts_a_ban_that_rested_on_it() -> None:
    known = places()
    known.blame("p", "h", "s", 0.0, "x", 9)
    known.blame("p", "h", "s", 600.0, "x", 9)
    assert known.forgive("p", "h", "s") == [("pilot", "p"), ("host", "h")]
    assert known.verdict("p", "h", "s", 601.0) is None
    assert known.forgive("p", "h", "s") == [] and not known.streaks


def test_only_so_many_places_are_remembered_the_latest_to_fail() -> None:
    known = places(kept=6)
    for n in range(50):
        known.blame(f"p{n}", f"h{n}", f"s{n}", float(n), "x", 9)
    assert [name for kind, name in known.streaks if kind == "host"] == ["h47", "h48", "h49"]
    assert len(known._site_of) == len(known._hosts) == 3


def test_what_is_dumped_as_plain_rows_and_loaded_says_the_same() -> None:
    known = places()
    for now in (0.0, 600.0):
        for n in range(3):
            known.blame(f"p{n}", f"h{n}", "s", now, "x", 4)
    known.probe("p0", "h0", "s", 1e6)
    again = places()
    again.load(json.loads(json.dumps(known.dump())))
    for n in range(4):
        assert again.verdict(f"p{n}", f"h{n}", "s", 700.0) == known.verdict(f"p{n}", f"h{n}", "s", 700.0)
    assert again.verdict("p0", "h0", "s", 1e6) is None, "whether a probe still runs is not known"
    again.clear("p0", "h0", "s")
    again.blame("p1", "h1", "s", 700.0, "x", 4)
    assert ("site", "s") not in again.streaks, "hosts are counted by site again"
