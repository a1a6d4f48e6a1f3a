"""How many tasks of a run, or of a category of it, run at once [ADR 0026]."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from shoal.model.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from shoal.engine.matching.classes import TaskClass


@dataclass(slots=True, eq=False)
class Lane:
    """Calls of a run with `max_running` that a pilot makes one after another: together they count as one."""

    name: str  # the attempt that it began with
    left: int = 0  # calls that are live


@dataclass(slots=True, eq=False)
class RunBound:
    """How many tasks of a run, or of a category of it, may run at once. Kept apart from the run, because classes refer to
    it for longer.

    A task that is leased counts as one that runs. Short calls would then cost a message each, so neighbours are leased as
    a lane: their pilot makes them one after another, and they count as one [ADR 0026].
    """

    most: int
    taken: int = 0  # lanes, and live tasks in none
    classes: list[TaskClass] = field(default_factory=list)  # those that it bounds: they have no work while it is full
    outer: RunBound | None = None  # of a category: that of its run

    @property
    def left(self) -> int:
        """How many more may be leased."""
        left = self.most - self.taken
        return left if self.outer is None else min(left, self.outer.left)

    def enter_class(self, cls: TaskClass) -> None:
        """A class has no work while this is full."""
        self.classes.append(cls)
        if self.outer is not None:
            self.outer.enter_class(cls)

    def count(self, by: int, lane: Lane | None) -> None:
        """Tasks became live, or ended."""
        change = by
        if lane is not None:
            was_there = lane.left > 0
            lane.left += by
            change = (lane.left > 0) - was_there
        self.taken += change
        if self.outer is not None:
            self.outer.taken += change
