"""Runs an experiment over its seeds, with the sensitivity to what was chosen and with each mechanism switched off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from shoal.model.lazy_dataclass import dataclass
from shoal.sim.papers.agreement import is_not_worse, number, spread_text, verdict
from shoal.sim.papers.experiment import Ablation, Claim, Experiment, Inputs, Measured, Parameter, Value
from shoal.sim.papers.waits import Waits

FACTORS = (0.5, 1.5)  # by which chosen and fitted parameters are varied
Progress = Callable[[int, int], None]  # steps that are done, of how many


@dataclass(frozen=True)
class Row:
    """A row of the table, judged."""

    claim: Claim
    ours: tuple[float, ...]  # for each seed
    as_it_is: tuple[float, ...]
    agrees: bool | None
    is_fitted: bool
    is_not_worse: bool | None

    @property
    def answer(self) -> str:
        """The column `agrees?`."""
        answer = "fitted" if self.is_fitted else {True: "yes", False: "no", None: "-"}[self.agrees]
        if self.is_not_worse is not None:
            answer += {True: "; as it is: not worse", False: "; as it is: worse"}[self.is_not_worse]
        return answer

    @property
    def shown(self) -> list[str]:
        """The cells: what, paper, Shoal, Shoal as it is, agrees?"""
        unit = self.claim.unit
        return [
            self.claim.what, self.claim.rule.printed(unit), spread_text(self.ours, unit),
            spread_text(self.as_it_is, unit), self.answer,
        ]  # fmt: skip


@dataclass(frozen=True)
class Variation:
    """A parameter changed by half, and what became of one value; with the first seed."""

    parameter: Parameter
    value: Value
    key: str
    before: float
    after: float


@dataclass(frozen=True)
class AblationRow:
    """A mechanism switched off, with the first seed."""

    ablation: Ablation
    before: float
    after: float
    is_gone: bool | None


@dataclass(frozen=True)
class Findings:
    """All that an experiment gave."""

    experiment: Experiment
    seeds: tuple[int, ...]
    own_waits: bool  # the user's own queue waits were taken, so that nothing is judged
    rows: tuple[Row, ...]
    variations: tuple[Variation, ...]
    ablations: tuple[AblationRow, ...]
    data: tuple[tuple[Value, ...], ...]  # a seed, then the experiment's columns

    @property
    def counts(self) -> tuple[int, int]:
        """Rows that agree, and rows that were judged."""
        judged = [row.agrees for row in self.rows if row.agrees is not None and not row.is_fitted]
        return sum(judged), len(judged)


def run(
    experiment: Experiment, seeds: int, progress: Progress = lambda done, total: None,
    waits: Waits | None = None,
) -> Findings:  # fmt: skip
    """Run an experiment with the seeds 1, 2 and so on."""
    varied = [] if waits is not None else [one for one in experiment.parameters if one.is_varied]
    ablations = () if waits is not None else experiment.ablations
    total = experiment.steps * (seeds + len(FACTORS) * len(varied) + len(ablations))
    done = 0

    def measure(seed: int, changes: Mapping[str, Value] | None = None) -> Measured:
        nonlocal done
        start, ticks = done, 0

        def tick() -> None:
            nonlocal ticks
            ticks = min(ticks + 1, experiment.steps)
            progress(start + ticks, total)

        settings = {**experiment.settings, **(changes or {})}
        found = experiment.measure(Inputs(seed, settings, waits, tick, engine=changes is None))
        done = start + experiment.steps
        progress(done, total)
        return found

    numbers = tuple(range(1, seeds + 1))
    found = [measure(seed) for seed in numbers]
    first = found[0].values
    variations = [
        Variation(one, value, key, first[key], after[key])
        for one in varied
        for value in (_scaled(one.value, factor) for factor in FACTORS)
        for after in (measure(1, {one.name: value}).values,)
        for key in experiment.watched
    ]
    off = []
    for ablation in ablations:
        after = measure(1, ablation.changes).values[ablation.key]
        off.append(AblationRow(ablation, first[ablation.key], after, ablation.rule.holds(after)))
    rows = [_judge(experiment, claim, [one.values for one in found], waits is None) for claim in experiment.claims]
    data = [(seed, *row) for seed, one in zip(numbers, found, strict=True) for row in one.data]
    return Findings(
        experiment, numbers, waits is not None, tuple(rows), tuple(variations), tuple(off), tuple(data)
    )  # fmt: skip


def _scaled(value: Value, factor: float) -> Value:
    assert not isinstance(value, str)
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def _judge(experiment: Experiment, claim: Claim, values: list[dict[str, float]], judged: bool) -> Row:
    ours = tuple(one[claim.key] for one in values if claim.key in one)
    system = claim.as_it_is
    real = tuple(one[system.key] for one in values if system.key in one) if system is not None else ()
    worse = None
    if system is not None and real and judged:
        worse = is_not_worse(real, [one[system.against] for one in values], system.lower_is_better)
    agrees = verdict(claim.rule, ours) if judged else None
    return Row(claim, ours, real, agrees, claim.key in experiment.fitted, worse)


def document(found: Findings) -> dict[str, Any]:
    """The findings as JSON."""
    experiment = found.experiment
    return {
        "id": experiment.id, "title": experiment.title, "section": experiment.section, "seeds": list(found.seeds),
        "own_waits": found.own_waits,
        "rows": [
            {"key": row.claim.key, "what": row.claim.what, "unit": row.claim.unit,
             "paper": row.claim.rule.printed(row.claim.unit), "rule": row.claim.rule.words(row.claim.unit),
             "ours": list(row.ours), "as_it_is": list(row.as_it_is), "agrees": row.agrees, "fitted": row.is_fitted,
             "not_worse": row.is_not_worse, "note": row.claim.note}
            for row in found.rows
        ],
        "sensitivity": [
            {"parameter": one.parameter.name, "from": one.parameter.value, "to": one.value, "key": one.key,
             "before": one.before, "after": one.after}
            for one in found.variations
        ],
        "ablations": [
            {"what": one.ablation.what, "key": one.ablation.key, "before": one.before, "after": one.after,
             "rule": one.ablation.rule.words(one.ablation.unit), "gone": one.is_gone}
            for one in found.ablations
        ],
        "parameters": [
            {"name": one.name, "value": one.value, "source": one.source.value, "where": one.where,
             "fitted_to": one.fitted_to}
            for one in experiment.parameters
        ],
    }  # fmt: skip


TABLE = ("what", "paper", "Shoal", "Shoal as it is", "agrees?")
SENSITIVITY = ("parameter", "from", "to", "figure", "before", "after")
ABLATIONS = ("switched off", "figure", "before", "after", "effect gone?")
PARAMETERS = ("parameter", "value", "source", "where")


def table(found: Findings) -> tuple[list[str], list[list[str]]]:
    """Head and cells of the table; the column of the product's own engine only where a row has it."""
    rows = [row.shown for row in found.rows]
    if any(row.as_it_is for row in found.rows):
        return list(TABLE), rows
    return [name for name in TABLE if name != TABLE[3]], [[*row[:3], row[4]] for row in rows]


def sensitivity(found: Findings) -> list[list[str]]:
    """Cells of the table of varied parameters."""
    return [
        [one.parameter.name, _plain(one.parameter.value), _plain(one.value), one.key, number(one.before),
         f"{number(one.after)}{_change(one.before, one.after)}"]
        for one in found.variations
    ]  # fmt: skip


def ablation_rows(found: Findings) -> list[list[str]]:
    """Cells of the table of mechanisms that were switched off."""
    return [
        [one.ablation.what, one.ablation.key, number(one.before, one.ablation.unit),
         number(one.after, one.ablation.unit), {True: "yes", False: "no", None: "-"}[one.is_gone]]
        for one in found.ablations
    ]  # fmt: skip


def parameters(experiment: Experiment) -> list[list[str]]:
    """Cells of the table of parameters."""
    return [[one.name, _plain(one.value), one.source.value, one.where] for one in experiment.parameters]


def _plain(value: Value) -> str:
    return str(value) if isinstance(value, (str, bool)) else number(value)


def _change(before: float, after: float) -> str:
    return f" ({after / before - 1:+.0%})" if before else ""


def mean_curve(found: Findings) -> dict[str, list[tuple[float, float, float, float]]]:
    """For each series of the plot: x, the mean over the seeds, the least and the most."""
    plot, columns = found.experiment.plot, ("seed", *found.experiment.columns)
    x, y, name = (columns.index(one) for one in (plot.x, plot.y, plot.series))
    points: dict[str, dict[float, list[float]]] = {}
    for row in found.data:
        points.setdefault(str(row[name]), {}).setdefault(float(row[x]), []).append(float(row[y]))
    return {
        series: [(at, fmean(values), min(values), max(values)) for at, values in sorted(some.items())]
        for series, some in points.items()
    }
