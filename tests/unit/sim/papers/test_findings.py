"""How an experiment is run over seeds, varied and judged: with one that is made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shoal.sim.papers.agreement import AtMost, NotJudged, Printed
from shoal.sim.papers.experiment import Ablation, AsItIs, Claim, Experiment, Inputs, Measured, Parameter, Plot, Source
from shoal.sim.papers.findings import ablation_rows, document, mean_curve, run, sensitivity, table
from shoal.sim.papers.waits import waits_of


def measure(inputs: Inputs) -> Measured:
    size, power = float(inputs.settings["size"]), float(inputs.settings["power"])
    inputs.tick()
    values = {"a": size * power + inputs.seed, "b": 2.0, "best": 10.0}
    if inputs.engine:
        values["shoal"] = 10.0 + inputs.seed
    return Measured(values, [("curve", 1.0, values["a"])])


EXPERIMENT = Experiment(
    id="x.one", title="made up", section="NONE 1", seconds=0.0,
    parameters=(
        Parameter("size", 4.0, Source.CHOSEN, "of no paper"),
        Parameter("power", 2.0, Source.PAPER, "1.1"),
        Parameter("draws", 100, Source.CHOSEN, "only costs time", varied=False),
        Parameter("kind", "plain", Source.CHOSEN, "no number"),
        Parameter("rate", 3.0, Source.FITTED, "to a cell", "b"),
    ),
    claims=(
        Claim("a", "first", Printed(10.0), "h", as_it_is=AsItIs("shoal", "best")),
        Claim("b", "second", AtMost(1.0)),
        Claim("best", "third", NotJudged()),
    ),
    measure=measure, columns=("series", "x", "y"), plot=Plot("x", "y", "series", "x", "y"), watched=("a",),
    ablations=(Ablation("power off", {"power": 0.0}, "a", AtMost(1.0)),),
)  # fmt: skip


def test_rows_are_judged_by_the_mean_over_the_seeds_and_fitted_ones_are_not() -> None:
    found = run(EXPERIMENT, 3)
    first, second, third = found.rows
    assert first.ours == (9.0, 10.0, 11.0) and first.agrees is True
    assert first.as_it_is == (11.0, 12.0, 13.0) and first.is_not_worse is False
    assert second.is_fitted and second.answer == "fitted" and third.answer == "-"
    assert found.counts == (1, 1)
    head, cells = table(found)
    assert head == ["what", "paper", "Shoal", "Shoal as it is", "agrees?"]
    assert cells[0] == ["first", "10 h", "10.0 ± 1.0 h", "12.0 ± 1.0 h", "yes; as it is: worse"]


def test_chosen_and_fitted_numbers_are_varied_by_half_and_mechanisms_switched_off() -> None:
    found = run(EXPERIMENT, 1)
    assert [(one.parameter.name, one.value, one.after) for one in found.variations] == [
        ("size", 2.0, 5.0), ("size", 6.0, 13.0), ("rate", 1.5, 9.0), ("rate", 4.5, 9.0),
    ]  # fmt: skip
    assert sensitivity(found)[0] == ["size", "4", "2", "a", "9", "5 (-44%)"]
    assert [(one.before, one.after, one.is_gone) for one in found.ablations] == [(9.0, 1.0, True)]
    assert ablation_rows(found)[0][-1] == "yes"


def test_with_own_waits_nothing_is_judged_or_varied() -> None:
    found = run(EXPERIMENT, 2, waits=waits_of("own", np.array([1.0])))
    assert found.own_waits and not found.variations and not found.ablations
    assert [row.agrees for row in found.rows] == [None] * 3 and found.rows[0].is_not_worse is None
    assert found.counts == (0, 0)


def test_progress_goes_up_to_all_steps() -> None:
    seen: list[tuple[int, int]] = []
    run(EXPERIMENT, 2, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen) and seen[-1] == (7, 7)  # two seeds, two numbers by two factors, one ablation


def test_the_document_and_the_curve_hold_what_was_found() -> None:
    found = run(EXPERIMENT, 2)
    told = document(found)
    assert told["rows"][0]["ours"] == [9.0, 10.0] and told["rows"][0]["rule"].startswith("within 15%")
    assert told["parameters"][4]["fitted_to"] == "b" and told["ablations"][0]["gone"] is True
    assert mean_curve(found) == {"curve": [(1.0, 9.5, 9.0, 10.0)]}
    assert found.data == ((1, "curve", 1.0, 9.0), (2, "curve", 1.0, 10.0))


def test_streams_of_a_seed_are_apart_and_the_same_each_time() -> None:
    one, two = Inputs(1, {}).rng("a").random(3), Inputs(1, {}).rng("b").random(3)
    assert (one == Inputs(1, {}).rng("a").random(3)).all() and (one != two).all()
    assert (one != Inputs(2, {}).rng("a").random(3)).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"claims": (Claim("a", "x", NotJudged()), Claim("a", "y", NotJudged()))},
        {"parameters": (Parameter("size", 1.0, Source.CHOSEN, ""),)},
        {"parameters": (Parameter("size", 1.0, Source.FITTED, "to nothing", "none"),)},
        {"parameters": (Parameter("size", 1.0, Source.CHOSEN, "not fitted", "a"),)},
        {"ablations": (Ablation("off", {"nothing": 0}, "a", NotJudged()),)},
        {"plot": Plot("x", "z", "series", "x", "y")},
    ],
)
def test_an_experiment_without_sources_or_with_wrong_names_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"x\.one"):
        replace(EXPERIMENT, **wrong)  # type: ignore[arg-type]  # wrong on purpose
