"""Chains: short calls leased together with calls that wait for nothing but them, so that a pilot goes on from one to the next
without asking [ADR 0064].

They are divided into lanes, one for each slot: what a call waits for is before it in its own lane. Of each lane neighbours are
one chunk over all of their arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from shoal.engine.matching.chunks import grant_chain, may_chunk
from shoal.engine.matching.classes import TaskClass
from shoal.engine.records import Array, Chunk, Pilot
from shoal.engine.run_bound import Lane
from shoal.engine.state import State
from shoal.model.ids import AttemptId
from shoal.model.limits import MAX_CHUNK, MAX_CHUNK_CALLS, MAX_LEASES
from shoal.model.task.spec import Spec
from shoal.sched.batch_size import MOST_AHEAD, chain_lanes, chain_size
from shoal.wire.messages import SINCE

VAIN_LOOKS = 4  # in one reply: of a class whose tasks are all waited for by one, each head is looked at in vain
LOOKED_AT = 2  # times as many arrays are looked at as are taken
# What tells calls of one chain apart; in all else their tables are the same.
_OWN = ("name", "after", "calls", "labels", "needs", "leased")  # the last two are derived from others
_PLAIN = ("category", "role", "noop", "after_any", "abort_on", "order", "max_tasks_per_child")


class Neighbours(NamedTuple):
    """Arrays one after another that go to one lane."""

    lane: int
    arrays: list[Array]


def may_head(cls: TaskClass, array: Array, pilot: Pilot) -> bool:
    """True if an array of calls may be the first of a chain on a pilot."""
    spec = array.spec
    if not (spec.function and array.children and cls.bound is None and pilot.protocol >= SINCE["Lease"]["parents"]):
        return False
    is_plain = may_chunk(spec) and not any(getattr(spec, name) for name in _PLAIN)
    return is_plain and array.run.growth is None and _is_whole(array)


class Components:
    """Which arrays are tied together, and how many calls each such part has."""

    def __init__(self) -> None:
        self._root: dict[int, int] = {}
        self.sizes: dict[int, int] = {}  # first element of the oldest array of each part -> calls

    def find(self, first: int) -> int:
        """The part that an array is in, by the first element of its oldest array."""
        root = self._root
        while root[first] != first:
            root[first] = first = root[root[first]]
        return first

    def size_with(self, array: Array) -> int:
        """The calls of the part that an array would be in."""
        return array.count + sum(self.sizes[part] for part in {self.find(parent) for parent in array.unmet})

    def add(self, array: Array) -> None:
        """Tie an array to those that it waits for, which are here."""
        parts = sorted({array.first, *map(self.find, array.unmet)})
        size = self.size_with(array)
        self._root[array.first] = parts[0]
        for part in parts[1:]:
            self._root[part] = parts[0]
            self.sizes.pop(part, None)  # the oldest keeps its place
        self.sizes[parts[0]] = size


def choose_chain(
    state: State, pilot: Pilot, cls: TaskClass, head: Array, ready: int, at_most: int, slots: int
) -> list[Array]:
    """What a pilot may get of the chain behind an array at once; empty: nothing goes along with it."""
    mean = (cls.base.mean or 0.0) * pilot.pace
    most = min(chain_size(mean, slots), MOST_AHEAD - pilot.held)
    most = min(most, at_most) if at_most < MAX_CHUNK else most
    most = state.accounting.may_start(cls.key.owner, pilot.site, cls.needs, most, cls.expected, state.now)
    return gather(head, ready, most, chain_size(mean, 1))


def gather(head: Array, ready: int, most: int, each: int) -> list[Array]:
    """The first of a chain's arrays and those behind it that can go along: at most `most` calls, of which at most `ready` wait
    for nothing, and `each` are tied together, since they run one after another. Empty if none of them waits for another."""
    run, found, parts = head.run, [head], Components()
    parts.add(head)
    taken = {head.first}
    if all(len(child.unmet) > most for child in head.children):
        return []
    shared, left, size = _shared(head.spec), most - head.count, sum(map(len, head.spec.calls))
    ready -= head.count
    at, has_child = bisect_right(run.firsts, head.first), False
    for array in islice(run.arrays, at, at + LOOKED_AT * most):
        if not array.todo:
            continue
        if array.unmet:
            if not array.unmet <= taken:
                continue
        elif array.count > ready:
            continue
        if not (array.accepted and not array.awaits and not array.held and _is_whole(array)):
            continue
        if parts.size_with(array) > each or _shared(array.spec) != shared:
            continue
        size += sum(map(len, array.spec.calls))
        if array.count > left or size > MAX_CHUNK_CALLS:
            break
        if array.unmet:
            has_child = True
        else:
            ready -= array.count
        left -= array.count
        found.append(array)
        parts.add(array)
        taken.add(array.first)
    return found if has_child else []


def _is_whole(array: Array) -> bool:
    """True if nothing of an array has begun, nor differs from the rest of it."""
    return len(array.todo) == array.count and not array.tasks and not array.apart


def _shared(spec: Spec) -> dict[str, Any]:
    return {name: value for name, value in vars(spec).items() if name not in _OWN}


def divide(arrays: Sequence[Array], lanes: int) -> list[Neighbours]:
    """Divide arrays into lanes: whatever is tied together goes to one, and neighbours of a lane come together."""
    parts = Components()
    for array in arrays:
        parts.add(array)
    sizes = parts.sizes
    total, before, lane_of = sum(sizes.values()), 0, {}
    for top, size in sizes.items():
        lane_of[top] = min(lanes - 1, before * lanes // total)
        before += size
    found: list[Neighbours] = []
    due = 0
    for array in arrays:
        lane = lane_of[parts.find(array.first)]
        if found and found[-1].lane == lane and array.first == due:
            found[-1].arrays.append(array)
        else:
            found.append(Neighbours(lane, [array]))
        due = array.first + array.count
    return found


def parents_of(arrays: Sequence[Array]) -> list[list[int]]:
    """For each call of these arrays those that it waits for, as spans of elements; nothing if none waits."""
    found: list[list[int]] = []
    for array in arrays:
        spans = [end for parent in sorted(array.unmet) for end in _span(array, parent)]
        found += [spans] * array.count
    return found if any(found) else []


def _span(array: Array, parent: int) -> tuple[int, int]:
    (found,) = array.run.arrays_of(parent, parent + 1)
    return parent, parent + found.count


def lease_chain(
    state: State, pilot: Pilot, arrays: Sequence[Array], cls: TaskClass, slots: int, reply_seq: int
) -> list[tuple[Chunk, list[list[int]]]]:
    """Lease these arrays to a pilot in as many lanes as are worth while, as far as a reply has leases; each chunk with what its
    calls wait for."""
    work = (cls.base.mean or 0.0) * pilot.pace * sum(array.count for array in arrays)
    lanes: dict[int, Lane] = {}
    found = []
    for lane, neighbours in divide(arrays, chain_lanes(work, slots))[:MAX_LEASES]:  # parents come first
        first = neighbours[0]
        if lane not in lanes:
            run = first.run
            lanes[lane] = Lane(str(AttemptId(run.number, first.first, run.base + 1, state.incarnation, run.nonce)))
        parents = parents_of(neighbours)
        found.append((grant_chain(state, neighbours, pilot, reply_seq, lanes[lane]), parents))
    return found


def shows_results(arrays: Sequence[Array]) -> bool:
    """True if one of them waited for something outside of the chain, whose success must be durable before it starts."""
    return any(len(set(array.spec.after)) > len(array.unmet) for array in arrays)
