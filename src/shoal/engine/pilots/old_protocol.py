"""Exchanges of protocol 4 with the attempt names of today [ADR 0015].

Such a pilot knows neither nonces nor the random part of an incarnation. A name is completed only where this server itself
knows that the attempt is, or was, with that very pilot; any other stays without a nonce, and so matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shoal.engine.records import Pilot
from shoal.engine.state import State
from shoal.model.errors import BadInput
from shoal.model.ids import AttemptId, parse_attempt, start_count
from shoal.model.limits import MAX_HELD
from shoal.wire.chunk import shift
from shoal.wire.messages import Exchange


def complete(state: State, pilot: Pilot, exchange: Exchange) -> Exchange:
    """An exchange of protocol 4 with the full names of the attempts that it means."""
    memory: dict[tuple[str, int], str] = {}

    def full(text: str, count: int = 1) -> str:
        if (text, count) not in memory:
            memory[text, count] = _full(state, pilot, text, count)
        return memory[text, count]

    return replace(
        exchange,
        held=[replace(item, attempt=full(item.attempt, item.count)) for item in exchange.held],
        reports=[replace(report, attempt=full(report.attempt)) for report in exchange.reports],
        tails=[replace(tail, attempt=full(tail.attempt)) for tail in exchange.tails],
        batches=[replace(batch, attempt=full(batch.attempt, batch.count)) for batch in exchange.batches],
        published=[replace(tags, attempt=full(tags.attempt)) for tags in exchange.published],
        proofs=[],
    )


def _full(state: State, pilot: Pilot, text: str, count: int) -> str:
    """The full name of an attempt; for neighbours that of the first one which is known."""
    try:
        first = parse_attempt(text)
    except BadInput:
        return text  # it is refused by the check of the exchange
    if first.nonce:
        return text
    for at in range(min(count, MAX_HELD)):
        for known in _known(state, pilot, first.run, first.element + at):
            if known.number == first.number and start_count(known.incarnation) == start_count(first.incarnation):
                return str(shift(known, -at))
    return text


def _known(state: State, pilot: Pilot, number: int, element: int) -> Iterator[AttemptId]:
    """Attempts at a task that are with this pilot, were, or were reported by it."""
    run = state.runs.get(number)
    array = run.array_of(element) if run is not None else None
    if array is not None:
        chunk = array.chunk_of(element)
        if chunk is not None and chunk.pilot in pilot.names:
            yield chunk.attempt(element)
        task = array.tasks.get(element)
        if task is not None:
            yield from (attempt for attempt, live in task.live.items() if live.pilot in pilot.names)
            yield from (attempt for attempt, name in task.past.items() if name in pilot.names)
    for attempt, (_, live) in state.dying.items():
        if attempt.run == number and attempt.element == element and live.pilot in pilot.names:
            yield attempt
    settled = state.settled.get((number, element))
    if settled is not None and settled.winner and settled.pilot in pilot.names:
        yield parse_attempt(f"r{number}.{element}#{settled.winner}~{settled.nonce}")
    for text in pilot.ended:
        if text.startswith(f"r{number}.{element}#"):
            yield parse_attempt(text)
    for first, count in pilot.batches:
        if first.run == number and first.element <= element < first.element + count:
            yield first._replace(element=element)
