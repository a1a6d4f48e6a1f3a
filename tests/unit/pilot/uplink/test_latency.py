"""Lag and speed as a pilot sees them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from shoal.pilot.uplink.latency import FIRST_PROBE, LARGE, PROBE_EVERY, Latency


def test_nothing_is_known_before_anything_was_seen() -> None:
    assert Latency(Random(1)).tags() == {}


def test_the_lag_is_a_moving_average() -> None:
    network = Latency(Random(1))
    network.answered(0.010)
    assert network.tags() == {"lag_ms": 10.0}
    network.answered(0.020)
    assert network.tags() == {"lag_ms": 15.0}, "the first is not worth more than the second"
    for _ in range(50):
        network.answered(0.1234567)
    assert network.tags()["lag_ms"] == pytest.approx(123.0, abs=1.0)


def test_only_large_transfers_tell_the_speed() -> None:
    network = Latency(Random(1))
    network.moved(LARGE - 1, 1.0)
    network.moved(LARGE, 0.0)
    assert network.tags() == {}
    network.moved(1_000_000, 0.08)
    assert network.tags() == {"bandwidth_mbps": 100.0}


def test_an_idle_pilot_measures_seldom_and_not_at_once() -> None:
    network = Latency(Random(1))
    asked = [now for now in range(4 * int(PROBE_EVERY)) if network.wants_probe(float(now))]
    assert FIRST_PROBE[0] <= asked[0] <= FIRST_PROBE[1] + 1
    assert len(asked) in (3, 4)
    assert all(later - earlier >= PROBE_EVERY for earlier, later in pairwise(asked))


def test_who_moved_something_need_not_measure() -> None:
    network = Latency(Random(1))
    assert not network.wants_probe(0.0)
    network.moved(LARGE, 1.0)
    assert not network.wants_probe(100.0)
    assert network.wants_probe(100.0 + 2 * PROBE_EVERY)
