"""Rules of leasing: which ready tasks a pilot gets, each under a new attempt number (A6, A7, A8)."""

from __future__ import annotations

from shoal.engine.classes import TaskClass
from shoal.engine.records import Array, Attempt, Pilot
from shoal.engine.render import lease_of
from shoal.engine.state import State
from shoal.model.ids import AttemptId
from shoal.model.limits import MAX_LEASES
from shoal.model.quantities import many
from shoal.model.states import Rerun, TaskState, advance
from shoal.sched.match import misfit, take
from shoal.sched.size import ahead
from shoal.wire.messages import Lease


def closed(state: State) -> str:
    """Why nothing is matched at all just now; empty if matching is open."""
    if state.unheard and state.now < state.quarantine_until:
        left, count = state.quarantine_until - state.now, many(len(state.unheard), "pilot")
        return f"the server restarted and waits up to {left:.0f} s for {count} to say what they run"
    return ""


def fill(state: State, pilot: Pilot, reply_seq: int) -> tuple[list[Lease], bool]:
    """Lease to a pilot what fits into it now; and whether the leases must be durable before they are sent."""
    if pilot.draining or closed(state) or not pilot.heard:
        return [], False
    leases: list[Lease] = []
    durable = False
    spare: dict[int, int] = {}  # class -> tasks that may still be fetched ahead
    slots = state.all_slots()

    def fits(cls: TaskClass) -> bool:
        if not state.serves(pilot, cls.key[0]) or misfit(cls.needs, pilot.room) is not None:
            return False
        if misfit(cls.needs, pilot.free) is None:
            return True
        if cls.key[3] != Rerun.SAFE.value:
            return False  # exclusive and never: only into a free slot, the lease is the start
        if id(cls) not in spare:
            held = len(pilot.live) - pilot.room.cores
            most = ahead(cls.mean, pilot.room.cores, cls.ready(10 * MAX_LEASES), slots)
            spare[id(cls)] = most - max(0, held)
        return spare[id(cls)] > 0

    for cls in state.queue.in_order(fits):
        array = cls.head()
        assert array is not None  # in_order only gives classes with a head
        if misfit(cls.needs, pilot.free) is not None:
            spare[id(cls)] -= 1
        attempt = grant(state, array, array.todo.first(), pilot, reply_seq)
        leases.append(lease_of(array, attempt, state.state_dir))
        # A child's start shows its parents' results to the world: they must be durable first.
        durable = durable or array.spec.rerun is not Rerun.SAFE or bool(array.spec.after)
        if len(leases) >= MAX_LEASES:
            break
    if leases:
        for owner, attempts in state.by_owner([lease.attempt for lease in leases]).items():
            state.emit("tasks_leased", pilot=pilot, owner=owner, attempts=attempts)
    return leases, durable


def grant(state: State, array: Array, element: int, pilot: Pilot, reply_seq: int) -> Attempt:
    """Raise the attempt number and give the element to a pilot."""
    task = state.task_at(array, element)
    task.number += 1
    attempt = Attempt(
        AttemptId(array.run.number, element, task.number, state.incarnation), pilot.name, state.now, reply_seq=reply_seq
    )
    array.todo.remove(element)
    array.count_live(1)
    attach(state, array, attempt, pilot)
    advance(task, TaskState.LEASED)
    state.write_task(task, pilot=pilot, leased=state.now)
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
