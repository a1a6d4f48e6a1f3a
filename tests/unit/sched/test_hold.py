"""When a task waits for a pilot that has its inputs [CMS IV.E]."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.model.policy import COST, IDLE, NEVER, DataRule
from shoal.sched.hold import Holder, Presence, hold, transfer_time

MB = 1_000_000
NONE, ALL = Presence(0, 1, 700 * MB, 70 * MB), Presence(1, 0, 0, 70 * MB)  # the transfer takes some ten seconds
AS_PAPER, BY_COST = DataRule(wait=IDLE), DataRule(wait=COST)


def holder(wait: float | None, has: Presence = ALL, name: str = "q") -> Holder:
    return Holder(name, has, 700 * MB, wait)


def test_a_task_waits_for_an_idle_pilot_that_has_its_data() -> None:
    found = hold(AS_PAPER, NONE, [holder(0.0)], 0.0)
    assert found is not None
    assert (found.pilot, found.bytes, found.seconds) == ("q", 700 * MB, AS_PAPER.longest)


def test_a_task_never_waits_for_a_busy_pilot() -> None:
    assert hold(AS_PAPER, NONE, [holder(0.001), holder(None)], 0.0) is None


def test_a_task_does_not_wait_for_a_pilot_with_no_more_of_its_data() -> None:
    half = Presence(1, 1, 700 * MB)
    assert hold(AS_PAPER, half, [holder(0.0, half)], 0.0) is None
    assert hold(AS_PAPER, ALL, [holder(0.0)], 0.0) is None


@pytest.mark.parametrize("rule", [AS_PAPER, BY_COST])
def test_a_task_does_not_wait_for_ever(rule: DataRule) -> None:
    assert hold(rule, NONE, [holder(0.0)], rule.longest) is None
    assert hold(replace(rule, wait=NEVER), NONE, [holder(0.0)], 0.0) is None


def test_a_task_waits_for_a_busy_pilot_only_while_that_costs_less_than_the_transfer() -> None:
    assert transfer_time(NONE) == pytest.approx(10.1)
    assert hold(BY_COST, NONE, [holder(9.0)], 0.0) is not None
    assert hold(BY_COST, NONE, [holder(11.0)], 0.0) is None
    assert hold(BY_COST, NONE, [holder(None)], 0.0) is None


def test_waiting_in_vain_costs_no_more_than_the_transfer() -> None:
    found = hold(BY_COST, NONE, [holder(1.0)], 4.0)
    assert found is not None
    assert found.seconds == pytest.approx(6.1)
    assert hold(BY_COST, NONE, [holder(1.0)], 10.2) is None


def test_the_sooner_of_several_pilots_is_waited_for() -> None:
    found = hold(BY_COST, NONE, [holder(5.0, name="late"), holder(2.0, name="soon"), holder(None, name="who")], 0.0)
    assert found is not None
    assert found.pilot == "soon"
