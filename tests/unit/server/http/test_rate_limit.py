"""Who may come in: buckets (against a model of every window), bounds of what is in work, shedding under load."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.model.credentials import ENROL, SESSION, SUBMIT
from shoal.model.limits import MAX_BUCKETS, MAX_PEOPLE_WORK, MAX_WORK_PER_KEY, MAX_WORK_PER_POOL
from shoal.server.auth.authentication import Caller
from shoal.server.http.app import _key, _pool
from shoal.server.http.rate_limit import (
    LAG_ALL,
    LAG_PEOPLE,
    LONGEST_RETRY,
    POOL,
    RATES,
    UNKNOWN,
    Buckets,
    Rate,
    RateLimit,
)

NOW = 1_000.0
RATE = st.builds(Rate, st.floats(0.5, 100.0), st.integers(1, 300).map(float))
STEPS = st.lists(st.floats(0.0, 5.0) | st.just(0.0), max_size=300)
BOUNDED = settings(max_examples=100, deadline=None, derandomize=True)


# --- buckets
@BOUNDED
@given(RATE, STEPS)
def test_no_window_ever_lets_in_more_than_burst_and_rate(rate: Rate, steps: list[float]) -> None:
    buckets, now, passed = Buckets(rate), NOW, []
    for step in steps:
        now += step
        if buckets.take("a", now) == 0.0:
            passed.append(now)
    for first, begin in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= rate.burst + rate.rate * (passed[last] - begin) + 1e-6


@BOUNDED
@given(RATE, STEPS)
def test_who_comes_back_after_the_said_time_is_let_in_and_not_a_moment_too_late(rate: Rate, steps: list[float]) -> None:
    buckets, now = Buckets(rate), NOW
    for step in steps:
        now += step
        wait = buckets.take("a", now)
        assert 0.0 <= wait <= 1.0 / rate.rate + 1e-9
        if wait > 1e-3:
            assert buckets.take("a", now + wait * 0.99) > 0.0
            now += wait + 1e-6
            assert buckets.take("a", now) == 0.0


@BOUNDED
@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 1.0)), max_size=200))
def test_keys_do_not_touch_each_other(calls: list[tuple[str, float]]) -> None:
    rate, now = Rate(2.0, 3.0), NOW
    together, alone = Buckets(rate), {key: Buckets(rate) for key in "abc"}
    for key, step in calls:
        now += step
        assert together.take(key, now) == alone[key].take(key, now)


@BOUNDED
@given(st.lists(st.floats(-100.0, 100.0), max_size=200))
def test_clock_that_steps_back_gives_nothing_away(steps: list[float]) -> None:
    buckets, now, latest = Buckets(Rate(1.0, 5.0)), NOW, NOW
    passed = int(buckets.take("a", now) == 0.0)
    for step in steps:
        now += step
        latest = max(latest, now)
        passed += buckets.take("a", now) == 0.0
        assert passed <= 5.0 + (latest - NOW) + 1e-6


def test_refusal_costs_nothing() -> None:
    buckets = Buckets(Rate(1.0, 1.0))
    assert buckets.take("a", NOW) == 0.0
    assert [buckets.take("a", NOW + 0.5) for _ in range(100)] == [0.5] * 100
    assert buckets.take("a", NOW + 1.0) == 0.0


def test_number_of_buckets_is_bounded_and_the_busy_ones_stay() -> None:
    buckets = Buckets(Rate(1.0, 1.0))
    for number in range(3 * MAX_BUCKETS):
        buckets.take(f"10.0.{number}", NOW)
        assert (buckets.take("busy", NOW) == 0.0) == (number == 0)
    assert len(buckets) == MAX_BUCKETS


# --- the gate
@pytest.mark.parametrize("kind", [SUBMIT, SESSION, ENROL, UNKNOWN])
def test_each_kind_has_its_burst_and_then_its_rate(kind: str) -> None:
    rate_limit, passed = RateLimit(), 0
    while rate_limit.admit(kind, "a", NOW) == 0.0:
        passed += 1
        if kind != UNKNOWN:
            rate_limit.done(kind, "a")
    assert passed == RATES[kind].burst
    assert rate_limit.admit(kind, "a", NOW) == pytest.approx(1.0 / RATES[kind].rate)
    assert rate_limit.admit(kind, "b", NOW) == 0.0


def test_failed_authentications_are_counted_but_are_not_in_work() -> None:
    rate_limit = RateLimit()
    for _ in range(10):
        rate_limit.admit(UNKNOWN, "10.0.0.1", NOW)
    assert sum(rate_limit._work.values()) == 0


def test_one_credential_cannot_have_more_than_its_share_in_work() -> None:
    rate_limit = RateLimit()
    for _ in range(MAX_WORK_PER_KEY):
        assert rate_limit.admit(SUBMIT, "a", NOW) == 0.0
    assert rate_limit.admit(SUBMIT, "a", NOW) > 0.0
    assert rate_limit.admit(SUBMIT, "b", NOW) == 0.0
    rate_limit.done(SUBMIT, "a")
    assert rate_limit.admit(SUBMIT, "a", NOW) == 0.0


def test_people_together_leave_room_for_pilots() -> None:
    rate_limit = RateLimit()
    for number in range(MAX_PEOPLE_WORK):
        assert rate_limit.admit(SUBMIT, f"t{number}", NOW) == 0.0
    assert rate_limit.admit(SUBMIT, "newcomer", NOW) > 0.0
    assert rate_limit.admit(SESSION, "p1", NOW) == 0.0
    assert rate_limit.admit(ENROL, "e1", NOW) == 0.0
    rate_limit.done(SUBMIT, "t0")
    assert rate_limit.admit(SUBMIT, "newcomer", NOW) == 0.0


def test_full_house_takes_no_token_of_those_it_turns_away() -> None:
    rate_limit = RateLimit({SUBMIT: Rate(0.001, MAX_WORK_PER_KEY + 1.0)})
    for _ in range(MAX_WORK_PER_KEY):
        rate_limit.admit(SUBMIT, "a", NOW)
    for _ in range(100):
        assert rate_limit.admit(SUBMIT, "a", NOW) > 0.0
    rate_limit.done(SUBMIT, "a")
    assert rate_limit.admit(SUBMIT, "a", NOW) == 0.0


@BOUNDED
@given(
    st.lists(st.tuples(st.sampled_from([SUBMIT, SESSION, ENROL]), st.sampled_from("ab"), st.booleans()), max_size=300)
)
def test_what_is_in_work_is_what_was_let_in_and_is_not_done(calls: list[tuple[str, str, bool]]) -> None:
    rate_limit = RateLimit()
    open_now: list[tuple[str, str]] = []
    for kind, key, ends in calls:
        if ends and open_now:
            rate_limit.done(*open_now.pop(0))
        elif rate_limit.admit(kind, key, NOW) == 0.0:
            open_now.append((kind, key))
        assert sum(rate_limit._work.values()) == len(open_now)
    for one in open_now:
        rate_limit.done(*one)
    assert sum(rate_limit._work.values()) == 0
    assert not rate_limit._work  # nothing is kept of those who are gone


def late(rate_limit: RateLimit, seconds: float) -> None:
    for _ in range(30):
        rate_limit.observe_lag(seconds)


def test_late_loop_puts_off_people_first_then_registrations_and_never_exchanges() -> None:
    rate_limit = RateLimit()
    said = {}
    for lag in (LAG_PEOPLE * 0.9, LAG_PEOPLE * 1.1, LAG_ALL * 1.1, 60.0):
        late(rate_limit, lag)
        said[lag] = [rate_limit.admit(kind, "a", NOW) == 0.0 for kind in (SUBMIT, ENROL, SESSION)]
    assert list(said.values()) == [
        [True, True, True],
        [False, True, True],
        [False, False, True],
        [False, False, True],
    ]
    assert 1.0 <= rate_limit.admit(SUBMIT, "a", NOW) <= LONGEST_RETRY


def test_one_hiccup_refuses_nobody_and_calm_opens_the_gate_again() -> None:
    rate_limit = RateLimit()
    rate_limit.observe_lag(LAG_PEOPLE * 2)
    assert rate_limit.admit(SUBMIT, "a", NOW) == 0.0
    late(rate_limit, 3.0)
    assert rate_limit.admit(SUBMIT, "a", NOW) > 0.0
    late(rate_limit, 0.0)
    assert rate_limit.admit(SUBMIT, "a", NOW) == 0.0
    assert rate_limit.lag < 0.01


def test_all_pilots_of_one_owner_have_a_rate_and_work_of_their_own_together() -> None:
    rate_limit = RateLimit()
    for _ in range(MAX_WORK_PER_POOL):
        assert rate_limit.admit(POOL, "anna", NOW) == 0.0
    assert rate_limit.admit(POOL, "anna", NOW) > 0.0
    assert rate_limit.admit(POOL, "mike", NOW) == 0.0


def test_tokens_of_one_person_are_one_name_to_the_gate_and_to_the_door() -> None:
    """Each token had a rate, work and connections of its own, and anybody can make a thousand."""
    callers = [Caller(SUBMIT, "anna", token=name) for name in ("t1", "t2")]
    assert {_key(caller) for caller in callers} == {"anna"}
    group = Caller(ENROL, "", "phys", token="t3")
    assert _key(group) == "@phys"
    pilots = [Caller(SESSION, "anna", token="t4", pilot=name) for name in ("p1", "p2")]
    assert ({_key(pilot) for pilot in pilots}, {_pool(pilot) for pilot in pilots}) == ({"p1", "p2"}, {"anna"})
    assert _pool(callers[0]) == ""


def test_one_long_sleep_refuses_nobody_and_lasting_overload_does() -> None:
    """A frozen server answered 429 on waking: time in which it did not run counts against nobody."""
    rate_limit = RateLimit()
    rate_limit.observe_lag(90.0)
    assert rate_limit.admit(SUBMIT, "anna", 0.0) == 0.0
    for _ in range(10):
        rate_limit.observe_lag(90.0)
    assert rate_limit.admit(SUBMIT, "anna", 0.0) > 0.0 and rate_limit.lag > 2.0


def test_a_request_that_brings_others_is_charged_for_them() -> None:
    limit = RateLimit({POOL: Rate(10.0, 20.0)})
    assert limit.admit(POOL, "anna", NOW) == 0.0
    limit.charge(POOL, "anna", NOW, 29)
    assert limit.admit(POOL, "anna", NOW) == pytest.approx(1.1), "ten below none, and one for itself"
    assert limit.admit(POOL, "bob", NOW) == 0.0
    limit.charge(POOL, "anna", NOW, 10**6)
    assert limit.admit(POOL, "anna", NOW) == pytest.approx(2.1), "never more than a burst below none"
