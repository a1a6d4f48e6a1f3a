"""How many units the next piece of divisible work gets, by what was measured of each pilot [DIANE U8].

The time of a piece is `fixed + units / power + units / bandwidth`: what each piece costs however small it is, how fast its
pilot computes, and how fast it moves what the units bring along, both in units per second. `power / bandwidth` is the
application's ratio of communication to computation, as it is on that pilot. All pilots shall end together: each piece is a
part of what its slot could do until then, so pieces shrink towards the end and mistakes of earlier ones are made up for.

Departures from the thesis: it fits one ratio of the application by trying values, and sizes a whole iteration at once; here
both costs are measured for each pilot with every piece, and each piece is sized when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, inf
from typing import NamedTuple, Optional

FIRST_SHARE = 1_000  # the first piece of a pilot, while nothing is known: this part of the work, or
FIRST_EACH = 16  # this part of what each slot gets on average, whichever is less
UNKNOWN_SHARE = 4  # a pilot of which nothing is known counts as the slowest known one, and gets this part of its piece
PART = 2.0  # a piece is this part of what its slot could do until the end
FIXED_SHARE = 0.1  # of a piece's time, the most that its fixed cost may take, as the thesis asks [DIANE U11]
LEAST_SECONDS = 1.0  # a shorter piece is not worth its messages
MOST_SECONDS = 600.0  # of a piece: as much is lost when its pilot dies
GROWTH = 8  # a piece is at most so many times as large as the largest that its pilot has done
FADE = 0.5  # how much all earlier pieces weigh against the last
COMPARED = 3  # pieces that are compared with the smallest one to tell what is fixed
APART = 2.0  # sizes of pieces that differ by so much tell what is fixed from what grows with the units
SHORTEST = 1e-9  # seconds a unit takes at least


class Speed(NamedTuple):
    """What was measured of one slot of a pilot."""

    power: float  # units per second that it computes
    bandwidth: float = inf  # units per second for which it moves what they bring along
    fixed: float = 0.0  # seconds of each piece, however small
    largest: int = 0  # units of the largest piece that it has done; 0: it is only assumed

    @property
    def ratio(self) -> float:
        """Communication over computation: the application's ratio, weighed by this pilot's power over its bandwidth."""
        return self.power / self.bandwidth

    @property
    def cost(self) -> float:
        """Seconds that one more unit takes."""
        return 1.0 / self.power + 1.0 / self.bandwidth

    def seconds(self, units: float) -> float:
        """How long a piece takes."""
        return self.fixed + units * self.cost


class Slot(NamedTuple):
    """One slot that works on pieces: how fast, and for how many seconds it is busy still."""

    speed: Speed
    busy: float = 0.0


class _Line:
    """Seconds as a line over units: a fixed part, told by the smallest piece and those that follow it, and a slope, told by
    the latest ones. Of a later change of speed the smallest piece knows nothing, so that it has no say then."""

    __slots__ = ("_least", "_open", "_seconds", "_units", "_weight", "fixed")

    def __init__(self) -> None:
        self._least: tuple[int, float] = (0, 0.0)  # units and seconds of the smallest piece
        self._open = 0  # how many pieces to come are compared with it
        self._weight = self._units = self._seconds = 0.0  # of all pieces, where older ones fade
        self.fixed = 0.0

    def add(self, units: int, seconds: float) -> None:
        if not self._weight or units <= self._least[0]:
            self._least, self._open = (units, seconds), COMPARED
        self._weight = FADE * self._weight + 1.0
        self._units = FADE * self._units + units
        self._seconds = FADE * self._seconds + seconds
        size, mean = self._units / self._weight, self._seconds / self._weight
        least, quickest = self._least
        if size >= APART * least and self._open:
            self._open -= 1
            slope = max(0.0, (mean - quickest) / (size - least))
            self.fixed = max(0.0, quickest - slope * least)
        self.fixed = min(self.fixed, seconds)

    @property
    def slope(self) -> float:
        """Seconds that one more unit takes. Not all of what is measured can be fixed: a part of it is left to the units."""
        if not self._weight:
            return 0.0
        above = max(self._seconds - self._weight * self.fixed, 0.01 * self._seconds)
        return above / self._units


class Sizes:
    """What was measured of the pilots that work on pieces of one work."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[_Line, _Line]] = {}  # by pilot: computing, and moving
        self._largest: dict[str, int] = {}
        self._slowest: Optional[Speed] = None  # of all known ones, as long as nothing new is known

    def learn(self, pilot: str, units: int, computing: float, moving: float = 0.0) -> None:
        """A piece was done: how long it computed, and how much longer all of it took."""
        lines = self._lines.setdefault(pilot, (_Line(), _Line()))
        lines[0].add(units, max(0.0, computing))
        lines[1].add(units, max(0.0, moving))
        self._largest[pilot] = max(self._largest.get(pilot, 0), units)
        self._slowest = None

    def forget(self, keep: Iterable[str]) -> None:
        """Keep what is known of these pilots only."""
        for name in self._lines.keys() - set(keep):
            del self._lines[name], self._largest[name]
        self._slowest = None

    def __len__(self) -> int:
        return len(self._lines)

    def speed(self, pilot: str) -> Optional[Speed]:
        """The speed of a pilot; as long as nothing is known of it, that of the slowest known one; None: of none is."""
        lines = self._lines.get(pilot)
        if lines is None:
            if self._slowest is None and self._lines:
                known = [speed for name in self._lines if (speed := self.speed(name)) is not None]
                self._slowest = max(known, key=lambda speed: speed.cost)._replace(largest=0)
            return self._slowest
        computing, moving = lines
        power, moves = 1.0 / max(computing.slope, SHORTEST), moving.slope
        return Speed(power, 1.0 / moves if moves > 0 else inf, computing.fixed + moving.fixed, self._largest[pilot])


def end_together(left: int, slots: Sequence[Slot]) -> float:
    """In how many seconds so many units are done if all slots end at once, each with one more piece when it is free. A slot
    that is free too late for a piece of its own has none."""
    rate = unused = 0.0
    end = inf
    for begins, cost in sorted((slot.busy + slot.speed.fixed, slot.speed.cost) for slot in slots):
        if begins >= end:
            break
        rate += 1.0 / cost
        unused += begins / cost
        end = (left + unused) / rate
    return end


def first_piece(left: int, slots: int) -> int:
    """The size of a piece while nothing at all was measured: small, for one unit may take long."""
    return max(1, left // max(FIRST_SHARE, FIRST_EACH * slots))


def next_piece(
    left: int, speed: Optional[Speed], others: Sequence[Slot], slots: int, within: float = MOST_SECONDS
) -> int:
    """How many of the units that are left a free slot with this speed gets, beside the others that work on them; `slots`:
    how many there are in the whole pool; `within`: seconds that a piece may take there."""
    if left <= 1:
        return max(0, left)
    if speed is None:
        return first_piece(left, slots)
    is_known = speed.largest > 0
    end = end_together(left, [*others, Slot(speed)])
    share = max(0.0, end - speed.fixed) / speed.cost  # what it could do until the end, as one piece
    least = max(speed.fixed * (1.0 / FIXED_SHARE - 1.0), LEAST_SECONDS) / speed.cost
    most = max(MOST_SECONDS / speed.cost, least)
    wanted = min(max(share / PART, least), share, most, max(0.0, within - speed.fixed) / speed.cost)
    if is_known:
        wanted = min(wanted, GROWTH * speed.largest)
    else:
        wanted = wanted / UNKNOWN_SHARE
    return max(1, min(left, ceil(wanted)))
