"""Load balancing when pilots are idle and nothing is ready: take back what others have not begun, and copy what is slow
[ADR 0009]. Done with each tick, not with each command: tenths of seconds do not matter here.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.engine.matching.choose_tasks import closed, is_kept_empty
from shoal.engine.matching.eligibility import eligibility_of
from shoal.engine.matching.fit_now import suits_now
from shoal.engine.matching.grant import grant_copy
from shoal.engine.matching.lease_message import lease_of
from shoal.engine.matching.prefetch import OTHERS_IDLE, ask_back, unbegun
from shoal.engine.pilots.long_poll import give_parked
from shoal.engine.records import Attempt, Pilot, Task
from shoal.engine.state import State
from shoal.model.states import Rerun
from shoal.model.task.spec import OWN, Spec
from shoal.sched.batch_size import give_up_share, is_straggler
from shoal.sched.fit import misfit
from shoal.wire.messages import ORDERS, Order

MOVE = "move"
MOVE_AGAIN = 60.0  # seconds before a pilot is asked for another task to be moved


def balance(state: State) -> None:
    """Find work for pilots that wait and have free slots."""
    if state.now < state.settle_until or closed(state):
        return
    if state.queue.has_work() and any(cls.head() is not None for cls in state.queue):
        return
    idle = [
        p for p in state.parked.values()
        if p.free.cores > 0 and not p.draining and p.is_reconciled and not is_kept_empty(p) and p.cleared_for is None
        and not p.unfit and state.ban_of(p) is None
    ]  # fmt: skip
    if not idle:
        return
    wanted = sum(pilot.free.cores for pilot in idle)
    for pilot in state.pilots.values():
        wanted -= _take_back(state, pilot, wanted) if wanted > 0 else 0
    # Found once for all idle pilots: a thousand of them must not each look at a thousand others.
    copied, moved = _slow(state)
    for pilot in idle if copied or moved else ():
        if pilot.parked is not None:
            _back_up(state, pilot, copied)
            _move(state, pilot, moved)


class _Slow(NamedTuple):
    """A straggler: since when it runs, its task and attempt, and who runs it."""

    since: float
    task: Task
    attempt: Attempt
    pilot: Pilot


def _slow(state: State) -> tuple[list[_Slow], list[_Slow]]:
    """Tasks that run for too long, the slowest first: those that may get a second copy, and those that may be moved."""
    found = []
    for pilot in state.pilots.values():
        for attempt in pilot.live.values():
            if attempt.running and not attempt.lends:
                task, since = state.task_of(attempt.id), attempt.started or attempt.leased
                if len(task.live) == 1 and is_straggler(state.now - since, state.queue.class_of(task.array).mean):
                    found.append(_Slow(since, task, attempt, pilot))
    found.sort(key=lambda slow: (slow.since, slow.task.id))
    return [slow for slow in found if _may_back_up(slow.task)], [slow for slow in found if _may_move(slow)]


def _may_back_up(task: Task) -> bool:
    """True if a second copy may run; in a run with `max_running` it would be one more that runs."""
    is_alone = task.special is not None and task.special.alone
    return task.array.bound is None and may_copy(task.array.spec) and not is_alone


def _may_move(slow: _Slow) -> bool:
    return bool(slow.task.array.spec.checkpoint) and slow.pilot.protocol >= ORDERS[MOVE]


def _take_back(state: State, pilot: Pilot, wanted: int) -> int:
    """Ask a pilot for some of what it has not begun; returns how many were asked for."""
    left = min(wanted, give_up_share(pilot.held, pilot.room.cores))
    spans = []
    for first, _, part in unbegun(state, pilot) if left > 0 else ():
        if (bound := part.array.bound) is not None and bound.left <= 0:
            continue  # nobody else may have it
        count = min(part.tasks, left)
        spans.append((first._replace(element=first.element + part.tasks - count), count))
        left -= count
    return ask_back(state, pilot, spans, OTHERS_IDLE)


def may_copy(spec: Spec) -> bool:
    """True if two copies may run at once: in the submitter's directory they would write over each other [protocol 3].
    A task with checkpoints is moved instead, since a copy would repeat what is done [GWP G10]."""
    return spec.rerun is Rerun.SAFE and (bool(spec.function) or spec.cwd == OWN) and not spec.checkpoint


def _back_up(state: State, pilot: Pilot, slow: list[_Slow]) -> None:
    """Give an idle pilot a second copy of the slowest task that it can run."""
    others = (one for one in slow if one.pilot is not pilot and len(one.task.live) == 1)
    found = next((one for one in others if _fits(state, pilot, one.task)), None)
    if found is None:
        return
    since, task, _, slow_pilot = found
    array = task.array
    attempt = grant_copy(state, array, task.element, pilot, pilot.seq)
    state.write_task(task, pilot=pilot, leased=attempt.leased)
    why = f"it runs for {state.now - since:.1f} s, others of its kind took {state.queue.class_of(array).mean or 0.0:.1f} s"
    state.emit(
        "task_backed_up",
        task=task.id,
        attempt=attempt.id.number,
        pilot=pilot,
        why=why,
        beside=slow_pilot.name,
        since=since,
    )
    give_parked(state, pilot, [lease_of(array, attempt, state.state_dir)], durable=True)  # not its first attempt


def _move(state: State, idle: Pilot, slow: list[_Slow]) -> None:
    """Have the slowest task with checkpoints go on at an idle pilot [GWP G10]: one at a time for each pilot."""
    others = (one for one in slow if one.pilot.host != idle.host and state.now >= one.pilot.asked_move + MOVE_AGAIN)
    found = next((one for one in others if len(one.task.live) == 1 and _fits(state, idle, one.task)), None)
    if found is None:
        return
    since, task, attempt, pilot = found
    pilot.asked_move = state.now
    why = f"it runs for {state.now - since:.0f} s, others of its kind were done by then, and {idle.name} is idle"
    state.order(pilot, Order(MOVE, str(attempt.id), why))
    if pilot.host not in task.differences.avoid:  # else it would go on where it was
        task.differences.avoid.append(pilot.host)
        state.avoiding[task.id] = task
        state.write_task(task, pilot=pilot, leased=attempt.leased)
    state.emit("task_moved", task=task.id, attempt=attempt.id.number, pilot=pilot, why=why)


def _fits(state: State, pilot: Pilot, task: Task) -> bool:
    """True if a pilot could run this task now."""
    array = task.array
    cls = state.queue.class_of(array)
    return (
        state.serves(pilot, array.run.owner)
        and (task.special is None or not task.special.avoids(pilot.host, pilot.site))
        and misfit(task.needs, pilot.free) is None
        and cls in eligibility_of(state, pilot, array.run.owner)
        and suits_now(state, pilot, cls)
        and state.accounting.may_start(array.run.owner, pilot.site, task.needs, 1, cls.expected, state.now) > 0
    )
