"""The workload of the thesis' analyses for a radio conference."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.sim.papers.diane.ordering import (
    EXPERIMENT,
    LONGEST_FIRST,
    NATURAL,
    RANDOM,
    draw_durations,
    fit_shape,
    in_order,
)
from shoal.sim.papers.experiment import Inputs

INPUTS = Inputs(1, EXPERIMENT.settings)


def test_the_distribution_has_the_printed_mean_and_longest() -> None:
    shape = fit_shape(17.28, 1_000.0, 40_000)
    scale = 17.28 / math.gamma(1 + 1 / shape)
    assert 40_000 * math.exp(-((1_000.0 / scale) ** shape)) == pytest.approx(1.0, rel=1e-6)
    assert 1 - math.exp(-((10.0 / scale) ** shape)) > 0.5  # most tasks take less than 10 s
    drawn = draw_durations(INPUTS, 3, INPUTS.rng("test"))
    assert drawn.mean() == pytest.approx(192 * 3600 / 40_000, rel=0.05) and 400 < drawn.max() < 3_000


@pytest.mark.parametrize("order", [RANDOM, NATURAL, LONGEST_FIRST])
def test_an_order_loses_no_task_and_is_the_same_each_time(order: str) -> None:
    durations = draw_durations(INPUTS, 4, INPUTS.rng("test"))
    ordered = in_order(durations, order, INPUTS)
    assert (np.sort(ordered) == np.sort(durations)).all()
    assert (in_order(durations, order, INPUTS) == ordered).all()


def test_in_the_natural_order_neighbours_are_alike_and_the_longest_are_in_the_middle() -> None:
    durations = draw_durations(INPUTS, 4, INPUTS.rng("test"))
    natural, mixed = in_order(durations, NATURAL, INPUTS), in_order(durations, RANDOM, INPUTS)

    def unlike(tasks: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        return float(np.abs(np.diff(np.log(tasks))).mean())

    assert unlike(natural) < 0.5 * unlike(mixed)
    assert 0.4 < np.argmax(natural) / len(natural) < 0.6
