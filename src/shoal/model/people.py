"""Who is who: users, groups, their tokens, and the record of every use [security S1, S13, S17]; rows as the database
keeps them."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Union

from shoal.model.errors import BadInput, echo

EVERYBODY = "*"
USER, MANAGER, ADMIN = "user", "manager", "admin"
ROLES = (USER, MANAGER, ADMIN)
_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,63}")
_RESERVED = ("root", "admin", "local", "all", "none", "my", "task")  # the last two begin names in expressions


class UserRow(NamedTuple):
    """One person. The tree has two levels: a user is in one group or in none."""

    name: str
    grp: str
    role: str
    created: float


class GroupRow(NamedTuple):
    """People who share pilots."""

    name: str
    created: float


class TokenRow(NamedTuple):
    """One secret, known by its digest only."""

    token: str  # its public name: t3f9c01
    kind: str
    digest: str
    owner: str
    grp: str  # of an enrolment: pilots serve this group
    site: str
    scopes: str  # of a submit token, separated by blanks
    max_pilots: Optional[int]
    uses: Optional[int]  # enrolments left; None: as many as there may be pilots
    note: str
    maker: str
    created: float
    expires: float
    revoked: Optional[float]
    used: Optional[float]
    address: str
    lineage: str = ""  # the tokens it was made with, the first one first, separated by blanks: revoked with any of them


class AuditRow(NamedTuple):
    """One use of a secret, or a minute's uses of one kind: reads and beats are counted, acts stand alone."""

    seq: int
    time: float
    token: str
    owner: str
    address: str
    what: str
    about: str
    outcome: str
    times: int


class SiteRow(NamedTuple):
    """Who may have pilots under the name of a site: those who had the first enrolment token for it, and whoever an
    administrator shares it with."""

    name: str
    holders: str  # owners and @groups, separated by blanks; "*": everybody; empty: whoever comes next
    created: float

    def lets(self, holder: str) -> bool:
        """May pilots of this owner or @group come in under its name?"""
        named = self.holders.split()
        return holder in named or EVERYBODY in named


class PeopleRows(NamedTuple):
    """Everybody whom a database knows, the tokens that may still be used, and the next number of the audit."""

    users: list[UserRow]
    groups: list[GroupRow]
    tokens: list[TokenRow]
    sites: list[SiteRow]
    next_audit: int


PeopleRow = Union[UserRow, GroupRow, TokenRow, AuditRow, SiteRow]


def check_name(name: str, field: str) -> str:
    """A name for a user, group or site that harms nobody [input E76]."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise BadInput(
            f"{echo(name)!r} cannot be a name here",
            code="bad_name",
            field=field,
            hint="a to z, 0 to 9, _ . - and at most 64 of them, not " + ", ".join(_RESERVED),
        )
    return name
