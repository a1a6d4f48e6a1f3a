"""Ready work grouped into classes by everything matching looks at (A6): a pilot's request looks at the best class
first, never along the queue."""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shoal.engine.records import Array, ClassKey
from shoal.model.spec import Needs, Spec

Place = tuple[float, int, int, ClassKey]
FUNCTION = "function "  # begins the kind of a function
KEPT_CLASSES = 20_000  # beyond this, classes without work are forgotten with what they taught


@dataclass(slots=True)
class TaskClass:
    """Arrays that matching cannot tell apart, oldest first, with the durations they showed."""

    key: ClassKey
    heap: list[tuple[int, int, int, Array]] = field(default_factory=list)  # run, first, serial, array
    mean: float | None = None
    listed: Place | None = None  # its one valid entry in the queue's order

    @property
    def needs(self) -> Needs:
        """What each of its tasks takes."""
        return self.key[1]

    def learn(self, duration: float, count: int = 1) -> None:
        """A moving mean of how long its tasks take; `count` of them took so long on average."""
        kept = 0.9**count
        self.mean = duration if self.mean is None else kept * self.mean + (1.0 - kept) * duration

    @property
    def is_function(self) -> bool:
        """Are its tasks functions?"""
        return self.key[4].startswith(FUNCTION)

    def head(self) -> Array | None:
        """The oldest array with something ready; spent and throttled ones drop out here."""
        while self.heap:
            array = self.heap[0][3]
            if has_ready(array):
                return array
            heapq.heappop(self.heap)
            array.queued = False
        return None

    def place(self, array: Array) -> Place:
        """Where the class stands while this array is its head: by priority, then by age."""
        return (-self.key[2], array.run.number, array.first, self.key)

    def ready(self, most: int) -> int:
        """How many elements are ready, counted no further than `most`."""
        total = 0
        for _, _, _, array in self.heap:
            total += len(array.todo)
            if total >= most:
                break
        return total


def kind_of(spec: Spec) -> str:
    """By what tasks are told apart of which one learns how long the others take: the program, or the function."""
    if spec.function:
        return FUNCTION + hashlib.sha256(spec.function.encode()).hexdigest()[:16]
    return spec.command[0] if spec.command else "sh"


def has_ready(array: Array) -> bool:
    """Could an element of this array be leased now?"""
    return bool(array.todo) and array.accepted and array.run.accepted and not array.unmet and not array.throttled


class Queue:
    """All classes with ready work."""

    def __init__(self) -> None:
        self.classes: dict[ClassKey, TaskClass] = {}
        self._order: list[Place] = []
        self._serials = itertools.count()

    def class_of(self, array: Array) -> TaskClass:
        """The class of an array, made when first needed."""
        spec = array.spec
        key = (array.run.owner, spec.needs, spec.priority, spec.rerun.value, array.kind)
        found = self.classes.get(key)
        if found is None:
            if len(self.classes) > KEPT_CLASSES:
                self.classes = {k: c for k, c in self.classes.items() if c.heap}
            found = self.classes[key] = TaskClass(key)
        return found

    def has_work(self) -> bool:
        """May there be a class with ready work? (No means no.)"""
        return bool(self._order)

    def offer(self, array: Array) -> None:
        """The array has ready elements, or may have again: put it in its place."""
        if array.queued or not has_ready(array):
            return
        cls = self.class_of(array)
        array.queued = True
        # The serial parts an array from its own earlier self, which a retried run may have left in here.
        heapq.heappush(cls.heap, (array.run.number, array.first, next(self._serials), array))
        place = cls.place(array)
        if cls.listed is None or place < cls.listed:
            cls.listed = place
            heapq.heappush(self._order, place)

    def in_order(
        self, fits: Callable[[TaskClass], bool], enough: Callable[[], bool] = lambda: False
    ) -> Iterator[TaskClass]:
        """Classes with ready work that fit, best first. A class comes again until it is spent or `fits` says no; there
        are no more when it is `enough`."""
        aside: list[Place] = []
        try:
            while self._order and not enough():
                place = self._order[0]
                cls = self.classes.get(place[3])
                if cls is None or cls.listed != place:
                    heapq.heappop(self._order)  # an older entry of a class that moved
                    continue
                head = cls.head()
                if head is None:
                    heapq.heappop(self._order)
                    cls.listed = None
                elif cls.place(head) != place:
                    cls.listed = cls.place(head)
                    heapq.heapreplace(self._order, cls.listed)
                elif fits(cls):
                    yield cls
                else:
                    aside.append(heapq.heappop(self._order))
        finally:
            for place in aside:
                heapq.heappush(self._order, place)
