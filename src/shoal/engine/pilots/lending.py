"""Attempts that wait for other tasks lend their cores [ADR 0025].

A pilot lists them in each exchange, so that a lost message heals with the next one. Memory, disk, GPUs and licences stay
taken: a task that waits keeps them in use.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.engine.matching.chunks import carve
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.ids import parse_attempt


def note_waiting(state: State, pilot: Pilot, waits: Sequence[str]) -> None:
    """Take in which attempts of a pilot wait; all others of it do not."""
    if not waits and not pilot.lending:
        return
    waiting = {parse_attempt(name) for name in waits}
    for attempt in waiting:
        chunk = pilot.chunk_of(attempt)
        if chunk is not None:
            carve(state, chunk, attempt.element)
    for attempt, live in pilot.live.items():
        state.lend(state.task_of(attempt).array, live, pilot, attempt in waiting)
