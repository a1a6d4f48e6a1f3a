"""Forecasts of what sites do, scored by what came [SPHINX S7]."""

from __future__ import annotations

from random import Random

import pytest

from shoal.sched.placement.weather import COVERED, KEPT, Series, Weather


def values_of(kind: str, count: int) -> list[float]:
    rng, found, value = Random(3), [], 50.0
    for at in range(count):
        if kind == "noise":
            value = 50.0 + rng.gauss(0.0, 10.0)
        elif kind == "walk":
            value = max(0.0, value + rng.gauss(0.0, 5.0))
        elif kind == "steps":
            value = (20.0 if at // 50 % 2 else 80.0) + rng.gauss(0.0, 3.0)
        else:
            value = rng.lognormvariate(3.0, 1.0)
        found.append(value)
    return found


@pytest.mark.parametrize("kind", ["noise", "walk", "steps", "skewed"])
def test_as_many_observations_lie_in_the_interval_as_is_said(kind: str) -> None:
    series = Series()
    for at, value in enumerate(values_of(kind, 600)):
        series.note(60.0 * at, value)
    score = series.score()
    assert score is not None and score.compared == 599
    assert abs(score.inside - COVERED) <= 0.05
    assert score.error <= 1.2 * score.naive, "hardly worse than that it stays as it was, whatever it is"
    assert len(series.history) == KEPT


def test_of_noise_a_mean_is_expected_and_of_a_walk_its_last_value() -> None:
    found = {}
    for kind in ("noise", "walk"):
        series = Series()
        for at, value in enumerate(values_of(kind, 300)):
            series.note(60.0 * at, value)
        said = series.forecast()
        assert said is not None and 0.0 <= said.low <= said.value <= said.high
        found[kind] = said.by
    assert found["noise"] in ("mean", "median", "smoothed") and found["walk"] == "last"


def test_of_what_was_seen_once_nothing_but_its_size_is_known_and_of_nothing_nothing() -> None:
    series = Series()
    assert series.forecast() is None and series.score() is None
    series.note(0.0, 40.0)
    said = series.forecast()
    assert said is not None and (said.low, said.value, said.high) == (0.0, 40.0, 80.0)
    assert series.score() is None, "no forecast could be compared yet"


def test_failures_are_the_share_of_what_ended_since_the_last_look() -> None:
    seen = Weather()
    seen.note_failures(0.0)
    assert seen.rows() == {} and seen.expect("failure", 0.25) == 0.25
    seen.count(3, is_failure=False)
    seen.count(1, is_failure=True)
    seen.note_failures(60.0)
    assert seen.rows()["failure"]["value"] == 0.25
    seen.note("bandwidth", 60.0, None)
    assert "bandwidth" not in seen.rows(), "what is not known is not observed"
