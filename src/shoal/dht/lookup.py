"""One lookup: which peers to ask next, until the closest ones to a key have answered or a holder is known.

Each answer brings contacts that are closer to the key; a few are asked at a time. A lookup along several disjoint paths asks
no peer twice, and follows what one path hears on that path only, so that one hostile peer misleads one path [ADR 0046].
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import NamedTuple

from shoal.dht.routing_table import BUCKET_SIZE, Contact

REPLICAS = 3  # peers that keep a record: those closest to its key
FRONTIER = 8  # of the closest peers that a path knows, all must have answered before it ends: some keepers may be dead
PARALLEL = 3  # requests without an answer at one time
MAX_ASKED = 60  # peers that one lookup asks at most: hostile ones could name others for ever


class Query(NamedTuple):
    """Ask this contact."""

    contact: Contact
    hop: int  # 1: a contact that we knew before


class _Path:
    """The peers that one path knows of."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Contact, int]] = {}  # id -> contact and hop
        self.dead: set[int] = set()


class Lookup:
    """The peers closest to a key, or holders of the file with that digest."""

    def __init__(self, key: int, own: int, start: Iterable[Contact], *, wants_holders: bool, paths: int = 1) -> None:
        self.key, self._own, self._wants_holders = key, own, wants_holders
        self._paths = [_Path() for _ in range(paths)]
        for number, contact in enumerate(start):
            self._paths[number % paths].known[contact.id] = (contact, 1)
        self._path_of: dict[int, _Path] = {}  # whom we asked, and on which path
        self._waiting: set[int] = set()
        self._answered: set[int] = set()
        self.holders: dict[int, Contact] = {}
        self.hops = 0  # of the longest chain of answers so far

    @property
    def asked(self) -> int:
        """Requests that were sent."""
        return len(self._path_of)

    def next_queries(self) -> list[Query]:
        """Whom to ask now. Each path asks those closest to the key that it has not asked; it ends when those have answered."""
        found: list[Query] = []
        if self._wants_holders and self.holders and len(self._paths) == 1:
            return found
        for path in self._paths:
            free = max(1, PARALLEL // len(self._paths)) - sum(1 for id in self._waiting if self._path_of[id] is path)
            for contact, hop in self._frontier(path):
                if free <= 0 or len(self._path_of) >= MAX_ASKED:
                    break
                if contact.id in self._path_of:
                    continue
                self._path_of[contact.id] = path
                self._waiting.add(contact.id)
                found.append(Query(contact, hop))
                free -= 1
        return found

    def note_answer(self, id: int, contacts: Iterable[Contact], holders: Iterable[Contact] = ()) -> None:
        """A peer answered; answers of peers that were not asked, or were given up, count for nothing."""
        if id not in self._waiting:
            return
        self._waiting.discard(id)
        self._answered.add(id)
        path = self._path_of[id]
        hop = path.known[id][1]
        self.hops = max(self.hops, hop)
        for contact in list(contacts)[:BUCKET_SIZE]:
            if contact.id != self._own:
                path.known.setdefault(contact.id, (contact, hop + 1))
        self.holders.update((holder.id, holder) for holder in holders)

    def note_failure(self, id: int) -> None:
        """A peer did not answer in time."""
        if id in self._waiting:
            self._waiting.discard(id)
            self._path_of[id].dead.add(id)

    @property
    def is_done(self) -> bool:
        """True if nobody is waited for and there is nobody to ask. Call it after `next_queries` gave nothing."""
        if self._wants_holders and self.holders and len(self._paths) == 1:
            return True
        return not self._waiting

    def closest(self, count: int = REPLICAS) -> list[Contact]:
        """The closest peers that answered."""
        known = {id: contact for path in self._paths for id, (contact, _) in path.known.items() if id in self._answered}
        return nsmallest(count, known.values(), key=lambda contact: contact.id ^ self.key)

    def _frontier(self, path: _Path) -> list[tuple[Contact, int]]:
        """The closest peers that this path knows and that are not dead: when all of them have answered, it is at its end."""
        alive = (entry for id, entry in path.known.items() if id not in path.dead)
        return nsmallest(FRONTIER, alive, key=lambda entry: entry[0].id ^ self.key)
