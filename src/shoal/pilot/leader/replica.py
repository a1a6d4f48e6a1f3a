"""What every member of a mesh keeps: who is a member, the window, and which of its tasks were given to whom. Pure.

The leader of a term numbers all changes; the others take them in this order. What a majority has is *committed*: whoever is
elected later hears of it from one of its voters. A change replaces older ones of the same name, so that a member which joins
gets what is left, not the history.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

from shoal.pilot.leader.messages import GIVEN, GONE, LEFT, MEMBER, TASK, Entry
from shoal.wire import codec
from shoal.wire.messages import Lease

ANSWER_BYTES = 40_000  # of entries in one message: a frame takes more, and one entry may be large
ANSWER_ENTRIES = 200


class Replica:
    """The entries of one term, at its leader or at a follower."""

    def __init__(self, term: int = 0) -> None:
        self.term = term
        self.terms: dict[str, int] = {}  # of what was given: the term of the leader that did so last
        self.version = 0  # every entry up to this one is here
        self.members: dict[str, str] = {}  # id -> address
        self.tasks: OrderedDict[str, Lease] = OrderedDict()  # attempts that are in the window
        self.given: dict[str, str] = {}  # of them or others -> id of the member
        self.given_to: dict[str, dict[str, int]] = {}  # id -> what it was given, with the number of that
        self._entries: OrderedDict[tuple[str, str], Entry] = OrderedDict()  # the last of each kind and name, in order

    @property
    def majority(self) -> int:
        """How many members are more than half."""
        return len(self.members) // 2 + 1

    def unstarted(self) -> list[str]:
        """Tasks of the window that were given to nobody, in order."""
        return [attempt for attempt in self.tasks if attempt not in self.given]

    def add(self, kind: str, name: str, value: str = "", lease: Optional[Lease] = None) -> int:
        """The leader adds a change; returns its number."""
        self.take(Entry(self.version + 1, kind, name, value, lease))
        return self.version

    def take(self, entry: Entry) -> bool:
        """Take the next change, as its leader numbered it; False: it was here before."""
        if entry.number <= self.version:
            return False
        self.version = entry.number
        if entry.kind == MEMBER:
            self.members[entry.name] = entry.value
            self._forget(LEFT, entry.name)
        elif entry.kind == LEFT:
            self.members.pop(entry.name, None)
            self._forget(MEMBER, entry.name)
        elif entry.kind == TASK and entry.lease is not None and (GONE, entry.name) not in self._entries:
            self.tasks[entry.name] = entry.lease
        elif entry.kind == GIVEN:
            self.given_to.get(self.given.get(entry.name, ""), {}).pop(entry.name, None)
            self.given[entry.name], self.terms[entry.name] = entry.value, self.term
            self.given_to.setdefault(entry.value, {})[entry.name] = entry.number
        elif entry.kind == GONE:
            self.tasks.pop(entry.name, None)
            self.given_to.get(self.given.pop(entry.name, ""), {}).pop(entry.name, None)
            self.terms.pop(entry.name, None)
            self._forget(TASK, entry.name)
            self._forget(GIVEN, entry.name)
        self._forget(entry.kind, entry.name)
        self._entries[entry.kind, entry.name] = entry
        return True

    def _forget(self, kind: str, name: str) -> None:
        self._entries.pop((kind, name), None)

    def since(self, version: int) -> tuple[list[Entry], bool]:
        """Changes after this one that fit into a message, and whether there are more."""
        newer: list[Entry] = []
        for entry in reversed(self._entries.values()):
            if entry.number <= version:
                break
            newer.append(entry)
        return fitting(reversed(newer))

    def said(self) -> list[Entry]:
        """Everything but the tasks themselves, oldest first: what a candidate has to hear. What was given has the number of its
        term: of two members that a task was given to, the later one counts, since only that may have been committed."""
        return [
            replace(entry, number=self.terms[entry.name]) if entry.kind == GIVEN else entry
            for entry in self._entries.values()
            if entry.kind != TASK
        ]

    def hear(self, said: Entry) -> None:
        """Take what another replica says."""
        if said.kind == GIVEN:
            if said.number < self.terms.get(said.name, 0) or (GONE, said.name) in self._entries:
                return
            self.add(GIVEN, said.name, said.value)
            self.terms[said.name] = said.number
        else:
            self.add(said.kind, said.name, said.value)


def fitting(entries: Iterable[Entry]) -> tuple[list[Entry], bool]:
    """The first of them that fit into a message, and whether others are left."""
    found: list[Entry] = []
    size = 0
    for entry in entries:
        size += 250 if entry.lease is None else len(codec.encode(entry.lease)) + 250
        if found and (size > ANSWER_BYTES or len(found) >= ANSWER_ENTRIES):
            return found, True
        found.append(entry)
    return found, False
