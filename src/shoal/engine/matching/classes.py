"""Ready tasks grouped into classes by everything that matching looks at [ADR 0011]: a pilot's request looks at the best
class first, never along the whole queue.

A class belongs to one owner, and each owner has a queue of classes in order. A class holds leasables: an array with
whatever of it is ready, or a single task that something makes differ from its array.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from shoal.engine.locality.index import DataIndex
from shoal.engine.placement.critical_path import is_in_workflow, measure_if_due
from shoal.engine.records import NOT_QUEUED, Array, ClassKey
from shoal.engine.run_bound import RunBound
from shoal.engine.spec_digest import digest_of
from shoal.engine.tasks.kept_outputs import content_of
from shoal.model.policy import OrderRule
from shoal.model.states import Rerun
from shoal.model.task.spec import Spec
from shoal.model.task.task_field import fields_with
from shoal.model.task.visible import views
from shoal.sched.expr.parse import parse
from shoal.sched.expr.tree import Expr
from shoal.sched.order import position, position_inside

if TYPE_CHECKING:
    from shoal.sched.vector.expr import ClassFilter

FUNCTION = "function "  # prefix of the kind of a function
DIVISIBLE = "pieces "  # of divisible work, whose tasks are as long as they are made
CONTAINER = "container "  # prefix of the surroundings of a container
STREAM_FILES = "streams "  # of what reads or writes files as its streams, which older pilots do not know
KEPT_CLASSES = 20_000  # beyond this, classes without work are forgotten together with their durations
# Names whose values change with every lease or moment: expressions over them are evaluated anew each time.
DATA_LOCAL = ("data_local_mb", "data_local_fraction")  # of the task of a class that would go to the pilot
VOLATILE = frozenset(
    {
        "free_slots", "free_cores", "free_memory_mb", "free_disk_mb", "free_gpus", "time_left", "state", *DATA_LOCAL,
    }
)  # fmt: skip
RECENT = 64  # samples that quantiles are taken of
RESORTED = 1_000  # leasables of a class that are sorted anew when weighted positions are; more stay in order of arrival
REORDER = 1.0  # seconds after which weighted positions are computed anew
COUNTED = 32  # leasables whose elements are counted one by one
ARRIVALS_KEPT = 20_000  # classes that got work again, for eligibilities to learn of


_known_names: dict[type, KeyNames] = {}  # by table


class Position(NamedTuple):
    """Where a class stands in its owner's queue; smaller goes first."""

    order: float
    due: float
    run: int
    way: float  # below 0: seconds to the end of its run, by the longest way behind it; 0 where nothing waits for anything
    first: int  # element
    serial: int  # of the class


class Leasable(NamedTuple):
    """What can be leased: the ready elements of an array, or one of them that is in a class of its own."""

    array: Array
    element: int  # 0: all but those in classes of their own

    def has_ready(self) -> bool:
        """True if something of it could be leased now."""
        array = self.array
        if self.element:
            return self.element in array.apart and is_open(array)
        return array.todo.size > len(array.apart) and is_open(array)

    @property
    def due(self) -> float:
        """Its deadline; without one it comes after all that have one."""
        array = self.array
        task = array.tasks.get(self.element) if self.element else None
        spec = array.spec if task is None or task.own is None else task.own
        return spec.due(array.run.created)


def is_open(array: Array) -> bool:
    """True if nothing but capacity keeps its ready elements from being leased."""
    # Not by `waiting` and `throttled`: this is asked several times for each lease.
    if not array.accepted or array.unmet or array.awaits or array.held:
        return False
    throttle = array.spec.throttle
    return throttle is None or array.live < throttle


class KeyNames(NamedTuple):
    """Fields that a class key is made of, but for the program and what a pilot must see."""

    plain: frozenset[str]  # their values are part of it
    long: frozenset[str]  # a digest of them is


class HeapEntry(NamedTuple):
    """One leasable of a class, ordered by all fields before it."""

    order: float
    due: float
    run: int
    way: float
    first: int
    serial: int
    leasable: Leasable


def quantile(values: Iterable[float], part: float) -> float:
    """A value that this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


class Sample(NamedTuple):
    """What a task took; of several that were reported together, their mean duration and output, and the largest memory."""

    duration: float
    memory: int = 0  # bytes, resident
    output: int = 0  # bytes of its streams


class TaskClass:
    """Leasables that matching cannot tell apart, in order, with the durations of their tasks."""

    __slots__ = (
        "_p95", "base", "bound", "heap", "is_divisible", "is_forgotten", "is_safe", "is_volatile", "key", "listed", "mean",
        "names", "needs", "overtaken", "rank", "recent", "require", "serial",
    )  # fmt: skip

    def __init__(
        self, key: ClassKey, serial: int, base: TaskClass | None = None, bound: RunBound | None = None
    ) -> None:
        self.key, self.serial = key, serial
        self.needs = key.needs  # what each of its tasks takes
        self.is_safe = key.rerun == Rerun.SAFE.value  # its tasks may be fetched ahead, and run again
        self.is_divisible = key.kind.startswith(DIVISIBLE)
        self.is_forgotten = False
        self.base = base or self  # where durations are learned: the class of the array, for a task apart from it
        self.bound = bound  # of the run, or the category of it, that all of it belongs to
        self.heap: list[HeapEntry] = []
        self.mean: float | None = None
        self.recent: deque[Sample] = deque(maxlen=RECENT)
        self._p95: float | None = None
        self.listed: Position | None = None  # in its owner's queue
        self.require: Expr | None = parse(key.require) if key.require else None
        self.rank: Expr | None = parse(key.rank, "rank") if key.rank else None
        self.names: frozenset[str] = frozenset().union(*(e.tags for e in (self.require, self.rank) if e is not None))
        self.is_volatile = not self.names.isdisjoint(VOLATILE)
        self.overtaken = 0  # tasks in a row that went before its first one because of their data

    @property
    def is_nested(self) -> bool:
        """True if a task waits for its tasks."""
        return self.key.depth > 0

    @property
    def reads_data(self) -> bool:
        """True if its expressions read what of a task's inputs is on the pilot."""
        return not self.names.isdisjoint(DATA_LOCAL)

    @property
    def has_expressions(self) -> bool:
        """True if what a pilot can run of it depends on the pilot's tags."""
        return self.require is not None or self.rank is not None

    def learn(self, sample: Sample, count: int = 1) -> None:
        """Take in what tasks took: `count` of them, together."""
        kept = 0.9**count
        self.mean = sample.duration if self.mean is None else kept * self.mean + (1.0 - kept) * sample.duration
        self.recent.append(sample)
        self._p95 = None

    @property
    def p95(self) -> float | None:
        """A duration that few of its tasks exceed."""
        if self._p95 is None and self.recent:
            self._p95 = quantile([sample.duration for sample in self.recent], 0.95)
        return self._p95

    @property
    def expected(self) -> float:
        """Core seconds that one of its tasks is expected to take at most; 0 while nothing is known."""
        return self.key.needs.cores * (self.key.time or self.base.p95 or 0.0)

    def head(self) -> Leasable | None:
        """The first leasable with something ready; exhausted and throttled ones are removed here."""
        if self.bound is not None and self.bound.left <= 0:
            return None
        while self.heap:
            entry = self.heap[0]
            leasable = entry.leasable
            is_valid = not leasable.element or leasable.array.apart.get(leasable.element) == entry.serial
            if is_valid and leasable.has_ready():
                return leasable
            heapq.heappop(self.heap)
            if not leasable.element:
                leasable.array.queued = False
            elif is_valid:
                leasable.array.apart[leasable.element] = NOT_QUEUED
        return None

    def ready(self, most: int) -> int:
        """How many elements are ready, at least, and counted no further than `most`."""
        total = max(0, len(self.heap) - COUNTED)  # each of the others has one at least
        for *_, leasable in self.heap[:COUNTED]:
            if total >= most:
                break
            total += 1 if leasable.element else len(leasable.array.todo) - len(leasable.array.apart)
        return total


class PreparedClasses(NamedTuple):
    """The classes of an owner made ready for numpy, and one of each kind of them."""

    filter: ClassFilter
    alike: list[TaskClass]
    reads_data: list[TaskClass]  # all of them, if expressions of some read what of a task's inputs is on the pilot


class OwnerQueue:
    """One owner's classes with ready work, in order."""

    __slots__ = (
        "arrivals", "arrivals_epoch", "class_filter", "classes", "epoch", "log", "order", "owner", "ranked_arrivals",
        "with_expressions",
    )  # fmt: skip

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.order: list[Position] = []
        self.classes: dict[int, TaskClass] = {}  # by serial
        self.log: list[TaskClass] = []  # in order of creation: an eligibility looks only at those it has not seen
        self.epoch = 0  # raised when the log begins anew
        self.with_expressions = 0  # how many of them have expressions
        self.class_filter: PreparedClasses | None = None
        self.arrivals = 0  # raised when a class gets work that had none
        self.ranked_arrivals: list[TaskClass] = []  # those of them with a rank
        self.arrivals_epoch = 0  # raised when `ranked_arrivals` begins anew

    def enter(self, cls: TaskClass) -> None:
        """Add a new class."""
        self.classes[cls.serial] = cls
        self.log.append(cls)
        self.with_expressions += cls.has_expressions

    def add_arrival(self, cls: TaskClass) -> None:
        """A class got work that had none."""
        self.arrivals += 1
        if cls.rank is not None:
            if len(self.ranked_arrivals) >= ARRIVALS_KEPT:
                self.ranked_arrivals = []
                self.arrivals_epoch += 1
            self.ranked_arrivals.append(cls)

    def forget(self) -> None:
        """Drop the classes that were forgotten."""
        self.classes = {serial: cls for serial, cls in self.classes.items() if not cls.is_forgotten}
        self.log = list(self.classes.values())
        self.with_expressions = sum(cls.has_expressions for cls in self.log)
        self.invalidate()

    def invalidate(self) -> None:
        """Have every eligibility of this owner's classes evaluated anew."""
        self.class_filter = None
        self.epoch += 1


def kind_of(spec: Spec) -> str:
    """The program or function: tasks of one kind are expected to take equally long."""
    if spec.function:
        return FUNCTION + hashlib.sha256(spec.function.encode()).hexdigest()[:16]
    program = spec.command[0] if spec.command else "sh"
    return DIVISIBLE + program if spec.units is not None else program


def class_key(spec: Spec, owner: str) -> ClassKey:
    """The class of a task, by every task field that matching looks at."""
    table, surroundings = type(spec), ""
    named = {field.name: getattr(spec, field.name) for field in fields_with(table, "matching", "key")}
    named["rerun"] = spec.rerun.value
    other = []
    if not _key_names(table).long.isdisjoint(vars(spec)):  # otherwise all are as in every other task
        other = [(field, getattr(spec, field.name)) for field in fields_with(table, "matching", "surroundings")]
    if any(value != field.default for field, value in other):
        # Set-up lines may bring a container runtime, so that only without them the host must have one.
        surroundings = CONTAINER if spec.container and not spec.setup else ""
        surroundings += digest_of([(field.name, value) for field, value in other])
    named["visible"] = views(spec.visible) if spec.visible else ()
    if spec.stdin_data or spec.stdout or spec.stderr:
        surroundings += STREAM_FILES
    return ClassKey(owner, spec.needs, kind=kind_of(spec), surroundings=surroundings, **named)


def _key_names(table: type[Spec]) -> KeyNames:
    found = _known_names.get(table)
    if found is None:
        plain = {field.name for column in ("key", "needs") for field in fields_with(table, "matching", column)}
        long = frozenset(field.name for field in fields_with(table, "matching", "surroundings"))
        found = _known_names[table] = KeyNames(frozenset(plain - {"visible"}), long)
    return found


def key_of(array: Array, spec: Spec) -> ClassKey:
    """The class of an array's tasks with these fields."""
    key, depth = class_key(spec, array.run.owner), array.run.depth
    return key._replace(depth=depth) if depth else key


class Queue:
    """The queues of all owners."""

    def __init__(self, rule: OrderRule | None = None) -> None:
        self.owners: dict[str, OwnerQueue] = {}
        self.rule = rule or OrderRule()
        self.names: set[str] = set()  # tags that expressions of classes look at
        self._classes: dict[ClassKey, TaskClass] = {}
        self._by_fields: dict[tuple[object, ...], TaskClass] = {}
        self._serials = itertools.count(1)
        self._most = KEPT_CLASSES  # at which number of classes those without work are forgotten
        self.ranked = 0  # classes with work that ask for the best pilot
        self.arrivals = 0  # raised when a class gets work that had none
        self._with_work = 0  # owners
        self._ordered = 0.0  # when weighted positions were computed
        self._activity: set[str] = set()  # owners that got their first work, or lost their last
        self.data = DataIndex()

    def __iter__(self) -> Iterator[TaskClass]:
        return iter(self._classes.values())

    def class_of(self, array: Array, element: int = 0) -> TaskClass:
        """The class of an array, or of one of its elements that is in its own; made when first needed."""
        found = array.cls
        if found is None or found.is_forgotten:
            found = array.cls = self._class_of_fields(array)
        if element:
            task = array.tasks[element]
            key = found.key if task.own is None else key_of(array, task.own)
            key, special = key._replace(needs=task.needs), task.special
            if special is not None:
                avoid, sites = tuple(sorted(special.avoid)), tuple(sorted(special.avoid_sites))
                key = key._replace(avoid=avoid, avoid_sites=sites, alone=special.alone)
            found = self._class(key, found)
        return found

    def _class_of_fields(self, array: Array) -> TaskClass:
        """The class of an array, found by the values that its key is made of: to make the key takes much longer."""
        spec, run = array.spec, array.run
        plain, long = _key_names(type(spec))
        found_values: list[object] = [run.owner, run.depth, kind_of(spec), *spec.visible.items()]
        for name, value in vars(spec).items():  # only what was given: the rest is the same for all
            if name in plain:
                found_values += name, value
            elif name in long:
                return self._class(key_of(array, spec))
        values = tuple(found_values)
        found = self._by_fields.get(values)
        if found is None or found.is_forgotten:
            if len(self._by_fields) > KEPT_CLASSES:
                self._by_fields.clear()
            found = self._by_fields[values] = self._class(key_of(array, spec))
        return found

    def listed_class_of(self, array: Array, element: int = 0) -> TaskClass:
        """The class in which an array, or such an element, is queued: in a run with `max_running`, or of a category, one of
        their own, which has no work while they are full. Durations are learned in the class that other runs share."""
        found, bound, category = self.class_of(array, element), array.bound, array.spec.category
        if bound is None:
            return found
        own = found.key._replace(run=array.run.number, category="" if category is None else category.name)
        return self._class(own, found.base, bound)

    def _class(self, key: ClassKey, base: TaskClass | None = None, bound: RunBound | None = None) -> TaskClass:
        found = self._classes.get(key)
        if found is None:
            if len(self._classes) > self._most:
                for cls in self._classes.values():
                    cls.is_forgotten = not cls.heap and cls.listed is None
                self._classes = {k: c for k, c in self._classes.items() if not c.is_forgotten}
                for known in self.owners.values():
                    known.forget()
                # All may have work: they are looked through again when a quarter more has come, not for each one.
                self._most = max(KEPT_CLASSES, len(self._classes) * 5 // 4)
            found = self._classes[key] = TaskClass(key, next(self._serials), base, bound)
            if bound is not None:
                bound.enter_class(found)
            self.names |= found.names
            owned = self.owners.get(key.owner)
            if owned is None:
                owned = self.owners[key.owner] = OwnerQueue(key.owner)
            owned.enter(found)
        return found

    def has_work(self) -> bool:
        """False if no class has ready work; True if one may have."""
        return self._with_work > 0

    # --- positions
    def offer(self, array: Array) -> None:
        """The array has ready elements, or may have again: put it into its class."""
        leasable = Leasable(array, 0)
        if array.queued or not leasable.has_ready():
            return
        array.queued = True
        if content_of(array):
            self.data.enter(array)
        self._put(self.listed_class_of(array), self._entry(leasable))

    def offer_all(self, arrays: Iterable[Array]) -> None:
        """As `offer` for each; a class that gets many is put in order once."""
        touched: dict[int, TaskClass] = {}
        for array in arrays:
            if not array.queued and (leasable := Leasable(array, 0)).has_ready():
                array.queued = True
                if content_of(array):
                    self.data.enter(array)
                cls = self.listed_class_of(array)
                cls.heap.append(self._entry(leasable))
                touched[cls.serial] = cls
        for cls in touched.values():
            heapq.heapify(cls.heap)
            self._list(cls)

    def offer_apart(self, array: Array, element: int) -> None:
        """One element is ready that is in a class of its own."""
        if not array.apart.get(element):
            entry = self._entry(Leasable(array, element))
            array.set_apart(element, entry.serial)
            self._put(self.listed_class_of(array, element), entry)

    def reopen(self, bound: RunBound | None) -> None:
        """Something that this counts ended: if the limit kept others back, they may go on."""
        for cls in (bound.outer or bound).classes if bound is not None else ():
            self._list(cls)

    def withdraw(self, array: Array) -> None:
        """Take an array, and its elements in classes of their own, out of their classes: what they are matched by is
        about to change. They have to be offered again."""
        self.data.leave(array)
        own = [self.listed_class_of(array, element) for element, serial in array.apart.items() if serial]
        for cls in {self.listed_class_of(array), *own}:
            left = [entry for entry in cls.heap if entry.leasable.array is not array]
            if len(left) < len(cls.heap):
                cls.heap = left
                heapq.heapify(left)
                self._list(cls)
        array.queued, array.cls = False, None
        for element in array.apart:
            array.apart[element] = NOT_QUEUED

    def _put(self, cls: TaskClass, entry: HeapEntry) -> None:
        heapq.heappush(cls.heap, entry)
        self._list(cls)

    def _entry(self, leasable: Leasable) -> HeapEntry:
        array = leasable.array
        # The serial tells an array from its own earlier self, which a retried run may have left in here.
        first = leasable.element or array.first
        if is_in_workflow(array) or array.run.measured >= 0:
            measure_if_due(self, array.run)
        inside = position_inside(self.rule, array.since, leasable.due, self._ordered)
        return HeapEntry(*inside, array.run.number, -array.way, first, next(self._serials), leasable)

    def _sort(self, cls: TaskClass) -> None:
        """Sort the leasables of a class anew."""
        for at, entry in enumerate(cls.heap):
            array = entry.leasable.array
            order, due = position_inside(self.rule, array.since, entry.leasable.due, self._ordered)
            cls.heap[at] = entry._replace(order=order, due=due, way=-array.way)
        heapq.heapify(cls.heap)

    def sort_again(self, arrays: Iterable[Array]) -> None:
        """Put queued arrays, and their elements in classes of their own, where they belong now."""
        own = {(array, element) for array in arrays for element in (0, *array.apart)}
        for cls in {self.listed_class_of(array, element) for array, element in own}:
            self._sort(cls)
            if cls.listed is not None:
                self._list(cls)

    def _list(self, cls: TaskClass) -> None:
        """Put a class where its head belongs in its owner's queue, or remove it if it has none."""
        owned = self.owners[cls.key.owner]
        head = cls.head()
        where = self._position(cls, head) if head is not None else None
        if where == cls.listed:
            return
        had_work = bool(owned.order)
        if cls.listed is not None:
            del owned.order[bisect_left(owned.order, cls.listed)]
        if where is not None:
            insort(owned.order, where)
            if cls.listed is None:
                owned.add_arrival(cls)
                self.arrivals += 1
        if cls.rank is not None:
            self.ranked += (where is not None) - (cls.listed is not None)
        cls.listed = where
        if bool(owned.order) is not had_work:
            self._with_work += -1 if had_work else 1
            self._activity.add(owned.owner)

    def take_activity(self) -> set[str]:
        """Owners that got their first work, or lost their last, since the last call."""
        activity, self._activity = self._activity, set()
        return activity

    def _position(self, cls: TaskClass, head: Leasable) -> Position:
        array = head.array
        # All weighted positions are of one moment, or a task that is listed later would seem to have waited for longer.
        order, due = position(self.rule, cls.key.level, array.since, head.due, self._ordered)
        return Position(order, due, array.run.number, -array.way, head.element or array.first, cls.serial)

    def position_of(self, array: Array, level: float) -> Position:
        """Where an array's class would stand, were its elements ready; of the same moment as all listed positions."""
        order, due = position(self.rule, level, array.since, array.due, self._ordered)
        return Position(order, due, array.run.number, -array.way, array.first, 0)

    def relist(self, cls: TaskClass) -> None:
        """Something of a class was leased, or turned out not to be ready."""
        if self.rule.policy == "strict" or cls.head() is None:
            self._list(cls)

    def set_rule(self, rule: OrderRule, now: float) -> None:
        """Compute positions by another rule from now on."""
        self.rule, self._ordered = rule, now
        for cls in self:
            self._sort(cls)
        self._relist_all()

    def _relist_all(self) -> None:
        for owned in self.owners.values():
            for cls in [owned.classes[where.serial] for where in owned.order]:
                self._list(cls)

    def reorder(self, now: float) -> None:
        """Compute weighted positions anew, since they change with time."""
        if self.rule.policy != "strict" and now >= self._ordered + REORDER:
            self._ordered = now
            if self.rule.waiting and self.rule.deadline:
                # Only a deadline, which weighs more the nearer it is, changes the order inside a class with time.
                for cls in self:
                    if 1 < len(cls.heap) <= RESORTED:
                        self._sort(cls)
            self._relist_all()
