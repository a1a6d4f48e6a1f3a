"""Which peers are asked first, and which no more: pure bookkeeping of what they did [promise I15; LBO D4].

A peer that gave wrong bytes has a strike; after three it is dropped and reported. One that was slow, broke off or did not
answer is asked last for a while: that may happen to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from shoal.dht.routing_table import Contact
from shoal.model.limits import MAX_STRIKES
from shoal.wire.messages import Accusation

REST = 60.0  # seconds for which a peer that failed is asked last; doubled with each failure in a row
LONGEST_REST = 900.0
PEERS_KEPT = 10_000


class Strikes:
    """What one pilot knows of its peers' conduct."""

    def __init__(self) -> None:
        self._wrong: dict[int, int] = {}
        self._failed: dict[int, tuple[int, float]] = {}  # failures in a row, and until when it is asked last
        self.dropped: dict[int, None] = {}

    def order(self, contacts: Iterable[Contact], now: float) -> list[Contact]:
        """Whom to ask, the most trusted first; those that were dropped are not among them."""
        left = [one for one in contacts if one.id not in self.dropped]
        return sorted(left, key=lambda one: (self._wrong.get(one.id, 0), self._failed.get(one.id, (0, 0.0))[1] > now))

    def note_wrong(self, contact: Contact, digest: str) -> Optional[Accusation]:
        """A peer gave wrong bytes; returns what to report when it is dropped for that now."""
        count = self._wrong[contact.id] = self._wrong.pop(contact.id, 0) + 1
        _bound(self._wrong)
        if count < MAX_STRIKES or contact.id in self.dropped:
            return None
        self.dropped[contact.id] = None
        return Accusation(f"{contact.id:064x}", f"{count} files with wrong bytes, the last one for {digest}")

    def note_failed(self, contact: Contact, now: float) -> None:
        """A peer did not give what it should have, in time."""
        count = self._failed.pop(contact.id, (0, 0.0))[0] + 1
        self._failed[contact.id] = count, now + min(LONGEST_REST, REST * 2.0 ** min(count - 1, 10))
        _bound(self._failed)

    def note_right(self, contact: Contact) -> None:
        """A peer gave the right bytes."""
        self._failed.pop(contact.id, None)


def _bound(known: dict[int, Any]) -> None:
    while len(known) > PEERS_KEPT:
        del known[next(iter(known))]
