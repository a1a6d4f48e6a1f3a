"""The grid of the SPHINX experiment, small."""

from __future__ import annotations

from typing import Any

from shoal.sim.papers.experiment import Inputs
from shoal.sim.papers.sphinx import deadline, weather
from shoal.sim.papers.sphinx.grid import Grid

SMALL: dict[str, Any] = {
    **weather.EXPERIMENT.settings, "dags": 3, "sites": 6, "good_sites": 4, "slots_high": 24.0, "probe_h": 3.0,
}  # fmt: skip


def test_every_job_of_both_planners_runs_and_slow_sites_are_cut() -> None:
    grid = Grid({**SMALL, "load_high": 0.6}, 1)
    grid.run()
    slow = {one.site.name for one in grid.sites if not one.is_good}
    for planner in (grid.without, grid.with_weather):
        assert len(planner.completion) == 3 and len(planner.idle) >= 30
        assert slow.isdisjoint(planner.good) and len(planner.good) == 4, "every slow site cut its probe"
        assert min(planner.completion) >= 3 * 0.8 * SMALL["job_s"], "three levels, one after another"


def test_without_cuts_slow_sites_stay() -> None:
    grid = Grid({**SMALL, "load_high": 0.6, "cuts": False}, 1)
    grid.run()
    assert len(grid.without.good) == 6


def test_the_same_seed_gives_the_same_grid() -> None:
    ends = []
    for _ in range(2):
        grid = Grid(SMALL, 2)
        grid.run()
        ends.append((grid.without.completion, grid.with_weather.idle, grid.scores()))
    assert ends[0] == ends[1]


def test_small_measurements_fill_every_row() -> None:
    for experiment, changes in (
        (
            weather.EXPERIMENT,
            {name: SMALL[name] for name in ("dags", "sites", "good_sites", "slots_high")} | {"background": False},
        ),
        (deadline.EXPERIMENT, {"runs": 4, "tasks_high": 30}),
    ):
        values, data = experiment.measure(Inputs(1, {**experiment.settings, **changes}))
        wanted = {claim.key for claim in experiment.claims} | set(experiment.watched)
        wanted |= {claim.as_it_is.key for claim in experiment.claims if claim.as_it_is is not None}
        assert wanted <= set(values) and {len(row) for row in data} == {len(experiment.columns)}
