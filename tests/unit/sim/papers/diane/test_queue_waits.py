"""The rebuilt queue waits are what the file says that they were derived from."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.sim.papers.diane import queue_waits
from shoal.sim.papers.diane.queue_waits import NAMES, published

TABLE: dict[str, Any] = tomllib.loads(Path(queue_waits.__file__).with_name("queue_waits.toml").read_text("utf-8"))
QUARTILE, NINETEENTH = 0.67449, 1.64485  # normal deviates of 0.75 and 0.95


def centre(mean: float, deviation: float) -> float:
    return mean / math.sqrt(1.0 + (deviation / mean) ** 2)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_follows_from_what_is_printed(name: str) -> None:
    printed = TABLE[name]["printed"]
    q05, q50 = centre(*printed["quantile_05"]), centre(*printed["quantile_50"])
    q25 = q50 * (q05 / q50) ** (QUARTILE / NINETEENTH)
    q75 = q25 * (1 + printed["dispersion"]) / (1 - printed["dispersion"])
    hazard = [-math.log(1 - share) for share in (0.05, 0.25)]
    least = q05 * (q05 / q25) ** (hazard[0] / (hazard[1] - hazard[0]))
    derived = [least, q05, q25, q50, q75, printed["quantile_95"][0], 3600 * printed["longest_h"]]
    assert TABLE[name]["waits"] == pytest.approx(derived, abs=0.051)
    assert TABLE["confident"][name] == 3600 * printed["within"][2]


def test_the_longest_is_one_of_all_observations() -> None:
    assert TABLE["shares"][-1] == pytest.approx(1 - 1 / TABLE["observations"])
    assert TABLE["observations"] == 120 * 365 // 3


@pytest.mark.parametrize("name", NAMES)
def test_the_waits_keep_to_what_95_percent_of_the_intervals_keep_to(name: str) -> None:
    waits, within = published(name), TABLE[name]["printed"]["within"]
    found = waits.at(np.array([0.05, 0.5, 0.95]))
    assert (found <= np.array([60 * within[0], 60 * within[1], 3600 * within[2]])).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("confident", [False, True])
def test_draws_have_the_quantiles(name: str, confident: bool) -> None:
    waits = published(name, confident=confident)
    assert (np.diff(waits.seconds) > 0).all()
    drawn = waits.sample(np.random.default_rng(1), 200_000)
    low, high = np.quantile(drawn, (0.25, 0.75))
    assert (high - low) / (high + low) == pytest.approx(TABLE[name]["printed"]["dispersion"], rel=0.02)
    assert (drawn <= waits.seconds[5]).mean() == pytest.approx(0.95, abs=0.003)
    assert drawn.max() <= waits.seconds[-1] * (1 + 1e-12)


def test_factors_move_the_middle_and_the_upper_part_and_keep_the_order() -> None:
    plain, moved = published("LHCb"), published("LHCb", middle=0.5, upper=1.5)
    assert moved.seconds[3] == pytest.approx(0.5 * plain.seconds[3])
    assert moved.seconds[5] == pytest.approx(1.5 * plain.seconds[5])
    assert (moved.seconds[[0, 1, -1]] == plain.seconds[[0, 1, -1]]).all()
    far = published("ATLAS", middle=0.5, upper=100.0)
    assert (np.diff(far.seconds) >= 0).all() and far.seconds[-1] == published("ATLAS").seconds[-1]
