"""Divisible work: a piece is cut for a pilot when it is leased to it, sized by what was measured of all pilots [ADR 0043].

A piece is an array of one element. What is not cut yet is such an array, too, the rest, and is ready: so at any time every
unit is in exactly one task, and a run is over when all its tasks are. Rows of a piece, of the rest behind it and of the
attempt are one transaction, and the lease is sent when that is durable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.engine.changes import ArrayTable
from shoal.engine.matching.classes import Sample
from shoal.engine.matching.pilot_attributes import time_left
from shoal.engine.records import Array, Pilot, Run
from shoal.engine.state import State
from shoal.model.ids import TaskId
from shoal.model.rangeset import RangeSet
from shoal.model.task.spec import Spec
from shoal.sched.size import Sizes, Slot, next_piece
from shoal.wire.messages import Report

FEW_PIECES = 64  # live ones, of which it is looked anew with each cut when they will end; of more
LOOK_AGAIN = 1.0  # only after so many seconds
SAFE_PART = 0.5  # of the time that a piece may take: units are not all equally long


class Work:
    """The pieces of one table, and what was measured of the pilots that did them. In memory only: after a restart the first
    piece of each pilot is small again."""

    __slots__ = ("_looked", "_slots", "done", "rests", "sizes", "table", "units")

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = dict(table)  # its task fields as they were written
        self.sizes = Sizes()
        self.rests: dict[int, Array] = {}  # by first element: those of which pieces are cut
        self.units = self.done = 0  # of all its tasks, and of those that succeeded
        self._slots: list[Slot] = []
        self._looked = float("-inf")

    def text(self, array: Array) -> str:
        """The table of one of its arrays, as JSON."""
        assert array.spec.units is not None
        return json.dumps({**self.table, "units": array.spec.units.table()})

    def left(self) -> int:
        """How many units are ready and in no piece yet."""
        return sum(rest.spec.units.size for rest in self.rests.values() if rest.spec.units is not None and rest.todo)

    def slots(self, state: State, run: Run) -> list[Slot]:
        """The slots that work on its pieces now, and when they will be free."""
        if len(self._slots) <= FEW_PIECES or state.now >= self._looked + LOOK_AGAIN:
            self._looked, self._slots = state.now, list(self._live(state, run))
        return self._slots

    def _live(self, state: State, run: Run) -> Iterator[Slot]:
        for pilot in state.pilots.values():
            live = [attempt for attempt in pilot.live.values() if attempt.id.run == run.number]
            speed = self.sizes.speed(pilot.name) if live else None
            for attempt in live:
                array = run.array_of(attempt.id.element)
                if speed is not None and array is not None and array.spec.units is not None and work_of(array) is self:
                    yield Slot(speed, max(0.0, speed.seconds(array.spec.units.size) - (state.now - attempt.leased)))


def enter_work(array: Array, table: Mapping[str, Any]) -> None:
    """An array with units was laid out or restored: it is of the work of its name."""
    units, run = array.spec.units, array.run
    if units is None:
        return
    if not run.works:
        run.works = {}
    work = run.works.setdefault(array.spec.name, Work(table))
    work.units += units.size
    if not units.is_cut:
        work.rests[array.first] = array
        work.table = dict(
            table
        )  # what a person changed since is in the tables of what is open, not of pieces that are over


def work_of(array: Array) -> Work:
    """The work that an array with units is of."""
    return array.run.works[array.spec.name]


def cut(state: State, array: Array, pilot: Pilot) -> None:
    """Make the rest of a work a piece for a pilot, before it is leased; what the pilot does not get is the rest from now
    on, a task of its own at the end of the run."""
    units, run, work = array.spec.units, array.run, work_of(array)
    assert units is not None and not units.is_cut
    if len(work.sizes) > 2 * len(state.pilots) + FEW_PIECES:
        work.sizes.forget(state.pilots)
    speed, slots = work.sizes.speed(pilot.name), work.slots(state, run)
    wanted = next_piece(work.left(), speed, slots, max(1, state.slots), _most_seconds(state, array, pilot))
    piece, rest = units.take(min(wanted, units.size))
    array.spec = _with_units(array.spec, piece)
    for task in array.tasks.values():
        task.set_own()
    del work.rests[array.first]
    state.change(ArrayTable(run.number, array.first, work.text(array)))
    if rest.size:
        _add_rest(state, array, _with_units(array.spec, rest))
    state.emit("piece_cut", task=TaskId(run.number, array.first), pilot=pilot, first=piece.first, units=piece.size)


def _most_seconds(state: State, array: Array, pilot: Pilot) -> float:
    """How long a piece may take: within its time limit, and before its pilot ends."""
    limit = array.spec.time if array.spec.time is not None else math.inf
    left = time_left(state, pilot) if pilot.ends is not None else math.inf
    return SAFE_PART * min(limit, left)


def _with_units(spec: Spec, units: Any) -> Spec:
    return Spec.given({**vars(spec), "units": units})


def _add_rest(state: State, array: Array, spec: Spec) -> None:
    """Append the rest as a task that is as ready as the piece before it; who waits for that waits for this, too."""
    run, work, first = array.run, work_of(array), array.run.total + 1
    rest = Array(run, first, 1, spec, RangeSet.span(first, first + 1), since=array.since)
    rest.cls, rest.accepted = array.cls, array.accepted
    run.arrays.append(rest)
    run.firsts.append(first)
    run.total += 1
    work.rests[first] = rest
    for child in array.children:
        rest.add_child(child)
        if array.first in child.unmet:
            child.unmet = {*child.unmet, first}
    state.accounting.ledger.queued(run.owner, 1)
    state.write_array(rest, work.text(rest))
    state.write_run(run)
    state.queue.offer(rest)


def learn_piece(state: State, array: Array, pilot: Pilot, report: Report) -> None:
    """A pilot did a piece. How fast it is among others is not told by that: pieces are made to take equally long."""
    assert array.spec.units is not None
    state.queue.class_of(array).learn(Sample(report.duration, report.max_rss, report.out + report.err))
    work_of(array).sizes.learn(pilot.name, array.spec.units.size, report.duration, report.staging)


def check_work(run: Run) -> list[str]:
    """What does not add up in a run's divisible work: as many units as there were, and none in two tasks."""
    wrong: list[str] = []
    for name, work in run.works.items():
        parts = [(array, array.spec.units) for array in run.arrays if array.spec.units and array.spec.name == name]
        reach = 0
        for first, count, _ in sorted(units for _, units in parts):
            if first < reach:
                wrong.append(f"r{run.number} {name}: unit {first} is in two tasks")
            reach = first + count
        if sum(units.size for _, units in parts) != work.units:
            wrong.append(f"r{run.number} {name}: {work.units} units counted")
        if sum(units.size for array, units in parts if array.complete) != work.done:
            wrong.append(f"r{run.number} {name}: {work.done} units counted as done")
        if {array.first for array, units in parts if not units.is_cut} != set(work.rests):
            wrong.append(f"r{run.number} {name}: other rests are known than there are")
    return wrong
