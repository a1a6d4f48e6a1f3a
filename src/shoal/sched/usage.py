"""Usage of a vertex of the share tree in core seconds: decaying with a half-life, or counted in time frames.

Running tasks count at the rate of their cores; at their end this estimate is replaced by what they really took. So an
owner that holds every slot with long tasks does not look idle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Union

from shoal.model.policy import WINDOW, UsageRule

_LN2 = math.log(2.0)


class HalfLife:
    """Usage that counts half as much after each half-life."""

    __slots__ = ("_fade", "_rate", "_stamp", "_value")

    def __init__(self, half_life: float) -> None:
        self._fade = _LN2 / half_life
        self._value = 0.0  # at the time of the stamp
        self._rate = 0.0  # cores running
        self._stamp = -math.inf

    def _advance(self, now: float) -> None:
        if now > self._stamp:
            self._value = self.at(now)
            self._stamp = now

    def _spread(self, seconds: float) -> float:
        """What one core that ran so many seconds until now weighs now."""
        return -math.expm1(-self._fade * seconds) / self._fade

    def add(self, now: float, amount: float) -> None:
        """Add core seconds used now, or at an earlier time."""
        self._advance(now)
        self._value += amount if now >= self._stamp else amount * math.exp(self._fade * (now - self._stamp))

    def run(self, now: float, cores: float, began: float) -> None:
        """Cores started to run, perhaps long ago."""
        self._advance(now)
        self._rate += cores
        if began < now:
            self._value += cores * self._spread(now - began)

    def stop(self, now: float, cores: float, began: float, actual: float) -> None:
        """Cores ended: the core seconds that they really took replace what was counted."""
        self._advance(now)
        self._rate -= cores
        length = now - began
        if length > 0:
            self._value += (actual / length - cores) * self._spread(length)
        else:
            self._value += actual

    def at(self, now: float) -> float:
        """The decayed usage now."""
        passed = now - self._stamp
        if passed <= 0 or (not self._value and not self._rate):
            return max(0.0, self._value)
        gone = math.exp(-self._fade * passed)
        return max(0.0, self._value * gone + self._rate * (1.0 - gone) / self._fade)

    def take_in(self, other: Usage, now: float) -> None:
        """Add another vertex's usage of the same kind: a group has a new member."""
        if isinstance(other, HalfLife):
            self._advance(now)
            other._advance(now)
            self._value += other._value
            self._rate += other._rate

    def dump(self) -> list[float]:
        """A time and the usage until then, without what still runs."""
        return [self._stamp, self._value] if self._value > 0 else []

    def load(self, row: Sequence[float]) -> None:
        """Add what a usage of either kind dumped."""
        for at, used in zip(row[::2], row[1::2]):
            self.add(float(at), float(used))


class Windowed:
    """Usage of the last frames, the present one in full, earlier ones the less the older they are [GWP table 3].
    Running tasks count from their start, ended ones in the frame in which they ended."""

    __slots__ = ("_buckets", "_frame", "_frames", "_head", "_rate", "_since")

    def __init__(self, window: float, buckets: int) -> None:
        self._frame = window / buckets  # seconds
        self._buckets = buckets
        self._head = -(1 << 62)  # number of the newest frame
        self._frames: dict[int, float] = {}
        self._rate = 0.0
        self._since = 0.0  # sum of cores x start: rate x now less this is what runs has used

    def _advance(self, now: float) -> None:
        head = math.floor(now / self._frame)
        if head > self._head:
            self._head = head
            self._frames = {at: used for at, used in self._frames.items() if at > head - self._buckets}

    def add(self, now: float, amount: float) -> None:
        """Add core seconds used now, or at an earlier time."""
        self._advance(now)
        at = math.floor(now / self._frame)
        if at > self._head - self._buckets:
            self._frames[at] = self._frames.get(at, 0.0) + amount

    def run(self, now: float, cores: float, began: float) -> None:
        """Cores started to run, perhaps long ago."""
        self._rate += cores
        self._since += cores * min(began, now)

    def stop(self, now: float, cores: float, began: float, actual: float) -> None:
        """Cores ended: the core seconds that they really took replace what was counted."""
        self._rate -= cores
        self._since = self._since - cores * min(began, now) if self._rate else 0.0
        self.add(now, actual)

    def at(self, now: float) -> float:
        """The decayed usage now."""
        self._advance(now)
        ended = sum(used * (self._buckets - self._head + at) for at, used in self._frames.items()) / self._buckets
        return max(0.0, ended) + max(0.0, self._rate * now - self._since)

    def take_in(self, other: Usage, now: float) -> None:
        """Add another vertex's usage of the same kind: a group has a new member."""
        if isinstance(other, Windowed):
            self._advance(now)
            other._advance(now)
            for at, used in other._frames.items():
                self._frames[at] = self._frames.get(at, 0.0) + used
            self._rate += other._rate
            self._since += other._since

    def dump(self) -> list[float]:
        """Pairs of a time and the usage then, without what still runs."""
        return [number for at in sorted(self._frames) for number in ((at + 0.5) * self._frame, self._frames[at])]

    def load(self, row: Sequence[float]) -> None:
        """Add what a usage of either kind dumped."""
        for at, used in zip(row[::2], row[1::2]):
            self.add(float(at), float(used))


Usage = Union[HalfLife, Windowed]


def make_usage(rule: UsageRule) -> Usage:
    """An empty usage of the kind that a policy sets."""
    return Windowed(rule.window, rule.buckets) if rule.kind == WINDOW else HalfLife(rule.half_life)
