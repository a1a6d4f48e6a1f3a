"""Shoal's engine and agents with the pilots of another system."""

from __future__ import annotations

import math

import pytest

from shoal.model.policy import INTERVAL, MatchRule, Policy
from shoal.sim.papers.gwp.as_it_is import Latencies, arrivals, run_shoal
from shoal.sim.papers.gwp.pilots import GridTest, Life
from shoal.sim.papers.gwp.workload import seconds_of

QUICK = Latencies(0.001, 0.0, 0.001, 0.001, 0.0, 0.0)
FAST, SLOW = "X5365", "E5620"


def test_a_dropped_pilot_dies_and_one_that_idled_away_goes_on_in_place_of_the_next() -> None:
    lives = [
        Life(0.0, 50.0, FAST, True), Life(1.0, 60.0, SLOW, False), Life(70.0, math.inf, FAST, False),
        Life(80.0, math.inf, FAST, False),
    ]  # fmt: skip
    found = arrivals(lives, long_tasks=False)
    assert [(one.at, one.until) for one in found] == [(0.0, 50.0), (1.0, None), (80.0, None)]
    assert found[0].speed == 1.0 and found[1].speed == pytest.approx(66.97 / 84.50)


def test_two_pilots_share_the_work() -> None:
    grid = GridTest("a", 20, 2, 0.5, 0.0, 0.5)
    found = run_shoal(grid, [Life(0.0, math.inf, FAST, False)] * 2, QUICK, 1)
    work = sum(seconds_of("a", number, FAST) for number in range(20))
    assert work / 2 <= found.makespan <= work / 2 + 420.0
    assert 99.0 < found.filling <= 100.0


def test_intervals_and_pulling_leave_pilots_idle() -> None:
    grid = GridTest("a", 40, 4, 0.5, 0.0, 0.5)
    lives = [Life(0.0, math.inf, FAST, False)] * 4
    policy = Policy(match=MatchRule(INTERVAL, 10.0, 100))
    at_once, late = run_shoal(grid, lives, QUICK, 1), run_shoal(grid, lives, QUICK, 1, policy, (20.0, 30.0))
    assert 0.0 < late.filling < at_once.filling - 8.0 and late.makespan > at_once.makespan
