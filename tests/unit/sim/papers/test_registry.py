"""The table of experiments."""

from __future__ import annotations

import pytest

from shoal.model.errors import NotFound
from shoal.sim.papers.experiment import Source
from shoal.sim.papers.registry import EXPERIMENTS, select


def test_an_id_or_its_beginning_selects_in_the_order_of_the_table() -> None:
    assert [one.id for one in select(["u.start"])] == ["u.start"]
    assert [one.id for one in select(["u.start", "u.s"])] == ["u.speedup", "u.start"]
    assert {one.id for one in select(["u"])} == {name for name in EXPERIMENTS if name.startswith("u.")}


def test_an_unknown_id_is_told_with_the_nearest() -> None:
    with pytest.raises(NotFound) as refused:
        select(["u.start", "u.sped"])
    assert refused.value.line == "there is no experiment 'u.sped' (did you mean u.speedup)"


def test_every_row_of_the_table_of_speedups_is_there() -> None:
    """Table 3.3 of [DIANE] has twelve rows."""
    keys = {claim.key for claim in EXPERIMENTS["u.speedup"].claims}
    printed = ("w100_k10", "w100_k60", "w100_k100", "w100_k9600", "w1000_k10", "w1000_k60", "w1000_k320", "w1000_k9600")
    assert {*printed, "few", "w24000_k320", "w24000_k1200", "w24000_k9600"} <= keys


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_says_what_is_modelled_and_where_its_parameters_are_from(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert experiment.modelled and experiment.section and experiment.ablations
    assert experiment.watched or not any(one.is_varied for one in experiment.parameters)
    for one in experiment.parameters:
        assert len(one.where) >= 3, one
        assert one.source is not Source.MEASURED or "docs/performance.md" in one.where or "bench" in one.where
