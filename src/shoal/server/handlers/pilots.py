"""Calls of pilots and about them: enrol, exchange, the pilot itself; list, drain, hosts."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

from shoal.engine.commands import Drain, Enrol
from shoal.engine.pilots import mesh
from shoal.engine.pilots.exchange import disowned
from shoal.engine.pilots.hosts import key_of
from shoal.engine.records import Pilot
from shoal.engine.windows import leaders
from shoal.engine.windows.tickets import ticket_id
from shoal.model.credentials import ENROL, LONGEST, SESSION, digest
from shoal.model.errors import BadInput, NotFound, Refused, ShoalError, echo
from shoal.model.file_names import BLOBS, LOG_MARK, LOGS
from shoal.model.ids import is_pilot
from shoal.model.limits import MAX_SHUT_OUT
from shoal.model.quantities import parse_duration
from shoal.server.auth.authentication import Caller, unauthorised
from shoal.server.context import CallHandler
from shoal.server.exchanges.content import begin
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer
from shoal.wire.http.requests import DrainRequest
from shoal.wire.messages import PROTOCOL, Exchange, Register, Reply
from shoal.wire.old_protocol import for_protocol

CERTIFICATE_LASTS = 30 * 86_400.0
SECRETS = ("session", "former", "identity", "token", "revoked", "bound")  # columns that nobody is shown


class PilotsHandler(CallHandler):
    """Calls of pilots and about them."""

    # --- calls of pilots
    async def enrol(self, call: Call) -> Response:
        """Enrol a pilot by a token, or one that comes back by the session it had."""
        if self._is_unknown_session(call.caller):
            raise unauthorised()
        register = await call.body(Register)
        self.service.check_whole()  # a defect while the body arrived would leave a half-changed state
        is_bound = self.context.authority is not None and call.caller.tls and not register.unfit
        command = replace(self._enrolment(call.caller, register), bound=is_bound)
        self.access.check_site(command.site, command.owner or f"@{command.group}")
        if register.site and register.site != command.site:
            hint = "leave the site out"
            raise Refused(f"this token is for site {echo(command.site)}", code="other_site", field="site", hint=hint)
        spent = call.caller.kind == ENROL and not register.unfit and self._spend(command)
        try:
            registered = await self.service.command(command)
        except ShoalError:
            if spent:
                self.access.spend(command.token, -1)
            raise
        call.about = f"{registered.pilot} {register.host}"
        reply = {**vars(registered), "log_dir": str(self.service.state_dir / LOGS), "log_mark": LOG_MARK,
            "blob_dir": str(self.service.state_dir / BLOBS),
        }  # fmt: skip
        if self.context.authority is not None and is_bound:
            reply |= self._mesh_terms(registered.pilot)
            reply["certificate"], reply["key"] = await asyncio.to_thread(
                self.context.authority.pilot_certificate,
                registered.pilot, CERTIFICATE_LASTS, self.service.clock(), reply["peer"],
            )  # fmt: skip
        return answer(for_protocol("Registered", reply, register.protocol))

    def _mesh_terms(self, name: str) -> dict[str, Any]:
        """What a pilot is told of the pilots with which it may share files, and how its certificate names it to them."""
        state = self.service.engine.state
        pilot = state.pilots.get(name)
        if pilot is None:  # it ended while its registration was on the way to the disk
            return {"peer": ""}
        neighbours, shut_out = mesh.invite(state, pilot)
        leader = leaders.tell(state, pilot, 0)
        if leader is not None:  # tickets are of use at such a site only
            barred = [
                token for *mesh_of, token in self.access.ticket_holders() if mesh_of == [pilot.site, pilot.holder]
            ]
            shut_out = [*shut_out, *(ticket_id(state, token) for token in barred[-MAX_SHUT_OUT:])][-MAX_SHUT_OUT:]
        return {
            "peer": mesh.certified_name(state, pilot), "neighbours": [vars(one) for one in neighbours],
            "shut_out": shut_out, "leader": vars(leader) if leader is not None else None,
        }  # fmt: skip

    def _enrolment(self, caller: Caller, register: Register) -> Enrol:
        """The command that enrols a pilot, on the terms of its token."""
        site = caller.site or "local"
        if caller.kind == ENROL:
            return Enrol(register, caller.owner, site, caller.group, caller.token, caller.max_pilots)
        if register.former is None or register.former.session != caller.secret:
            raise unauthorised()
        state, former = self.service.engine.state, register.former.pilot
        pilot, gone = state.pilots.get(former), state.gone.get(former)
        known = pilot or gone
        if known is None or known.session != digest(caller.secret):
            raise unauthorised()
        if (caller.tls and caller.peer != former) or (known.bound and not caller.tls):
            raise unauthorised()
        if gone is not None and gone.heir and (known.token, register.nonce) not in state.enrolled:
            raise unauthorised()  # a session that has ended brings one pilot back, not several
        if (gone is not None and gone.revoked) or not self.access.is_live(known.token):
            raise Refused("this pilot was sent away: its enrolment token was revoked", code="revoked")
        row = self.access.tokens[known.token]
        return Enrol(register, row.owner, row.site or "local", row.grp, row.token, row.max_pilots)

    def _spend(self, command: Enrol) -> bool:
        """Count one use of a token with a limited number, written before the pilot is. A repeated registration is one use;
        once its pilot has ended, the same registration is another enrolment."""
        nonce, state = command.register.nonce, self.service.engine.state
        twin = state.enrolled.get((command.token, nonce)) if nonce else None
        if twin is not None and twin.pilot in state.pilots:
            return False
        self.access.spend(command.token, 1)
        return True

    async def exchange(self, call: Call) -> Response:
        """A pilot's exchange."""
        if self._is_unknown_session(call.caller):
            raise disowned()
        exchange = await call.body(Exchange)
        reply = self.begin_exchange(exchange, call.caller, call.path_part("pilot"))
        call.rest()
        return self.end_exchange(exchange, await reply)

    def begin_exchange(self, exchange: Exchange, caller: Caller, named: str) -> asyncio.Future[Reply]:
        """Handle an exchange; `named`: the pilot in the path."""
        self.service.check_whole()
        if exchange.pilot != named:
            raise BadInput("the path names another pilot", code="range", field="pilot")
        self._check_session(caller, exchange)
        return begin(self.context, exchange)

    def end_exchange(self, exchange: Exchange, reply: Reply) -> Response:
        """The response with the reply."""
        self.context.metrics.exchanges += 1
        return answer(reply if exchange.protocol == PROTOCOL else for_protocol("Reply", reply, exchange.protocol))

    def _is_unknown_session(self, caller: Caller) -> bool:
        """True for a session that no pilot has or lately had: its body, of up to eight megabytes, is not read."""
        if not caller.is_unproven:
            return False
        mine = digest(caller.secret)
        return all(gone.session != mine for gone in self.service.engine.state.gone.values())

    def _check_session(self, caller: Caller, exchange: Exchange) -> None:
        """Refuse an exchange in the name of another pilot."""
        state = self.service.engine.state
        if exchange.session != caller.secret or (caller.pilot and caller.pilot != exchange.pilot):
            raise unauthorised()
        gone = state.gone.get(exchange.pilot) if exchange.pilot not in state.pilots else None
        if gone is not None and self.service.clock() - gone.ended > LONGEST[SESSION]:
            raise unauthorised()

    async def zip(self, call: Call) -> Response:
        """The pilot's zip, for the join command and for renewal."""
        if not await self.context.pilot_digest():
            raise NotFound("the pilot could not be built", code="not_ready", hint="see the server's status")
        data = await asyncio.to_thread(self.context.pilot_path.read_bytes)
        return Response(
            body=data, content_type="application/zip", headers={"X-Shoal-SHA256": self.context.pilot_sha256}
        )

    # --- calls of people
    async def list_pilots(self, call: Call) -> Response:
        """List pilots, newest first, with what those that live hold."""
        limit, state = call.number("limit"), call.text("state")
        holders = self.access.holders(call.caller)
        rows = await self.service.query(lambda r: r.pilots(limit=limit, state=state, holders=holders))
        living = self.service.engine.state.pilots
        for row in rows:
            pilot = living.get(row["pilot"])
            if pilot is not None:
                row |= self._matching_view(pilot)
            row["live"] = len(pilot.live) if pilot is not None else 0
            row["free"] = max(0, pilot.free.cores) if pilot is not None else 0
            row["suspect"] = pilot.suspect if pilot is not None else False
            row["seen"] = pilot.seen if pilot is not None else row["ended"]
            row["state"] = str(pilot.state) if pilot is not None else row["state"]
            row["group"] = row.pop("grp")
            for secret in SECRETS:
                del row[secret]
        return answer({"pilots": rows})

    def _matching_view(self, pilot: Pilot) -> dict[str, Any]:
        """What expressions read of a pilot at this moment, which its row does not have, and the ban that keeps work from
        it."""
        seen, ban = self.service.engine.view_pilot(pilot.name, self.service.clock())
        facts = {name: value for name, value in seen.items() if pilot.tags.get(name) != value}
        banned = f"{ban.kind} {ban.name}: {ban.reason}" if ban is not None else ""
        until = None if ban is None or ban.probing else ban.until
        return {"tags": dict(pilot.tags), "facts": facts, "banned": banned, "banned_until": until}

    async def list_hosts(self, call: Call) -> Response:
        """Hosts, the one seen last first, with what they did over all their pilots."""
        holders, limit = self.access.holders(call.caller), call.number("limit")
        rows = await self.service.query(lambda r: r.hosts(limit=limit, holders=holders))
        living = Counter(key_of(pilot) for pilot in self.service.engine.state.pilots.values())
        for row in rows:
            row["group"] = row.pop("grp")
            row["living"] = living[row.pop("identity"), row["owner"], row["group"], row["site"]]
        return answer({"hosts": rows})

    async def drain(self, call: Call) -> Response:
        """Ask pilots to end."""
        request = await call.body(DrainRequest)
        self.service.check_whole()
        living = self.service.engine.state.pilots
        for name in request.pilots:
            if not is_pilot(name):
                raise BadInput(f"{echo(name)!r} is not a pilot", code="bad_id", field="pilots", hint='e.g. ["p3f9c"]')
            self.context.check_pilot(call.caller, name, to_end=True)
            if name not in living:
                raise NotFound(f"no pilot {name} is connected", code="unknown_pilot", hint="see `shoal pilots`")
        names = request.pilots or [name for name in living if self._may_end(call.caller, name)]
        call.about = " ".join(names[:8])
        within = parse_duration(request.within, "within") if request.within is not None else None
        why = request.why[:200] or f"{'stopped' if request.stop else 'drained'} by the user"
        if not request.pilots:
            self.service.drained_at = self.service.clock()
        return answer(await self.service.command(Drain(tuple(names), why, within, request.stop)))

    def _may_end(self, caller: Caller, name: str) -> bool:
        try:
            self.context.check_pilot(caller, name, to_end=True)
        except NotFound:
            return False
        return True
