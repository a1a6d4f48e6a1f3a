"""The contacts that a peer knows, in buckets by their distance.

A full bucket drops the contact that was seen least recently, unlike the original Kademlia, which keeps old contacts:
pilots live for about as long as their batch system lets them, so that an old one is not a safe one [LBO D3].
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple, Optional

from shoal.dht.key import BITS, bucket_of

BUCKET_SIZE = 16


class Contact(NamedTuple):
    """Another peer: its id, and where it listens."""

    id: int
    address: str


class RoutingTable:
    """Contacts in buckets; within a bucket the least recently seen one comes first."""

    def __init__(self, own: int, now: float, size: int = BUCKET_SIZE) -> None:
        self._own, self._since, self._size = own, now, size
        self._buckets: dict[int, dict[int, Contact]] = {}
        self._looked: dict[int, float] = {}  # when a bucket was last refreshed by a lookup

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def __iter__(self) -> Iterator[Contact]:
        for bucket in self._buckets.values():
            yield from bucket.values()

    def __contains__(self, id: int) -> bool:
        return id in self._buckets.get(bucket_of(self._own, id), {})

    def note_seen(self, contact: Contact) -> Optional[Contact]:
        """A contact sent something: it is now the most recently seen one. Returns the contact that it displaced."""
        number = bucket_of(self._own, contact.id)
        if number < 0:
            return None
        bucket = self._buckets.setdefault(number, {})
        bucket.pop(contact.id, None)
        bucket[contact.id] = contact
        return bucket.pop(next(iter(bucket))) if len(bucket) > self._size else None

    def note_told(self, contact: Contact) -> None:
        """Another peer named a contact: it is taken as the least recently seen one, if there is a place for it."""
        number = bucket_of(self._own, contact.id)
        if number < 0:
            return
        bucket = self._buckets.setdefault(number, {})
        if contact.id not in bucket and len(bucket) < self._size:
            self._buckets[number] = {contact.id: contact, **bucket}

    def remove(self, id: int) -> bool:
        """Forget a contact that left or does not answer; False if it was not known."""
        number = bucket_of(self._own, id)
        bucket = self._buckets.get(number, {})
        found = bucket.pop(id, None) is not None
        if not bucket:
            self._buckets.pop(number, None)
        return found

    def closest(self, key: int, count: int) -> list[Contact]:
        """The known contacts that are closest to a key, the closest first."""
        return nsmallest(count, self, key=lambda contact: contact.id ^ key)

    def empty_buckets(self) -> list[int]:
        """The buckets without a contact that are farther away than the closest contact's."""
        return [number for number in range(min(self._buckets, default=BITS), BITS) if number not in self._buckets]

    def note_lookup(self, key: int, now: float) -> None:
        """A lookup of a key refreshes the bucket that the key belongs into."""
        self._looked[bucket_of(self._own, key)] = now

    def next_refresh(self, period: float) -> Optional[tuple[float, int]]:
        """When the next bucket has to be refreshed, and which; None: there is no contact."""
        if not self._buckets:
            return None
        return min((self._looked.get(number, self._since) + period, number) for number in self._buckets)
