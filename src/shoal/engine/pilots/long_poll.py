"""Long polling: an exchange is answered at once if there is something to send, else parked until there is, or until the
beat is over [protocol 5].

One that brings reports and asks for work at once is parked when they are durable, for a shorter while [ADR 0066].

Waiting pilots are in `state.parked`, those with orders in `state.with_orders`: a command costs nothing for each of a
thousand pilots that it does not concern.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.engine.changes import Answer
from shoal.engine.locality.kept import keep_now
from shoal.engine.pilots import mesh
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.engine.windows.leaders import tell
from shoal.engine.windows.site_window import NO_CHANGE, WindowChange
from shoal.model.limits import MAX_ORDERS
from shoal.wire.messages import ORDERS, Lease, Order, Reply, Verdict

RESTS = 1.0  # seconds that an exchange with reports waits for work: until then its pilot keeps them


def answer(
    state: State,
    pilot: Pilot,
    seq: int,
    leases: list[Lease],
    verdicts: list[Verdict],
    durable: bool,
    at_once: bool = False,
    window: WindowChange = NO_CHANGE,
    unsealed: Sequence[str] = (),
    asks: bool = False,
    told: Sequence[Verdict] = (),
) -> None:
    """Reply at once if there is something to send or the pilot needs the reply, else park the exchange. `asks`: with nothing
    but verdicts it may wait for work once they are durable; `told`: verdicts that are."""
    orders = pilot.orders
    if pilot.draining and not pilot.leaving:
        orders = [*orders, end_order(state, pilot)]
    if leases or verdicts or orders or at_once or window.number:
        orders, pilot.orders = orders[:MAX_ORDERS], orders[MAX_ORDERS:]
        kept = keep_now(state, pilot) if not leases else 0.0
        beat, (neighbours, gone) = state.timing.beat, mesh.changes(state, pilot)
        leader = tell(state, pilot, seq)
        reply = Reply(
            seq, state.incarnation, leases, orders, verdicts or [*told], beat, kept, neighbours, gone, leader, *window,
            unsealed=[*unsealed],
        )  # fmt: skip
        pilot.keep(reply)
        is_news = leases or orders or at_once or window.number or neighbours or gone or leader
        rests = asks and not is_news  # what this answer tells of the mesh is told once
        state.out.answers.append(Answer(pilot.name, seq, reply, durable or bool(verdicts or unsealed), rests))
    else:
        _park(state, pilot, seq, state.timing.beat)


def _park(state: State, pilot: Pilot, seq: int, within: float) -> None:
    pilot.parked, pilot.parked_until = seq, state.now + within
    state.parked[pilot.name] = state.unlooked[pilot.name] = pilot


def rest(state: State, name: str, seq: int) -> bool:
    """Park an exchange whose reports are durable; False: it is to be answered now."""
    pilot = state.pilots.get(name)
    if pilot is None or pilot.seq != seq or pilot.parked is not None or seq not in pilot.replies:
        return False
    if pilot.orders or pilot.draining or pilot.leaving:
        return False
    _park(state, pilot, seq, RESTS)
    return True


def end_order(state: State, pilot: Pilot) -> Order:
    """The order to end, by when if there is a time."""
    within = max(0.0, pilot.ends - state.now) if pilot.ends is not None else None
    can_stop = pilot.is_stopped and pilot.protocol >= ORDERS["stop"]
    return Order("stop" if can_stop else "drain", why=pilot.draining, within=within)


def unpark(state: State, pilot: Pilot) -> None:
    """Answer the parked exchange empty."""
    if pilot.parked is not None:
        beat, kept, (neighbours, gone) = state.timing.beat, keep_now(state, pilot), mesh.changes(state, pilot)
        leader = tell(state, pilot, pilot.parked)
        told = _told(pilot, pilot.parked)
        reply = Reply(pilot.parked, state.incarnation, [], [], told, beat, kept, neighbours, gone, leader)
        pilot.keep(reply)
        state.out.answers.append(Answer(pilot.name, pilot.parked, reply, False))
        forget(state, pilot)


def _told(pilot: Pilot, seq: int) -> list[Verdict]:
    """The verdicts of an exchange that rests: they are durable."""
    return pilot.replies[seq].verdicts if seq in pilot.replies else []


def forget(state: State, pilot: Pilot) -> None:
    """The parked exchange is answered."""
    pilot.parked = None
    state.parked.pop(pilot.name, None)
    state.unlooked.pop(pilot.name, None)  # while nothing is ready, nobody looks, and pilots come and go


def give_parked(state: State, pilot: Pilot, leases: list[Lease], durable: bool) -> None:
    """Answer a parked exchange with leases, and with whatever orders there are."""
    seq = pilot.parked
    assert seq is not None
    forget(state, pilot)
    answer(state, pilot, seq, leases, [], durable, told=_told(pilot, seq))
