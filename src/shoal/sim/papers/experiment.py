"""What an experiment of a paper consists of: parameters with their sources, claims with their rules, and how it is measured.

Everything that is judged is declared here before it runs: `measure` only fills in values by the keys of the claims.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from shoal.model.lazy_dataclass import dataclass
from shoal.sim.papers.agreement import Rule
from shoal.sim.papers.waits import Waits

Value = float | int | str | bool


class Source(StrEnum):
    """Where the value of a parameter comes from."""

    PAPER = "paper"  # printed there
    MEASURED = "measured"  # of Shoal, in docs/performance.md or by `make bench`
    FITTED = "fitted"  # to one cell of the table, which is then not judged
    CHOSEN = "chosen"  # the paper does not say


@dataclass(frozen=True)
class Parameter:
    """A value that the world of an experiment takes, and why it is this value."""

    name: str
    value: Value
    source: Source
    where: str  # section or line of docs, or the reason of the choice
    fitted_to: str = ""  # the claim whose cell it was fitted to
    varied: bool = True  # a chosen or fitted number is varied by half; False for those that only cost time

    @property
    def is_varied(self) -> bool:
        """True if the sensitivity to it is asked."""
        is_number = isinstance(self.value, (int, float)) and not isinstance(self.value, bool)
        return self.varied and is_number and self.source in (Source.FITTED, Source.CHOSEN)


@dataclass(frozen=True)
class AsItIs:
    """The column `Shoal as it is`: a value of the product's own engine and agents, and what it must not be worse than."""

    key: str
    against: str  # the key of the paper's best system
    lower_is_better: bool = True


@dataclass(frozen=True)
class Claim:
    """One row of the table: what the paper prints, and the rule by which ours agrees."""

    key: str
    what: str
    rule: Rule
    unit: str = ""
    note: str = ""  # what to know of the row; where it disagrees, why
    as_it_is: AsItIs | None = None


@dataclass(frozen=True)
class Ablation:
    """The mechanism switched off: its effect has to be gone."""

    what: str
    changes: Mapping[str, Value]
    key: str
    rule: Rule
    unit: str = ""


@dataclass(frozen=True)
class Plot:
    """How the data are drawn: a curve for each series, the mean over the seeds with its spread."""

    x: str  # names of columns
    y: str
    series: str
    x_label: str
    y_label: str
    x_log: bool = False
    y_log: bool = False


class Measured(NamedTuple):
    """What one seed gave."""

    values: dict[str, float]  # by key
    data: list[tuple[Value, ...]]  # rows of the experiment's columns


@dataclass(frozen=True)
class Inputs:
    """What a measurement is handed."""

    seed: int
    settings: Mapping[str, Any]
    waits: Waits | None = None  # the user's own queue waits, in seconds
    tick: Callable[[], None] = lambda: None  # one of the experiment's steps is done
    engine: bool = True  # a whole measurement, with the column `Shoal as it is`; else only what is watched is asked

    def rng(self, stream: str) -> np.random.Generator:
        """The randomness of one purpose: with more of one, the others stay as they are."""
        return np.random.default_rng([self.seed, binascii.crc32(stream.encode())])


@dataclass(frozen=True)
class Experiment:
    """One experiment of a paper."""

    id: str
    title: str
    section: str  # of the paper, with its short name of docs/papers.md
    seconds: float  # about how long one seed takes
    parameters: tuple[Parameter, ...]
    claims: tuple[Claim, ...]
    measure: Callable[[Inputs], Measured]
    columns: tuple[str, ...]  # of data.csv, after the seed
    plot: Plot
    watched: tuple[str, ...] = ()  # keys whose sensitivity is printed
    ablations: tuple[Ablation, ...] = ()
    steps: int = 1  # ticks of one measurement
    modelled: str = ""  # what is a model here, and what is the product's own code
    takes_waits: bool = False
    settings: dict[str, Value] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", {one.name: one.value for one in self.parameters})
        keys = [claim.key for claim in self.claims]
        if len(set(keys)) < len(keys) or len(self.settings) < len(self.parameters):
            raise ValueError(f"{self.id}: a name is used twice")
        for one in self.parameters:
            if not one.where or (one.source is Source.FITTED) != (one.fitted_to in keys):
                raise ValueError(f"{self.id}: {one.name} has no source, or is fitted to no row")
        for ablation in self.ablations:
            if not set(ablation.changes) <= set(self.settings):
                raise ValueError(f"{self.id}: an ablation changes what is no parameter")
        if not {self.plot.x, self.plot.y, self.plot.series} <= set(self.columns):
            raise ValueError(f"{self.id}: the plot names no columns")

    @property
    def fitted(self) -> set[str]:
        """The claims that a parameter was fitted to, which are therefore not judged."""
        return {one.fitted_to for one in self.parameters if one.fitted_to}
