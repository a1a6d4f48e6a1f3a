"""The question of a plan, and the comparison that looks at nothing."""

from __future__ import annotations

import math

import pytest

from shoal.sched.placement.question import Kind, Place, Question, round_robin, work_of

BOTH = frozenset({"a", "b"})


def test_work_counts_speed_transfer_and_what_has_to_be_repeated() -> None:
    kind = Kind(1, 10, 2, 100.0, {"a": 1e9, "b": 0.0}, BOTH)
    far = Place("a", 8, speed=2.0, bandwidth=1e7, latency=1.0, failure=0.5)
    assert work_of(kind, far) == pytest.approx(2 * (50.0 + 100.0 + 1.0) / 0.5)
    assert work_of(kind, Place("b", 8, latency=1.0)) == pytest.approx(200.0), "what is there is not fetched"
    assert math.isinf(work_of(kind, Place("c", 8)))


def test_round_robin_gives_each_site_as_many_whatever_it_is() -> None:
    places = [Place("a", 100), Place("b", 1), Place("empty", 0)]
    kinds = [Kind(1, 7, 1, 10.0, {}, BOTH | {"empty"}), Kind(2, 2, 1, 10.0, {}, frozenset({"b"}))]
    found = round_robin(Question(kinds, places))
    assert found.directed == {1: {"a": 4.0, "b": 3.0}, 2: {"b": 2.0}}
    assert found.end == pytest.approx(50.0), "five tasks on one core"
    assert round_robin(Question(kinds, places), turn=1).directed[1] == {"a": 3.0, "b": 4.0}


def test_round_robin_asks_for_cores_where_some_may_be_had() -> None:
    found = round_robin(Question([Kind(1, 20, 1, 10.0, {}, BOTH)], [Place("a", 2), Place("b", 0, more=4, delay=30.0)]))
    assert found.wanted == {"b": 4.0}
    assert found.end == pytest.approx(30.0 + 100.0 / 4.0)
