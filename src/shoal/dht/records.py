"""The records that a peer keeps for others: of each digest, who said that it has the file, and until when that is believed.

A record is a hint, never a proof [ADR 0046]. A second holder of a known file is appended [LBO D3]. All is bounded:
of a full record a random holder is dropped, and of full records a random one, so that nobody can drive out a chosen one
[ADR 0046].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from shoal.dht.routing_table import Contact

MAX_HOLDERS = 16  # of one file: more do not make it easier to find
MAX_RECORDS = 50_000
MAX_OF_ONE = 20_000  # holders that one peer may have told us of


class Holder(NamedTuple):
    """Who has a file, until when that is believed, and who told us."""

    contact: Contact
    expires: float
    source: int


class Records:
    """The records of one peer."""

    def __init__(self, rng: Random, most: int = MAX_RECORDS, most_of_one: int = MAX_OF_ONE) -> None:
        self._rng, self._most, self._most_of_one = rng, most, most_of_one
        self._holders: dict[int, dict[int, Holder]] = {}
        self._keys: list[int] = []  # in no order, to draw one at random
        self._place: dict[int, int] = {}  # key -> where it is in that list
        self._keys_of: dict[int, set[int]] = {}  # holder -> keys
        self._told: Counter[int] = Counter()  # how many holders each source told us of

    def __len__(self) -> int:
        return len(self._holders)

    def __iter__(self) -> Iterator[int]:
        return iter(self._holders)

    def store(self, key: int, holder: Contact, expires: float, source: int) -> bool:
        """Note a holder; an earlier note of the same holder is renewed. False: the source told us of too many already."""
        found = self._holders.get(key)
        if found is not None and holder.id in found:
            before = found.pop(holder.id)
            found[holder.id] = Holder(holder, max(expires, before.expires), before.source)
            return True
        if self._told[source] >= self._most_of_one:
            return False
        if found is not None and len(found) >= MAX_HOLDERS:
            self._forget(key, self._rng.choice(list(found)))
        elif found is None and len(self._holders) >= self._most:
            victim = self._keys[self._rng.randrange(len(self._keys))]
            for id in list(self._holders[victim]):
                self._forget(victim, id)
        if key not in self._holders:
            self._place[key] = len(self._keys)
            self._keys.append(key)
        self._holders.setdefault(key, {})[holder.id] = Holder(holder, expires, source)
        self._keys_of.setdefault(holder.id, set()).add(key)
        self._told[source] += 1
        return True

    def holders(self, key: int, now: float) -> list[Holder]:
        """Who is believed to have a file now, the most recently noted first."""
        return [holder for holder in reversed(list(self._holders.get(key, {}).values())) if holder.expires > now]

    def withdraw(self, holder: int, keys: Iterable[int]) -> None:
        """A holder no longer has these files."""
        for key in keys:
            if holder in self._holders.get(key, {}):
                self._forget(key, holder)

    def remove_holder(self, holder: int) -> None:
        """A peer is gone, and all that it had."""
        self.withdraw(holder, list(self._keys_of.get(holder, ())))

    def expire(self, now: float) -> None:
        """Forget what is no longer believed."""
        for key, found in list(self._holders.items()):
            for id in [id for id, holder in found.items() if holder.expires <= now]:
                self._forget(key, id)

    def _forget(self, key: int, holder: int) -> None:
        gone = self._holders[key].pop(holder)
        self._told[gone.source] -= 1
        if not self._told[gone.source]:
            del self._told[gone.source]
        self._keys_of[holder].discard(key)
        if not self._keys_of[holder]:
            del self._keys_of[holder]
        if not self._holders[key]:
            del self._holders[key]
            # The last key takes the place of the one that goes.
            at, last = self._place.pop(key), self._keys.pop()
            if last != key:
                self._keys[at] = last
                self._place[last] = at
