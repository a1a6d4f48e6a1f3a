"""Does a figure agree with what a paper prints? Pure rules, which stand beside the printed figure before anything is run.

A printed number agrees within the spread that is printed with it, else within 15 %. Of a plot, an order or a sentence only
a bound is asked. Judged is the mean over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Protocol

from shoal.model.lazy_dataclass import dataclass

TOLERANCE = 0.15  # of a printed number without a spread


class Rule(Protocol):
    """What a paper says of one figure, and when ours agrees."""

    def printed(self, unit: str) -> str: ...
    def words(self, unit: str) -> str: ...
    def holds(self, value: float) -> bool | None: ...


@dataclass(frozen=True)
class Printed:
    """The paper prints this number, perhaps with a spread."""

    value: float
    spread: float | None = None

    @property
    def tolerance(self) -> float:
        """The largest difference that agrees."""
        return self.spread if self.spread is not None else TOLERANCE * abs(self.value)

    def printed(self, unit: str) -> str:
        """As the paper prints it."""
        return number(self.value, unit) + ("" if self.spread is None else f" ± {number(self.spread, unit)}")

    def words(self, unit: str) -> str:
        """The rule in words."""
        if self.spread is None:
            return f"within {TOLERANCE:.0%} of what is printed"
        return f"within ± {number(self.spread, unit)}, the printed spread"

    def holds(self, value: float) -> bool:
        """True if the value agrees."""
        return abs(value - self.value) <= self.tolerance


@dataclass(frozen=True)
class AtMost:
    """The paper says less, or a plot shows an order: not above the bound."""

    bound: float
    said: str = ""  # how the paper says it, shortly

    def printed(self, unit: str) -> str:
        """What the paper says."""
        return self.said or f"≤ {number(self.bound, unit)}"

    def words(self, unit: str) -> str:
        """The rule in words."""
        return f"at most {number(self.bound, unit)}"

    def holds(self, value: float) -> bool:
        """True if the value agrees."""
        return value <= self.bound


@dataclass(frozen=True)
class AtLeast:
    """The paper says more, or a plot shows an order: not below the bound."""

    bound: float
    said: str = ""

    def printed(self, unit: str) -> str:
        """What the paper says."""
        return self.said or f"≥ {number(self.bound, unit)}"

    def words(self, unit: str) -> str:
        """The rule in words."""
        return f"at least {number(self.bound, unit)}"

    def holds(self, value: float) -> bool:
        """True if the value agrees."""
        return value >= self.bound


@dataclass(frozen=True)
class Between:
    """The paper gives a range, or an order of magnitude for which a range is stated here."""

    low: float
    high: float
    said: str = ""

    def printed(self, unit: str) -> str:
        """What the paper says."""
        return self.said or f"{number(self.low, unit)} to {number(self.high, unit)}"

    def words(self, unit: str) -> str:
        """The rule in words."""
        return f"from {number(self.low, unit)} to {number(self.high, unit)}"

    def holds(self, value: float) -> bool:
        """True if the value agrees."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class NotJudged:
    """The paper prints nothing that could be compared; the figure is ours alone."""

    why: str = "the paper has no such figure"

    def printed(self, unit: str) -> str:
        """Nothing."""
        return "-"

    def words(self, unit: str) -> str:
        """Why there is no rule."""
        return f"not judged: {self.why}"

    def holds(self, value: float) -> None:
        """Neither agrees nor disagrees."""
        return


def number(value: float, unit: str = "", like: float | None = None) -> str:
    """Three digits that count, with its unit; `like`: as many decimals as this number gets."""
    if not math.isfinite(value):
        return "-"
    size = abs(value if like is None else like)
    decimals = 0 if size >= 100 or size == 0 else 2 - math.floor(math.log10(size))
    text = f"{value:,.{decimals}f}"
    if "." in text and like is None:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {unit}" if unit else text


def spread_text(values: Sequence[float], unit: str = "") -> str:
    """The mean over the seeds and their standard deviation."""
    if not values:
        return "-"
    mean = fmean(values)
    if len(values) == 1:
        return number(mean, unit)
    return f"{number(mean, like=mean)} ± {number(stdev(values), like=mean)}" + (f" {unit}" if unit else "")


def verdict(rule: Rule, values: Sequence[float]) -> bool | None:
    """Does the mean over the seeds agree? None: there is nothing to judge."""
    mean = fmean(values) if values else math.nan
    return rule.holds(mean) if math.isfinite(mean) else None


def is_not_worse(ours: Sequence[float], best: Sequence[float], lower_is_better: bool = True) -> bool:
    """True if ours is not worse than the best of the paper, seed by seed, beyond the standard error of the difference."""
    sign = 1.0 if lower_is_better else -1.0
    worse = [sign * (a - b) for a, b in zip(ours, best, strict=True)]
    error = stdev(worse) / math.sqrt(len(worse)) if len(worse) > 1 else 0.0
    return fmean(worse) <= error
