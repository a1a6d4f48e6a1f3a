"""Matching in rounds: several pilots and several tasks at once.

Normally a task is matched when it or a slot appears [ADR 0011]; where classes have ranks and several pilots wait, the
best of them is chosen [GWP G5]. With `match.mode = interval` nothing is matched in between: each interval at most a chunk
of tasks is leased, over all pilots, as the paper's scheduler does [GWP 4.3].
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from shoal.engine.locality.shortlist import data_of
from shoal.engine.matching.choose_tasks import LeaseRound, closed, fill, may_fill, served_queues
from shoal.engine.matching.classes import TaskClass
from shoal.engine.matching.eligibility import candidates, eligibility_of
from shoal.engine.matching.pilot_attributes import attributes, lookup
from shoal.engine.pilots.long_poll import give_parked
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.limits import MAX_LEASES
from shoal.model.policy import INTERVAL, STRICT
from shoal.model.quantities import many
from shoal.sched.batch_size import turn as turn_of
from shoal.sched.expr.scalar import rank_of
from shoal.sched.fit import how_many
from shoal.sched.linear_assignment import EXACT, Cell, assign

CROWD = 16  # waiting pilots from which on full ones are skipped
HEADS = 64  # classes of one owner that a round looks at [ADR 0011]


def next_turn(state: State) -> float | None:
    """When the next round of an interval is due."""
    rule = state.accounting.policy.match
    if rule.mode != INTERVAL or not state.queue.has_work():
        return None
    return state.last_round + rule.interval


def turn(state: State) -> None:
    """One round of an interval, if it is time."""
    due = next_turn(state)
    if due is not None and state.now >= due:
        state.last_round = state.now
        hand_out(state, state.parked.values(), state.accounting.policy.match.chunk)


def serve_parked(state: State) -> None:
    """Answer waiting exchanges for which there is work or an order."""
    due = _take_due(state)
    if state.with_orders:
        pilots, state.with_orders = state.with_orders, {}
        for pilot in pilots.values():
            if pilot.parked is not None and (pilot.orders or (pilot.draining and not pilot.leaving)):
                give_parked(state, pilot, *fill(state, pilot, pilot.seq))
    if not state.queue.has_work() or closed(state) or state.accounting.policy.match.mode == INTERVAL:
        return
    waiting = _to_look_at(state)
    waiting += [pilot for pilot in due if pilot.parked is not None and pilot.name not in {one.name for one in waiting}]
    if len(state.parked) > 1 and state.queue.ranked:
        if waiting:
            hand_out(state, waiting, MAX_LEASES * len(waiting), is_event=True)
        return
    is_crowded = len(state.parked) > CROWD
    if not is_crowded:
        waiting.sort(key=lambda pilot: pilot.free.cores <= 0)  # a free slot is better than one that soon will be
    given = False
    for pilot in waiting:
        if is_crowded and pilot.free.cores <= 0:
            continue  # it fetches ahead with its next exchange: a command must not cost a look at each pilot
        given = _fill_parked(state, pilot) or given
        if not state.queue.has_work():
            return
    for name in [*state.data.again] if given else ():
        if name in state.parked:
            _fill_parked(state, state.parked[name])  # what waited for a pilot that got something else now


def _take_due(state: State) -> list[Pilot]:
    """Pilots that a task was kept from for its data, and that are to be looked at again now."""
    again = state.data.again
    names = [name for name, at in again.items() if at <= state.now] if again else []
    for name in names:
        del again[name]
    return [state.pilots[name] for name in names if name in state.pilots]


def _fill_parked(state: State, pilot: Pilot) -> bool:
    """Answer a waiting exchange if there is work for it."""
    leases, durable = fill(state, pilot, pilot.seq)
    if leases:
        give_parked(state, pilot, leases, durable)
    return bool(leases)


def _to_look_at(state: State) -> list[Pilot]:
    """Waiting pilots that may get something now. All others were looked at, and since then nothing happened by which they
    could get what they did not get then: a command must not cost a look at each of a thousand pilots."""
    looked = (state.news, state.queue.arrivals)
    is_known = looked == state.looked and len(state.parked) > CROWD
    waiting = [pilot for pilot in (state.unlooked if is_known else state.parked).values() if pilot.parked is not None]
    state.looked, state.unlooked = looked, {}
    for pilot in waiting:
        evidence = state.accounting.evidence.get(pilot.holder)
        if evidence is not None and evidence.kinds.in_row(pilot.host):
            state.unlooked[pilot.name] = pilot  # which task is next decides whether it is tried there
    return waiting


def hand_out(state: State, pilots: Iterable[Pilot], most: int, is_event: bool = False) -> None:
    """Lease at most so many tasks to free slots of these pilots, which wait: owner by owner in turn, each class to its best
    pilots. On an event, what may be fetched ahead follows when no slot is left that could have it at once."""
    fillings = {pilot.name: LeaseRound(state, pilot, pilot.seq) for pilot in pilots if may_fill(state, pilot)}
    state.queue.reorder(state.now)
    state.update_activity()
    while most > 0 and fillings:
        given = _best(state, fillings, most)
        if not given:
            break
        most -= given
    for name, filling in fillings.items():
        if is_event and state.queue.has_work():
            filling.fill()
        filling.log_leases()
        pilot = state.pilots[name]
        if filling.leases and pilot.parked is not None:
            give_parked(state, pilot, filling.leases, filling.durable)


def _best(state: State, fillings: dict[str, LeaseRound], most: int) -> int:
    """One pass: tasks for free slots, or as many short ones as end in a moment, by the greatest total rank of the owner
    whose turn it is [LBO D8]."""
    owners = {owned.owner: None for filling in fillings.values() for owned in served_queues(state, filling.pilot)}
    for owner in state.accounting.tree.order(owners, state.now):
        cells, classes, pilots = _cells(state, fillings, owner)
        found = assign(cells, _slots(cells, classes, pilots), _tasks(classes))
        if len(classes) > 1 and len(pilots) > 1:
            state.assigned = _describe(found.how, len(classes), len(pilots))
        given = 0
        for row, column in found.pairs:
            cls, filling = classes[column], pilots[row]
            if given < most and cls.head() is not None and filling.most(cls) > 0:
                before, room = filling.count, how_many(cls.needs, filling.pilot.free)
                filling.lease_from(cls, min(turn_of(cls.base.mean), room, most - given), state.assigned)
                given += filling.count - before
        if given:
            return given
    return 0


def _describe(how: str, classes: int, pilots: int) -> str:
    what = f"{many(classes, 'kind')} of tasks on {many(pilots, 'pilot')}"
    if how == EXACT:
        return f"assigned exactly: the best total rank of {what}"
    return f"assigned greedily, by the best rank first: {what} are too many to be exact"


def _slots(cells: list[Cell], classes: list[TaskClass], pilots: list[LeaseRound]) -> dict[int, int]:
    """How many tasks fit into each pilot, of whichever class; one where each start may change the ranks of the next."""
    if any(cls.rank is not None and cls.is_volatile for cls in classes):
        return {}
    slots: dict[int, int] = {}
    for cell in cells:
        fit = how_many(classes[cell.column].needs, pilots[cell.row].pilot.free)
        slots[cell.row] = min(fit, slots.get(cell.row, fit))
    return slots


def _tasks(classes: list[TaskClass]) -> dict[int, int]:
    """How many turns each class has ready; short tasks are leased several at a time."""
    return {
        at: MAX_LEASES if cls.is_divisible else max(1, cls.ready(MAX_LEASES) // turn_of(cls.base.mean))
        for at, cls in enumerate(classes)
    }


def _cells(
    state: State, fillings: dict[str, LeaseRound], owner: str
) -> tuple[list[Cell], list[TaskClass], list[LeaseRound]]:
    """What of an owner's best classes fits where, and how well: for each pair of a pilot (row) and a class (column)."""
    owned = state.queue.owners[owner]
    pilots = [
        filling
        for filling in fillings.values()
        if filling.count < MAX_LEASES and filling.pilot.free.cores > 0 and state.serves(filling.pilot, owner)
    ]
    columns: dict[int, int] = {}
    classes: list[TaskClass] = []
    found: list[Cell] = []  # ordered as in `candidates`: priority, rank, deadline, age
    for row, filling in enumerate(pilots):
        pilot = filling.pilot
        eligibility = eligibility_of(state, pilot, owner)
        for cls in islice(candidates(eligibility, owned, state.queue.rule.policy == STRICT), HEADS):
            if cls.listed is None or how_many(cls.needs, pilot.free) <= 0:
                continue
            if cls.head() is None or filling.most(cls) <= 0:
                continue
            if cls.serial not in columns:
                columns[cls.serial] = len(classes)
                classes.append(cls)
            # What depends on the moment is evaluated now, all else is known.
            rank = _rank(state, pilot, cls) if cls.is_volatile else eligibility.ranked.get(cls.serial, 0.0)
            rank += data_of(state, pilot, cls).fraction  # the task part of the rank [ADR 0011]
            found.append(Cell(cls.listed.order, rank, cls.listed[1:], row, columns[cls.serial]))
    return found, classes, pilots


def _rank(state: State, pilot: Pilot, cls: TaskClass) -> float:
    """The rank of a pilot for a class; 0 where the class has none."""
    if cls.rank is None:
        return 0.0
    return rank_of(cls.rank, lookup(state, pilot, cls.key.owner, cls), attributes(state, cls.key))
