"""The classes of one owner in the order in which a pilot gets tasks of them."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.engine.locality.shortlist import local_first
from shoal.engine.matching.classes import OwnerQueue, TaskClass
from shoal.engine.matching.eligibility import candidates, eligibility_of
from shoal.engine.placement.preference import directed_first
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.policy import STRICT


class Cursor:
    """The iteration over an owner's classes for one pilot."""

    __slots__ = ("_classes", "arrivals", "cls", "eligibility", "misses", "owned")

    def __init__(self, state: State, pilot: Pilot, owned: OwnerQueue) -> None:
        self.owned = owned
        is_strict = state.queue.rule.policy == STRICT
        self.eligibility = eligibility_of(state, pilot, owned.owner)
        self._classes: Iterator[TaskClass] = candidates(self.eligibility, owned, is_strict)
        if state.data.located:
            self._classes = local_first(state, pilot, owned, self.eligibility, self._classes)
        if state.placed is not None:
            self._classes = directed_first(state, pilot, self._classes)
        self.cls: TaskClass | None = None
        self.misses = 0  # classes that did not fit; -1: some of them may fit without more capacity
        self.arrivals = owned.arrivals

    def miss(self, is_large: bool) -> None:
        """Count a class that was skipped."""
        self.misses = self.misses + 1 if is_large and self.misses >= 0 else -1

    def step(self) -> TaskClass | None:
        """The next class; None: there are no more."""
        self.cls = next(self._classes, None)
        return self.cls
