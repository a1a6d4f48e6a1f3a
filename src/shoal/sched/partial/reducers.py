"""Reducers: how the values of one name become one answer. Each has a small state; values are added to it, states are merged,
and an answer is made of it. Merging is associative and commutative, and bounded: no state grows with the number of values
beyond its own limit.

A value is a number or a text. One that is kept itself has its place beside it: the element of its task, and how many values
of that name came before in it; so equal values have an order that is the same on every host.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, Optional, Union

from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_BEST, MAX_BINS, MAX_EMITTED_TEXT, MAX_WHOLE
from shoal.sched.partial.exact_sum import ZERO, ExactSum, add, divided, error_of_mean, sums_of

Value = Union[float, str]
State = list[Any]  # JSON
Answer = dict[str, Any]

KINDS = ("append", "best", "count", "hist", "max", "mean", "min", "sum")
DEFAULT_NUMBER, DEFAULT_TEXT = "mean", "append(100)"
_FORM = re.compile(r"\s*([a-z]+)\s*(?:\(([^()]*)\))?\s*")
_EXAMPLES = "one of mean, sum, count, min, max, hist(0,10,50), best(5), best(5,min), append(100)"


class Reducer:
    """One way to reduce; the base class only counts. State: [values taken, values left out]."""

    needs_number = False

    def __init__(self, text: str) -> None:
        self.text = text  # in its one form
        self.kind = text.partition("(")[0]

    def new(self) -> State:
        """The state without any value: merged with another it changes nothing."""
        return [0, 0]

    def take(self, state: State, values: Sequence[Value], element: int) -> None:
        """Take values of one task into a state, in their order. What it cannot use is counted as left out."""
        index = state[0] + state[1]
        good = [value for value in values if _is_finite(value)] if self.needs_number else values
        if good:
            self._take(state, good, element, index)
        state[0] += len(good)
        state[1] += len(values) - len(good)

    def _take(self, state: State, values: Sequence[Any], element: int, index: int) -> None:
        pass

    def merge(self, state: State, other: State) -> State:
        """A new state with everything that is in both."""
        return [state[0] + other[0], state[1] + other[1], *self._merged(state, other)]

    def _merged(self, state: State, other: State) -> State:
        return []

    def is_sound(self, state: State) -> bool:
        """True if this can be a state: it may come from any pilot."""
        return len(state) == len(self.new()) and _is_count(state[0]) and _is_count(state[1]) and self._is_sound(state)

    def _is_sound(self, state: State) -> bool:
        return True

    def answer(self, state: State) -> Answer:
        """What people and programs see of it."""
        found = {"value": state[0]} if self.kind == "count" else self._answer(state)
        return {"reducer": self.text, "n": state[0], "left_out": state[1], **found}

    def _answer(self, state: State) -> Answer:
        return {}


class Moments(Reducer):
    """Sum, mean with its standard error, least and greatest. State: [.., sum, sum of squares, least, greatest], the sums
    as pairs (see `exact_sum`); all zero without a value."""

    needs_number = True

    def new(self) -> State:
        return [0, 0, list(ZERO), list(ZERO), 0.0, 0.0]

    def _take(self, state: State, values: Sequence[Any], element: int, index: int) -> None:
        for at, more in zip((2, 3), sums_of(values)):
            state[at] = [*add(ExactSum(*state[at]), more)]
        low, high = min(values), max(values)
        state[4] = min(state[4], low) if state[0] else low
        state[5] = max(state[5], high) if state[0] else high

    def _merged(self, state: State, other: State) -> State:
        if not state[0] or not other[0]:
            return [*(state if state[0] else other)[2:6]]
        sums = [[*add(ExactSum(*state[at]), ExactSum(*other[at]))] for at in (2, 3)]
        return [*sums, min(state[4], other[4]), max(state[5], other[5])]

    def _is_sound(self, state: State) -> bool:
        return (
            all(len(state[at]) == 2 and ExactSum(*state[at]).is_sound for at in (2, 3))
            and _is_finite(state[4]) and _is_finite(state[5])
        )  # fmt: skip

    def _answer(self, state: State) -> Answer:
        count, total = state[0], ExactSum(*state[2])
        if not count:
            return {"value": 0.0} if self.kind == "sum" else {"value": None}
        found = {
            "sum": _shown(divided(total, 1)),
            "mean": _shown(divided(total, count)),
            "min": state[4],
            "max": state[5],
        }
        if self.kind != "mean":
            return {"value": found[self.kind]}
        error = _shown(error_of_mean(count, total, ExactSum(*state[3]))) if count > 1 else None
        return {"value": found["mean"], "error": error, **{name: found[name] for name in ("sum", "min", "max")}}


class Histogram(Moments):
    """Equal bins from `low` up to `high`, and the mean. State: as Moments, then below, above, and each bin."""

    def __init__(self, text: str, low: float, high: float, bins: int) -> None:
        super().__init__(text)
        self.low, self.high, self.bins = low, high, bins

    def new(self) -> State:
        return [*super().new(), 0, 0, [0] * self.bins]

    def _take(self, state: State, values: Sequence[Any], element: int, index: int) -> None:
        super()._take(state, values, element, index)
        for value in values:
            if value < self.low:
                state[6] += 1
            elif value >= self.high:
                state[7] += 1
            else:
                at = int((value - self.low) / (self.high - self.low) * self.bins)
                state[8][min(at, self.bins - 1)] += 1

    def _merged(self, state: State, other: State) -> State:
        bins = [one + more for one, more in zip(state[8], other[8])]
        return [*super()._merged(state, other), state[6] + other[6], state[7] + other[7], bins]

    def _is_sound(self, state: State) -> bool:
        bins = state[8]
        is_full = type(bins) is list and len(bins) == self.bins and all(map(_is_count, bins))
        return super()._is_sound(state) and is_full and _is_count(state[6]) and _is_count(state[7])

    def _answer(self, state: State) -> Answer:
        count, total = state[0], ExactSum(*state[2])
        return {
            "value": _shown(divided(total, count)) if count else None, "low": self.low, "high": self.high,
            "below": state[6], "above": state[7], "counts": list(state[8]),
        }  # fmt: skip


class Kept(Reducer):
    """Some of the values themselves: the best numbers, or those that come first. State: [.., [[value, element, index]]]."""

    def __init__(self, text: str, most: int, order: str) -> None:
        super().__init__(text)
        self.most, self.order = most, order  # max, min, or by place
        self.needs_number = order != "place"

    def new(self) -> State:
        return [0, 0, []]

    def _rank(self, entry: list[Any]) -> tuple[Any, ...]:
        value, element, index = entry
        if self.order == "place":
            return (element, index)
        return (-value if self.order == "max" else value, element, index)

    def _take(self, state: State, values: Sequence[Any], element: int, index: int) -> None:
        more = [
            [value[:MAX_EMITTED_TEXT] if isinstance(value, str) else value, element, index + at]
            for at, value in enumerate(values)
        ]
        state[2] = sorted([*state[2], *more], key=self._rank)[: self.most]

    def _merged(self, state: State, other: State) -> State:
        return [sorted([*state[2], *other[2]], key=self._rank)[: self.most]]

    def _is_sound(self, state: State) -> bool:
        kept = state[2]
        return type(kept) is list and len(kept) <= self.most and all(self._is_entry(entry) for entry in kept)

    def _is_entry(self, entry: Any) -> bool:
        if type(entry) is not list or len(entry) != 3 or not (_is_count(entry[1]) and _is_count(entry[2])):
            return False
        is_text = isinstance(entry[0], str) and len(entry[0]) <= MAX_EMITTED_TEXT and not self.needs_number
        return is_text or _is_finite(entry[0])

    def _answer(self, state: State) -> Answer:
        kept = [{"value": value, "element": element} for value, element, _ in state[2]]
        return (
            {"values": kept} if self.order == "place" else {"value": kept[0]["value"] if kept else None, "values": kept}
        )


def _is_finite(value: Any) -> bool:
    kind = type(value)
    return (kind is float and math.isfinite(value)) or (kind is int and abs(value) <= MAX_WHOLE)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_WHOLE


def _shown(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None


class Measure(NamedTuple):
    """What goals ask of the values of a name: their number, and what is known of their mean."""

    n: int
    mean: Optional[float] = None
    error: Optional[float] = None
    sum: Optional[float] = None
    min: Optional[float] = None
    max: Optional[float] = None


def measure(reducer: Reducer, state: State) -> Measure:
    """What is known of the values in a state."""
    if not isinstance(reducer, Moments) or not state[0]:
        return Measure(state[0])
    count, total = state[0], ExactSum(*state[2])
    error = error_of_mean(count, total, ExactSum(*state[3])) if count > 1 else None
    return Measure(count, divided(total, count), error, divided(total, 1), state[4], state[5])


@functools.lru_cache(maxsize=1_024)
def reducer_of(text: str, field: str = "reduce") -> Reducer:
    """The reducer that a text names; BadInput if it names none."""
    found = _FORM.fullmatch(text) if len(text) <= MAX_EMITTED_TEXT else None
    kind = found[1] if found else ""
    if found is None or kind not in KINDS:
        raise BadInput(f"{echo(text)!r} is no reducer", code="bad_reducer", field=field, hint=_EXAMPLES)
    args = [part.strip() for part in (found[2] or "").split(",")] if (found[2] or "").strip() else []
    if kind == "hist":
        return _histogram(text, args, field)
    if kind in ("best", "append"):
        return _kept(text, kind, args, field)
    if args or found[2] is not None:
        _wrong(text, field, f"{kind} takes nothing in parentheses")
    return Reducer(kind) if kind == "count" else Moments(kind)


def _histogram(text: str, args: list[str], field: str) -> Histogram:
    try:
        low, high, bins = float(args[0]), float(args[1]), int(args[2])
    except (ValueError, IndexError):
        low = high = bins = 0
    if len(args) != 3 or not (math.isfinite(high - low) and low < high and 1 <= bins <= MAX_BINS):
        _wrong(text, field, f"write hist(LOW,HIGH,BINS) with LOW below HIGH and at most {MAX_BINS} bins")
    return Histogram(f"hist({low:g},{high:g},{bins})" if _is_short(low, high) else text, low, high, bins)


def _is_short(*numbers: float) -> bool:
    return all(float(f"{number:g}") == number for number in numbers)


def _kept(text: str, kind: str, args: list[str], field: str) -> Kept:
    try:
        most = int(args[0]) if args else 100 if kind == "append" else 1
    except ValueError:
        most = 0
    order = "place" if kind == "append" else args[1] if len(args) > 1 else "max"
    allowed = ("place",) if kind == "append" else ("max", "min")
    if not 1 <= most <= MAX_BEST or order not in allowed or len(args) > (1 if kind == "append" else 2):
        form = "append(MOST)" if kind == "append" else "best(MOST) or best(MOST,min)"
        _wrong(text, field, f"write {form} with MOST from 1 to {MAX_BEST}")
    return Kept(f"{kind}({most},min)" if order == "min" else f"{kind}({most})", most, order)


def _wrong(text: str, field: str, hint: str) -> NoReturn:
    raise BadInput(f"{echo(text)!r} is no reducer", code="bad_reducer", field=field, hint=hint)
