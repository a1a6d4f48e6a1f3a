"""Which task of a class a pilot gets, by where its inputs are, and which it does not get yet, since another pilot has them
[CMS IV.E], by the rules of `sched/hold.py`.

Nothing waits for ever: a task is kept from pilots for a bounded time in all, and the first task of a class is overtaken by
at most MAX_OVERTAKEN others in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shoal.dht.peers import CLIENT_ONLY, PEER_TAG
from shoal.engine.locality.index import Cache, File
from shoal.engine.locality.shortlist import best, local_data
from shoal.engine.matching.classes import Leasable, TaskClass
from shoal.engine.matching.eligibility import eligibility_of
from shoal.engine.matching.fit_now import suits_now
from shoal.engine.pilots.mesh import peer_id, takes_part
from shoal.engine.records import Array, Pilot
from shoal.engine.state import State
from shoal.model.limits import MAX_CANDIDATES, MAX_COMPARED_CACHES, MAX_HOLDERS, MAX_OVERTAKEN
from shoal.model.policy import COST, NEVER, TRACKED
from shoal.sched.fit import how_many
from shoal.sched.hold import BANDWIDTH, Hold, Holder, Presence, hold
from shoal.wire.chunk import altered
from shoal.wire.messages import Lease, Neighbour

LOOK_AGAIN = 1.0  # seconds after which a pilot that a task was kept from is looked at again at the latest
_REST = 0.25  # of the mean: what a task that runs for longer than that is expected to take still


class Choice(NamedTuple):
    """What is leased next of a class: an array, or one of its elements."""

    leasable: Leasable
    overtakes: bool  # it goes before the first one


def choose(state: State, pilot: Pilot, cls: TaskClass) -> Choice | None:
    """What a pilot gets of a class that has work; None: all that was looked at waits for other pilots."""
    head = cls.head()
    assert head is not None
    if not state.data.located:
        return Choice(head, False)
    cache = state.data.cache_of(pilot)
    local = best(state, cache, cls) if cache is not None else None
    waits: list[Hold] = []
    usable: dict[str, bool] = {}  # pilots that could run a task of the class
    found = None
    if local is not None and not _keep(state, pilot, cls, local.array, local.element, waits, usable):
        found = Choice(_leasable(local.array, local.element), not _is_first(head, local.array, local.element))
        if not found.overtakes or cls.overtaken < MAX_OVERTAKEN or cls.reads_data:
            return found
    for place, (leasable, element) in enumerate(_in_order(cls)):
        if cls.reads_data and (place or local is not None):
            break  # its expressions were evaluated for that one only
        if leasable.array.inputs is None or not _keep(state, pilot, cls, leasable.array, element, waits, usable):
            chosen = leasable if leasable.element else _leasable(leasable.array, element)
            return Choice(chosen, place > 0)
    if found is None:
        soonest = min((one.seconds for one in waits), default=LOOK_AGAIN)
        state.data.again[pilot.name] = state.now + min(LOOK_AGAIN, soonest)
    return found


def _leasable(array: Array, element: int) -> Leasable:
    """One element where each has inputs of its own that are somewhere; else its neighbours may go along."""
    return Leasable(array, element if array.inputs is not None and array.inputs.located else 0)


def _is_first(head: Leasable, array: Array, element: int) -> bool:
    return head.array is array and not head.element and element == array.first_plain()


def _in_order(cls: TaskClass) -> Iterator[tuple[Leasable, int]]:
    """The first ready tasks of a class, nearly in order; of tasks with an order of their own the first one only."""
    left = MAX_CANDIDATES
    for entry in cls.heap[:MAX_CANDIDATES]:
        leasable, array = entry.leasable, entry.leasable.array
        if leasable.element:
            if array.apart.get(leasable.element) == entry.serial and leasable.has_ready():
                left -= 1
                yield leasable, leasable.element
            continue
        if not leasable.has_ready():
            continue
        element = array.first_plain()
        plain = array.todo.size - len(array.apart)
        while left > 0:
            left, plain = left - 1, plain - 1
            yield leasable, element
            if plain <= 0 or array.sequence is not None or array.inputs is None or not array.inputs.located:
                break  # its other tasks read the same
            element = array.todo.after(element)
            while element in array.apart:
                element = array.todo.after(element)
        if left <= 0:
            return


# --- waitForData
def _keep(
    state: State, pilot: Pilot, cls: TaskClass, array: Array, element: int, waits: list[Hold], usable: dict[str, bool]
) -> bool:
    """True if a task is not given to the pilot, which is noted."""
    found = hold_of(state, pilot, cls, array, element, usable)
    if found is None:
        return False
    state.data.note_held((array.run.number, element), state.now)
    waits.append(found)
    return True


def hold_of(
    state: State, pilot: Pilot, cls: TaskClass, array: Array, element: int, usable: dict[str, bool] | None = None
) -> Hold | None:
    """For whom a task waits instead of going to a pilot; None: it does not."""
    rule, inputs = state.accounting.policy.data, array.inputs
    if inputs is None or rule.wait == NEVER:
        return None
    files = inputs.of(element)
    cache = state.data.cache_of(pilot)
    here = _presence(pilot, files, cache)
    caches = _caches(files, cache) if here.missing else []
    if not caches:
        return None
    usable = {} if usable is None else usable
    waited = state.now - state.data.held.get((array.run.number, element), state.now)
    return hold(rule, here, _holders(state, cls, files, caches, usable), waited)


def _presence(pilot: Pilot, files: Iterable[File], cache: Cache | None) -> Presence:
    has = local_data(files, cache)
    speed = pilot.tags.get("bandwidth_mbps")
    bandwidth = 1e6 / 8 * speed if isinstance(speed, (int, float)) and speed > 0 else BANDWIDTH
    return Presence(has.files, has.all_files - has.files, has.all_bytes - has.bytes, bandwidth)


def _caches(files: Iterable[File], own: Cache | None) -> list[Cache]:
    """Other caches that have some of these files."""
    found: dict[Cache, None] = {}
    for file in files:
        for cache in file.caches:
            if cache is not own:
                found[cache] = None
                if len(found) >= MAX_COMPARED_CACHES:
                    return [*found]
    return [*found]


def _holders(
    state: State, cls: TaskClass, files: Iterable[File], caches: list[Cache], usable: dict[str, bool]
) -> Iterator[Holder]:
    for cache in caches:
        for pilot in cache.pilots.values():
            if pilot.name not in usable:
                usable[pilot.name] = could_run(state, pilot, cls)
            if usable[pilot.name]:
                wait = expected_wait(state, pilot, cls, cache)
                yield Holder(pilot.name, _presence(pilot, files, cache), local_data(files, cache).bytes, wait)


def could_run(state: State, pilot: Pilot, cls: TaskClass) -> bool:
    """True if nothing but capacity keeps a pilot from a class."""
    owner = cls.key.owner
    is_excluded = pilot.draining or pilot.unfit or pilot.suspect or pilot.leaving or not pilot.is_reconciled
    if is_excluded or pilot.lone is not None or pilot.cleared_for is not None or not state.serves(pilot, owner):
        return False
    if (
        pilot.name not in state.pilots
        or cls not in eligibility_of(state, pilot, owner)
        or state.ban_of(pilot) is not None
    ):
        return False
    if any(found.pilot == pilot.name and other != owner for other, found in state.reservations.items()):
        return False
    if not suits_now(state, pilot, cls):
        return False
    return state.accounting.may_start(owner, pilot.site, cls.needs, 1, cls.expected, state.now) > 0


def expected_wait(state: State, pilot: Pilot, cls: TaskClass, cache: Cache) -> float | None:
    """Seconds until a pilot can begin a task of a class: 0 if it has a free slot; of a busy one by how long its tasks run and
    what they took before, and by what else waits for its data. None: that is not known, or of no interest."""
    if how_many(cls.needs, pilot.free) > 0:
        return 0.0
    if state.accounting.policy.data.wait != COST or pilot.chunked:
        return None
    rests = []
    for attempt in pilot.live.values():
        mean = state.queue.class_of(state.task_of(attempt.id).array).base.mean
        if mean is not None:
            ran = state.now - (attempt.started or attempt.leased)
            rests.append(max(mean - ran, _REST * mean))
    others, slots = max(0, len(cache.wanted) - 1), max(1, how_many(cls.needs, pilot.room))
    if not rests or (others and cls.base.mean is None):
        return None
    return min(rests) + others * (cls.base.mean or 0.0) / slots


# --- tracked sites
def with_holders(state: State, pilot: Pilot, lease: Lease) -> Lease:
    """At a site in mode `tracked` the server names pilots that have the files of a lease; at others pilots find them by
    themselves [LBO D9]."""
    content = [*lease.content.values(), *lease.kept.values()]
    if not content or not takes_part(pilot) or state.accounting.policy.data.mode_of(pilot.site) != TRACKED:
        return lease
    own, found = state.data.cache_of(pilot), dict[str, list[Neighbour]]()
    for text in dict.fromkeys(content):
        digest = text.partition(" ")[0]
        file = state.data.files.get(digest)
        peers = _peers(state, pilot, file, own) if file is not None and own not in file.caches else []
        if peers:
            found[digest] = peers
    return altered(lease, holders=found) if found else lease


def _peers(state: State, pilot: Pilot, file: File, own: Cache | None) -> list[Neighbour]:
    """Pilots of its mesh that serve a file."""
    found: list[Neighbour] = []
    for cache in file.caches:
        for other in cache.pilots.values():
            is_near = other.site == pilot.site and other.holder == pilot.holder and not other.suspect
            address = str(other.tags.get(PEER_TAG, ""))
            if cache is not own and is_near and takes_part(other) and address != CLIENT_ONLY and not other.leaving:
                found.append(Neighbour(peer_id(state, other.name), address))
            if len(found) >= MAX_HOLDERS:
                return found
    return found
