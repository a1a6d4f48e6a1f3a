"""Authentication and authorisation: users, groups, tokens and the audit [security S1, S13, S17].

Everything is in memory and checked at each request, so that a revoked token is refused from the next one on. Rows for
the database go out through `keep`. A secret is shown once, when it is made; afterwards only its digest is kept.
Frequent uses (reads, exchanges) are counted per minute, actions have a row each.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from shoal.model import limits, people
from shoal.model.credentials import ENROL, LONGEST, SCOPES, SESSION, SUBMIT, digest, kind_of, make, redact
from shoal.model.errors import BadInput, Conflict, NotFound, Refused, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.model.policy import outward
from shoal.model.quantities import parse_duration
from shoal.wire.http.requests import NewGroup, NewToken, NewUser, Revoke, SiteHolders

DEFAULT_LIFE = {SUBMIT: 30 * 86_400.0, ENROL: 7 * 86_400.0}
NO_SITE = ("", "local")  # of pilots for which no site was named
PLAIN_SCOPES = ("submit", "read", "cancel")
TICKET_MORE = 86_400.0  # seconds that a ticket's certificate is good beyond its token, which ends the time to start in
KEEP_ENROL = 31 * 86_400.0  # seconds that an expired enrolment is remembered, as the database does
_ANEW = "ask an administrator for a new one: `shoal token new` or `shoal join`"
COUNT_FOR = 60.0  # seconds over which uses of one kind are one row of the audit


@dataclass(frozen=True)
class Caller:
    """The sender of a request, as far as the token proves it."""

    kind: str
    owner: str = ""
    group: str = ""
    role: str = "user"
    scopes: frozenset[str] = frozenset()
    token: str = ""
    expires: float = 0.0
    site: str = ""
    max_pilots: int | None = None
    pilot: str = ""  # of a session
    secret: str = dataclasses.field(default="", repr=False)
    address: str = ""
    tls: bool = False
    peer: str = ""  # the pilot that the client certificate names

    @property
    def is_admin(self) -> bool:
        """True if they may see and do everything."""
        return self.role == people.ADMIN and "admin" in self.scopes

    @property
    def holder(self) -> str:
        """The person or `@group` that they act for."""
        return self.owner or (f"@{self.group}" if self.group else "")

    @property
    def is_unproven(self) -> bool:
        """True for a session that no living pilot has."""
        return self.kind == SESSION and not self.pilot

    def manages(self, group: str) -> bool:
        """True if they manage a group."""
        return self.is_admin or (bool(group) and self.role == people.MANAGER and self.group == group)


def unauthorised() -> Refused:
    """The refusal of every token that is not one of ours, with one text so that nobody learns why [input E61]."""
    return Refused(
        "the token is missing, wrong or expired", code="unauthorised", hint="send Authorization: Bearer TOKEN"
    )


def _over(row: people.TokenRow, now: float) -> Refused | None:
    """The refusal of a token that is over, for whoever has its whole secret: nobody can guess 256 bits, so it is its
    owner, or somebody to whom it was given."""
    if row.revoked is not None:
        return Refused(f"the token {row.token} was revoked on {_day(row.revoked)}", code="token_revoked", hint=_ANEW)
    if now >= row.expires:
        return Refused(f"the token {row.token} expired on {_day(row.expires)}", code="token_expired", hint=_ANEW)
    return None


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


class Authentication:
    """Users, groups and tokens of one server."""

    def __init__(self, rows: people.PeopleRows, keep: Callable[[list[people.PeopleRow]], None]) -> None:
        self._next_audit = rows.next_audit
        self.users = {row.name: row for row in rows.users}
        self.groups = {row.name: row for row in rows.groups}
        self._by_digest = {row.digest: row.token for row in rows.tokens}
        self.tokens = {row.token: row for row in rows.tokens}
        self.sites = {row.name: row for row in rows.sites}
        self._keep = keep
        self._counts: dict[tuple[str, str, str, str, str], int] = {}
        self._touched: set[str] = set()
        self._counted_from = 0.0

    # --- authentication
    def check(self, secret: str, now: float, address: str, tls: bool = False) -> Caller:
        """The caller whose token this is; a session is unproven until the engine's pilots are compared."""
        kind = kind_of(secret)
        if kind == SESSION:
            return Caller(SESSION, secret=secret, address=address, tls=tls)
        row = self.tokens.get(self._by_digest.get(digest(secret), ""))
        if kind is None or row is None:
            raise unauthorised()
        if (over := _over(row, now)) is not None:
            raise over
        user = self.users.get(row.owner)
        if row.kind == SUBMIT and user is None:
            raise unauthorised()
        self.tokens[row.token] = row._replace(used=now, address=address)
        self._touched.add(row.token)
        group, role = (user.grp, user.role) if user is not None and row.kind == SUBMIT else (row.grp, "user")
        return Caller(
            row.kind, row.owner, group, role, frozenset(row.scopes.split()), row.token, row.expires, row.site,
            row.max_pilots, secret=secret, address=address, tls=tls,
        )  # fmt: skip

    def is_live(self, token: str) -> bool:
        """True if pilots that this token enrolled may still come back."""
        row = self.tokens.get(token)
        return row is not None and row.revoked is None

    def seen_by(self, caller: Caller) -> list[str] | None:
        """Owners whose things the caller may see; None: all."""
        if caller.is_admin:
            return None
        if caller.role == people.MANAGER and caller.group:
            return sorted({caller.owner, *(u.name for u in self.users.values() if u.grp == caller.group)})
        return [caller.owner]

    def sees(self, caller: Caller, owner: str) -> bool:
        """True if the caller may see (and act on) what belongs to this owner."""
        seen = self.seen_by(caller)
        return seen is None or owner in seen

    def holders(self, caller: Caller) -> list[str] | None:
        """The owners and @groups whose pilots and events the caller may see; None: all."""
        seen = self.seen_by(caller)
        return None if seen is None else [*seen, *(f"@{group}" for group in outward(caller.group))]

    # --- making and revoking tokens
    def mint(
        self, maker: Caller, request: NewToken, now: float, random: Callable[[int], str]
    ) -> tuple[people.TokenRow, str]:
        """A new token and its secret, with no more rights than its maker may give."""
        kind = request.kind
        if kind not in DEFAULT_LIFE:
            raise BadInput(f"{echo(kind)!r} is no kind of token", code="range", field="kind", hint="submit or enrol")
        owner = request.owner or ("" if request.group and kind == ENROL else maker.owner)
        self._check_giving(maker, kind, owner, request)
        scopes = self._scopes(maker, request)  # first: what they may not give at all is no question of its life
        life = DEFAULT_LIFE[kind] if request.expires is None else parse_duration(request.expires, "expires")
        left = maker.expires - now if maker.expires and not maker.is_admin else life
        if request.expires is None:
            life = min(life, left)
        if life > left:
            raise BadInput(
                "it would outlive the token that makes it", code="range", field="expires",
                hint=f"at most {left:.0f} s; an administrator can make one that lasts longer",
            )  # fmt: skip
        if not 0 < life <= LONGEST[kind]:
            raise BadInput(
                "too long a life", code="range", field="expires", hint=f"at most {LONGEST[kind] / 86_400:.0f} days"
            )
        for field, number in (("max_pilots", request.max_pilots), ("uses", request.uses)):
            if number is not None and (kind != ENROL or not 1 <= number <= limits.MAX_PILOTS):
                hint = f"1 to {limits.MAX_PILOTS}"
                raise BadInput("only enrolments have it, and from 1 on", code="range", field=field, hint=hint)
        if request.ticket and (kind != ENROL or request.uses != 1):
            raise BadInput("only an enrolment has it, for one pilot", code="range", field="ticket", hint="uses 1")
        if len(self.tokens) >= limits.MAX_TOKENS:
            self._forget(now)
        if len(self.tokens) >= limits.MAX_TOKENS:
            raise Conflict("there are too many tokens", code="too_many", hint="revoke some: `shoal token list`")
        holder = owner or f"@{request.group}"
        good = (row for row in self.tokens.values() if row.revoked is None and row.expires > now)
        if sum(1 for row in good if (row.owner or f"@{row.grp}") == holder) >= limits.MAX_TOKENS_OWNER:
            raise Conflict(
                f"{holder} has {limits.MAX_TOKENS_OWNER} tokens already", code="too_many",
                hint="revoke some: `shoal token list`",
            )  # fmt: skip
        made_with = self.tokens.get(maker.token)
        lineage = [
            *(made_with.lineage.split() if made_with is not None else ()),
            *([maker.token] if maker.token else ()),
        ]
        if len(lineage) > limits.MAX_LINEAGE:
            raise Conflict(
                f"{limits.MAX_LINEAGE} tokens were made with one another already", code="too_many",
                hint="use one that an administrator made",
            )  # fmt: skip
        site = _site(request.site)
        if kind == ENROL:
            self._take_site(maker, site, holder, now)
        secret = make(kind, random(32))
        row = people.TokenRow(
            self._name(random), kind, digest(secret), owner, request.group, site, scopes, request.max_pilots, request.uses,
            _note(request.note), maker.owner, now, now + life, None, None, "", " ".join(lineage),
        )  # fmt: skip
        self._put(row)
        return row, secret

    # --- owners of site names
    def check_site(self, site: str, holder: str) -> None:
        """Refuse pilots of an owner or @group under a site name of another's, or inside it, such as `box.a` of `box`. The
        names that stand for no site are everybody's."""
        for name in outward(site) if site not in NO_SITE else ():
            row = self.sites.get(name)
            if row is not None and row.holders and not row.lets(holder):
                raise Refused(
                    f"the site name {echo(name)} belongs to somebody else", code="site_taken", field="site",
                    hint="choose another name, or ask an administrator: `shoal site share`",
                )  # fmt: skip

    def _take_site(self, maker: Caller, site: str, holder: str, now: float) -> None:
        """Give a site name to the holder of its first enrolment token; later ones of an administrator share it."""
        row = self.sites.get(site)
        if not maker.is_admin:
            self.check_site(site, holder)
        if site in NO_SITE or (row is not None and row.lets(holder)):
            return
        if row is None and len(self.sites) >= limits.MAX_SITES:
            raise Conflict("there are too many sites", code="too_many", hint="use one of yours: `shoal site list`")
        if sum(1 for one in self.sites.values() if holder in one.holders.split()) >= limits.MAX_SITES_OWNER:
            raise Conflict(
                f"{holder} has {limits.MAX_SITES_OWNER} site names already", code="too_many",
                hint="use one of them: `shoal site list`; an administrator can give more: `shoal site share`",
            )  # fmt: skip
        before = row.holders if row is not None else ""
        self._put_site(people.SiteRow(site, f"{before} {holder}".strip(), row.created if row is not None else now))

    def share_site(self, request: SiteHolders, now: float) -> people.SiteRow:
        """Set the holders of a site name: these too, or these only; without any the next token takes it."""
        site = people.check_name(request.name, "name")
        for holder in request.holders:
            kind, known = ("group", set(self.groups)) if holder.startswith("@") else ("user", set(self.users))
            if holder != people.EVERYBODY and holder.removeprefix("@") not in known:
                hint = "a user, @GROUP or * for everybody"
                raise NotFound(f"there is no {kind} {echo(holder)}", code=f"unknown_{kind}", hint=hint)
        row = self.sites.get(site)
        if row is None and len(self.sites) >= limits.MAX_SITES:
            raise Conflict("there are too many sites", code="too_many", hint=f"at most {limits.MAX_SITES}")
        before = row.holders.split() if row is not None and not request.only else []
        holders = " ".join(dict.fromkeys([*before, *request.holders]))
        return self._put_site(people.SiteRow(site, holders, row.created if row is not None else now))

    def _put_site(self, row: people.SiteRow) -> people.SiteRow:
        self.sites[row.name] = row
        self._keep([row])
        return row

    def _check_giving(self, maker: Caller, kind: str, owner: str, request: NewToken) -> None:
        if request.group:
            if kind != ENROL or request.owner:
                raise BadInput(
                    "a pilot serves one owner or one group", code="usage", field="group", hint="give owner or group"
                )
            if request.group not in self.groups or not maker.manages(request.group):
                raise NotFound(
                    f"there is no group {echo(request.group)}", code="unknown_group", hint="see `shoal group list`"
                )
        elif owner not in self.users or (owner != maker.owner and not maker.is_admin):
            raise NotFound(f"there is no user {echo(owner)}", code="unknown_user", hint="see `shoal user list`")
        if kind == ENROL and request.scopes:
            raise BadInput("an enrolment has no scopes", code="usage", field="scopes")

    def _scopes(self, maker: Caller, request: NewToken) -> str:
        """The scopes of a new token, never more than its maker has [Slurm CVE-2025-43904]."""
        if request.kind == ENROL:
            return ""
        wanted = request.scopes or [scope for scope in PLAIN_SCOPES if scope in maker.scopes]
        for scope in wanted:
            if scope not in SCOPES:
                raise BadInput(f"{echo(scope)!r} is no scope", code="range", field="scopes", hint=", ".join(SCOPES))
            if scope not in maker.scopes and not maker.is_admin:
                raise Refused(f"you have no scope {scope} to give", code="forbidden", hint="ask an administrator")
        if "admin" in wanted and self.users[request.owner or maker.owner].role != people.ADMIN:
            raise Refused(
                "only an administrator can have the scope admin", code="forbidden", hint="see `shoal user add --role`"
            )
        return " ".join(dict.fromkeys(wanted))

    def _name(self, random: Callable[[int], str]) -> str:
        while True:
            name = "t" + digest(random(16))[:7]
            if name not in self.tokens:
                return name

    def spend(self, token: str, uses: int) -> None:
        """Count enrolments with a token, or give them back if negative."""
        row = self.tokens.get(token)
        if row is None or (row.uses is not None and row.uses < uses):
            raise unauthorised()  # another enrolment was faster
        if row.uses is not None:
            self._put(row._replace(uses=row.uses - uses))

    def ticket_holders(self, tokens: Iterable[str] | None = None) -> tuple[tuple[str, str, str], ...]:
        """Site, owner or group, and name of those tokens that a ticket may go with; None: of all that are revoked."""
        rows = (
            [self.tokens[name] for name in tokens if name in self.tokens]
            if tokens is not None
            else [row for row in self.tokens.values() if row.revoked is not None]
        )
        return tuple((row.site, row.owner or f"@{row.grp}", row.token) for row in rows if _may_have_ticket(row))

    def revoke(self, caller: Caller, request: Revoke, now: float) -> list[str]:
        """Revoke tokens and all that were made with them; returns their names. Those of others are refused as unknown."""
        given = [bool(request.tokens), bool(request.user), bool(request.site), request.all]
        if sum(given) != 1:
            raise BadInput("name tokens, or a user, or a site, or all", code="usage", hint="one of them")
        if not request.tokens and not caller.is_admin:
            raise Refused("only an administrator may", code="forbidden", hint="name your own tokens")
        forgotten: set[str] = set()  # names of tokens that left memory, while tokens made with them are here
        if request.tokens:
            rows = []
            made = {name for row in self.tokens.values() for name in row.lineage.split()} if caller.is_admin else set()
            for name in dict.fromkeys(request.tokens):  # each counts once
                row = self.tokens.get(name)
                if row is None and name in made:
                    forgotten.add(name)
                    continue
                if row is None or not (caller.is_admin or row.owner == caller.owner or caller.manages(row.grp)):
                    raise NotFound(
                        f"there is no token {echo(name)}", code="unknown_token", hint="see `shoal token list`"
                    )
                rows.append(row)
        else:
            rows = [
                row
                for row in self.tokens.values()
                if row.revoked is None and _is_meant(request, row) and row.token != caller.token
            ]
        named = {row.token for row in rows} | forgotten
        spared = caller.token if not request.tokens else ""
        rows += [
            row
            for row in self.tokens.values()
            if row.token not in named and row.token != spared and not named.isdisjoint(row.lineage.split())
        ]
        for row in rows:
            if row.revoked is None:
                self._put(row._replace(revoked=now))
        return [row.token for row in rows]

    def ended(self, request: Revoke) -> list[str]:
        """Tokens of a user, of a site, or all, that were revoked before, and those revoked with them: their pilots are
        still enrolled if the server met a defect when it was to expel them."""
        meant = {row.token for row in self.tokens.values() if _is_meant(request, row)}
        return [
            row.token
            for row in self.tokens.values()
            if row.revoked is not None and (row.token in meant or not meant.isdisjoint(row.lineage.split()))
        ]

    def _put(self, row: people.TokenRow) -> None:
        self.tokens[row.token] = row
        self._by_digest[row.digest] = row.token
        self._keep([row])

    def _forget(self, now: float) -> None:
        """Remove revoked and expired tokens from memory; the database keeps them for longer. An enrolment token that only
        expired stays while its pilots may come back, and a revoked one while its ticket must be shut out; the newest of these, so
        that whoever makes and revokes many takes nobody's place."""
        shut_out: Counter[str] = Counter()
        for row in sorted(self.tokens.values(), key=lambda row: -row.created):
            if row.revoked is not None:
                holder = row.owner or f"@{row.grp}"
                is_over = not _may_have_ticket(row) or row.expires + TICKET_MORE <= now
                is_over = is_over or shut_out[holder] >= limits.MAX_TOKENS_OWNER
                shut_out[holder] += 1
            else:
                is_over = row.expires + (KEEP_ENROL if row.kind == ENROL else 0.0) <= now
            if is_over:
                del self.tokens[row.token]
                self._by_digest.pop(row.digest, None)

    # --- people
    def add_user(self, request: NewUser, now: float, trusted: bool = False) -> people.UserRow:
        """Add a person, or change their group and role. `trusted`: the account the server runs under."""
        if not trusted:
            people.check_name(request.name, "name")
        if request.role not in people.ROLES:
            raise BadInput(
                f"{echo(request.role)!r} is no role", code="range", field="role", hint=", ".join(people.ROLES)
            )
        if request.group and request.group not in self.groups:
            raise NotFound(
                f"there is no group {echo(request.group)}", code="unknown_group", hint="add it: `shoal group add`"
            )
        if len(self.users) >= limits.MAX_USERS and request.name not in self.users:
            raise Conflict("there are too many users", code="too_many", hint=f"at most {limits.MAX_USERS}")
        before = self.users.get(request.name)
        admins = [row.name for row in self.users.values() if row.role == people.ADMIN]
        if request.role != people.ADMIN and admins == [request.name]:
            raise Conflict("this is the last administrator", code="last_admin", hint="make another one first")
        row = people.UserRow(request.name, request.group, request.role, before.created if before is not None else now)
        self.users[row.name] = row
        self._keep([row])
        return row

    def add_group(self, request: NewGroup, now: float) -> people.GroupRow:
        """Add a group; one that is there stays."""
        row = self.groups.get(people.check_name(request.name, "name")) or people.GroupRow(request.name, now)
        self.groups[row.name] = row
        self._keep([row])
        return row

    # --- the audit
    def note(self, caller: Caller | None, what: str, about: str, outcome: str, now: float, address: str = "") -> None:
        """Write a row of the audit; a failed authentication has an address only."""
        token, owner = (caller.token, caller.owner) if caller is not None else ("", "")
        where = caller.address if caller is not None else address
        self._keep([self._audit_row(now, token, owner, where, what, about, outcome, 1)])

    def count(self, caller: Caller | None, what: str, outcome: str, now: float, address: str = "") -> None:
        """Count a use of which there may be many."""
        token, owner = (caller.token, caller.owner) if caller is not None else ("", "")
        key = (token, owner, caller.address if caller is not None else address, what, outcome)
        if key not in self._counts and len(self._counts) >= limits.MAX_TOKENS:
            key = ("", "", "many", what, outcome)  # an attack from many addresses must not fill the memory
        self._counts[key] = self._counts.get(key, 0) + 1
        if now - self._counted_from > COUNT_FOR:
            self.flush(now)

    def flush(self, now: float) -> None:
        """Write the counted uses, and when each token was last used."""
        rows: list[people.PeopleRow] = [self.tokens[name] for name in self._touched if name in self.tokens]
        for (token, owner, address, what, outcome), times in self._counts.items():
            rows.append(self._audit_row(now, token, owner, address, what, "", outcome, times))
        self._counts, self._touched, self._counted_from = {}, set(), now
        if rows:
            self._keep(rows)

    def _audit_row(
        self, now: float, token: str, owner: str, address: str, what: str, about: str, outcome: str, times: int
    ) -> people.AuditRow:
        row = people.AuditRow(self._next_audit, now, token, owner, address, what, redact(echo(about)), outcome, times)
        self._next_audit += 1
        return row


def _is_meant(request: Revoke, row: people.TokenRow) -> bool:
    """True if a token is one of a user's, a site's or all that are to be revoked."""
    return (
        request.all
        or bool(request.user and row.owner == request.user)
        or bool(request.site and row.site == request.site)
    )


def _site(name: str) -> str:
    return name if name in NO_SITE else people.check_name(name, "site")


def _note(text: str) -> str:
    if len(text.encode("utf-8", "replace")) > limits.MAX_NAME:
        raise BadInput("the note is too long", code="too_long", field="note", hint=f"at most {limits.MAX_NAME} bytes")
    return redact(text)


def _may_have_ticket(row: people.TokenRow) -> bool:
    """True if a ticket may go with a token: its one use is left or was made [ADR 0065]."""
    return row.kind == ENROL and row.uses in (0, 1)
