"""Random quantities of a world: durations, waits, latencies, speeds.

Each draws from a generator that is passed in, so that a world keeps one stream of random numbers for each purpose.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from random import Random
from typing import NamedTuple, Protocol


class Distribution(Protocol):
    """A quantity that is drawn anew each time."""

    def draw(self, rng: Random) -> float:
        """The next value."""


class Constant(NamedTuple):
    """Always the same."""

    value: float

    def draw(self, rng: Random) -> float:
        """The value; no random number is used up."""
        return self.value


class Uniform(NamedTuple):
    """Equally likely between two ends."""

    low: float
    high: float

    def draw(self, rng: Random) -> float:
        """The next value."""
        return rng.uniform(self.low, self.high)


class Normal(NamedTuple):
    """A Gaussian, cut at 0."""

    mean: float
    sigma: float

    def draw(self, rng: Random) -> float:
        """The next value."""
        return max(0.0, rng.gauss(self.mean, self.sigma))


class LogNormal(NamedTuple):
    """Skewed to the right: its median, and the spread of its logarithm."""

    median: float
    spread: float

    def draw(self, rng: Random) -> float:
        """The next value."""
        return self.median * math.exp(rng.gauss(0.0, self.spread))


class Exponential(NamedTuple):
    """Times between events that do not know of each other."""

    mean: float

    def draw(self, rng: Random) -> float:
        """The next value."""
        return rng.expovariate(1.0 / self.mean) if self.mean > 0.0 else 0.0


class Quantiles(NamedTuple):
    """A measured distribution: values at rising probabilities from 0 to 1, with straight lines between them, of the logarithms
    where all values are positive."""

    probabilities: tuple[float, ...]
    values: tuple[float, ...]

    def draw(self, rng: Random) -> float:
        """The next value."""
        return self.at(rng.random())

    def at(self, probability: float) -> float:
        """The value below which this part of all lies."""
        index = min(max(bisect_right(self.probabilities, probability), 1), len(self.probabilities) - 1)
        low, high = self.probabilities[index - 1], self.probabilities[index]
        part = (probability - low) / (high - low) if high > low else 1.0
        below, above = self.values[index - 1], self.values[index]
        if self.values[0] > 0.0:
            return math.exp(math.log(below) + part * (math.log(above) - math.log(below)))
        return below + part * (above - below)


class Choice(NamedTuple):
    """One of some measured values, each as likely as the others."""

    values: tuple[float, ...]

    def draw(self, rng: Random) -> float:
        """The next value."""
        return rng.choice(self.values)


def measured(values: Sequence[float]) -> Quantiles:
    """The distribution that some measured values suggest: any value between two neighbours is as likely as they are."""
    ordered = sorted(values)
    if len(ordered) == 1:
        ordered *= 2
    steps = len(ordered) - 1
    return Quantiles(tuple(at / steps for at in range(steps + 1)), tuple(ordered))
