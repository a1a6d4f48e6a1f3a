"""Calls about people and tokens. A secret is shown once, to whoever made it."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from dataclasses import asdict, replace

from shoal.engine.commands import Expel, Regroup
from shoal.engine.windows.leaders import is_distributed
from shoal.engine.windows.tickets import make_ticket
from shoal.model.credentials import ENROL
from shoal.model.people import EVERYBODY, SiteRow, TokenRow
from shoal.server.auth.authentication import TICKET_MORE
from shoal.server.context import CallHandler
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer
from shoal.wire.http.requests import NewGroup, NewToken, NewUser, Revoke, SiteHolders


class PeopleHandler(CallHandler):
    """Calls about people, groups, sites and tokens."""

    async def whoami(self, call: Call) -> Response:
        """The caller, as their token identifies them."""
        who = call.caller
        return answer(
            {
                "owner": who.owner, "group": who.group, "role": who.role, "kind": who.kind, "scopes": sorted(who.scopes),
                "expires": who.expires, "token": who.token,
            }
        )  # fmt: skip

    async def users(self, call: Call) -> Response:
        """People the caller may see."""
        seen = self.access.seen_by(call.caller)
        rows = [row for row in self.access.users.values() if seen is None or row.name in seen]
        shares = self.service.engine.state.accounting.policy.shares
        return answer(
            {"users": [{**_plain(row._asdict()), "share": shares.get(row.name, 1.0)} for row in sorted(rows)]}
        )

    async def groups(self, call: Call) -> Response:
        """All groups for administrators, their own for others."""
        rows = [g for g in self.access.groups.values() if call.caller.is_admin or g.name == call.caller.group]
        members, shares = self.access.users.values(), self.service.engine.state.accounting.policy.shares
        return answer(
            {
                "groups": [
                    {
                        **row._asdict(),
                        "users": sum(1 for user in members if user.grp == row.name),
                        "share": shares.get(f"@{row.name}", 1.0),
                    }
                    for row in sorted(rows)
                ]
            }
        )

    async def add_user(self, call: Call) -> Response:
        """Add a person, or change their group and role."""
        request = await call.body(NewUser)
        call.about = f"{request.name} {request.group} {request.role}"
        self.service.check_whole()  # before anything is changed
        row = self.access.add_user(request, self.service.clock())
        await self.service.command(Regroup(row.name, row.grp))
        return answer(_plain(row._asdict()))

    async def add_group(self, call: Call) -> Response:
        """Add a group."""
        request = await call.body(NewGroup)
        call.about = request.name
        row = self.access.add_group(request, self.service.clock())
        await self.service.writer.settled()
        return answer(row._asdict())

    async def sites(self, call: Call) -> Response:
        """All sites for administrators; for others those under whose names they, or their group, may have pilots."""
        holders = self.access.holders(call.caller)
        rows = [row for row in self.access.sites.values() if holders is None or any(row.lets(h) for h in holders)]
        return answer({"sites": [_site(row, holders) for row in sorted(rows)]})

    async def share_site(self, call: Call) -> Response:
        """Set who may have pilots under the name of a site."""
        request = await call.body(SiteHolders)
        call.about = f"{request.name} {' '.join(request.holders)}"
        row = self.access.share_site(request, self.service.clock())
        await self.service.writer.settled()
        return answer(_site(row, None))

    async def tokens(self, call: Call) -> Response:
        """Tokens without their secrets, with their last use."""
        self.access.flush(self.service.clock())
        await self.service.writer.settled()
        owner = None if call.caller.is_admin else call.caller.owner
        group = call.caller.group if call.caller.manages(call.caller.group) else ""
        dead, limit, now = bool(call.number("all")), call.number("limit"), self.service.clock()
        rows = await self.service.query(lambda r: r.tokens(now=now, owner=owner, group=group, dead=dead, limit=limit))
        counts = Counter(pilot.token for pilot in self.service.engine.state.pilots.values())
        return answer({"tokens": [{**_plain(row), "pilots": counts[row["token"]]} for row in rows]})

    async def new_token(self, call: Call) -> Response:
        """A new token; its secret is in this response and nowhere else."""
        request = await call.body(NewToken)
        context = self.context
        row, secret = self.access.mint(call.caller, request, self.service.clock(), secrets.token_urlsafe)
        call.about = f"{row.token} {row.kind} {row.owner or '@' + row.grp} {row.site}"
        await self.service.writer.settled()
        return answer(
            {
                "id": row.token, "token": secret, "kind": row.kind, "owner": row.owner, "group": row.grp, "site": row.site,
                "expires": row.expires, "addresses": context.addresses,
                "fingerprint": context.authority.fingerprint if context.authority is not None else "",
                "pilot_sha256": await context.pilot_digest() if row.kind == ENROL else "",
                "ticket": await self._ticket(row) if request.ticket else None,
            }
        )  # fmt: skip

    async def _ticket(self, row: TokenRow) -> dict[str, object] | None:
        """What the pilot of an enrolment needs if it starts while we are away; None: no site of this server goes on then, or
        not that one."""
        state, authority = self.service.engine.state, self.context.authority
        if authority is None or not row.site or not is_distributed(state, row.site):
            return None
        made = make_ticket(state, (row.site, row.owner or f"@{row.grp}"), row.token)
        now = self.service.clock()
        pem, key = await asyncio.to_thread(
            authority.pilot_certificate, f"ticket-{row.token}", row.expires - now + TICKET_MORE, now, made.peer
        )
        return {"registered": asdict(replace(made, certificate=pem, key=key)), "authority": authority.ca_pem}

    async def revoke(self, call: Call) -> Response:
        """Revoke tokens and expel the pilots they enrolled; also of tokens revoked before, whose pilots a defect may have
        kept."""
        request = await call.body(Revoke)
        self.service.check_whole()  # before anything is changed
        ended = self.access.ended(request)
        names = self.access.revoke(call.caller, request, self.service.clock())
        call.about = " ".join(names[:8])
        done = await self.service.command(
            Expel((*names, *ended), "its enrolment token was revoked", self.access.ticket_holders((*names, *ended)))
        )
        return answer({"revoked": len(names), "pilots": done["pilots"]})

    async def audit(self, call: Call) -> Response:
        """Who did what, newest first."""
        self.access.flush(self.service.clock())
        await self.service.writer.settled()
        limit, before = call.number("limit"), call.number_or_none("before")
        token, owner = call.text("token"), call.text("owner")
        rows = await self.service.query(lambda r: r.audit(limit=limit, before=before, token=token, owner=owner))
        return answer({"audit": rows, "next": rows[-1]["seq"] if len(rows) == limit else None})


def _site(row: SiteRow, seen: list[str] | None) -> dict[str, object]:
    """A site with those of its holders that the caller may see; None: all."""
    named = [name for name in row.holders.split() if seen is None or name in seen or name == EVERYBODY]
    return {"name": row.name, "holders": named, "created": row.created}


def _plain(row: dict[str, object]) -> dict[str, object]:
    """The row with `group` instead of `grp`, as the column is called because `group` is a keyword of SQL."""
    return {("group" if name == "grp" else name): value for name, value in row.items() if name != "digest"}
