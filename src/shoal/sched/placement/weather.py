"""The weather of a site: what is seen of it over time, and a forecast with its uncertainty, scored by what came
[SPHINX S7; ADR 0057].

The forecast of a quantity is made by whichever of a few simple predictors was right most often of late, as in the
Network Weather Service; its interval is that of its own last errors. Each forecast is compared with the next
observation before that counts, so the score is of what was said, not of what was fitted. Pure: time is an argument.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple, Optional

KEPT = 240  # observations of a quantity: four hours of minutes
ERRORS = 64  # of the last forecasts, of which the interval is made
COVERED = 0.8  # of what comes shall lie in the interval
WINDOW = 10  # observations that the means and medians look at
FADES = 0.9  # of a predictor's error, with each observation
SMOOTH = 0.3  # weight of the newest observation in the smoothed value
FEW = 4  # errors below which the interval is also as wide as the values differ
EVERY = 60.0  # seconds between two observations of what is there all the time

# What is known of a site, with its unit. All but the last are numbers that cannot be below 0; the last two are shares.
QUANTITIES: Mapping[str, str] = {
    "waiting": "pilots in the queue of its batch system",
    "running": "cores that run tasks",
    "free": "cores of ours that are free",
    "free_slots": "slots that the batch system says are free",
    "start_delay": "seconds from a submission to the start",
    "speed": "of its pilots, by what tasks of one kind take there",
    "bandwidth": "bytes per second to the server",
    "round_trip": "seconds to the server and back",
    "storage": "bytes that are free for tasks, on all hosts",
    "failure": "share of the attempts that failed or were lost",
}


class Forecast(NamedTuple):
    """What is expected of a quantity next."""

    value: float
    low: float  # COVERED of what comes is expected between these
    high: float
    by: str  # the predictor


class Score(NamedTuple):
    """How forecasts did that were made before."""

    compared: int
    inside: float  # share of what came that lay in the interval
    error: float  # mean absolute error
    naive: float  # the same of "as it was last"


def _last(values: Sequence[float]) -> float:
    return values[-1]


def _mean(values: Sequence[float]) -> float:
    return fmean(values[-WINDOW:])


def _median(values: Sequence[float]) -> float:
    return median(values[-WINDOW:])


def _smoothed(values: Sequence[float]) -> float:
    found = values[0]
    for value in values[-3 * WINDOW :]:
        found += SMOOTH * (value - found)
    return found


PREDICTORS = {"last": _last, "mean": _mean, "median": _median, "smoothed": _smoothed}


class Series:
    """One quantity of one site."""

    __slots__ = ("_errors", "_predicted", "_scores", "_totals", "_values", "history")

    def __init__(self) -> None:
        self.history: deque[tuple[float, float]] = deque(maxlen=KEPT)  # time and value
        self._values: list[float] = []  # the last ones
        self._predicted: dict[str, float] = {}  # by each predictor, of the next one
        self._scores: dict[str, float] = dict.fromkeys(PREDICTORS, 0.0)  # error of each, of late
        self._errors: deque[float] = deque(maxlen=ERRORS)  # of what was forecast, with their signs
        self._totals = [0, 0, 0.0, 0.0]  # forecasts, those that held, errors of them, and of the naive one

    def note(self, now: float, value: float) -> None:
        """Observe a value: score what was said of it, then take it in."""
        said = self.forecast()
        if said is not None:
            self._totals[0] += 1
            self._totals[1] += said.low <= value <= said.high
            self._totals[2] += abs(value - said.value)
            self._totals[3] += abs(value - self._values[-1])
            self._errors.append(value - said.value)
            for name, predicted in self._predicted.items():
                self._scores[name] = FADES * self._scores[name] + (1.0 - FADES) * abs(value - predicted)
        self.history.append((now, value))
        self._values.append(value)
        del self._values[: -3 * WINDOW]
        self._predicted = {name: predict(self._values) for name, predict in PREDICTORS.items()}

    def forecast(self) -> Optional[Forecast]:
        """What comes next; None: nothing was ever seen."""
        if not self._values:
            return None
        by = min(self._scores, key=lambda name: self._scores[name])  # of equals the first
        value = self._predicted[by]
        low, high = self._interval(value)
        return Forecast(value, max(0.0, low), high, by)

    def _interval(self, value: float) -> tuple[float, float]:
        errors = sorted(self._errors)
        if len(errors) >= FEW:
            beside = (1.0 - COVERED) / 2.0
            at = beside * (len(errors) + 1) - 1.0  # of n errors, n + 1 gaps are equally likely
            low, high = _at(errors, at), _at(errors, len(errors) - 1.0 - at)
            return value + min(0.0, low), value + max(0.0, high)
        spread = max([*map(abs, errors), max(self._values) - min(self._values)])
        if len(self._values) == 1:
            spread = abs(value)  # of one observation nothing is known but its size
        return value - spread, value + spread

    def score(self) -> Optional[Score]:
        """How its forecasts did; None: none could be compared."""
        count, inside, error, naive = self._totals
        return Score(int(count), inside / count, error / count, naive / count) if count else None


def _at(ordered: Sequence[float], place: float) -> float:
    """The value at a place between two, within the list."""
    place = min(max(place, 0.0), len(ordered) - 1.0)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


class Weather:
    """Everything that is seen of one site."""

    __slots__ = ("_attempts", "_failures", "series", "submitted")

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.submitted: dict[str, float] = {}  # allocations that have not started
        self._attempts = self._failures = 0  # that ended since the last observation

    def note(self, name: str, now: float, value: Optional[float]) -> None:
        """Observe a quantity; None: it is not known, and nothing is."""
        if value is not None and math.isfinite(value):
            self.series.setdefault(name, Series()).note(now, value)

    def count(self, attempts: int, is_failure: bool) -> None:
        """So many attempts ended there."""
        self._attempts += attempts
        self._failures += attempts * is_failure

    def note_failures(self, now: float) -> None:
        """Observe the share of failures among what ended since the last time, if anything did."""
        if self._attempts:
            self.note("failure", now, self._failures / self._attempts)
            self._attempts = self._failures = 0

    def expect(self, name: str, otherwise: float) -> float:
        """What is expected of a quantity, or something else where nothing was seen."""
        found = self.series[name].forecast() if name in self.series else None
        return otherwise if found is None else found.value

    def rows(self) -> dict[str, Any]:
        """All of it in the types of JSON: of each quantity the last value, the forecast and its score."""
        found: dict[str, Any] = {}
        for name in QUANTITIES:
            series = self.series.get(name)
            said = series.forecast() if series is not None else None
            if series is not None and said is not None:
                at, value = series.history[-1]
                score = series.score()
                found[name] = {
                    "time": at, "value": value, "forecast": said._asdict(),
                    "score": score._asdict() if score is not None else None,
                    "history": [list(pair) for pair in series.history],
                }  # fmt: skip
        return found
