"""Rules of pilots: taking them in, their exchanges, their silence and their end [contract 5, promises B0, U4, G1, G14]."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from shoal.engine.changes import Answer
from shoal.engine.commands import Enrol
from shoal.engine.leasing import attach, fill
from shoal.engine.losses import end, set_draining
from shoal.engine.parking import answer, unpark
from shoal.engine.records import Attempt, Pilot, Task
from shoal.engine.render import lease_of
from shoal.engine.reports import check, judge, stopped
from shoal.engine.state import State
from shoal.model.errors import BadInput, Conflict
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.limits import (
    MAX_BYTES,
    MAX_CORES,
    MAX_HELD,
    MAX_LEASES,
    MAX_REPORTS,
    MAX_TAG_BYTES,
    MAX_TAGS,
)
from shoal.model.states import PilotState, Rerun, TaskState, advance, advance_pilot
from shoal.wire.messages import PROTOCOL, Exchange, Held, Lease, Order, Registered, Reply, Verdict


def digest(secret: str) -> str:
    """What is kept of a session's secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def enrol(state: State, command: Enrol) -> Registered:
    """Take a pilot in, or note why its host is unfit [C1]."""
    said = command.register
    if not PROTOCOL - 1 <= said.protocol <= PROTOCOL:
        raise BadInput(
            f"protocol {said.protocol} is not spoken here", code="protocol", hint=f"this server speaks {PROTOCOL}"
        )
    _check_tags(said.tags)
    room = said.room
    if not (1 <= room.cores <= MAX_CORES and 0 <= room.gpus <= MAX_CORES) or not (
        0 <= room.memory <= MAX_BYTES and 0 <= room.disk <= MAX_BYTES
    ):
        raise BadInput(
            "that is no host", code="range", field="room", hint=f"cores from 1 to {MAX_CORES}, nothing below 0"
        )
    name = f"p{state.rng.getrandbits(24):06x}"
    while name in state.pilots:
        name = f"p{state.rng.getrandbits(24):06x}"
    secret = f"{state.rng.getrandbits(256):064x}"
    pilot = Pilot(
        name, PilotState.QUEUED, command.owner, command.site, said.host, said.identity, digest(secret), said.room,
        said.version, dict(said.tags), state.now, state.now, said.room,
    )  # fmt: skip
    if said.unfit:
        pilot.reason = "host_unfit: " + "; ".join(said.unfit)
        advance_pilot(pilot, PilotState.GONE)
        state.write_pilot(pilot)
        state.emit("pilot_unfit", pilot=pilot, reasons=said.unfit, host=said.host)
        return _registered(state, pilot, secret)
    advance_pilot(pilot, PilotState.IDLE)
    state.pilots[name] = pilot
    former = state.pilots.get(said.former.pilot) if said.former is not None else None
    if said.former is not None:
        pilot.heard = False  # its held list comes first: it may still run what it had
        pilot.former = [said.former.pilot, *(former.former if former is not None else [])][:16]
        if former is not None:
            _inherit(state, former, pilot, said.former.session)
    state.write_pilot(pilot)
    state.emit(
        "pilot_joined", pilot=pilot, host=said.host, cores=said.room.cores, memory=said.room.memory, former=pilot.former
    )
    return _registered(state, pilot, secret)


def _registered(state: State, pilot: Pilot, secret: str) -> Registered:
    t = state.timing
    return Registered(
        pilot.name, secret, state.incarnation, t.beat, t.lease, t.hold, t.kill_after, t.grace, t.idle_end, t.spool_end
    )


def _inherit(state: State, former: Pilot, pilot: Pilot, session: str) -> None:
    """A pilot enrols again while its old name still stands: what it held moves to the new one."""
    if former.session != digest(session):
        pilot.former = []
        return
    for attempt in list(former.live.values()):
        _move(state, attempt, former, pilot)
    end(state, former, f"enrolled again as {pilot.name}")


def _move(state: State, attempt: Attempt, old: Pilot, new: Pilot) -> None:
    array = state.task_of(attempt.id).array
    del old.live[attempt.id]
    attempt.reply_seq = 0
    attach(state, array, attempt, new)
    state.write_task(array.tasks[attempt.id.element], pilot=new, leased=attempt.leased)


def _check_tags(tags: Mapping[str, object]) -> None:
    if len(tags) > MAX_TAGS or sum(len(k) + len(str(v)) for k, v in tags.items()) > MAX_TAGS * MAX_TAG_BYTES:
        raise BadInput("too many tags", code="too_large", field="tags", hint=f"at most {MAX_TAGS}")


# --- the one exchange
def talk(state: State, exchange: Exchange) -> None:
    """Take an exchange in and answer it, now or when there is news; every operation is checked first [G14]."""
    pilot = state.pilots.get(exchange.pilot)
    if pilot is None or pilot.session != digest(exchange.session):
        raise Conflict("this server does not know you (any more)", code="re_enrol", hint="register again")
    if not PROTOCOL - 1 <= exchange.protocol <= PROTOCOL:
        raise BadInput(f"protocol {exchange.protocol} is not spoken here", code="protocol")
    _check_exchange(exchange)
    tags = {**pilot.tags, **exchange.tags}
    _check_tags(tags)
    pilot.seen = state.now
    pilot.suspect = False
    if exchange.seq in pilot.replies:
        state.out.answers.append(Answer(pilot.name, exchange.seq, pilot.replies[exchange.seq], True))
        return
    if exchange.seq == pilot.parked:
        return  # the same again while it waits: whoever asked last gets the answer
    if exchange.seq < pilot.seq:
        _overtaken(state, pilot, exchange)
        return
    unpark(state, pilot)
    pilot.seq = exchange.seq
    pilot.tags = tags
    pilot.leaving = bool(exchange.leaving)
    if exchange.leaving and not pilot.draining:
        set_draining(state, pilot, exchange.leaving)
    verdicts = [Verdict(r.attempt, judge(state, pilot, r)) for r in exchange.reports]
    lacking = _compare(state, pilot, exchange)
    _hear(state, pilot)
    leases, durable = fill(state, pilot, exchange.seq) if not lacking else ([], False)
    answer(state, pilot, exchange.seq, [*lacking, *leases], verdicts, durable or bool(lacking))
    if exchange.leaving and not pilot.live and not exchange.held and pilot.state is not PilotState.GONE:
        end(state, pilot, exchange.leaving)


def _check_exchange(exchange: Exchange) -> None:
    if exchange.seq < 1 or len(exchange.held) > MAX_HELD or len(exchange.reports) > MAX_REPORTS:
        raise BadInput(
            "the exchange is out of bounds", code="range", hint=f"at most {MAX_HELD} held, {MAX_REPORTS} reports"
        )
    for report in exchange.reports:
        check(report)
    for held in exchange.held:
        parse_attempt(held.attempt)


def _overtaken(state: State, pilot: Pilot, exchange: Exchange) -> None:
    """A newer exchange came first. Its reports ride on this one only, so they are taken; all else is outdated."""
    if exchange.seq < pilot.seq - 1:
        raise Conflict(f"exchange {exchange.seq} is older than the last two", code="replay")
    verdicts = [Verdict(r.attempt, judge(state, pilot, r)) for r in exchange.reports]
    reply = Reply(exchange.seq, state.incarnation, verdicts=verdicts, hold=state.timing.beat)
    state.out.answers.append(Answer(pilot.name, exchange.seq, reply, True))


def _compare(state: State, pilot: Pilot, exchange: Exchange) -> list[Lease]:
    """Compare what the pilot holds with what it should: adopt, stop, and send again what it never got."""
    held = {parse_attempt(h.attempt): h for h in exchange.held}
    begun = []
    for attempt, item in held.items():
        if item.stage != "done" and _holds(state, pilot, attempt, item):
            begun.append(str(attempt))
    if begun:
        state.emit("tasks_started", pilot=pilot, attempts=begun)
    for attempt, (_, live) in list(state.dying.items()):
        # Not held proves death only if the pilot has seen the reply that carried the lease.
        mine = live.pilot == pilot.name or live.pilot in pilot.former
        if mine and exchange.ack >= live.reply_seq and (attempt not in held or held[attempt].stage == "done"):
            stopped(state, attempt)
    reported = {parse_attempt(r.attempt) for r in exchange.reports}
    lacking: list[Lease] = []
    for attempt, live in pilot.live.items():
        # A reply still under way is not lost: only one that the pilot saw, or that is two exchanges old, is.
        unseen = live.reply_seq and exchange.ack < live.reply_seq and exchange.seq - live.reply_seq < 2
        if attempt not in held and attempt not in reported and not unseen and len(lacking) < MAX_LEASES:
            live.reply_seq = exchange.seq
            lacking.append(lease_of(state.task_of(attempt).array, live, state.state_dir))
    return lacking


def _holds(state: State, pilot: Pilot, attempt: AttemptId, item: Held) -> bool:
    """The pilot holds an attempt. Is it right to? Returns whether it is newly known to have begun."""
    run = state.runs.get(attempt.run)
    array = run.array_of(attempt.element) if run is not None else None
    if array is None or attempt.element in array.done:
        pilot.orders.append(Order("cancel", str(attempt), "the task is final"))
        return False
    task = state.task_at(array, attempt.element)
    live = task.live.get(attempt)
    if live is None:
        live = _readopt(state, pilot, task, attempt, item)
        if live is None:
            pilot.orders.append(Order("cancel", str(attempt), "another attempt has the right to run"))
            return False
    elif live.pilot != pilot.name:
        if live.pilot not in pilot.former:
            pilot.orders.append(Order("cancel", str(attempt), "it is leased to another pilot"))
            return False
        attach(state, array, live, pilot)  # its pilot was given up, and came back under a new name in time
        state.emit("task_adopted", task=task.id, attempt=attempt.number, pilot=pilot, how="pilot came back")
        state.write_task(task, pilot=pilot, leased=live.leased)
    if item.stage != "running" or live.running:
        return False
    live.running, live.started = True, state.now
    if task.state is TaskState.LEASED:
        advance(task, TaskState.RUNNING)
    state.write_task(task, pilot=pilot, leased=live.leased)
    return True


def _readopt(state: State, pilot: Pilot, task: Task, attempt: AttemptId, item: Held) -> Attempt | None:
    """A living copy that the server had given up, or leased in the uncommitted gap of its last life (A7)."""
    array = task.array
    if array.spec.rerun is not Rerun.SAFE or attempt.incarnation > state.incarnation or array.waiting:
        return None
    unwritten = attempt.incarnation < state.incarnation and attempt.number > task.number
    if not unwritten and attempt not in task.past:
        return None  # it ended, and its end is on record
    if task.live and item.stage != "running":
        return None  # a copy that has not begun is worth nothing beside one that is under way
    live = Attempt(attempt, pilot.name, state.now)
    former = task.past.pop(attempt, None)
    if former is not None and item.stage == "running":
        task.losses = max(0, task.losses - 1)  # nothing died: it was only out of sight
        task.lost_on = [name for name in task.lost_on if name != former]
    task.number = max(task.number, attempt.number)
    if not task.live:
        array.todo.remove(task.element)
        array.count_live(1)
        advance(task, TaskState.LEASED)
    attach(state, array, live, pilot)
    state.emit("task_adopted", task=task.id, attempt=attempt.number, pilot=pilot, how="living copy")
    state.write_task(task, pilot=pilot, leased=live.leased)
    return live


def _hear(state: State, pilot: Pilot) -> None:
    """The pilot has said what it holds; the last one to do so after a restart ends the quarantine."""
    pilot.heard = True
    if pilot.name in state.unheard or any(name in state.unheard for name in pilot.former):
        state.unheard -= {pilot.name, *pilot.former}
