"""Which exchanges of followers a leader sends in its next request, and when. Pure: time is an argument [LBO D8; ADR 0062].

What comes within a moment goes together. While answers are awaited one request waits for them at the server, as a pilot's own
exchange does; another one may bring what is new meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Optional

from shoal.model.limits import MAX_BUNDLE, MAX_BUNDLE_BYTES, MAX_FORWARDED, MAX_IN_FLIGHT
from shoal.wire.messages import Sealed

GATHER = 0.004  # seconds that an exchange waits for others that come at the same moment
INTERVAL = (
    0.04  # between two requests, unless one is full: a request with thirty exchanges costs little more than with one
)

Key = tuple[str, int]  # a pilot and the number of its exchange


class _Queued(NamedTuple):
    key: Key
    item: Sealed
    since: float


class BundleQueue:
    """Exchanges that were handed to a leader."""

    def __init__(self) -> None:
        self._queued: deque[_Queued] = deque()
        self._bytes = 0
        self.unanswered: set[Key] = set()  # handed on
        self._requests = 0  # under way
        self._sent_at = 0.0  # the last one

    @property
    def is_full(self) -> bool:
        """True if the server does not take them as fast as they come."""
        return len(self._queued) >= MAX_FORWARDED or self._bytes >= 4 * MAX_BUNDLE_BYTES

    def add(self, key: Key, item: Sealed, now: float) -> None:
        """A follower hands in an exchange."""
        self._queued.append(_Queued(key, item, now))
        self._bytes += len(item.body)

    def due(self) -> Optional[float]:
        """When the next request is to be sent; None: there is no reason for one."""
        if self._requests >= MAX_IN_FLIGHT:
            return None
        if self._queued:
            is_much = len(self._queued) >= MAX_BUNDLE or self._bytes >= MAX_BUNDLE_BYTES
            return self._queued[0].since if is_much else max(self._queued[0].since + GATHER, self._sent_at + INTERVAL)
        return 0.0 if self.unanswered and not self._requests else None

    def take(self, now: float) -> list[Sealed]:
        """The exchanges of the next request, which is sent now; none: it only asks for answers."""
        taken: list[Sealed] = []
        size = 0
        while self._queued and len(taken) < MAX_BUNDLE:
            size += len(self._queued[0].item.body)
            if taken and size > MAX_BUNDLE_BYTES:
                break
            one = self._queued.popleft()
            self._bytes -= len(one.item.body)
            self.unanswered.add(one.key)
            taken.append(one.item)
        self._requests += 1
        self._sent_at = now
        return taken

    def answered(self, keys: Iterable[Key]) -> None:
        """A request was answered, and brought the answers to these exchanges."""
        self._requests -= 1
        self.unanswered.difference_update(keys)

    def failed(self) -> set[Key]:
        """A request got no answer: what it brought, and what was awaited, is no longer. Returns that."""
        self._requests -= 1
        lost, self.unanswered = self.unanswered, set()
        return lost

    def clear(self) -> set[Key]:
        """We lead no more: returns what is not answered."""
        lost = self.unanswered | {one.key for one in self._queued}
        self._queued.clear()
        self._bytes = 0
        self.unanswered = set()
        return lost

    def drop(self, key: Key) -> None:
        """Nobody waits for the answer to this exchange any more."""
        self.unanswered.discard(key)
