"""Ready work grouped into classes by everything matching looks at [ADR 0011]: a pilot's request looks at the best class
first, never along the queue.

A class belongs to one owner, and each owner has a line of classes in order. What stands in a class is lots: an array
with whatever of it is ready, or a single task that something makes differ from its array.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from shoal.engine.records import Array, ClassKey
from shoal.model.policy import OrderRule
from shoal.model.spec import Spec
from shoal.model.states import Rerun
from shoal.model.task_field import fields_with
from shoal.sched.expr.parse import parse
from shoal.sched.expr.tree import Expr
from shoal.sched.order import place, place_inside

if TYPE_CHECKING:
    from shoal.sched.vector.filter_classes import ClassFilter

Place = tuple[float, float, int, int, int]  # order, deadline, run, first, serial of the class
FUNCTION = "function "  # begins the kind of a function
CONTAINER = "container "  # begins the surroundings of what runs in one
KEPT_CLASSES = 20_000  # beyond this, classes without work are forgotten with what they taught
# Names whose values change with every lease or moment: what depends on them is looked at anew each time.
VOLATILE = frozenset(
    {
        "free_slots", "free_cores", "free_memory_mb", "free_disk_mb", "free_gpus", "time_left", "state",
        "data_local_mb", "data_local_fraction",
    }
)  # fmt: skip
RECENT = 64  # durations by which the longest are judged
RESORTED = 1_000  # lots of a class that are put in order anew with that; where they are more, as they came
REORDER = 1.0  # seconds after which weighted places are laid out anew
LOOKED = 32  # lots whose elements are counted one by one
COMINGS_KEPT = 20_000  # classes that got work again, as menus are told of them


class Leasable(NamedTuple):
    """What can be leased: the ready elements of an array, or one of them that stands apart."""

    array: Array
    element: int  # 0: all but those that stand apart

    def has_ready(self) -> bool:
        """Could something of it be leased now?"""
        array = self.array
        if self.element:
            return self.element in array.apart and is_open(array)
        return len(array.todo) > len(array.apart) and is_open(array)


def is_open(array: Array) -> bool:
    """Does nothing but room keep its ready elements from being leased?"""
    return array.accepted and array.run.accepted and not array.unmet and not array.throttled


class TaskClass:
    """Lots that matching cannot tell apart, in order, with the durations they showed."""

    __slots__ = (
        "_p95",
        "base",
        "heap",
        "is_forgotten",
        "is_safe",
        "is_volatile",
        "key",
        "listed",
        "mean",
        "names",
        "needs",
        "rank",
        "recent",
        "require",
        "serial",
    )

    def __init__(self, key: ClassKey, serial: int, base: TaskClass | None = None) -> None:
        self.key, self.serial = key, serial
        self.needs = key.needs  # what each of its tasks takes
        self.is_safe = key.rerun == Rerun.SAFE.value  # its tasks may be fetched ahead, and run again
        self.is_forgotten = False
        self.base = base or self  # where durations are learned: those of a task that stands apart are its array's
        self.heap: list[
            tuple[float, float, int, int, int, Leasable]
        ] = []  # place in here (two), run, first, serial, lot
        self.mean: float | None = None
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._p95: float | None = None
        self.listed: Place | None = None  # where it stands in its owner's line
        self.require: Expr | None = parse(key.require) if key.require else None
        self.rank: Expr | None = parse(key.rank, "rank") if key.rank else None
        self.names: frozenset[str] = frozenset().union(*(e.tags for e in (self.require, self.rank) if e is not None))
        self.is_volatile = not self.names.isdisjoint(VOLATILE)

    @property
    def has_expressions(self) -> bool:
        """Does it matter to it what a pilot says of itself?"""
        return self.require is not None or self.rank is not None

    def learn(self, duration: float, count: int = 1) -> None:
        """How long its tasks take; `count` of them took so long on average."""
        kept = 0.9**count
        self.mean = duration if self.mean is None else kept * self.mean + (1.0 - kept) * duration
        self.recent.append(duration)
        self._p95 = None

    @property
    def p95(self) -> float | None:
        """A duration that few of its tasks exceed."""
        if self._p95 is None and self.recent:
            ordered = sorted(self.recent)
            self._p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        return self._p95

    @property
    def expected(self) -> float:
        """Core seconds that one of its tasks is expected to take at most; 0 while nothing is known."""
        return self.key.needs.cores * (self.key.time or self.base.p95 or 0.0)

    def head(self) -> Leasable | None:
        """The first lot with something ready; spent and throttled ones drop out here."""
        while self.heap:
            leasable = self.heap[0][5]
            if leasable.has_ready():
                return leasable
            heapq.heappop(self.heap)
            if not leasable.element:
                leasable.array.queued = False
            elif leasable.element in leasable.array.apart:
                leasable.array.apart[leasable.element] = False
        return None

    def ready(self, most: int) -> int:
        """How many elements are ready, at least, and counted no further than `most`."""
        total = max(0, len(self.heap) - LOOKED)  # each of the others has one, whatever it has besides
        for *_, leasable in self.heap[:LOOKED]:
            if total >= most:
                break
            total += 1 if leasable.element else len(leasable.array.todo) - len(leasable.array.apart)
        return total


class OwnerQueue:
    """One owner's classes with ready work, in order."""

    __slots__ = ("asking", "classes", "comings", "epoch", "log", "news", "order", "owner", "sieve", "turned")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.order: list[Place] = []
        self.classes: dict[int, TaskClass] = {}  # by serial
        self.log: list[TaskClass] = []  # as they came: who knows the first ones need only look at the others
        self.epoch = 0  # raised when the log begins anew
        self.asking = 0  # how many of them have expressions
        self.sieve: tuple[ClassFilter, list[TaskClass]] | None = (
            None  # these made ready for numpy, and one of each kind
        )
        self.news = 0  # raised when a class gets work that had none
        self.comings: list[TaskClass] = []  # those with a rank that did
        self.turned = 0  # raised when these begin anew

    def enter(self, cls: TaskClass) -> None:
        """A class that is new."""
        self.classes[cls.serial] = cls
        self.log.append(cls)
        self.asking += cls.has_expressions

    def come(self, cls: TaskClass) -> None:
        """A class has work that had none."""
        self.news += 1
        if cls.rank is not None:
            if len(self.comings) >= COMINGS_KEPT:
                self.comings = []
                self.turned += 1
            self.comings.append(cls)

    def forget(self) -> None:
        """Classes without work go."""
        self.classes = {serial: cls for serial, cls in self.classes.items() if not cls.is_forgotten}
        self.log = list(self.classes.values())
        self.asking = sum(cls.has_expressions for cls in self.log)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Whoever knows what fits where has to ask again."""
        self.sieve = None
        self.epoch += 1


def kind_of(spec: Spec) -> str:
    """The program or function of a task: durations are learned for each of them."""
    if spec.function:
        return FUNCTION + hashlib.sha256(spec.function.encode()).hexdigest()[:16]
    return spec.command[0] if spec.command else "sh"


def trait_of(spec: Spec, owner: str) -> str:
    """A digest of what is executed and for whom: failures of tasks that have it in common are compared."""
    return _digest([owner, [getattr(spec, field.name) for field in fields_with(type(spec), "is_program")]])


def class_key(spec: Spec, owner: str) -> ClassKey:
    """The class of a task, by every task field that matching looks at."""
    table, surroundings = type(spec), ""
    named = {field.name: getattr(spec, field.name) for field in fields_with(table, "matching", "key")}
    named["rerun"] = spec.rerun.value
    other = [(field, getattr(spec, field.name)) for field in fields_with(table, "matching", "surroundings")]
    if any(value != field.default for field, value in other):
        # Set-up lines may bring a container runtime, so that only without them the host must have one.
        surroundings = CONTAINER if spec.container and not spec.setup else ""
        surroundings += _digest([(field.name, value) for field, value in other])
    return ClassKey(owner, spec.needs, kind=kind_of(spec), surroundings=surroundings, **named)


def _digest(values: object) -> str:
    return hashlib.sha256(repr(values).encode("utf-8", "surrogateescape")).hexdigest()[:16]


class Queue:
    """All owners' lines."""

    def __init__(self, rule: OrderRule | None = None) -> None:
        self.lines: dict[str, OwnerQueue] = {}
        self.rule = rule or OrderRule()
        self.names: set[str] = set()  # tags that expressions of classes look at
        self._classes: dict[ClassKey, TaskClass] = {}
        self._serials = itertools.count(1)
        self.ranked = 0  # classes with work that ask for the best pilot
        self._with_work = 0  # owners
        self._ordered = 0.0  # when weighted places were laid out
        self._stirred: set[str] = set()  # owners who got their first work, or lost their last

    def __iter__(self) -> Iterator[TaskClass]:
        return iter(self._classes.values())

    def class_of(self, array: Array, element: int = 0) -> TaskClass:
        """The class of an array, or of one of its elements that stands apart; made when first needed."""
        found = array.cls
        if found is None or found.is_forgotten:
            found = array.cls = self._made(class_key(array.spec, array.run.owner))
        if element:
            task = array.tasks[element]
            key, special = found.key._replace(needs=task.needs), task.special
            if special is not None:
                avoid, sites = tuple(sorted(special.avoid)), tuple(sorted(special.avoid_sites))
                key = key._replace(avoid=avoid, avoid_sites=sites, alone=special.alone)
            found = self._made(key, found)
        return found

    def _made(self, key: ClassKey, base: TaskClass | None = None) -> TaskClass:
        found = self._classes.get(key)
        if found is None:
            if len(self._classes) > KEPT_CLASSES:
                for cls in self._classes.values():
                    cls.is_forgotten = not cls.heap and cls.listed is None
                self._classes = {k: c for k, c in self._classes.items() if not c.is_forgotten}
                for known in self.lines.values():
                    known.forget()
            found = self._classes[key] = TaskClass(key, next(self._serials), base)
            line = self.lines.setdefault(key.owner, OwnerQueue(key.owner))
            self.names |= found.names
            line.enter(found)
        return found

    def has_work(self) -> bool:
        """May there be a class with ready work? (No means no.)"""
        return self._with_work > 0

    # --- places
    def offer(self, array: Array, now: float = 0.0) -> None:
        """The array has ready elements, or may have again: put it in its place."""
        leasable = Leasable(array, 0)
        if array.queued or not leasable.has_ready():
            return
        array.queued = True
        self._put(self.class_of(array), leasable, now)

    def offer_apart(self, array: Array, element: int, now: float) -> None:
        """One element is ready that stands apart from its array."""
        if not array.apart.get(element):
            array.apart[element] = True
            self._put(self.class_of(array, element), Leasable(array, element), now)

    def _put(self, cls: TaskClass, leasable: Leasable, now: float) -> None:
        array = leasable.array
        # The serial parts an array from its own earlier self, which a retried run may have left in here.
        first = leasable.element or array.first
        inside = place_inside(self.rule, array.since, array.due, self._ordered)
        heapq.heappush(cls.heap, (*inside, array.run.number, first, next(self._serials), leasable))
        self._list(cls, now)

    def _sort(self, cls: TaskClass) -> None:
        """Put the lots of a class in order anew."""
        cls.heap = [
            (
                *place_inside(self.rule, leasable.array.since, leasable.array.due, self._ordered),
                run,
                first,
                serial,
                leasable,
            )
            for _, _, run, first, serial, leasable in cls.heap
        ]
        heapq.heapify(cls.heap)

    def _list(self, cls: TaskClass, now: float) -> None:
        """Put a class where its head belongs, or out of the line if it has none."""
        line = self.lines[cls.key.owner]
        head = cls.head()
        where = self._place(cls, head) if head is not None else None
        if where == cls.listed:
            return
        had_work = bool(line.order)
        if cls.listed is not None:
            del line.order[bisect_left(line.order, cls.listed)]
        if where is not None:
            insort(line.order, where)
            if cls.listed is None:
                line.come(cls)
        if cls.rank is not None:
            self.ranked += (where is not None) - (cls.listed is not None)
        cls.listed = where
        if bool(line.order) is not had_work:
            self._with_work += -1 if had_work else 1
            self._stirred.add(line.owner)

    def take_stirred(self) -> set[str]:
        """Owners who got their first work, or lost their last, since this was asked."""
        stirred, self._stirred = self._stirred, set()
        return stirred

    def _place(self, cls: TaskClass, head: Leasable) -> Place:
        array = head.array
        # All weighted places are of one moment, or a task that is listed later would seem to have waited for longer.
        value, due = place(self.rule, cls.key.priority, array.since, array.due, self._ordered)
        return value, due, array.run.number, head.element or array.first, cls.serial

    def place_of(self, array: Array, priority: float, now: float) -> Place:
        """Where an array's class would stand, were its elements ready."""
        value, due = place(self.rule, priority, array.since, array.due, now)
        return value, due, array.run.number, array.first, 0

    def relist(self, cls: TaskClass, now: float) -> None:
        """Something of a class was leased, or proved not to be there."""
        if self.rule.policy == "strict" or cls.head() is None:
            self._list(cls, now)

    def set_rule(self, rule: OrderRule, now: float) -> None:
        """Places are reckoned in another way from now on."""
        self.rule, self._ordered = rule, now
        for cls in self:
            self._sort(cls)
        self.relist_all(now)

    def relist_all(self, now: float) -> None:
        """Lay all places out anew."""
        for line in self.lines.values():
            for cls in [line.classes[entry[4]] for entry in line.order]:
                self._list(cls, now)

    def reorder(self, now: float) -> None:
        """Lay weighted places out anew, for they change with time."""
        if self.rule.policy != "strict" and now >= self._ordered + REORDER:
            self._ordered = now
            if self.rule.waiting and self.rule.deadline:
                # The nearer a deadline is the more it weighs: only then the order inside a class changes with time.
                for cls in self:
                    if 1 < len(cls.heap) <= RESORTED:
                        self._sort(cls)
            self.relist_all(now)
