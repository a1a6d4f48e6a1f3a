"""Answers to exchanges: at once if there is news, else parked until there is some or the beat is over [contract 5]."""

from __future__ import annotations

from shoal.engine.changes import Answer
from shoal.engine.leasing import closed, fill
from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.limits import MAX_ORDERS
from shoal.wire.messages import Lease, Order, Reply, Verdict


def answer(
    state: State,
    pilot: Pilot,
    seq: int,
    leases: list[Lease],
    verdicts: list[Verdict],
    durable: bool,
    at_once: bool = False,
) -> None:
    """Answer at once if there is news or the pilot waits for an answer to say more, else park the exchange."""
    orders = pilot.orders
    if pilot.draining and not pilot.leaving:
        orders = [*orders, Order("drain", why=pilot.draining)]
    if leases or verdicts or orders or at_once:
        orders, pilot.orders = orders[:MAX_ORDERS], orders[MAX_ORDERS:]
        reply = Reply(seq, state.incarnation, leases, orders, verdicts, [], state.timing.beat)
        pilot.keep(reply)
        state.out.answers.append(Answer(pilot.name, seq, reply, durable or bool(verdicts)))
    else:
        pilot.parked, pilot.parked_until = seq, state.now + state.timing.beat


def unpark(state: State, pilot: Pilot) -> None:
    """Answer the parked exchange empty."""
    if pilot.parked is not None:
        reply = Reply(pilot.parked, state.incarnation, hold=state.timing.beat)
        pilot.keep(reply)
        state.out.answers.append(Answer(pilot.name, pilot.parked, reply, False))
        pilot.parked = None


def serve_parked(state: State) -> None:
    """There may be news for pilots that wait: work, orders."""
    shut = bool(closed(state))
    for pilot in state.pilots.values():
        if pilot.parked is None:
            continue
        leases, durable = ([], False) if shut else fill(state, pilot, pilot.parked)
        if leases or pilot.orders or (pilot.draining and not pilot.leaving):
            seq, pilot.parked = pilot.parked, None
            answer(state, pilot, seq, leases, [], durable)
