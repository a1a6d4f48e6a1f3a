"""Exchanges that were sent and not yet answered: at most two, of which one carries reports [protocol 5].

One waits at the server for work; it carries nothing that must be durable before it is answered, so that leases come at
once. The other brings reports and is answered after their commit; what ends meanwhile goes with the next one. One that
brings reports and asks for work, too, stands for both [ADR 0066].
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Optional

from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_IN_FLIGHT
from shoal.wire.messages import Exchange


@dataclass
class SentExchange:
    """One exchange that was sent and not yet answered."""

    exchange: Exchange
    sent_at: float
    carries: bool  # something in it must be durable before it is answered: reports or checkpoints
    retry_at: Optional[float] = None  # set: it failed and is sent again then
    not_before: float = 0.0  # the server asked for no retry before this time
    foreign: int = 0  # refusals that did not come from the server itself


class InFlight:
    """All unanswered exchanges. Their numbers go on across sessions, so that an answer of an old session cannot be taken
    for one of the new session."""

    def __init__(self) -> None:
        self._all: OrderedDict[int, SentExchange] = OrderedDict()
        self._last = self._answered = 0
        self._has_retries = False  # False: none waits to be sent again, which is asked many times for each exchange

    def __contains__(self, seq: int) -> bool:
        return seq in self._all

    @property
    def ack(self) -> int:
        """Every exchange up to this number has been answered."""
        return min([self._answered, *(seq - 1 for seq in self._all)])

    @property
    def underway(self) -> list[Exchange]:
        """The exchanges themselves."""
        return [sent.exchange for sent in self._all.values()]

    @property
    def has_capacity(self) -> bool:
        """True if another exchange may be sent."""
        return len(self._all) < MAX_IN_FLIGHT

    @property
    def carries(self) -> bool:
        """True if one of them brings reports, and does not wait for work as well."""
        return True in [sent.carries and not sent.exchange.asks for sent in self._all.values()]

    def may_poll(self, is_new: bool) -> bool:
        """True if an exchange that only waits for work may be sent too. A server that has just registered us must
        first get the reports that we had, so nothing overtakes them."""
        if not self._all:
            return True
        polls = False in [sent.carries and not sent.exchange.asks for sent in self._all.values()]
        return not polls and self.has_capacity and not is_new

    @property
    def failed(self) -> bool:
        """True if one got no answer and waits to be sent again."""
        return bool(self.times())

    def next_number(self) -> int:
        """The number of the next exchange."""
        self._last += 1
        return self._last

    def add(self, exchange: Exchange, now: float) -> None:
        """Record an exchange that is sent now."""
        carries = bool(exchange.reports or exchange.batches or exchange.checkpoints or exchange.sealed)
        self._all[exchange.seq] = SentExchange(exchange, now, carries)

    def remove(self, seq: int, is_answered: bool = True) -> Optional[SentExchange]:
        """Remove an answered or refused exchange; None if it was already removed."""
        sent = self._all.pop(seq, None)
        if sent is not None and is_answered:
            self._answered = max(self._answered, seq)
        return sent

    def clear(self) -> None:
        """Forget them all: their session is over."""
        self._all.clear()

    # --- retries
    def postpone(self, seq: int, retry_at: float, not_before: float) -> None:
        """No answer came: send it again at that time."""
        sent = self._all.get(seq)
        if sent is not None:
            sent.retry_at, sent.not_before = retry_at, not_before
            self._has_retries = True

    def postpone_foreign(self, seq: int, retry_at: float, most: int) -> bool:
        """A proxy refused it: send it again, at most so many times; False if that is used up."""
        sent = self._all[seq]
        if sent.foreign >= most:
            return False
        sent.foreign += 1
        sent.retry_at = retry_at
        self._has_retries = True
        return True

    def retry_now(self, now: float) -> None:
        """The server answers again: no reason to wait."""
        if not self._has_retries:
            return
        for sent in self._all.values():
            if sent.retry_at is not None:
                sent.retry_at = max(now, sent.not_before)

    def due(self, now: float) -> list[Exchange]:
        """Take those that are to be sent again now."""
        if not self._has_retries:
            return []
        found = [sent for sent in self._all.values() if sent.retry_at is not None and now >= sent.retry_at]
        for sent in found:
            sent.retry_at, sent.sent_at = None, now
        return [sent.exchange for sent in found]

    def times(self) -> list[float]:
        """When some are to be sent again."""
        if not self._has_retries:
            return []
        found = [sent.retry_at for sent in self._all.values() if sent.retry_at is not None]
        self._has_retries = bool(found)
        return found
