"""waitForData over random pilots: what it waits for has more, and it ends [CMS IV.E]."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.policy import COST, IDLE, DataRule
from shoal.sched.hold import Holder, Presence, hold, transfer_time

PRESENCE = st.builds(
    lambda here, size, speed: Presence(here, 4 - here, (4 - here) * size, speed),
    st.integers(0, 4), st.integers(0, 10**10), st.floats(1.0, 1e10),
)  # fmt: skip
HOLDERS = st.lists(
    st.builds(
        Holder,
        st.text("pqr", min_size=1, max_size=3),
        PRESENCE,
        st.integers(0, 10**11),
        st.none() | st.floats(0.0, 1e4),
    ),
    max_size=8,
)
RULES = st.builds(DataRule, st.sampled_from([IDLE, COST]), st.floats(0.0, 3600.0))


@given(RULES, PRESENCE, HOLDERS, st.floats(0.0, 7200.0))
def test_it_waits_only_for_what_is_better_and_only_for_a_while(
    rule: DataRule, here: Presence, holders: list[Holder], waited: float
) -> None:
    found = hold(rule, here, holders, waited)
    if found is None:
        return
    chosen = [one for one in holders if one.pilot == found.pilot]
    assert waited + found.seconds <= rule.longest + 1e-6
    assert found.seconds > 0
    if rule.wait == IDLE:
        assert any(one.wait == 0.0 and one.has.files > here.files for one in chosen)
    else:
        assert waited + found.seconds <= transfer_time(here) + 1e-6
        assert any(one.wait is not None and one.wait + transfer_time(one.has) < transfer_time(here) for one in chosen)


@given(RULES, PRESENCE, HOLDERS)
def test_with_time_every_task_is_given_away(rule: DataRule, here: Presence, holders: list[Holder]) -> None:
    waited, looks = 0.0, 0
    while (found := hold(rule, here, holders, waited)) is not None:
        waited, looks = waited + max(1.0, found.seconds), looks + 1
        assert looks <= 2


@given(PRESENCE, HOLDERS)
def test_a_pilot_with_everything_gets_the_task(here: Presence, holders: list[Holder]) -> None:
    full = Presence(4, 0, 0, here.bandwidth)
    assert all(hold(DataRule(wait), full, holders, 0.0) is None for wait in (IDLE, COST))
