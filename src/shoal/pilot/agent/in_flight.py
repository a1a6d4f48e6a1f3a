"""Exchanges that were sent and not yet answered: at most two, of which one carries reports [protocol 5]. Pure, like
`agent`.

One waits at the server for work; it carries nothing that must be durable before it is answered, so leases come at
once. The other brings reports, and is answered after their commit; what ends meanwhile goes with the next one.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Optional

from shoal.model.limits import MAX_IN_FLIGHT
from shoal.wire.messages import Exchange


@dataclass
class SentExchange:
    """One of them."""

    exchange: Exchange
    sent_at: float
    again_at: Optional[float] = None  # set: it failed, send it again then
    not_before: float = 0.0  # the server's own wish
    foreign: int = 0  # refusals that were not the server's own words

    @property
    def carries(self) -> bool:
        """Is there something in it that must be durable before it is answered: reports, checkpoints?"""
        return bool(self.exchange.reports or self.exchange.batches or self.exchange.checkpoints)


class InFlight:
    """All of them, and how numbers go on. Numbers go on across sessions, so that an answer from an old one cannot be
    taken for a new one."""

    def __init__(self) -> None:
        self._all: OrderedDict[int, SentExchange] = OrderedDict()
        self._last = self._seen = 0

    def __contains__(self, seq: int) -> bool:
        return seq in self._all

    def __len__(self) -> int:
        return len(self._all)

    @property
    def ack(self) -> int:
        """Every exchange up to this one has been answered."""
        return min([self._seen, *(seq - 1 for seq in self._all)])

    @property
    def underway(self) -> list[Exchange]:
        """The exchanges themselves."""
        return [flight.exchange for flight in self._all.values()]

    @property
    def has_room(self) -> bool:
        """May another be sent?"""
        return len(self._all) < MAX_IN_FLIGHT

    @property
    def carries(self) -> bool:
        """Is one with reports among them?"""
        return any(flight.carries for flight in self._all.values())

    def may_ask(self, is_new: bool) -> bool:
        """May one that only waits for work go out beside them? A server that has just taken us in must hear first of
        all what we had: no question overtakes that."""
        asks = any(not flight.carries for flight in self._all.values())
        return self.has_room and not asks and not (is_new and self._all)

    @property
    def failed(self) -> bool:
        """Did one get no answer, and waits to be sent again?"""
        return any(flight.again_at is not None for flight in self._all.values())

    def number(self) -> int:
        """The number of the next one."""
        self._last += 1
        return self._last

    def add(self, exchange: Exchange, now: float) -> None:
        """It is sent."""
        self._all[exchange.seq] = SentExchange(exchange, now)

    def land(self, seq: int, is_answered: bool = True) -> Optional[SentExchange]:
        """It is over; None if it was."""
        flight = self._all.pop(seq, None)
        if flight is not None and is_answered:
            self._seen = max(self._seen, seq)
        return flight

    def clear(self) -> None:
        """The session is over, and they with it."""
        self._all.clear()

    # --- those that fail
    def put_off(self, seq: int, again: float, container_request: float) -> None:
        """No answer came: once more, then."""
        flight = self._all.get(seq)
        if flight is not None:
            flight.again_at, flight.not_before = again, container_request

    def put_off_foreign(self, seq: int, again: float, most: int) -> bool:
        """Something between refused it: once more, then, at most so many times; False if it was as often before."""
        flight = self._all[seq]
        if flight.foreign >= most:
            return False
        flight.foreign += 1
        flight.again_at = again
        return True

    def hurry(self, now: float) -> None:
        """The server is back: no reason to wait."""
        for flight in self._all.values():
            if flight.again_at is not None:
                flight.again_at = max(now, flight.not_before)

    def due(self, now: float) -> list[Exchange]:
        """Those to be sent again now."""
        found = [flight for flight in self._all.values() if flight.again_at is not None and now >= flight.again_at]
        for flight in found:
            flight.again_at, flight.sent_at = None, now
        return [flight.exchange for flight in found]

    def times(self) -> list[float]:
        """When some are to be sent again."""
        return [flight.again_at for flight in self._all.values() if flight.again_at is not None]
