"""Durations longer than all that were seen: a distribution that is fitted to those that were.

Two families, of which each draw takes one, as likely as it explains what was seen: log-normal durations, which may be many times
longer than most, and Weibull's, which exponential ones are of, and which end sooner. Of what still runs it is known that it takes
longer than its age (censored observations).
"""

from __future__ import annotations

import math

import numpy as np

from shoal.sched.vector.slots import Floats

SHORTEST = 1e-6  # seconds; less counts as this, since its logarithm is used
LEAST_SPREAD, MOST_SPREAD = 0.005, 3.0  # deviation of the logarithm of durations
PRIOR_SPREAD = 0.3  # what is believed of it before anything was seen, with the weight of one observation
FIT_ROUNDS = 200

# The standard normal distribution: its cumulative hazard, -log(1 - F), at points that are close enough to interpolate.
_Z = np.linspace(-6.0, 12.0, 1801)
_HAZARD = -np.log([0.5 * math.erfc(z / math.sqrt(2)) for z in _Z])


class Tail:
    """The distribution in each draw, by the logarithm of durations: centre, spread and family."""

    def __init__(self, ended: Floats, ages: Floats, rng: np.random.Generator, draws: int) -> None:
        """Fitted to durations of tasks that ended, and ages of those that run."""
        normal, weibull = fit_log_normal(ended, ages), fit_weibull(ended, ages)
        is_weibull = rng.random(draws) < _share(
            log_normal_fits(ended, ages, *normal), weibull_fits(ended, ages, *weibull)
        )
        centre, spread = np.where(is_weibull, weibull[0], normal[0]), np.where(is_weibull, weibull[1], normal[1])
        if len(ages) and ages.max() > ended.max():
            # The longest of all still runs: the distribution reaches at least so far, whatever the others look like.
            hazard = math.log(len(ended) + len(ages) + 1.0)
            reach = np.where(is_weibull, math.log(hazard / math.log(2.0)), float(np.interp(hazard, _HAZARD, _Z)))
            spread = np.maximum(spread, math.log(ages.max() / max(float(np.median(ended)), SHORTEST)) / reach)
        variance = (PRIOR_SPREAD**2 + len(ended) * spread**2) / rng.chisquare(len(ended), draws)
        self.spread = np.clip(np.sqrt(variance), LEAST_SPREAD, MOST_SPREAD)
        self._centre = centre + self.spread * rng.standard_normal(draws) / math.sqrt(len(ended))
        self._is_weibull = is_weibull

    def longer(self, bound: Floats, hazard: Floats) -> Floats:
        """Durations beyond a bound, a row of them for each draw; `hazard`: exponentially distributed numbers."""
        centre, spread = self._centre[:, None], self.spread[:, None]
        z = (np.log(np.maximum(bound, SHORTEST)) - centre) / spread
        normal = np.interp(np.minimum(np.interp(z, _Z, _HAZARD) + hazard, _HAZARD[-1]), _HAZARD, _Z)
        weibull = np.log(np.exp(np.minimum(z, 50.0)) + hazard)
        found: Floats = np.exp(centre + spread * np.where(self._is_weibull[:, None], weibull, normal))
        return np.maximum(bound, found)


def _share(first: float, second: float) -> float:
    """The probability of the second of two explanations, by the logarithms of their likelihoods."""
    return 1.0 / (1.0 + math.exp(min(max(first - second, -50.0), 50.0)))


def fit_log_normal(ended: Floats, ages: Floats) -> tuple[float, float]:
    """Mean and deviation of the logarithm of durations, if some are only known to be longer than their age. Expectation
    maximisation: what is not known is replaced by what is expected of it, until nothing changes."""
    logs, above = np.log(ended), np.log(ages)
    centre, spread = float(logs.mean()), max(float(logs.std()), LEAST_SPREAD)
    for _ in range(FIT_ROUNDS if len(above) else 0):
        z = np.clip((above - centre) / spread, -6.0, 8.0)
        mills = np.exp(-(z**2) / 2 + np.interp(z, _Z, _HAZARD)) / math.sqrt(2 * math.pi)
        mean = centre + spread * mills
        square = centre**2 + spread**2 + spread * (above + centre) * mills
        total = len(logs) + len(above)
        before, centre = centre, float((logs.sum() + mean.sum()) / total)
        variance = float((logs**2).sum() + square.sum()) / total - centre**2
        spread = math.sqrt(max(variance, LEAST_SPREAD**2))
        if abs(centre - before) < 1e-3 * spread:
            break
    return centre, min(spread, MOST_SPREAD)


def log_normal_fits(ended: Floats, ages: Floats, centre: float, spread: float) -> float:
    """The logarithm of the likelihood of what was seen, of logarithms of durations."""
    z = (np.log(ended) - centre) / spread
    survived = np.interp((np.log(ages) - centre) / spread, _Z, _HAZARD)
    return float(-(z**2 / 2).sum() - len(z) * math.log(spread * math.sqrt(2 * math.pi)) - survived.sum())


def fit_weibull(ended: Floats, ages: Floats) -> tuple[float, float]:
    """Logarithm of the scale, and inverse of the shape, of the likeliest Weibull distribution."""
    logs = np.log(np.concatenate((ended, ages)))
    top, mean = float(logs.max()), float(np.log(ended).mean())
    low, high = math.log(LEAST_SPREAD), math.log(MOST_SPREAD)
    for _ in range(40):  # the derivative of the likelihood by the spread has one zero
        middle = (low + high) / 2
        weights = np.exp((logs - top) / math.exp(middle))
        is_less = float((weights * logs).sum() / weights.sum()) - math.exp(middle) - mean > 0
        low, high = (middle, high) if is_less else (low, middle)
    spread = math.exp((low + high) / 2)
    total = float(np.exp((logs - top) / spread).sum())
    return top + spread * math.log(total / len(ended)), spread


def weibull_fits(ended: Floats, ages: Floats, centre: float, spread: float) -> float:
    """As `log_normal_fits`."""
    z, beyond = (np.log(ended) - centre) / spread, (np.log(ages) - centre) / spread
    return float((z - np.exp(z)).sum() - len(z) * math.log(spread) - np.exp(beyond).sum())
