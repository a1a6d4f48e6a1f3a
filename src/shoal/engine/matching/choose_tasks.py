"""Leasing: which ready tasks a pilot gets, each under a new attempt number [ADR 0011, 0009; protocol 10]. Between owners the
share decides, then an owner's own order (`eligibility.candidates`); what cannot start now is skipped."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import Any

from shoal.engine.locality.holds import Choice, choose, with_holders
from shoal.engine.locality.shortlist import local_data
from shoal.engine.matching.chunks import grant_chunk, may_chunk, most_in_chunk, run_of_new
from shoal.engine.matching.classes import FUNCTION, Leasable, OwnerQueue, TaskClass
from shoal.engine.matching.cursor import Cursor
from shoal.engine.matching.eligibility import NothingFits, candidates
from shoal.engine.matching.fit_now import suits_now
from shoal.engine.matching.grant import grant
from shoal.engine.matching.lease_message import lease_of, lease_of_chunk
from shoal.engine.matching.prefetch import (
    GoesBefore,
    Holdings,
    Prefetched,
    holdings,
    is_short,
    knows_precedence,
    note_overtaken,
    work_off,
)
from shoal.engine.pilots.lease_proofs import make_proof
from shoal.engine.placement.chains import VAIN_LOOKS, choose_chain, lease_chain, may_head, shows_results
from shoal.engine.placement.preference import is_kept, note_lease
from shoal.engine.records import Array, Chunk, Pilot
from shoal.engine.state import Reservation, State
from shoal.engine.tasks.divisible import cut
from shoal.model.limits import MAX_CHUNK, MAX_LEASES, MAX_LENT_TO_NEW
from shoal.model.policy import EVENT, STRICT
from shoal.model.quantities import many
from shoal.model.states import Rerun
from shoal.sched.batch_size import MOST_AHEAD, ahead, lane_size, turn
from shoal.sched.fit import how_many
from shoal.sched.order import share_term
from shoal.sched.share import FRESH
from shoal.wire.chunk import altered
from shoal.wire.messages import SINCE, Capacity, Lease

FIRST_TRUST = 5  # attempts on a host where nothing has succeeded yet
TRUST_GROWS = 2.0  # seconds after which it is twice as many
MAX_MISSES = 16  # classes in a row that may not fit before a full pilot is given up on
MANY_MISSES = 64  # classes that did not fit from which on this is remembered
FEW_OWNERS = 16  # with work: so many turns are computed anew at each start
RESERVED_LONG = 900.0  # seconds that one pilot's capacity is reserved before another pilot's is


def closed(state: State) -> str:
    """Why nothing is matched at all just now; empty if matching is open."""
    if state.disk_full:
        return f"nothing new begins: {state.disk_full} where the server keeps its state"
    if state.unreconciled and state.now < state.quarantine_until:
        left, count = state.quarantine_until - state.now, many(len(state.unreconciled), "pilot")
        return f"the server restarted and waits up to {left:.0f} s for {count} to say what they run"
    return ""


def may_fill(state: State, pilot: Pilot) -> bool:
    """True if this pilot may get anything now."""
    is_excluded = pilot.draining or pilot.unfit or is_kept_empty(pilot)
    if is_excluded or not pilot.is_reconciled or not state.queue.has_work() or closed(state):
        return False
    return state.ban_of(pilot) is None


def is_kept_empty(pilot: Pilot) -> bool:
    """True if a task must be alone on the pilot; one that waits for others may need it for them."""
    return pilot.lone is not None and not pilot.lending


def fill(state: State, pilot: Pilot, reply_seq: int) -> tuple[list[Lease], bool]:
    """Lease to a pilot what fits now; also returns whether the leases must be durable before they are sent."""
    if state.accounting.policy.match.mode != EVENT or not may_fill(state, pilot):
        return [], False
    filling = LeaseRound(state, pilot, reply_seq)
    filling.fill()
    filling.log_leases()
    return filling.leases, filling.durable


def served_queues(state: State, pilot: Pilot) -> list[OwnerQueue]:
    """Queues with work of owners whom the pilot serves."""
    if pilot.owner:
        owned = state.queue.owners.get(pilot.owner)
        return [owned] if owned is not None and owned.order else []
    return [owned for owned in state.queue.owners.values() if owned.order and state.serves(pilot, owned.owner)]


def _unreserve(state: State, owner: str) -> None:
    """No capacity is reserved for an owner any more: the pilot that was may get something else."""
    if state.reservations.pop(owner, None) is not None:
        state.news += 1


class LeaseRound:
    """The leases of one reply while they are being chosen."""

    def __init__(self, state: State, pilot: Pilot, reply_seq: int) -> None:
        self.state, self.pilot, self._seq = state, pilot, reply_seq
        self.leases: list[Lease] = []
        self.count = 0
        self.durable = False
        self._spare: dict[int, int] = {}  # class -> tasks that may still be fetched ahead
        self._wants: dict[int, int] = {}  # class -> tasks that the pilot may hold beyond its slots
        self._misses = 0  # classes in a row that do not fit
        self._is_new: bool | None = None  # are there other hosts beside one where nothing has succeeded?
        self._singles: list[tuple[str, str]] = []  # owners and names of attempts, to be logged
        self._local: dict[str, list[int]] = {}  # what of their inputs was on the host: files, bytes, of how many
        self._chunks: list[Chunk] = []
        evidence = state.accounting.evidence.get(pilot.holder)
        self._places = evidence.places if evidence is not None and evidence.places.streaks else None
        self._probes = self._places is not None and self._places.is_on_trial(
            pilot.name, pilot.host, pilot.site, state.now
        )
        self._held: Holdings | None = None  # what the pilot holds, found when first needed
        self._awake: dict[str, OwnerQueue] = {}  # owners between whom the share decides here
        self._works_off = False  # it frees a slot for something: nothing more is fetched ahead
        self._is_full = False  # nor leased at all
        self._is_alone = False  # there is no other class with work
        self._asked = 0  # how many of the class that is leased next the pilot may get; 0: not known
        self._choice: Choice | None = None  # and what of it; None: not known
        self._vain = 0  # chains that were looked for in vain
        self._is_spent = False  # it holds as much as it may of what goes first: nothing else is fetched ahead

    # --- whose turn
    def fill(self) -> None:
        """Lease until the pilot is full or nothing more fits."""
        self.state.data.again.pop(self.pilot.name, None)
        self._fill()
        if not self._works_off:
            self.state.working_off.pop(self.pilot.name, None)

    def _fill(self) -> None:
        state = self.state
        state.queue.reorder(state.now)
        owners = served_queues(state, self.pilot)
        if len(owners) == 1:
            owned = owners[0]
            _unreserve(state, owned.owner)  # no other owner would take the capacity
            self._is_alone = len(owned.order) == 1
            if self._is_alone and not state.data.located and self._is_filled_by(owned.classes[owned.order[0].serial]):
                return  # as most exchanges find a pilot
            cursor = Cursor(state, self.pilot, owned)
            while (cls := self._next(cursor)) is not None:
                self.lease_from(cls)
            return
        state.update_activity()
        self._awake = {owned.owner: owned for owned in owners}
        # Owners by their turn. Each start changes the share of all; where they are many, only its owner moves back
        # and the others keep their turn, which is exact to one task.
        turns = [(self._turn(cursor.owned), at, cursor) for at, cursor in enumerate(self._cursors())]
        heapq.heapify(turns)
        if state.reservations and self._is_reserved([cursor for _, _, cursor in turns]):
            return
        while turns:
            _, at, cursor = turns[0]
            cls = self._next(cursor)
            if cls is None:
                if not self.count and len(turns) == len(owners) and self._reserve(cursor):
                    return
                heapq.heappop(turns)
                continue
            self.lease_from(cls, turn(cls.base.mean))
            if state.queue.rule.policy == STRICT and len(turns) > FEW_OWNERS:
                heapq.heapreplace(turns, (self._turn(cursor.owned), at, cursor))
            else:
                turns = [(self._turn(other.owned), at, other) for _, at, other in turns]
                heapq.heapify(turns)

    # --- capacity for wide tasks
    def _reserve(self, cursor: Cursor) -> bool:
        """Reserve what becomes free here for the owner that is first in turn, if its task needs more than is free now:
        narrow tasks of others would take each core as it becomes free, and it would never start [promise I13]. One pilot
        at a time."""
        state, pilot, owner = self.state, self.pilot, cursor.owned.owner
        found = state.reservations.get(owner)
        is_elsewhere = found is not None and found.pilot != pilot.name
        if (
            found is not None
            and is_elsewhere
            and found.pilot in state.pilots
            and state.now - found.since < RESERVED_LONG
        ):
            return False
        if not self._lacks_capacity(cursor):
            return False
        if found is None or is_elsewhere:
            state.reservations[owner] = Reservation(pilot.name, state.now)
        return True

    def _is_reserved(self, cursors: list[Cursor]) -> bool:
        """True if this pilot is reserved for an owner whose task does not fit yet; one that fits is leased here."""
        state, pilot = self.state, self.pilot
        for owner in [owner for owner, found in state.reservations.items() if found.pilot == pilot.name]:
            cursor = next((cursor for cursor in cursors if cursor.owned.owner == owner), None)
            cls = self._next(cursor) if cursor is not None else None
            if cls is not None:
                self.lease_from(cls, 1)
            elif cursor is not None and self._lacks_capacity(cursor):
                return True
            else:
                _unreserve(state, owner)  # it has no such task any more, or may not start one
        return False

    def _lacks_capacity(self, cursor: Cursor) -> bool:
        """True if the owner's first class waits only for cores or memory, of which others hold a part."""
        state, pilot = self.state, self.pilot
        if self._open().cores < 1 or self._probes or pilot.lending:
            return False  # a task that waits frees nothing more until what it waits for has run, perhaps here
        is_strict = state.queue.rule.policy == STRICT
        found = candidates(cursor.eligibility, cursor.owned, is_strict)
        cls = next((cls for cls in found if cls.head() is not None), None)
        if cls is None or self._may_ahead(cls):
            return False
        needs, free = cls.needs, self._open()
        if needs.gpus > free.gpus or needs.disk > free.disk or not suits_now(state, pilot, cls):
            return False
        is_large = needs.cores > pilot.free.cores or needs.memory > pilot.free.memory
        return is_large and state.accounting.may_start(cls.key.owner, pilot.site, needs, 1, cls.expected, state.now) > 0

    def _cursors(self) -> list[Cursor]:
        order = self.state.accounting.tree.order(self._awake, self.state.now)
        return [Cursor(self.state, self.pilot, self._awake[owner]) for owner in order]

    def _turn(self, owned: OwnerQueue) -> tuple[Any, ...]:
        """The turn of an owner, smallest first: by share alone, or together with the weight of its first task."""
        tree, rule, owner = self.state.accounting.tree, self.state.queue.rule, owned.owner
        if rule.policy == STRICT:
            return tree.key(owner, self.state.now)
        due, has = tree.standing(owner, self.state.now)
        first = owned.order[0].order if owned.order else 0.0
        return (0 if due > 0 else 1, first - share_term(rule, due, has), owner)

    def _next(self, cursor: Cursor) -> TaskClass | None:
        """The owner's best class of which something can be leased now."""
        if self.count >= MAX_LEASES or self._is_full:
            return None
        cls = cursor.cls
        if cls is not None and cls.head() is not None:
            if self._is_alone and self._is_filled_by(cls):
                return None
            if self._ask_most(cls):
                return cls
            if self._pass_over(cls):
                return None
            cursor.miss(self._is_large(cls))
        tight = cursor.eligibility.tight
        is_tight = tight is not None and tight.holds(self.pilot.free, cursor.owned.arrivals, self.state.now)
        if is_tight and not self._holdings().ahead:
            return None
        while (cls := cursor.step()) is not None:
            is_large = self._is_large(cls)
            if not is_large:
                if cls.head() is None:
                    self.state.queue.relist(cls)
                    continue
                if self._ask_most(cls):
                    self._misses = 0
                    return cls
            if self._pass_over(cls):
                return None
            self._misses += 1
            cursor.miss(is_large)
            if self._misses >= MAX_MISSES and self.pilot.free.cores <= 0:
                # The pilot is full, and the best classes are not fetched ahead either: not looking at the others is a
                # matter of speed only.
                self._remember_tight(cursor, MAX_MISSES - 1)
                return None
        self._remember_tight(cursor, MANY_MISSES)
        return None

    def _remember_tight(self, cursor: Cursor, misses: int) -> None:
        """Remember that nothing fits into what is free, if all of more than so many classes were too large."""
        if cursor.misses > misses:
            cursor.eligibility.tight = NothingFits(self.pilot.free, cursor.arrivals, self.state.now)

    def _ask_most(self, cls: TaskClass) -> bool:
        """True if something of a class can be leased now; how much, and what, is kept for `lease_from`, which follows."""
        self._asked = self.most(cls)
        if self._asked > 0 and self.state.placed is not None and is_kept(self.state, self.pilot, cls):
            self._asked = 0
        if self._asked > 0:
            self._choice = choose(self.state, self.pilot, cls)
            self._asked = self._asked if self._choice is not None else 0
        return self._asked > 0

    def _is_filled_by(self, cls: TaskClass) -> bool:
        """True if the pilot is full of a class that is not fetched ahead: there is nothing to be sent before it."""
        pilot = self.pilot
        return cls.needs.cores > pilot.free.cores and pilot.sole == cls.base.serial and not self._may_ahead(cls)

    def _is_large(self, cls: TaskClass) -> bool:
        """True if not one of them can be leased because capacity is lacking."""
        needs, free = cls.needs, self._free(cls)
        is_narrow = needs.cores <= free.cores and needs.memory <= free.memory
        if (is_narrow and needs.disk <= free.disk and needs.gpus <= free.gpus) or self._may_ahead(cls):
            return False
        return not (self._may_overtake(cls) and self._holdings().ahead)

    # --- how many
    def _free(self, cls: TaskClass) -> Capacity:
        """The free capacity for a class. Where many tasks wait already, lent cores are for what is waited for: each new
        task that then waits, too, would keep its process and memory."""
        pilot = self.pilot
        if pilot.lending < MAX_LENT_TO_NEW or cls.is_nested:
            return pilot.free
        return replace(pilot.free, cores=pilot.free.cores - pilot.lent)

    def most(self, cls: TaskClass) -> int:
        """How many of an eligible class the pilot may get now: into free slots, ahead of them, and before what it has
        fetched ahead."""
        pilot, state = self.pilot, self.state
        if cls.key.alone or pilot.cleared_for is not None or is_kept_empty(pilot):
            return self._most_alone(cls)
        most = how_many(cls.needs, self._free(cls)) + self._ahead(cls)
        if most <= 0 and self._may_overtake(cls):
            room, precedence = self._before(cls)
            most = how_many(cls.needs, room) if precedence else 0
        if cls.require is not None and cls.is_volatile:
            most = min(most, 1)  # each start may change what its requirement reads
        if self._probes:
            most = min(
                most, 0 if pilot.held > pilot.lending or self.count else 1
            )  # one at a time until something succeeds
        if most > 0 and not pilot.proven:
            most = min(most, self._trust())
        if cls.bound is not None:
            most = min(most, max(cls.bound.left, self._lane_size(cls)))
        if most <= 0 or not suits_now(state, pilot, cls):
            return 0
        return state.accounting.may_start(cls.key.owner, pilot.site, cls.needs, most, cls.expected, state.now)

    def _most_alone(self, cls: TaskClass) -> int:
        """The same for a task that must be alone on its pilot, and for a pilot that is, or becomes, empty for one."""
        state, pilot = self.state, self.pilot
        is_empty = cls.key.alone and not pilot.held and not self.count
        if not is_empty or how_many(cls.needs, pilot.free) < 1 or not suits_now(state, pilot, cls):
            return 0
        return state.accounting.may_start(cls.key.owner, pilot.site, cls.needs, 1, cls.expected, state.now)

    def _trust(self) -> int:
        """How many more a pilot may hold on a host where nothing has succeeded yet: few at first, twice as many after each
        two seconds. A host that fails everything at once must not get the whole queue [promise I12]; without another
        host there is nothing to be saved."""
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
        if cls.is_divisible or not self.pilot.proven or not is_short(self.pilot, cls):
            return False
        # Without lanes, what waits at one pilot would keep a slot of another idle, if its run may have no more.
        return cls.bound is None or self._lanes_left(cls) > 0

    def _lanes_left(self, cls: TaskClass) -> int:
        """How many more lanes of calls of a run with `max_running` the pilot may get: it has no more than slots."""
        pilot = self.pilot
        if not cls.key.kind.startswith(FUNCTION) or pilot.protocol < SINCE["Lease"]["lane"]:
            return 0
        lanes: set[object] = {id(chunk.lane or chunk) for chunk in pilot.chunks.values()}
        lanes.update(id(self.state.task_of(attempt).lane or attempt) for attempt in pilot.live)
        return how_many(cls.needs, pilot.room) - len(lanes)

    def _lane_size(self, cls: TaskClass) -> int:
        """How many calls a lane gets: its share of what is ready, and no more than end soon."""
        mean, bound = cls.base.mean, cls.bound
        if bound is None or mean is None or not self._may_ahead(cls):
            return 1
        return lane_size(mean * self.pilot.pace, cls.ready(MOST_AHEAD * bound.left), bound.left)

    def _ahead(self, cls: TaskClass) -> int:
        if self._works_off or self._is_spent or not self._may_ahead(cls):
            return 0  # a pilot on which nothing succeeded yet may be a black hole [promise I12]
        if cls.serial not in self._spare:
            wanted, pilot = self._wanted(cls), self.pilot
            if pilot.sole == cls.base.serial:
                spare = wanted - max(0, pilot.held - pilot.room.cores)
            else:
                spare = wanted - math.ceil(self._holdings().backlog / max(cls.base.mean or 0.0, 1e-6) - 1e-9)
            # Each lease costs a message and a row, so nothing is fetched before a good part of it fits.
            self._spare[cls.serial] = spare if spare >= wanted // 4 else 0
        return max(0, self._spare[cls.serial])

    def _wanted(self, cls: TaskClass) -> int:
        """How many tasks of a class the pilot may hold beyond its slots, if it holds nothing else there."""
        if not self._may_ahead(cls):
            return 0
        if cls.serial not in self._wants:
            pilot, mean = self.pilot, cls.base.mean
            # Slots of longer tasks do not become free in a moment.
            cores = pilot.room.cores if pilot.sole == cls.base.serial else self._holdings().open.cores
            wanted = ahead(mean and mean * pilot.pace, cores, cls.ready(10 * MAX_LEASES), self.state.slots)
            self._wants[cls.serial] = wanted
        return self._wants[cls.serial]

    def _pass_over(self, cls: TaskClass) -> bool:
        """Nothing of a class can be leased now. What goes after it must not take the capacity that it waits for; True:
        nothing more may be leased at all."""
        if not self._is_alone and self._spare.get(cls.serial, 1) <= 0 and self._wanted(cls) > 0:
            # The pilot holds enough for now. With its next exchange this class comes first, whatever the others' length.
            self._is_spent = self._is_spent or self._may_start(cls)
        return self._make_room(cls)

    def _may_start(self, cls: TaskClass) -> bool:
        """True if nothing but capacity keeps a class from being leased to the pilot."""
        state, pilot = self.state, self.pilot
        if cls.head() is None or self._probes or not suits_now(state, pilot, cls):
            return False
        return state.accounting.may_start(cls.key.owner, pilot.site, cls.needs, 1, cls.expected, state.now) > 0

    # --- before what was fetched ahead
    def _holdings(self) -> Holdings:
        if self._held is None:
            self._held = holdings(self.state, self.pilot)
        return self._held

    def _open(self) -> Capacity:
        """Capacity that is free, or would be without what is fetched ahead."""
        return self._holdings().open if self.pilot.free.cores < 1 else self.pilot.free

    def _may_overtake(self, cls: TaskClass) -> bool:
        """True if a class may be sent before its slot is free, to begin before others that wait on the pilot. Where a
        lease is the start, it may not."""
        pilot = self.pilot
        return bool(pilot.held) and pilot.sole != cls.base.serial and cls.is_safe and knows_precedence(pilot)

    def _before(self, cls: TaskClass) -> tuple[Capacity, int]:
        """The capacity for a class in which what it goes before does not count, and the precedence that this needs."""
        return self._holdings().room_before(self._goes_before(cls))

    def _goes_before(self, cls: TaskClass) -> GoesBefore:
        """Which short tasks on the pilot a class goes before: within an owner by position; between owners by turn, and
        what is fetched ahead only for its owner's first start, else each owner would overtake the other for ever."""
        queue, owner, listed = self.state.queue, cls.key.owner, cls.listed
        turns: dict[str, bool] = {}

        def is_next(other: str) -> bool:
            if owner not in self._awake or other not in self._awake:
                return False  # all that it has left is with pilots and over in a moment
            mine = self._turn(self._awake[owner])
            is_fresh = queue.rule.policy == STRICT and mine[0] == FRESH
            return (is_fresh or not self._wanted(cls)) and mine < self._turn(self._awake[other])

        def goes_before(part: Prefetched) -> bool:
            if part.cls is cls.base:
                return False
            other = part.cls.key.owner
            if other == owner:
                return listed is not None and listed < queue.position_of(part.array, part.cls.key.level)
            if other not in turns:
                turns[other] = is_next(other)
            return turns[other]

        return goes_before

    def _make_room(self, cls: TaskClass) -> bool:
        """A class that goes before what the pilot has fetched cannot be sent before its slot is free: have that worked
        off or taken back, and fetch nothing ahead that goes after it. True: free slots are reserved for it, too."""
        state, pilot = self.state, self.pilot
        if self._works_off or self._probes or not pilot.held or pilot.sole == cls.base.serial or self._may_ahead(cls):
            return False
        if not self._holdings().ahead or how_many(cls.needs, pilot.free) > 0:
            return False
        room, precedence = self._before(cls)
        fits = how_many(cls.needs, room) > 0
        if not precedence or not (fits or cls.needs.cores == 1) or (fits and self._may_overtake(cls)):
            return False
        if self._may_start(cls):
            self._works_off = work_off(state, pilot, cls, room, self._goes_before(cls))
            self._is_full = self._works_off and fits
        return self._is_full

    # --- leases
    def lease_from(self, cls: TaskClass, at_most: int = MAX_CHUNK, assigned: str = "") -> None:
        """Lease of a class what suits the pilot best, if something is not kept for others; `assigned` says how a round chose
        this pilot for it."""
        choice, self._choice = self._choice or choose(self.state, self.pilot, cls), None
        if choice is None:
            return
        leasable = choice.leasable
        state, pilot, array = self.state, self.pilot, leasable.array
        if array.spec.units is not None and not array.spec.units.is_cut:
            cut(state, array, pilot)
        spec = array.spec
        most, self._asked = self._asked or self.most(cls), 0
        most = min(most, MAX_CHUNK - self.count, at_most)
        if spec.throttle is not None:
            most = min(most, spec.throttle - array.live)
        free = how_many(cls.needs, self._free(cls))
        precedence = self._before(cls)[1] if free < 1 and self._may_overtake(cls) else 0
        low, high = (0, 0)
        is_lane = False
        if cls.bound is not None and spec.function:
            is_lane = True
            here = max(1, min(cls.bound.left, self._lanes_left(cls)))  # they share what the pilot may get
            most = min(self._lane_size(cls), -(-most // here))
        if most > 1 and not leasable.element and array.sequence is None and may_chunk(spec, pilot.protocol):
            low, high = run_of_new(array, most)
            high = min(high, low + most_in_chunk(array, low, high, MAX_LEASES - self.count))
        chain = self._chain(cls, leasable, most, at_most) if not precedence else []
        if chain:
            low, high, is_ahead = 0, 0, True
            for chunk, parents in lease_chain(state, pilot, chain, cls, self._slots(cls), self._seq):
                high += chunk.high - chunk.low
                self._chunks.append(chunk)
                proof = self._prove(array, str(chunk.attempt(chunk.low)), chunk.high - chunk.low)
                one = lease_of_chunk(chunk, chunk.low, chunk.high, state.state_dir, proof)
                self.leases.append(altered(one, parents=parents))
            state.accounting.tree.start(cls.key.owner, state.now, 0)
            self.durable = self.durable or shows_results(chain)
        elif high - low > 1:
            is_ahead = high - low > free and self._may_ahead(cls)
            chunk = grant_chunk(state, array, low, high, pilot, self._seq, precedence, is_ahead, is_lane)
            state.accounting.tree.start(cls.key.owner, state.now, 0)
            self._chunks.append(chunk)
            proof = self._prove(array, str(chunk.attempt(low)), high - low)
            self.leases.append(with_holders(state, pilot, lease_of_chunk(chunk, low, high, state.state_dir, proof)))
        else:
            high, low = 1, 0
            is_ahead = free < 1 and self._may_ahead(cls)
            attempt = grant(state, leasable, pilot, self._seq, is_ahead, precedence)
            attempt.assigned = assigned
            name = str(attempt.id)
            self._singles.append((array.run.owner, name))
            if array.inputs is not None:
                self._local[name] = [*local_data(array.inputs.of(attempt.id.element), state.data.cache_of(pilot))]
            is_first = attempt.id.number == array.run.base + 1
            # A crash that undoes a piece leaves its element to other units: nobody may prove to have been given it.
            proof = self._prove(array, name, 1) if is_first and spec.units is None else ""
            self.leases.append(with_holders(state, pilot, lease_of(array, attempt, state.state_dir, proof)))
            # Only the first attempt at a task may be sent before its commit: a crash in that gap costs one number, which
            # the next server leaves out (`Run.base`), so that no number is given twice.
            self.durable = self.durable or not is_first or spec.units is not None
        count = high - low
        self.count += count
        if state.placed is not None:
            note_lease(state, pilot, cls, count)
        cls.overtaken = cls.overtaken + 1 if choice.overtakes else 0
        if self._held is not None:
            part = Prefetched(cls.base, array, cls.needs, precedence, count)
            self._held = self._held.add(pilot, part, is_ahead)
        if precedence:
            note_overtaken(state, pilot)
        _unreserve(state, cls.key.owner)
        spare = self._spare.get(cls.serial)
        self._spare.clear()
        if spare is not None:
            self._spare[cls.serial] = spare - max(0, count - max(0, free))
        if self._probes and self._places is not None:
            self._places.probe(pilot.name, pilot.host, pilot.site, state.now)
        state.queue.relist(cls)
        # A child's start makes its parents' results visible: they must be durable first.
        self.durable = self.durable or spec.rerun is not Rerun.SAFE or bool(spec.after or spec.after_any)

    def _slots(self, cls: TaskClass) -> int:
        """How many slots of the pilot are free for short tasks of a class now or in a moment."""
        pilot = self.pilot
        return how_many(cls.needs, pilot.room if pilot.sole == cls.base.serial else self._holdings().open)

    def _chain(self, cls: TaskClass, leasable: Leasable, ready: int, at_most: int) -> list[Array]:
        """Arrays to be leased behind each other [ADR 0064]; none if nothing waits for the first one only."""
        may = self._vain < VAIN_LOOKS and not (leasable.element or self._probes) and self._may_ahead(cls)
        if not may or not may_head(cls, leasable.array, self.pilot):
            return []
        chain = choose_chain(self.state, self.pilot, cls, leasable.array, ready, at_most, self._slots(cls))
        self._vain += not chain
        return chain

    def _prove(self, array: Array, first: str, count: int) -> str:
        """The proof that goes with a lease. None if it is written with its submission: a crash that undoes it undoes both,
        and then the same element of an open run may be other work [ADR 0034]."""
        state = self.state
        return make_proof(state.lease_key, self.pilot.name, first, count) if not state.is_unwritten(array) else ""

    def log_leases(self) -> None:
        """Write one event for each owner."""
        by_owner: dict[str, tuple[list[str], list[tuple[str, int]]]] = {}
        for owner, name in self._singles:
            by_owner.setdefault(owner, ([], []))[0].append(name)
        for chunk in self._chunks:
            owner = chunk.array.run.owner
            by_owner.setdefault(owner, ([], []))[1].append((str(chunk.attempt(chunk.low)), chunk.high - chunk.low))
        for owner, (attempts, chunks) in by_owner.items():
            more: dict[str, Any] = {"chunks": chunks} if chunks else {}
            if self._local and (inputs := {name: self._local[name] for name in attempts if name in self._local}):
                more["inputs"] = inputs
            self.state.emit("tasks_leased", pilot=self.pilot, owner=owner, attempts=attempts, **more)
