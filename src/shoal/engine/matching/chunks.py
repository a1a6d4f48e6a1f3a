"""Chunks: neighbouring elements leased, and mostly finished, as one [ADR 0009].

A chunk is a range, without an object for each element; that of a chain runs over several arrays [ADR 0064]. Whatever concerns
one element alone first carves it out into the task that it would have been without chunks: there is one set of rules, and
chunks are only faster in the common case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from shoal.engine.changes import ChunkDrop, ChunkRow, Final, ResultRow, Successes
from shoal.engine.matching.classes import Sample
from shoal.engine.pilots.bans import record_success
from shoal.engine.pilots.hosts import tally
from shoal.engine.records import Array, Attempt, Chunk, Pilot, Task
from shoal.engine.run_bound import Lane
from shoal.engine.state import State
from shoal.model.limits import MAX_CHUNK_CALLS
from shoal.model.rangeset import RangeSet
from shoal.model.states import Rerun, TaskState
from shoal.model.task.spec import OWN, Spec
from shoal.model.task.sweep import holes
from shoal.sched.fit import give, take
from shoal.wire.messages import PROTOCOL, Batch

QUOTES_SINCE = 5  # the protocol from which on pilots quote values in texts for the shell


def may_chunk(spec: Spec, protocol: int = PROTOCOL) -> bool:
    """True if its elements can be leased together: not if their directory or standard input has parameters, nor if a
    pilot with an older protocol would put values into texts for the shell without quotes."""
    if spec.rerun is not Rerun.SAFE:
        return False
    if protocol < QUOTES_SINCE and spec.sweep is not None and any(map(holes, (spec.shell or "", *spec.setup))):
        return False
    return spec.sweep is None or not any(holes(text) for text in (spec.cwd, spec.stdin) if text and text != OWN)


def run_of_new(array: Array, most: int) -> tuple[int, int]:
    """The first ready elements low .. high - 1 without a history, at most so many; empty if the first one has one."""
    low = array.first_plain()
    high = min(array.todo.reach(low), low + most)
    if array.tasks:
        for element in range(low, high):
            if element in array.tasks:
                return low, element
    return low, high


def most_in_chunk(array: Array, low: int, high: int, few: int) -> int:
    """How many of elements low .. high - 1 go with one lease: `few`, or all if what differs between them is short, so that the
    reply is no longer than one with as many leases."""
    count, spec = high - low, array.spec
    if count <= few:
        return count
    if spec.function:
        calls = spec.calls[low - array.first : high - array.first]
        return count if sum(map(len, calls)) <= MAX_CHUNK_CALLS else few
    return count if spec.sweep is None or spec.sweep.is_counted else few


def grant_chunk(
    state: State,
    array: Array,
    low: int,
    high: int,
    pilot: Pilot,
    reply_seq: int,
    precedence: int = 0,
    is_ahead: bool = False,
    is_lane: bool = False,
) -> Chunk:
    """Lease elements low .. high - 1 to a pilot; `is_lane`: it makes them one after another."""
    left, number = RangeSet([(low, high)]), array.run.base + 1  # elements with a history are leased one by one
    chunk = Chunk(array, low, high, number, state.incarnation, pilot.name, state.now, reply_seq, left)
    chunk.precedence, chunk.is_ahead = precedence, is_ahead
    chunk.lane = Lane(str(chunk.attempt(low))) if is_lane else None
    array.take_todo(low, high)
    array.count_live(high - low, chunk.lane)
    enter(state, chunk, pilot)
    state.change(ChunkRow(array.run.number, low, high, number, state.incarnation, pilot.name, state.now))
    return chunk


def grant_chain(state: State, arrays: Sequence[Array], pilot: Pilot, reply_seq: int, lane: Lane) -> Chunk:
    """Lease all elements of neighbouring arrays to a pilot as a part of a lane; some may wait for others of the lane."""
    first, last = arrays[0], arrays[-1]
    low, high, number = first.first, last.first + last.count, first.run.base + 1
    left = RangeSet.span(low, high)
    chunk = Chunk(first, low, high, number, state.incarnation, pilot.name, state.now, reply_seq, left)
    chunk.is_ahead, chunk.lane, chunk.several = True, lane, [*arrays]
    for array in arrays:
        array.take_todo(array.first, array.first + array.count)
        array.count_live(array.count)
        if array.unmet:
            array.since = state.now  # as far as it waits for capacity, that begins now
    enter(state, chunk, pilot)
    state.change(ChunkRow(first.run.number, low, high, number, state.incarnation, pilot.name, state.now))
    return chunk


def enter(state: State, chunk: Chunk, pilot: Pilot) -> None:
    """Enter a chunk on both sides: its arrays and its pilot."""
    for array in chunk.arrays:
        array.enter_chunk(chunk)
    pilot.chunks[chunk.array.run.number, chunk.low, chunk.incarnation] = chunk
    pilot.chunked += len(chunk.left)
    pilot.free = take(pilot.free, chunk.array.spec.needs, len(chunk.left))
    cls = state.queue.class_of(chunk.array)
    chunk.reserved = cls.expected
    pilot.note_class(cls.serial, is_first=pilot.held == len(chunk.left))
    state.accounting.enter(chunk.array.run.owner, pilot.site, chunk.array.spec.needs, len(chunk.left), chunk.reserved)
    state.settle_pilot(pilot)


def carve(state: State, chunk: Chunk, element: int) -> Task:
    """Take an element out of its chunk: from now on it is a task like any other."""
    array, pilot = chunk.array, state.pilots[chunk.pilot]
    if chunk.several:
        (array,) = array.run.arrays_of(element, element + 1)
    attempt = Attempt(chunk.attempt(element), chunk.pilot, chunk.leased, reply_seq=chunk.reply_seq)
    attempt.site, attempt.reserved = pilot.site, chunk.reserved
    attempt.precedence, attempt.is_ahead, attempt.needs = chunk.precedence, chunk.is_ahead, array.spec.needs
    lane = chunk.lane if array.bound is not None else None
    task = array.enter_task(Task(array, element, TaskState.LEASED, chunk.number, lane=lane))
    task.live[attempt.id] = pilot.live[attempt.id] = attempt
    _leave(state, chunk, element, element + 1, pilot)
    state.write_task(task, pilot=pilot, leased=chunk.leased)
    return task


def carve_all(state: State, chunks: Iterable[Chunk]) -> None:
    """Take every element out of these chunks."""
    for chunk in list(chunks):
        for element in list(chunk.left):
            carve(state, chunk, element)


def carve_array(state: State, array: Array) -> None:
    """Take every element of an array out of the chunks that they are in."""
    for chunk in list(array.chunks):
        for low, high in chunk.left_of(array):
            for element in range(low, high):
                carve(state, chunk, element)


def _leave(state: State, chunk: Chunk, low: int, high: int, pilot: Pilot) -> None:
    chunk.left.remove_range(low, high)
    pilot.chunked -= high - low
    if not chunk.left:
        run = chunk.array.run.number
        for array in chunk.arrays:
            array.chunks.remove(chunk)
        del pilot.chunks[run, chunk.low, chunk.incarnation]
        state.change(ChunkDrop(run, chunk.low, chunk.number, chunk.incarnation))


def finish(state: State, chunk: Chunk, pilot: Pilot, batch: Batch, at: int, low: int, high: int) -> None:
    """Elements low .. high - 1 of a chunk succeeded; their values are in the batch from index `at` on. As
    `reports._succeed` for all of them at once; what follows for their run is done by the caller."""
    array, run, count, now = chunk.array, chunk.array.run, high - low, state.now
    _leave(state, chunk, low, high, pilot)
    pilot.free = give(pilot.free, array.spec.needs, count)
    state.accounting.strike(run.owner, pilot.site, array.spec.needs, count, chunk.reserved)
    state.settle_pilot(pilot)
    queued = 0.0
    for one in chunk.arrays if not chunk.several else run.arrays_of(low, high):
        begin, stop = max(low, one.first), min(high, one.first + one.count)
        one.count_live(begin - stop, chunk.lane)
        state.offer_more(one)
        state.count_final(one, begin, stop, TaskState.SUCCEEDED)
        queued += max(0.0, chunk.leased - one.since) * (stop - begin)
    state.finished["succeeded"] = state.finished.get("succeeded", 0) + count

    if run.partial is not None and run.partial.live:
        for element in range(low, high):
            run.partial.live.pop(chunk.attempt(element), None)
    winner, code = f"{chunk.number}@{chunk.incarnation}", None if array.spec.function else 0
    rows = Successes(
        run.number, low, high, chunk.number, winner, code, chunk.leased, now, pilot.name, pilot.host, pilot.site, run.owner,
        state.next_seq, batch, at,
    )  # fmt: skip
    state.change(rows)
    if run.open:
        _announce(state, rows, pilot.owner)
    state.next_seq += count
    state.remember_range(run, low, high, winner, pilot.name)
    total = sum(batch.duration[at : at + count])
    took = total * array.spec.needs.cores
    state.accounting.tree.end(run.owner, now, 0, now, took)
    state.account(array, pilot, took, "useful", count, queued)
    tally(state, pilot, "succeeded", took, count)
    record_success(state, pilot, array, count)
    end = at + count
    output = sum(batch.out[at:end]) + sum(batch.err[at:end])
    state.learn(array, pilot, Sample(total / count, max(batch.max_rss[at:end], default=0), output // count), count)


def _announce(state: State, rows: Successes, holder: str) -> None:
    """Have followers of the run learn of each."""
    columns, count = rows.columns, rows.high - rows.low
    out = columns.out[rows.at : rows.at + count] or repeat(0, count)
    err = columns.err[rows.at : rows.at + count] or repeat(0, count)
    state.out.finals += [
        Final(rows.run, seq, ResultRow(element, "succeeded", result, "", "", rows.number, line, *sizes), holder)
        for seq, (element, _, _, _, _, line, result), *sizes in zip(
            range(rows.seq, rows.seq + count), rows.values(), out, err, strict=True
        )
    ]
