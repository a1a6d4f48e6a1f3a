"""Users, groups, their tokens, sites and the audit record [security S1, S13, S17]: their rows in the database."""

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
    lineage: str = (
        ""  # the tokens that it was made with, the oldest first, separated by blanks: revoked with any of them
    )


class AuditRow(NamedTuple):
    """One use of a secret, or a minute's uses of one kind: reads and exchanges are counted, changes have a row each."""

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
    """The owners and groups that may have pilots under the name of a site: the first one with an enrolment token for
    it, and those that an administrator adds."""

    name: str
    holders: str  # owners and @groups, separated by blanks; "*": everybody; empty: the next one with an enrolment token
    created: float

    def lets(self, holder: str) -> bool:
        """True if pilots of this owner or @group may register under its name."""
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
    """Check the name of a user, group or site: it is used in paths and expressions [input E76]."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise BadInput(
            f"{echo(name)!r} cannot be a name here",
            code="bad_name",
            field=field,
            hint="a to z, 0 to 9, _ . - and at most 64 of them, not " + ", ".join(_RESERVED),
        )
    return name
