"""Prefetching: what pilots have fetched ahead gives way to tasks that go before it [protocol 5.3; ADR 0019].

Short tasks that a pilot holds and has not begun take no capacity from a task that goes before them: the pilot begins that
one in the next slot that becomes free. What waits there for too long is taken back, and keeps its position in the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from shoal.engine.matching.classes import TaskClass
from shoal.engine.records import Array, Pilot
from shoal.engine.state import State, WorkOff
from shoal.model.ids import AttemptId
from shoal.model.states import Rerun
from shoal.model.task.spec import Needs
from shoal.sched.batch_size import SHORT
from shoal.sched.fit import give, how_many, pairs, take
from shoal.wire.messages import ORDERS, SINCE, Capacity, Order

TAKE_BACK = "take_back"
AGAIN = 1.0  # seconds before a pilot is asked again to give something back
NOT_SHORT = 1.0  # seconds that a task runs before its slot no longer counts as one that is free in a moment
LATE = 1.0  # seconds after which a task that was to begin in the next free slot is taken back
OVERDUE = 2.0  # seconds after which tasks that were overtaken are taken back
CLEAR_LATE = 0.3  # seconds that a pilot may take to work off what it has fetched before that is taken back
CLEAR_LONG = 5.0  # seconds after which another pilot is cleared as well
GOES_FIRST, OTHERS_IDLE = "something that goes first waits", "others are idle"


def is_short(pilot: Pilot, cls: TaskClass) -> bool:
    """True if tasks of a class are short enough to be fetched ahead by a pilot, and may run again."""
    mean = cls.base.mean
    return mean is not None and mean * pilot.pace <= SHORT and cls.is_safe


def knows_precedence(pilot: Pilot) -> bool:
    """True if the pilot begins a lease with a precedence before those that wait."""
    return pilot.protocol >= SINCE["Lease"]["precedence"]


class Prefetched(NamedTuple):
    """Tasks of one array on a pilot that were fetched ahead and have not begun, or are over in a moment."""

    cls: TaskClass
    array: Array
    needs: Needs
    precedence: int
    tasks: int


GoesBefore = Callable[[Prefetched], bool]  # does the class in question go before these tasks?


class Holdings(NamedTuple):
    """What a pilot holds, as matching sees it."""

    open: Capacity  # all but what longer tasks take: slots in it become free within a moment
    ahead: list[Prefetched]

    @property
    def backlog(self) -> float:
        """Seconds of fetched work beyond the slots it can have."""
        tasks, slots = sum(part.tasks for part in self.ahead), max(0, self.open.cores)
        work = sum(part.tasks * (part.cls.base.mean or 0.0) for part in self.ahead)
        return work * (tasks - slots) / tasks if tasks > slots else 0.0

    def add(self, pilot: Pilot, part: Prefetched, is_ahead: bool) -> Holdings:
        """The same with tasks that were leased just now."""
        if is_ahead or is_short(pilot, part.cls):
            return Holdings(self.open, [*self.ahead, part])
        return Holdings(take(self.open, part.needs, part.tasks), self.ahead)

    def room_before(self, goes_before: GoesBefore) -> tuple[Capacity, int]:
        """The capacity for a task that goes before some of them, and the precedence that it needs; 0: before none."""
        room, precedence = self.open, 0
        for part in self.ahead:
            if goes_before(part):
                precedence = max(precedence, part.precedence + 1)
            else:
                room = take(room, part.needs, part.tasks)
        return room, precedence


def holdings(state: State, pilot: Pilot) -> Holdings:
    """What a pilot holds now."""
    room = pilot.room
    found: dict[tuple[int, int], Prefetched] = {}
    for attempt in pilot.live.values():
        task = state.task_of(attempt.id)
        if attempt.lends:
            room = take(room, replace(attempt.needs, cores=0))
            continue
        cls = state.queue.class_of(task.array)
        is_long = attempt.running and state.now >= (attempt.started or attempt.leased) + NOT_SHORT
        if is_long or not (is_short(pilot, cls) or (attempt.is_ahead and not attempt.running)):
            room = take(room, attempt.needs)
            continue
        key = (id(task.array if task.special is None else task), attempt.precedence)
        count = found[key].tasks if key in found else 0
        found[key] = Prefetched(cls, task.array, attempt.needs, attempt.precedence, count + 1)
    parts = list(found.values())
    for chunk in pilot.chunks.values():
        cls, needs = state.queue.class_of(chunk.array), chunk.array.spec.needs
        if chunk.is_ahead or is_short(pilot, cls):
            parts.append(Prefetched(cls, chunk.array, needs, chunk.precedence, len(chunk.left)))
        else:
            room = take(room, needs, len(chunk.left))
    return Holdings(room, parts)


# --- pilots that free a slot for a task that cannot be sent before the slot is free
def work_off(state: State, pilot: Pilot, cls: TaskClass, room: Capacity, goes_before: GoesBefore) -> bool:
    """Have a pilot work off what it has fetched ahead, for a class that goes before it; False if enough others do.

    What takes too long is taken back, as far as the class goes before it and it does not fit beside the class; `room` is
    the capacity for both: without what is long and what the class does not go before.
    """
    found = state.working_off.get(pilot.name)
    if found is None or found.serial != cls.serial:
        state.working_off = {name: entry for name, entry in state.working_off.items() if name in state.pilots}
        others = sum(
            1 for other in state.working_off.values()
            if other.serial == cls.serial and state.now < other.since + CLEAR_LONG
        )  # fmt: skip
        if others >= cls.ready(others + 1):
            return False
        state.working_off[pilot.name] = WorkOff(cls.serial, state.now)
    elif state.now >= found.since + CLEAR_LATE:
        tasks = max(1, min(how_many(cls.needs, room), cls.ready(pilot.room.cores)))
        take_back(state, pilot, state.now, state.now, goes_before, take(room, cls.needs, tasks))
    return True


# --- taking back
def note_overtaken(state: State, pilot: Pilot) -> None:
    """A task was sent to a pilot that goes before what it holds: check later whether all of it began."""
    state.overtaken.setdefault(pilot.name, state.now + LATE)


def look_after(state: State) -> None:
    """Take back what was overtaken, or was to overtake, and has not begun for too long."""
    for name in [name for name, at in state.overtaken.items() if state.now >= at]:
        pilot = state.pilots.get(name)
        if pilot is None or min(pilot.free.cores, pilot.free.memory, pilot.free.disk, pilot.free.gpus) >= 0:
            del state.overtaken[name]  # everything it holds has a slot
            continue
        state.overtaken[name] = state.now + LATE
        take_back(state, pilot, state.now - OVERDUE, state.now - LATE)


class Unbegun(NamedTuple):
    """Neighbouring attempts that a pilot has not begun, as far as is known, and that may be taken back."""

    first: AttemptId
    leased: float
    part: Prefetched


def unbegun(state: State, pilot: Pilot) -> list[Unbegun]:
    """What may be taken back of a pilot, the last ones first: they would begin last."""
    if pilot.protocol < ORDERS[TAKE_BACK] or state.now < pilot.asked_back + AGAIN:
        return []
    if any(order.kind == TAKE_BACK for order in pilot.orders):
        return []  # the last order was not sent yet
    found: list[Unbegun] = []
    for attempt in pilot.live.values():
        task = state.task_of(attempt.id)
        if not attempt.running and task.array.spec.rerun is Rerun.SAFE:
            cls = state.queue.class_of(task.array)
            part = Prefetched(cls, task.array, attempt.needs, attempt.precedence, 1)
            found.append(Unbegun(attempt.id, attempt.leased, part))
    for chunk in pilot.chunks.values():
        cls, needs = state.queue.class_of(chunk.array), chunk.array.spec.needs
        for low, high in chunk.left.ranges():
            part = Prefetched(cls, chunk.array, needs, chunk.precedence, high - low)
            found.append(Unbegun(chunk.attempt(low), chunk.leased, part))
    return found[::-1]


def take_back(
    state: State,
    pilot: Pilot,
    before: float,
    urgent_before: float,
    goes_before: GoesBefore = lambda part: True,
    room: Capacity | None = None,
) -> None:
    """Ask a pilot for what it has not begun of what was leased before then; `urgent_before` is the same for what has a
    precedence. With `room`: only as much as does not fit into it, the last ones first."""
    found = [
        item for item in unbegun(state, pilot)
        if item.leased <= (urgent_before if item.part.precedence else before) and goes_before(item.part)
    ]  # fmt: skip
    for item in found:
        room = take(room, item.part.needs, item.part.tasks) if room is not None else None
    spans: list[tuple[AttemptId, int]] = []
    for first, _, part in found:
        count = part.tasks
        if room is not None:
            count = min(count, _lacking(part.needs, room))
            room = give(room, part.needs, count)
        spans.append((first._replace(element=first.element + part.tasks - count), count))
    ask_back(state, pilot, spans, GOES_FIRST)


def ask_back(state: State, pilot: Pilot, spans: list[tuple[AttemptId, int]], why: str) -> int:
    """Order a pilot to give attempts back, each span as its first attempt and their number; how many in all."""
    merged = _merged([span for span in spans if span[1]])
    for first, count in merged:
        state.order(pilot, Order(TAKE_BACK, str(first), why, count=count))
    if merged:
        pilot.asked_back = state.now
    return sum(count for _, count in merged)


def _lacking(needs: Needs, free: Capacity) -> int:
    """How many tasks with these needs have to go until nothing of what they take is below zero."""
    return max((-(left // takes) for takes, left in pairs(needs, free) if takes and left < 0), default=0)


def _merged(spans: list[tuple[AttemptId, int]]) -> list[tuple[AttemptId, int]]:
    """Neighbours under one number as one span: an order for each."""
    merged: list[tuple[AttemptId, int]] = []
    for first, count in sorted(
        spans, key=lambda span: (span[0].run, span[0].number, span[0].incarnation, span[0].element)
    ):
        if merged:
            last, length = merged[-1]
            if last._replace(element=last.element + length) == first:
                merged[-1] = (last, length + count)
                continue
        merged.append((first, count))
    return merged
