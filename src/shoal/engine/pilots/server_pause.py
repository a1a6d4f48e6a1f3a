"""Time in which the server itself did not run (frozen, asleep, stalled) counts against nobody [protocol 5.7].

Deadlines are only extended here. That is always safe: a pilot ends an `exclusive` task by its own clock, so the server may
lease it again later than it must, never sooner.
"""

from __future__ import annotations

from shoal.engine.commands import Resume
from shoal.engine.state import State


def resume(state: State, command: Resume) -> None:
    """Continue after a gap. A short one is added to every deadline. One longer than a beat is like a restart: messages
    were lost, so each pilot gets a whole lease, and orphaned attempts at least one."""
    gap, timing = command.gap, state.timing
    is_long = gap > timing.beat
    for pilot in state.pilots.values():
        pilot.seen = state.now if is_long else min(state.now, pilot.seen + gap)
        if is_long:
            pilot.suspect = False  # the server could not receive anything
    for attempt, task in state.orphans.items():
        live = task.live[attempt]
        if live.orphaned is not None:
            live.orphaned = max(live.orphaned + gap, state.now + timing.lease if is_long else 0.0)
    if state.unreconciled:
        state.quarantine_until = max(state.quarantine_until + gap, state.now + timing.quarantine if is_long else 0.0)
    for run in state.runs.values():
        run.last_poll = state.now if is_long else min(state.now, run.last_poll + gap)
        if run.growth is not None:
            run.growth.since = min(state.now, run.growth.since + gap)
    # Before the next exchanges it is not known which tasks still run: a finished one must not be copied.
    state.settle_until = state.now + min(gap, timing.beat)
    if is_long:
        state.emit("server_resumed", seconds=round(gap, 3))
