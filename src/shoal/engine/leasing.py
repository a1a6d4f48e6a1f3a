"""Rules of leasing: which ready tasks a pilot gets, each under a new attempt number (A6, A7, A8).

Between owners the share decides, then an owner's own order (`menus.candidates`); what cannot start now is passed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from shoal.engine.chunks import grant_chunk, may_chunk, run_of_new
from shoal.engine.classes import Line, Lot, TaskClass
from shoal.engine.menus import Tight, candidates, menu_of
from shoal.engine.records import Array, Attempt, Chunk, Pilot
from shoal.engine.render import lease_of, lease_of_chunk
from shoal.engine.state import State
from shoal.engine.suiting import suits_now
from shoal.model.ids import AttemptId
from shoal.model.limits import MAX_LEASES
from shoal.model.policy import EVENT, STRICT
from shoal.model.quantities import many
from shoal.model.states import Rerun, TaskState, advance
from shoal.sched.ban import Banned
from shoal.sched.match import how_many
from shoal.sched.order import share_term
from shoal.sched.size import SHORT, ahead, turn
from shoal.wire.messages import Lease

FIRST_TRUST = 5  # attempts on a host where nothing has succeeded yet
TRUST_GROWS = 2.0  # seconds
MAX_MISSES = 16  # classes that a full pilot is tried on
MANY_MISSES = 64  # classes that did not fit, to be remembered
FEW_OWNERS = 16  # with work, whose turns are reckoned anew at each start
KEPT_LONG = 900.0  # seconds that one pilot's room is waited for before another pilot's is


def closed(state: State) -> str:
    """Why nothing is matched at all just now; empty if matching is open."""
    if state.unheard and state.now < state.quarantine_until:
        left, count = state.quarantine_until - state.now, many(len(state.unheard), "pilot")
        return f"the server restarted and waits up to {left:.0f} s for {count} to say what they run"
    return ""


def banned(state: State, pilot: Pilot) -> Banned | None:
    """Why nothing is sent to a pilot, its host or its site now."""
    return state.books.places.verdict(pilot.name, pilot.host, pilot.site, state.now)


def may_fill(state: State, pilot: Pilot) -> bool:
    """May this pilot get anything now?"""
    if pilot.draining or pilot.unfit or not pilot.heard or not state.queue.has_work() or closed(state):
        return False
    return banned(state, pilot) is None


def fill(state: State, pilot: Pilot, reply_seq: int) -> tuple[list[Lease], bool]:
    """Lease to a pilot what fits into it now; and whether the leases must be durable before they are sent."""
    if state.books.policy.match.mode != EVENT or not may_fill(state, pilot):
        return [], False
    filling = Filling(state, pilot, reply_seq)
    filling.fill()
    filling.tell()
    return filling.leases, filling.durable


def served_lines(state: State, pilot: Pilot) -> list[Line]:
    """Lines with work of owners whom the pilot serves."""
    if pilot.owner:
        line = state.queue.lines.get(pilot.owner)
        return [line] if line is not None and line.order else []
    return [line for line in state.queue.lines.values() if line.order and state.serves(pilot, line.owner)]


class _Cursor:
    """How far an owner's classes were looked through for one pilot."""

    __slots__ = ("_walk", "cls", "line", "looked", "menu", "news")

    def __init__(self, state: State, pilot: Pilot, line: Line) -> None:
        self.line = line
        is_strict = state.queue.rule.policy == STRICT
        self.menu = menu_of(state, pilot, line)
        self._walk: Iterator[TaskClass] = candidates(self.menu, line, is_strict)
        self.cls: TaskClass | None = None
        self.looked = 0  # classes that did not fit; -1: some of them may fit without more room
        self.news = line.news

    def miss(self, is_large: bool) -> None:
        """A class was passed over."""
        self.looked = self.looked + 1 if is_large and self.looked >= 0 else -1

    def step(self) -> TaskClass | None:
        """The next class; None: there are no more."""
        self.cls = next(self._walk, None)
        return self.cls


class Filling:
    """One answer being filled with leases."""

    def __init__(self, state: State, pilot: Pilot, reply_seq: int) -> None:
        self.state, self.pilot, self._seq = state, pilot, reply_seq
        self.leases: list[Lease] = []
        self.count = 0
        self.durable = False
        self._spare: dict[int, int] = {}  # class -> tasks that may still be fetched ahead
        self._misses = 0  # classes in a row that do not fit
        self._is_new: bool | None = None  # are there other hosts beside one where nothing has succeeded?
        self._singles: list[Attempt] = []
        self._chunks: list[Chunk] = []
        self._probes = state.books.places.is_on_trial(pilot.name, pilot.host, pilot.site, state.now)

    # --- whose turn
    def fill(self) -> None:
        """Lease until the pilot is full or nothing more fits."""
        state = self.state
        state.queue.reorder(state.now)
        lines = served_lines(state, self.pilot)
        if len(lines) == 1:
            state.kept.pop(lines[0].owner, None)  # nobody else would take the room
            cursor = _Cursor(state, self.pilot, lines[0])
            while (cls := self._next(cursor)) is not None:
                self.lease_from(cls, MAX_LEASES)
            return
        state.stir()
        # Owners by their turn. Each start changes the standing of all; where they are many, only its owner moves back
        # and the others stay where they are, which is right to one task.
        turns = [(self._turn(cursor), at, cursor) for at, cursor in enumerate(self._cursors(lines))]
        heapq.heapify(turns)
        if state.kept and self._is_kept([cursor for _, _, cursor in turns]):
            return
        while turns:
            _, at, cursor = turns[0]
            cls = self._next(cursor)
            if cls is None:
                if not self.count and len(turns) == len(lines) and self._keep(cursor):
                    return
                heapq.heappop(turns)
                continue
            self.lease_from(cls, turn(cls.base.mean))
            if state.queue.rule.policy == STRICT and len(turns) > FEW_OWNERS:
                heapq.heapreplace(turns, (self._turn(cursor), at, cursor))
            else:
                turns = [(self._turn(other), at, other) for _, at, other in turns]
                heapq.heapify(turns)

    # --- room for what is wide
    def _keep(self, cursor: _Cursor) -> bool:
        """Keep what becomes free here for the owner that is first in turn, if its task wants more room than is free now:
        narrow tasks of others would take each core as it comes, and it would never start [I13]. One pilot at a time."""
        state, pilot, owner = self.state, self.pilot, cursor.line.owner
        name, since = state.kept.get(owner, ("", 0.0))
        if name != pilot.name and name in state.pilots and state.now - since < KEPT_LONG:
            return False
        if not self._lacks_room(cursor):
            return False
        if name != pilot.name:
            state.kept[owner] = (pilot.name, state.now)
        return True

    def _is_kept(self, cursors: list[_Cursor]) -> bool:
        """Is this pilot kept for somebody whose task does not fit yet? (If it does, its owner starts it first.)"""
        state, pilot = self.state, self.pilot
        for owner in [owner for owner, (name, _) in state.kept.items() if name == pilot.name]:
            cursor = next((cursor for cursor in cursors if cursor.line.owner == owner), None)
            cls = self._next(cursor) if cursor is not None else None
            if cls is not None:
                self.lease_from(cls, 1)
            elif cursor is not None and self._lacks_room(cursor):
                return True
            else:
                del state.kept[owner]  # it has no such task any more, or may not start one
        return False

    def _lacks_room(self, cursor: _Cursor) -> bool:
        """Is it only for want of cores or memory, of which others hold a part, that the owner's first class waits?"""
        state, pilot = self.state, self.pilot
        if pilot.free.cores < 1 or self._probes:
            return False
        is_strict = state.queue.rule.policy == STRICT
        cls = next((cls for cls in candidates(cursor.menu, cursor.line, is_strict) if cls.head() is not None), None)
        if cls is None:
            return False
        needs, free = cls.needs, pilot.free
        if needs.gpus > free.gpus or needs.disk > free.disk or not suits_now(state, pilot, cls):
            return False
        is_short = needs.cores > free.cores or needs.memory > free.memory
        return is_short and state.books.may_start(cls.key.owner, pilot.site, needs, 1, cls.expected, state.now) > 0

    def _cursors(self, lines: list[Line]) -> list[_Cursor]:
        order = self.state.books.tree.order([line.owner for line in lines], self.state.now)
        by_owner = {line.owner: line for line in lines}
        return [_Cursor(self.state, self.pilot, by_owner[owner]) for owner in order]

    def _turn(self, cursor: _Cursor) -> tuple[Any, ...]:
        """Where an owner stands: by share alone, or with what its first task weighs."""
        tree, rule, owner = self.state.books.tree, self.state.queue.rule, cursor.line.owner
        if rule.policy == STRICT:
            return tree.key(owner, self.state.now)
        due, has = tree.standing(owner, self.state.now)
        first = cursor.line.order[0][0] if cursor.line.order else 0.0
        return (0 if due > 0 else 1, first - share_term(rule, due, has), owner)

    def _next(self, cursor: _Cursor) -> TaskClass | None:
        """The owner's best class of which something can start now."""
        if self.count >= MAX_LEASES:
            return None
        cls = cursor.cls
        if cls is not None and cls.head() is not None:
            if self.most(cls) > 0:
                return cls
            cursor.miss(self._is_large(cls))
        tight = cursor.menu.tight
        if tight is not None and tight.holds(self.pilot.free, cursor.line.news, self.state.now):
            return None
        while (cls := cursor.step()) is not None:
            is_large = self._is_large(cls)
            if not is_large:
                if cls.head() is None:
                    self.state.queue.relist(cls, self.state.now)
                    continue
                if self.most(cls) > 0:
                    self._misses = 0
                    return cls
            self._misses += 1
            cursor.miss(is_large)
            if self._misses >= MAX_MISSES and self.pilot.free.cores <= 0:
                # The pilot is full, and the best classes are not fetched ahead either: the others need not be looked
                # at. That is a matter of speed only.
                return None
        if cursor.looked > MANY_MISSES:
            cursor.menu.tight = Tight(self.pilot.free, cursor.news, self.state.now)
        return None

    def _is_large(self, cls: TaskClass) -> bool:
        """Is it for want of room that not one of them can be leased?"""
        needs, free = cls.needs, self.pilot.free
        is_short = needs.cores > free.cores or needs.memory > free.memory
        return (is_short or needs.disk > free.disk or needs.gpus > free.gpus) and not self._may_ahead(cls)

    # --- how many
    def most(self, cls: TaskClass) -> int:
        """How many of a class that is on its menu the pilot may get now: into free slots, and ahead of them."""
        pilot, state = self.pilot, self.state
        most = how_many(cls.needs, pilot.free) + self._ahead(cls)
        if cls.require is not None and cls.is_volatile:
            most = min(most, 1)  # each start may change what it looks at
        if self._probes:
            most = min(most, 0 if pilot.held or self.count else 1)  # one at a time until something succeeds
        if most > 0 and not pilot.proven:
            most = min(most, self._trust())
        if most <= 0 or not suits_now(state, pilot, cls):
            return 0
        return state.books.may_start(cls.key.owner, pilot.site, cls.needs, most, cls.expected, state.now)

    def _trust(self) -> int:
        """How many more a pilot may hold on a host where nothing has succeeded yet: few at first, twice as many after each
        two seconds that they live. One that fails everything at once must not have the whole queue [I12]; where there is
        no other host, there is nothing to be saved."""
        if self._is_new is None:
            self._is_new = any(
                p.host != self.pilot.host and p.holder == self.pilot.holder for p in self.state.pilots.values()
            )
        if not self._is_new:
            return MAX_LEASES
        since = min((a.leased for a in self.pilot.live.values()), default=self.state.now)
        since = min([since, *(chunk.leased for chunk in self.pilot.chunks.values())])
        return (FIRST_TRUST << min(20, int((self.state.now - since) / TRUST_GROWS))) - self.pilot.held

    def _may_ahead(self, cls: TaskClass) -> bool:
        mean = cls.base.mean
        return mean is not None and mean * self.pilot.pace <= SHORT and cls.is_safe and self.pilot.proven

    def _ahead(self, cls: TaskClass) -> int:
        if not self._may_ahead(cls):
            return 0  # a pilot on which nothing succeeded yet may be a black hole [I12]
        if cls.serial not in self._spare:
            pilot, mean = self.pilot, cls.base.mean
            cores = pilot.room.cores
            wanted = ahead(mean and mean * pilot.pace, cores, cls.ready(10 * MAX_LEASES), self.state.slots)
            spare = wanted - max(0, pilot.held - cores)
            # Little by little would cost a message and a row each time: only when a good part of it fits.
            self._spare[cls.serial] = spare if spare >= wanted // 4 else 0
        return max(0, self._spare[cls.serial])

    # --- leases
    def lease_from(self, cls: TaskClass, at_most: int) -> None:
        """Lease the head of a class, and what stands next to it."""
        lot = cls.head()
        assert lot is not None
        state, pilot, array = self.state, self.pilot, lot.array
        spec = array.spec
        most = min(self.most(cls), MAX_LEASES - self.count, at_most)
        if spec.throttle is not None:
            most = min(most, spec.throttle - array.live)
        free = how_many(cls.needs, pilot.free)
        low, high = (0, 0)
        if most > 1 and not lot.element and array.sequence is None and may_chunk(spec):
            low, high = run_of_new(array, most)
        if high - low > 1:
            chunk = grant_chunk(state, array, low, high, pilot, self._seq)
            self._chunks.append(chunk)
            self.leases.append(lease_of_chunk(chunk, low, high, state.state_dir))
        else:
            high, low = 1, 0
            attempt = grant(state, lot, pilot, self._seq, is_ahead=free < 1)
            self._singles.append(attempt)
            self.leases.append(lease_of(array, attempt, state.state_dir))
        count = high - low
        self.count += count
        state.kept.pop(cls.key.owner, None)
        if count > free and cls.serial in self._spare:
            self._spare[cls.serial] -= count - max(0, free)
        if self._probes:
            state.books.places.probe(pilot.name, pilot.host, pilot.site, state.now)
        state.queue.relist(cls, state.now)
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


def grant(state: State, lot: Lot, pilot: Pilot, reply_seq: int, is_ahead: bool = False) -> Attempt:
    """Raise the attempt number and give an element to a pilot; `is_ahead`: it waits there for a slot."""
    array = lot.array
    element = lot.element or array.first_plain()
    task = state.task_at(array, element)
    array.todo.remove(element)
    array.apart.pop(element, None)
    array.count_live(1)
    attempt = grant_copy(state, array, element, pilot, reply_seq)
    if not is_ahead:
        state.count_cores(array, attempt)
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
    task = array.tasks[attempt.id.element]
    task.live[attempt.id] = attempt
    pilot.live[attempt.id] = attempt
    attempt.pilot = pilot.name
    attempt.orphaned = None
    state.orphans.pop(attempt.id, None)
    state.hold(array, attempt, task.needs, pilot)
    state.settle_pilot(pilot)
