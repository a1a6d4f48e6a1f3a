"""Reconciliation of what a pilot holds with what it should: adopt, stop, and send again what it never got
[protocol 5; promise R1-R5]."""

from __future__ import annotations

from shoal.engine.matching.chunks import carve
from shoal.engine.matching.grant import attach
from shoal.engine.matching.lease_message import lease_of, lease_of_chunk
from shoal.engine.records import MESH, Array, Attempt, Chunk, Pilot, Task
from shoal.engine.state import State
from shoal.engine.tasks.reports import (
    BEHIND,
    array_of,
    begin_windowed,
    give_up,
    holder_of,
    stopped,
    take_from,
    task_of,
    was_given,
)
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.limits import MAX_HELD, MAX_LEASES, POISON_LOSSES
from shoal.model.rangeset import RangeSet
from shoal.model.states import Rerun, TaskState, advance
from shoal.wire.chunk import shift
from shoal.wire.messages import Exchange, Held, Lease, Order

SAY_AGAIN = 2.0  # seconds after which an order to stop is repeated
UNCERTAIN = "this host does not let the pilot end its tasks for certain if pilot and guard are killed together"
MAX_RESENT = 5  # times that a lease is sent again to a pilot that neither holds nor reports it
Covered = dict[AttemptId, RangeSet]  # an attempt, as if on element 0 -> elements


def compare(state: State, pilot: Pilot, exchange: Exchange, is_stale: bool = False) -> list[Lease]:
    """Compare what the pilot holds with what it should: adopt, stop, and send again what it never got. `is_stale`: the
    held list may be older than its last leases, so that nothing follows from what is missing in it."""
    held, covered = _hold_list(pilot, exchange)
    if pilot.stopping:
        pilot.stopping = {name: at for name, at in pilot.stopping.items() if state.now < at + SAY_AGAIN}
    begun = []
    for attempt, item in held.items():
        if item.stage != "done" and not _is_chunked(pilot, attempt, item) and _holds(state, pilot, attempt, item):
            begun.append(str(attempt))
    for owner, attempts in state.by_owner(begun).items():
        state.emit("tasks_started", pilot=pilot, owner=owner, attempts=attempts)
    if pilot.tags.get("certain_end") is not True:
        _tell_uncertain(state, pilot, begun)
    if is_stale:
        return []
    for attempt, (_, live) in list(state.dying.items()):
        # Not held proves death only if the pilot has seen the reply that carried the lease.
        if (
            live.pilot in pilot.names
            and exchange.ack >= live.reply_seq
            and (attempt not in held or held[attempt].stage == "done")
        ):
            stopped(state, attempt)
    reported = {parse_attempt(r.attempt) for r in exchange.reports}
    lacking: list[Lease] = []
    for attempt, live in list(pilot.live.items()):
        # A reply in flight is not lost: only one that the pilot acknowledged, or that is two exchanges old, is.
        unseen = live.reply_seq and exchange.ack < live.reply_seq and exchange.seq - live.reply_seq < 2
        is_here = attempt in held or attempt in reported or attempt.element in covered.get(_whose(attempt), ())
        if is_here or unseen:
            continue
        if state.task_of(attempt).array.unmet:
            take_from(state, pilot, live, BEHIND)
        elif live.resent >= MAX_RESENT and exchange.ack >= live.reply_seq:
            give_up(state, pilot, live, f"its pilot was sent it {live.resent} times and neither runs nor returns it")
        elif len(lacking) < MAX_LEASES:
            live.reply_seq, live.resent = exchange.seq, live.resent + 1
            lacking.append(lease_of(state.task_of(attempt).array, live, state.state_dir))
    for chunk in list(pilot.chunks.values()):
        unseen = chunk.reply_seq and exchange.ack < chunk.reply_seq and exchange.seq - chunk.reply_seq < 2
        if not unseen:
            lacking += _lacking_of(
                state, chunk, held, covered, exchange.seq, MAX_LEASES - sum(x.count for x in lacking)
            )
    return lacking


def readopt_reported(state: State, pilot: Pilot, exchange: Exchange) -> None:
    """Readopt attempts that a crash in the uncommitted gap forgot and that their pilot has finished since: the report may
    come with a later exchange, and until then no other pilot may begin them."""
    _take_windowed(state, pilot, exchange)
    for item in exchange.held:
        first = parse_attempt(item.attempt)
        if item.stage != "done" or first.incarnation >= state.incarnation or not exchange.proofs:
            continue
        for at in range(item.count):
            attempt = shift(first, at)
            array = array_of(state, attempt)
            if array is None or attempt.element in array.done or holder_of(array, attempt) is not None:
                continue
            task = array.tasks.get(attempt.element)
            is_given_up = task is not None and attempt in task.past
            if not is_given_up and _may_readopt(state, pilot, array, attempt, item):
                _readopt(state, pilot, task_of(state, array, attempt.element), attempt, item)


def _take_windowed(state: State, pilot: Pilot, exchange: Exchange) -> None:
    """The same for tasks of the window of its mesh."""
    if (pilot.site, pilot.holder) not in state.windows:
        return
    for item in exchange.held:
        first = parse_attempt(item.attempt)
        for at in range(item.count) if item.stage == "done" else ():
            attempt = shift(first, at)
            task = state.orphans.get(attempt)
            live = task.live.get(attempt) if task is not None else None
            if task is not None and live is not None and live.pilot == pilot.mesh:
                begin_windowed(state, pilot, task, live, has_ended=True)
                state.write_task(task, pilot=pilot, leased=live.leased)


def _whose(attempt: AttemptId) -> AttemptId:
    return attempt._replace(element=0)


def _hold_list(pilot: Pilot, exchange: Exchange) -> tuple[dict[AttemptId, Held], Covered]:
    """What the pilot holds: attempt by attempt, and in ranges where nothing of its own chunks changed."""
    held: dict[AttemptId, Held] = {}
    covered: Covered = {}
    for item in exchange.held:
        first = parse_attempt(item.attempt)
        if item.count == 1:
            held[first] = item
            continue
        at = 0
        while at < item.count:
            attempt = shift(first, at)
            reach = attempt.element + item.count - at if item.stage == "done" else pilot.reach(attempt)
            if reach > attempt.element and item.stage in ("done", "leased"):
                upto = min(reach, first.element + item.count)
                covered.setdefault(_whose(first), RangeSet()).add_range(attempt.element, upto)
                at = upto - first.element
            else:
                held[attempt] = item
                at += 1
    return held, covered


def _tell_uncertain(state: State, pilot: Pilot, begun: list[str]) -> None:
    """Emit an event where a task that must not run twice began and might outlive its pilot."""
    for attempt in map(parse_attempt, begun):
        array = state.runs[attempt.run].array_of(attempt.element)
        if array is not None and array.spec.rerun is not Rerun.SAFE:
            state.emit("end_uncertain", task=attempt.task, attempt=attempt.number, pilot=pilot, why=UNCERTAIN)


def _is_chunked(pilot: Pilot, attempt: AttemptId, item: Held) -> bool:
    """True if an element of a chunk is as it was."""
    return item.stage == "leased" and pilot.chunk_of(attempt) is not None


def _lacking_of(
    state: State, chunk: Chunk, held: dict[AttemptId, Held], covered: Covered, seq: int, most: int
) -> list[Lease]:
    """Elements of a chunk that the pilot never got, as leases to send again."""
    missing = RangeSet(chunk.left.ranges())
    whose = chunk.attempt(0)
    for low, high in covered.get(whose, RangeSet()).ranges():
        missing.remove_range(low, high)
    for attempt in held if missing else ():
        if _whose(attempt) == whose:
            missing.remove(attempt.element)
    for array in chunk.arrays if missing else ():
        for low, high in chunk.left_of(array) if array.unmet else ():
            for element in [one for one in range(low, high) if one in missing]:
                # Only what came with its parents knows its place behind them: it is not sent again.
                task = carve(state, chunk, element)
                take_from(state, state.pilots[chunk.pilot], task.live[chunk.attempt(element)], BEHIND)
                missing.remove(element)
    if chunk.resent >= MAX_RESENT:
        for element in list(missing):
            carve(state, chunk, element)  # one by one they are sent again, or given up
        return []
    if missing and most > 0:
        chunk.resent += 1
    lacking: list[Lease] = []
    for low, high in missing.ranges():
        if most <= 0:
            break
        chunk.reply_seq = seq
        high = min(high, low + most)
        lacking.append(lease_of_chunk(chunk, low, high, state.state_dir))
        most -= high - low
    return lacking


def _holds(state: State, pilot: Pilot, attempt: AttemptId, item: Held) -> bool:
    """Check that the pilot may hold an attempt; returns whether it is newly known to have begun."""
    array = array_of(state, attempt)
    holder = holder_of(array, attempt) if array is not None else None
    if array is None or attempt.element in array.done or not _may_hold(state, pilot, array, holder):
        _stop(state, pilot, attempt, "the server wants no such attempt")  # final, another's, or of another history
        return False
    if holder is not None and holder not in pilot.names:
        _stop(state, pilot, attempt, "it is leased to another pilot")
        return False
    if holder is None and not _may_readopt(state, pilot, array, attempt, item):
        _stop(state, pilot, attempt, "another attempt has the right to run")
        return False
    task = task_of(state, array, attempt.element)
    live = task.live.get(attempt)
    if live is None:
        live = _readopt(state, pilot, task, attempt, item)
    elif live.pilot != pilot.name and live.pilot.startswith(MESH):
        begin_windowed(state, pilot, task, live, has_ended=item.stage == "done")
        state.write_task(task, pilot=pilot, leased=live.leased)
    elif live.pilot != pilot.name:
        attach(state, array, live, pilot)  # its pilot was given up, and came back under a new name in time
        state.emit("task_adopted", task=task.id, attempt=attempt.number, pilot=pilot, how="pilot came back")
        state.write_task(task, pilot=pilot, leased=live.leased)
    if item.stage != "running" or live.running:
        return False
    live.running, live.started = True, state.now
    pilot.returns = 0
    state.count_cores(array, live)
    if task.state is TaskState.LEASED:
        advance(task, TaskState.RUNNING)
    state.write_task(task, pilot=pilot, leased=live.leased)
    return True


def _stop(state: State, pilot: Pilot, attempt: AttemptId, why: str) -> None:
    """Have an attempt stopped. The order is repeated only after a while, since a process may take its time to end."""
    name = str(attempt)
    if state.now >= pilot.stopping.get(name, 0.0) + SAY_AGAIN and len(pilot.orders) < MAX_HELD:
        pilot.stopping[name] = state.now
        state.order(pilot, Order("cancel", name, why))


def _may_hold(state: State, pilot: Pilot, array: Array, holder: str | None) -> bool:
    """True if it is leased to this pilot, or of an owner it serves; others' tasks look final to it [promise I16]."""
    return holder == pilot.name or state.serves(pilot, array.run.owner)


def _may_readopt(state: State, pilot: Pilot, array: Array, attempt: AttemptId, item: Held) -> bool:
    """True if it is a living copy that the server had given up, or leased in the uncommitted gap of its last incarnation
    [protocol 10]."""
    if array.spec.rerun is not Rerun.SAFE or array.waiting or not was_given(state, pilot, array, attempt, pilot.proofs):
        return False
    task = array.tasks.get(attempt.element)
    is_given_up = task is not None and attempt in task.past
    number = task.number if task is not None else 0
    chunk = array.chunk_of(attempt.element)
    if not is_given_up and attempt.number <= (chunk.number if chunk is not None else number):
        return False  # it ended, and its end is on record; or the server has gone on without it
    is_live = chunk is not None or (task is not None and bool(task.live))
    if is_live and item.stage != "running":
        return False  # a copy that has not begun is useless beside a live one
    needs = task.needs if task is not None else array.spec.needs
    # A limit holds for copies, too [promise I14].
    return state.accounting.may_start(array.run.owner, pilot.site, needs, 1, 0.0, state.now) >= 1


def _readopt(state: State, pilot: Pilot, task: Task, attempt: AttemptId, item: Held) -> Attempt:
    array = task.array
    live = Attempt(attempt, pilot.name, state.now)
    former = task.past.pop(attempt, None)
    if former is not None and (former in task.lost_on or not task.lost_on):
        task.losses = max(0, task.losses - 1)  # its pilot had only been out of contact
        task.differences.alone = task.losses >= POISON_LOSSES - 1
        task.lost_on = [name for name in task.lost_on if name != former]
    task.number = max(task.number, attempt.number)
    if not task.live:
        array.take_todo(task.element, task.element + 1)
        array.apart.pop(task.element, None)
        array.count_live(1)
        advance(task, TaskState.LEASED)
    attach(state, array, live, pilot)
    state.emit("task_adopted", task=task.id, attempt=attempt.number, pilot=pilot, how="living copy")
    state.write_task(task, pilot=pilot, leased=live.leased)
    return live


def confirm_held(state: State, pilot: Pilot) -> None:
    """The pilot has sent its held list; the last one to do so after a restart ends the quarantine."""
    pilot.is_reconciled = True
    if pilot.name in state.unreconciled or any(name in state.unreconciled for name in pilot.former):
        state.unreconciled -= {pilot.name, *pilot.former}
