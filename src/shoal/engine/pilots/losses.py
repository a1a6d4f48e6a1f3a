"""How pilots end: drained, silent, lost, known dead; and what becomes of what they held [promise R1-R5; DIANE U4]."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.engine.commands import Bury, Drain, Expel
from shoal.engine.ended_pilot import EndedPilot
from shoal.engine.matching.chunks import carve_all
from shoal.engine.matching.classes import is_open
from shoal.engine.matching.eligibility import eligibility_of
from shoal.engine.matching.fit_now import too_short
from shoal.engine.pilots import mesh
from shoal.engine.pilots.hosts import tally
from shoal.engine.pilots.long_poll import end_order, unpark
from shoal.engine.records import Attempt, Pilot, Task
from shoal.engine.state import State
from shoal.engine.tasks.runs import after_final, finish_without_report
from shoal.engine.windows import tickets
from shoal.engine.windows import window as windows
from shoal.model.credentials import digest
from shoal.model.ids import AttemptId
from shoal.model.limits import GONE_KEPT, MOST_LOSSES, POISON_LOSSES
from shoal.model.states import Cause, PilotState, Rerun, TaskState, advance, advance_pilot


def drain(state: State, command: Drain) -> dict[str, int]:
    """Ask pilots to take nothing new and end when they are done, or within a time."""
    count = 0
    until = state.now + command.within if command.within is not None else None
    for name in command.pilots:
        pilot = state.pilots.get(name)
        if pilot is None:
            continue
        is_sooner = until is not None and (pilot.ends is None or until < pilot.ends)
        if pilot.draining and not is_sooner and not (command.stop and not pilot.is_stopped):
            continue
        pilot.ends = until if is_sooner else pilot.ends
        pilot.is_stopped = pilot.is_stopped or command.stop
        if pilot.draining:  # it was ordered to leave, and does not hear of it again by itself
            state.order(pilot, end_order(state, pilot))
            state.write_pilot(pilot)
        else:
            set_draining(state, pilot, command.why)
        count += 1
    return {"pilots": count}


def set_draining(state: State, pilot: Pilot, why: str) -> None:
    pilot.draining = pilot.reason = why
    state.count_slots(pilot, -1)
    state.with_orders[pilot.name] = pilot
    advance_pilot(pilot, PilotState.DRAINING)
    state.write_pilot(pilot)
    state.emit("pilot_draining", pilot=pilot, why=why)


def bury(state: State, command: Bury) -> None:
    """Give up a pilot that is known to be dead."""
    pilot = state.pilots.get(command.pilot)
    if pilot is not None:
        lose(state, pilot, command.why)


def expel(state: State, command: Expel) -> dict[str, int]:
    """Give up pilots whose token was revoked; their next exchange is refused [security S17]."""
    tokens = set(command.tokens)
    found = [pilot for pilot in state.pilots.values() if pilot.token in tokens]
    for pilot in found:
        pilot.revoked = True
        lose(state, pilot, command.why, counts=False)
    for gone in state.gone.values():
        gone.revoked = gone.revoked or gone.token in tokens
    for site, holder, token in command.tickets:
        tickets.bar(state, (site, holder), token)
    return {"pilots": len(found)}


def watch(state: State) -> None:
    """Apply deadlines: answer parked exchanges, suspect and lose silent pilots, end the rights of orphans."""
    t = state.timing
    if state.unreconciled and state.now >= state.quarantine_until:
        state.unreconciled.clear()
    for pilot in list(state.pilots.values()):
        if pilot.parked is not None and state.now >= pilot.parked_until:
            unpark(state, pilot)
        silent = state.now - pilot.seen
        if silent > t.lease:
            windows.note_silent(state, pilot)
            lose(state, pilot, f"silent for {silent:.0f} s")
        elif silent > t.suspect and not pilot.suspect:
            pilot.suspect = True
            state.emit("pilot_suspect", pilot=pilot, since=pilot.seen)
    for attempt, task in list(state.orphans.items()):
        right = task.live[attempt].orphaned if attempt in state.orphans else None
        if right is not None and state.now >= right:
            _end_orphan(state, task, attempt)


def seen_dead(state: State, pilot: Pilot, sessions: Sequence[str]) -> list[Pilot]:
    """Pilots that another pilot of their host found dead, since it could take the lock that they hold while they live. It
    is trusted about pilots of its own holder on the host that it reports, so that a lie harms its own group only. Sessions
    are named by their aliases, or by their digests, as older pilots do."""
    if not sessions:
        return []
    others = [one for one in state.pilots.values() if one.holder == pilot.holder and one.identity == pilot.identity]
    named = {session: one for one in others for session in (one.session, digest(one.session))}
    found = [named[session] for session in dict.fromkeys(sessions) if session in named]
    return [dead for dead in found if dead is not pilot]


def lose(state: State, pilot: Pilot, why: str, counts: bool = True) -> None:
    """A pilot is given up. Safe tasks are ready again; the others keep their right to run until its hold ends
    [promise R4].

    `counts`: it may have been one of its tasks that ended it. Which of them had begun is not known, since a task that
    kills its pilot at once does so before any report: each one that it held is suspected [promise I11].
    """
    windows.note_lost(state, pilot)
    carve_all(state, pilot.chunks.values())
    is_alone = len(pilot.live) == 1
    for attempt in list(pilot.live.values()):
        if attempt.id not in pilot.live:
            continue  # the loss of one before it was one failure too many, and cancelled this one
        task = state.task_of(attempt.id)
        if task.array.spec.rerun is Rerun.SAFE:
            _lose_attempt(state, pilot, task, attempt, counts, is_alone)
        else:
            state.lend(task.array, attempt, pilot, False)
            attempt.was_alone, attempt.is_suspect = is_alone, counts
            attempt.orphaned = pilot.seen + state.timing.hold + state.timing.margin
            state.orphans[attempt.id] = task
            state.emit(
                "task_lost_pilot",
                task=task.id,
                attempt=attempt.id.number,
                pilot=pilot,
                next="waits for its hold to end",
                seconds=_ran(state, attempt),
            )
    end(state, pilot, why)


def _lose_attempt(state: State, pilot: Pilot, task: Task, attempt: Attempt, counts: bool, is_alone: bool) -> None:
    ran = _ran(state, attempt)
    if attempt.running:
        attempt.took = ran * attempt.needs.cores
        state.account(task.array, pilot, attempt.took, "lost")
    state.drop_attempt(task, attempt.id)
    task.past[attempt.id] = pilot.name
    if counts:
        _count_loss(state, task, attempt)
    tally(state, pilot, "lost")
    if task.live:
        state.write_task(task)
    elif counts and _is_poison(task, is_alone):
        _poison(state, task)
    else:
        task.note = f"pilot {pilot.name} on {pilot.host} was lost"
        state.back_to_ready(task)
        state.emit(
            "task_lost_pilot",
            task=task.id,
            attempt=attempt.id.number,
            pilot=pilot,
            losses=task.losses,
            next="ready again",
            seconds=ran,
        )


def _ran(state: State, attempt: Attempt) -> float:
    """Seconds for which an attempt is known to have run, up to now."""
    return state.now - (attempt.started or attempt.leased) if attempt.running else 0.0


def _count_loss(state: State, task: Task, attempt: Attempt) -> None:
    """Count a pilot that was lost with this task. Before it is called poison it is tried alone, so that tasks leased
    together with the culprit are not taken for it."""
    task.losses += 1
    task.lost_on.append(attempt.pilot)
    if task.losses >= POISON_LOSSES - 1:
        task.differences.alone = True
        state.suspects[task.id] = task


def _is_poison(task: Task, is_alone: bool) -> bool:
    return task.losses >= (POISON_LOSSES if is_alone else MOST_LOSSES)


def clear_pilots(state: State) -> None:
    """Have a pilot become empty for a task that must be alone; one at a time for each owner."""
    waiting: dict[str, Task] = {}
    for key, task in list(state.suspects.items()):
        array = task.array
        if array.tasks.get(task.element) is not task:
            del state.suspects[key]  # it is final
        elif task.element in array.apart and is_open(array):
            waiting.setdefault(array.run.owner, task)
    served = set()
    for pilot in state.pilots.values():
        if pilot.cleared_for is None:
            continue
        suspect = state.suspects.get(pilot.cleared_for)
        if suspect is None or suspect.element not in suspect.array.apart or not _may_clear(state, pilot, suspect):
            pilot.cleared_for = None
        else:
            served.add(suspect.array.run.owner)
    for owner, task in waiting.items():
        if owner in served:
            continue
        able = [p for p in state.pilots.values() if p.cleared_for is None and _may_clear(state, p, task)]
        if able:
            min(able, key=lambda p: (p.held, p.name)).cleared_for = task.id


def _may_clear(state: State, pilot: Pilot, task: Task) -> bool:
    """True if the pilot could run this task if it were empty."""
    owner = task.array.run.owner
    cls = state.queue.class_of(task.array, task.element)
    return (
        not (pilot.draining or pilot.unfit or pilot.suspect)
        and pilot.is_reconciled
        and pilot.lone is None
        and not pilot.lending  # it may never be empty without what its tasks wait for
        and state.serves(pilot, owner)
        and cls in eligibility_of(state, pilot, owner)
        and state.ban_of(pilot) is None
        and not too_short(state, pilot, cls)
        and state.accounting.may_start(owner, pilot.site, task.needs, 1, cls.expected, state.now) > 0
    )


def _poison(state: State, task: Task) -> None:
    """Three pilots died under it: it stops here, before it takes more [promise I11]."""
    names = ", ".join(task.lost_on) or "see its events"
    if task.state is TaskState.LEASED:
        advance(task, TaskState.RUNNING)  # it had begun, though it was never reported
    finish_without_report(
        state, task, TaskState.FAILED, Cause.POISON, f"{task.losses} pilots were lost that held it: {names}"
    )
    after_final(state, task.array, TaskState.FAILED)


def _end_orphan(state: State, task: Task, attempt: AttemptId) -> None:
    lost = task.live[attempt]
    if lost.is_suspect:
        _count_loss(state, task, lost)
    state.drop_attempt(task, attempt)
    task.note = "its pilot was lost"
    if task.array.spec.rerun is Rerun.NEVER:
        if task.state is TaskState.LEASED:
            advance(task, TaskState.RUNNING)  # the lease was the start
        finish_without_report(state, task, TaskState.LOST, Cause.PILOT_LOST, task.note)
        after_final(state, task.array, TaskState.LOST)
    elif lost.is_suspect and _is_poison(task, lost.was_alone):
        _poison(state, task)
    else:
        # By now the guard beside the payload has killed it, or the host is gone: no second copy can live.
        state.back_to_ready(task)
        state.emit("task_lost_pilot", task=task.id, attempt=attempt.number, next="ready again")


def end(state: State, pilot: Pilot, why: str) -> None:
    """Remove a pilot; its name is not used again."""
    unpark(state, pilot)
    state.with_orders.pop(pilot.name, None)
    if not pilot.draining:
        state.count_slots(pilot, -1)
    pilot.reason = why
    advance_pilot(pilot, PilotState.GONE)
    del state.pilots[pilot.name]
    state.sessions.pop(pilot.session, None)
    state.data.forget_pilot(pilot)
    state.gone[pilot.name] = EndedPilot(
        pilot.session, pilot.former, pilot.holder, pilot.token, state.now, why, pilot.revoked, pilot.bound,
        host=pilot.host, identity=pilot.identity, site=pilot.site,
    )  # fmt: skip
    while len(state.gone) > GONE_KEPT:
        state.gone.popitem(last=False)
    mesh.leave(state, pilot)
    state.unreconciled.discard(pilot.name)
    state.write_pilot(pilot)
    state.emit("pilot_gone", pilot=pilot, reason=why)
