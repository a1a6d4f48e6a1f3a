"""Rules of leasing: which ready tasks a pilot gets, each under a new attempt number (A6, A7, A8)."""

from __future__ import annotations

from typing import Any

from shoal.engine.chunks import grant_chunk, may_chunk, run_of_new
from shoal.engine.classes import TaskClass
from shoal.engine.records import Array, Attempt, Chunk, Pilot
from shoal.engine.render import lease_of, lease_of_chunk
from shoal.engine.state import State
from shoal.model.ids import AttemptId
from shoal.model.limits import MAX_LEASES
from shoal.model.quantities import many
from shoal.model.states import Rerun, TaskState, advance
from shoal.sched.match import how_many, misfit, take
from shoal.sched.size import ahead
from shoal.wire.messages import Lease

MAX_MISSES = 16  # classes that a full pilot is tried on
FUNCTIONS_SINCE = 3  # protocol


def closed(state: State) -> str:
    """Why nothing is matched at all just now; empty if matching is open."""
    if state.unheard and state.now < state.quarantine_until:
        left, count = state.quarantine_until - state.now, many(len(state.unheard), "pilot")
        return f"the server restarted and waits up to {left:.0f} s for {count} to say what they run"
    return ""


def unable(cls_is_function: bool, pilot: Pilot) -> bool:
    """Does this pilot not know what the task is? An older one runs no functions."""
    return cls_is_function and pilot.protocol < FUNCTIONS_SINCE


def fill(state: State, pilot: Pilot, reply_seq: int) -> tuple[list[Lease], bool]:
    """Lease to a pilot what fits into it now; and whether the leases must be durable before they are sent."""
    if not state.queue.has_work() or pilot.draining or closed(state) or not pilot.heard:
        return [], False
    filling = _Filling(state, pilot, reply_seq)
    for cls in state.queue.in_order(filling.fits, filling.is_hopeless):
        filling.lease_from(cls)
        if filling.count >= MAX_LEASES:
            break
    filling.tell()
    return filling.leases, filling.durable


class _Filling:
    """One answer being filled with leases."""

    def __init__(self, state: State, pilot: Pilot, reply_seq: int) -> None:
        self.state, self.pilot, self._seq = state, pilot, reply_seq
        self.leases: list[Lease] = []
        self.count = 0
        self.durable = False
        self._spare: dict[int, int] = {}  # class -> tasks that may still be fetched ahead
        self._misses = 0  # classes in a row that do not fit
        self._singles: list[Attempt] = []
        self._chunks: list[Chunk] = []

    def fits(self, cls: TaskClass) -> bool:
        """May the pilot get something of this class now?"""
        fits = self._most(cls) > 0
        self._misses = 0 if fits else self._misses + 1
        return fits

    def is_hopeless(self) -> bool:
        """Is the pilot full, and the best classes are not fetched ahead either? Then the others need not be looked at:
        that is a matter of speed only, and would cost a look at every class each time."""
        return self._misses >= MAX_MISSES and self.pilot.free.cores <= 0

    def _most(self, cls: TaskClass) -> int:
        """How many of this class the pilot may get now: into free slots, and ahead of them."""
        pilot = self.pilot
        if not self.state.serves(pilot, cls.key[0]) or misfit(cls.needs, pilot.room) is not None:
            return 0
        if unable(cls.is_function, pilot):
            return 0
        now = how_many(cls.needs, pilot.free)
        if cls.key[3] != Rerun.SAFE.value:
            return now  # exclusive and never: only into a free slot, the lease is the start
        if id(cls) not in self._spare:
            mean = cls.mean * pilot.pace if cls.mean is not None else None
            cores = pilot.room.cores
            most = ahead(mean, cores, cls.ready(10 * MAX_LEASES), self.state.slots)
            spare = most - max(0, pilot.held - cores)
            # Little by little would cost a message and a row each time: only when a good part of it fits.
            self._spare[id(cls)] = spare if spare >= most // 4 else 0
        return now + max(0, self._spare[id(cls)])

    def lease_from(self, cls: TaskClass) -> None:
        """Lease the head of a class, and what stands next to it."""
        array = cls.head()
        assert array is not None  # in_order only gives classes with a head
        state, pilot, spec = self.state, self.pilot, array.spec
        most = min(self._most(cls), MAX_LEASES - self.count)
        if spec.throttle is not None:
            most = min(most, spec.throttle - array.live)
        free = how_many(cls.needs, pilot.free)
        low, high = run_of_new(array, most) if most > 1 and may_chunk(spec) else (0, 0)
        if high - low > 1:
            chunk = grant_chunk(state, array, low, high, pilot, self._seq)
            self._chunks.append(chunk)
            self.leases.append(lease_of_chunk(chunk, low, high, state.state_dir))
        else:
            high, low = 1, 0
            attempt = grant(state, array, array.todo.first(), pilot, self._seq)
            self._singles.append(attempt)
            self.leases.append(lease_of(array, attempt, state.state_dir))
        count = high - low
        self.count += count
        if count > free and id(cls) in self._spare:
            self._spare[id(cls)] -= count - free
        # A child's start shows its parents' results to the world: they must be durable first.
        self.durable = self.durable or spec.rerun is not Rerun.SAFE or bool(spec.after)

    def tell(self) -> None:
        """One line in the journal for each owner."""
        by_owner: dict[str, tuple[list[str], list[tuple[str, int]]]] = {}
        for attempt in self._singles:
            owner = self.state.runs[attempt.id.run].owner
            by_owner.setdefault(owner, ([], []))[0].append(str(attempt.id))
        for chunk in self._chunks:
            owner = chunk.array.run.owner
            by_owner.setdefault(owner, ([], []))[1].append((str(chunk.attempt(chunk.low)), chunk.high - chunk.low))
        for owner, (attempts, chunks) in by_owner.items():
            more: dict[str, Any] = {"chunks": chunks} if chunks else {}
            self.state.emit("tasks_leased", pilot=self.pilot, owner=owner, attempts=attempts, **more)


def grant(state: State, array: Array, element: int, pilot: Pilot, reply_seq: int) -> Attempt:
    """Raise the attempt number and give the element to a pilot."""
    task = state.task_at(array, element)
    array.todo.remove(element)
    array.count_live(1)
    attempt = grant_copy(state, array, element, pilot, reply_seq)
    advance(task, TaskState.LEASED)
    state.write_task(task, pilot=pilot, leased=state.now)
    return attempt


def grant_copy(state: State, array: Array, element: int, pilot: Pilot, reply_seq: int) -> Attempt:
    """One more attempt at a task that is in memory."""
    task = array.tasks[element]
    task.number += 1
    attempt = Attempt(
        AttemptId(array.run.number, element, task.number, state.incarnation), pilot.name, state.now, reply_seq=reply_seq
    )
    attach(state, array, attempt, pilot)
    return attempt


def attach(state: State, array: Array, attempt: Attempt, pilot: Pilot) -> None:
    """Enter a live attempt on both sides: its task and its pilot."""
    array.tasks[attempt.id.element].live[attempt.id] = attempt
    pilot.live[attempt.id] = attempt
    pilot.free = take(pilot.free, array.spec.needs)
    attempt.pilot = pilot.name
    attempt.orphaned = None
    state.orphans.pop(attempt.id, None)
    state.settle_pilot(pilot)
