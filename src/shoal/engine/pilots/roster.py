"""The roster of one mesh: which living pilots of one site and one owner or group share files, and what changed [LBO D1].

Pure bookkeeping; who may see what of it is decided in `mesh`.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from random import Random
from typing import NamedTuple

from shoal.model.limits import MAX_NEIGHBOURS, MAX_ROSTER_CHANGES, ROSTER_KEPT, SMALL_MESH


class Member(NamedTuple):
    """One pilot as a peer."""

    pilot: str
    id: str  # 64 hexadecimal digits
    address: str  # where its listener is; empty: others do not reach it, it only asks


class Change(NamedTuple):
    """A member came (or is reached elsewhere), or is one no longer."""

    number: int
    member: Member
    is_gone: bool


class Roster:
    """The members of one mesh, by their ids."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.shut_out: dict[str, None] = {}  # ids of living pilots that others accused of wrong bytes
        self.accusers: dict[str, set[str]] = {}  # id -> identities of the hosts that accused it
        self.number = 0  # of the last change
        self.seen: dict[str, int] = {}  # id -> the last change that this member was told of
        self._changes: deque[Change] = deque(maxlen=ROSTER_KEPT)

    def enter(self, member: Member) -> None:
        """A pilot is a member, or is reached at another address."""
        if self.members.get(member.id) == member or member.id in self.shut_out:
            return
        self.members[member.id] = member
        self._note(member, False)

    def leave(self, id: str) -> None:
        """A member ended; nothing of it is kept."""
        self.shut_out.pop(id, None)
        self.accusers.pop(id, None)
        self.withdraw(id)

    def withdraw(self, id: str) -> None:
        """A member takes part no longer, although its pilot lives: what it is accused of stays."""
        self.seen.pop(id, None)
        member = self.members.pop(id, None)
        if member is not None:
            self._note(member, True)

    def shut(self, id: str) -> None:
        """A member is none any more although its pilot lives."""
        member = self.members.pop(id, None)
        if member is not None:
            self.shut_out[id] = None
            self._note(member, True)

    def bar(self, id: str) -> None:
        """Tell all members that this id, which was never on the roster, is of no member."""
        self._note(Member("", id, ""), True)

    def contacts(self, own: str) -> list[Member]:
        """Some members that can be reached, at random but the same for the same id."""
        others = [member for member in self.members.values() if member.address and member.id != own]
        return Random(own).sample(others, min(len(others), MAX_NEIGHBOURS))

    def since(self, number: int, own: str) -> tuple[list[Member], list[str], int]:
        """The members that came and the ids that went after a change, and the number of the last change in these lists. In
        a large mesh newcomers are not told: peers meet them through the table."""
        later = list(takewhile(lambda change: change.number > number, reversed(self._changes)))[::-1]
        later = later[:MAX_ROSTER_CHANGES]
        gone = {change.member.id: None for change in later if change.is_gone}
        came: dict[str, Member] = {}
        if len(self.members) <= SMALL_MESH:
            found = (self.members.get(change.member.id) for change in later if not change.is_gone)
            came = {member.id: member for member in found if member is not None and member.address and member.id != own}
        return list(came.values()), [id for id in gone if id not in self.members], later[-1].number if later else number

    def _note(self, member: Member, is_gone: bool) -> None:
        self.number += 1
        self._changes.append(Change(self.number, member, is_gone))
