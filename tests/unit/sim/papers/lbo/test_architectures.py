"""The experiments on the three architectures, with a few pilots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.sim.papers.experiment import Experiment, Inputs
from shoal.sim.papers.lbo import architectures, as_it_is
from shoal.sim.papers.lbo.architectures import SIZES, Size
from shoal.sim.papers.registry import EXPERIMENTS

SMALL = {"300": Size(4, 12), "1.5k": Size(6, 18), "5k": Size(6, 30), "10k": Size(6, 42)}
NAMES = [name for name in EXPERIMENTS if name.startswith("d.")]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, size in SMALL.items():
        monkeypatch.setitem(SIZES, name, size)
    yield
    architectures._run.cache_clear()
    as_it_is._run.cache_clear()


def measured(experiment: Experiment, engine: bool = True) -> dict[str, float]:
    architectures._run.cache_clear()
    as_it_is._run.cache_clear()
    values, data = experiment.measure(Inputs(1, experiment.settings, engine=engine))
    assert data and {len(row) for row in data} == {len(experiment.columns)}
    return values


@pytest.mark.parametrize("name", NAMES)
def test_a_small_run_gives_every_row(name: str) -> None:
    experiment = EXPERIMENTS[name]
    values = measured(experiment)
    wanted = {claim.key for claim in experiment.claims} | set(experiment.watched)
    wanted |= {one.key for one in experiment.ablations}
    wanted |= {
        key for claim in experiment.claims if claim.as_it_is for key in (claim.as_it_is.key, claim.as_it_is.against)
    }
    assert wanted <= set(values)
    if name == "d.timeline":
        assert measured(experiment) == values
    varied = measured(experiment, engine=False)
    assert set(experiment.watched) | {one.key for one in experiment.ablations} <= set(varied)


def test_settings_of_shoal_s_own_column_do_not_run_the_model_again() -> None:
    settings = EXPERIMENTS["d.requests"].settings
    first = architectures.outcome(settings, "tracked", "serial", "300", 1)
    assert architectures.outcome({**settings, "shoal_network": 1.0}, "tracked", "serial", "300", 1) is first
