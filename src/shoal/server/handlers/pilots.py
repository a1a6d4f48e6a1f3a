"""Calls of pilots and about them: enrol, exchange, the pilot itself; list, drain, hosts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aiohttp import web

from shoal.engine.commands import Drain, Enrol
from shoal.engine.pilots.exchange import check_exchange, disowned
from shoal.engine.pilots.hosts import key_of
from shoal.engine.pilots.lease_proofs import Proofs
from shoal.engine.pilots.old_protocol import complete
from shoal.engine.records import Pilot
from shoal.engine.state import HostKey
from shoal.engine.tasks.reports import may_report
from shoal.model.credentials import ENROL, LONGEST, SESSION, digest
from shoal.model.errors import BadInput, NotFound, Refused, ShoalError, echo
from shoal.model.ids import is_pilot, parse_attempt
from shoal.model.layout import BLOBS, LOG_MARK, LOGS
from shoal.server.auth.authentication import Caller, unauthorised
from shoal.server.context import Context
from shoal.server.http.request import Call, answer
from shoal.wire.chunk import shift
from shoal.wire.http.requests import DrainRequest
from shoal.wire.messages import PROTOCOL, Exchange, Register
from shoal.wire.old_protocol import NONCES_SINCE, for_protocol

CERTIFICATE_LASTS = 30 * 86_400.0
SECRETS = ("session", "former", "identity", "token", "revoked", "bound")  # columns that nobody is shown


class PilotsHandler:
    """One method a call."""

    def __init__(self, context: Context) -> None:
        self.context, self.service = context, context.service

    # --- what pilots say
    async def enrol(self, call: Call) -> web.Response:
        """Take a pilot in: by an enrolment token, or one that comes back by the session it had."""
        if self._is_made_up(call.caller):
            raise unauthorised()
        said = await call.body(Register)
        self.service.check_whole()  # it may have met a defect while the body came: what is read now is half changed
        is_bound = self.context.authority is not None and call.caller.tls and not said.unfit
        command = replace(self._enrolment(call.caller, said), bound=is_bound)
        self.context.access.check_site(command.site, command.owner or f"@{command.group}")
        if said.site and said.site != command.site:
            raise Refused(
                f"this token is for site {echo(command.site)}",
                code="other_site",
                field="site",
                hint="leave the site out",
            )
        spent = call.caller.kind == ENROL and not said.unfit and self._spend(command)
        try:
            registered = await self.service.command(command)
        except ShoalError:
            if spent:
                self.context.access.spend(command.token, -1)
            raise
        call.request["about"] = f"{registered.pilot} {said.host}"
        told = {**vars(registered), "log_dir": str(self.service.state_dir / LOGS), "log_mark": LOG_MARK,
            "blob_dir": str(self.service.state_dir / BLOBS),
        }  # fmt: skip
        if self.context.authority is not None and is_bound:
            told["certificate"], told["key"] = await asyncio.to_thread(
                self.context.authority.pilot_certificate, registered.pilot, CERTIFICATE_LASTS, self.service.clock()
            )
        return answer(for_protocol("Registered", told, said.protocol))

    def _enrolment(self, caller: Caller, said: Register) -> Enrol:
        """Under which token's terms a pilot comes in."""
        site = caller.site or "local"
        if caller.kind == ENROL:
            return Enrol(said, caller.owner, site, caller.group, caller.token, caller.max_pilots)
        if said.former is None or said.former.session != caller.secret:
            raise unauthorised()
        state, former = self.service.engine.state, said.former.pilot
        pilot, gone = state.pilots.get(former), state.gone.get(former)
        known = pilot or gone
        if known is None or known.session != digest(caller.secret):
            raise unauthorised()
        if (caller.tls and caller.peer != former) or (known.bound and not caller.tls):
            raise unauthorised()
        if gone is not None and gone.heir and (known.token, said.nonce) not in state.enrolled:
            raise unauthorised()  # a session that has ended brings one pilot back, not several
        if (gone is not None and gone.revoked) or not self.context.access.is_live(known.token):
            raise Refused("this pilot was sent away: its enrolment token was revoked", code="revoked")
        row = self.context.access.tokens[known.token]
        return Enrol(said, row.owner, row.site or "local", row.grp, row.token, row.max_pilots)

    def _spend(self, command: Enrol) -> bool:
        """A token for so many uses has one less, on its way to the disk before the pilot is. A registration told twice
        is one use; once its pilot has ended, the same words are another enrolment."""
        nonce, state = command.register.nonce, self.service.engine.state
        twin = state.enrolled.get((command.token, nonce)) if nonce else None
        if twin is not None and twin.pilot in state.pilots:
            return False
        self.context.access.spend(command.token, 1)
        return True

    async def exchange(self, call: Call) -> web.Response:
        """A pilot's exchange."""
        if self._is_made_up(call.caller):
            raise disowned()
        said = await call.body(Exchange)
        self.service.check_whole()
        if said.pilot != call.word("pilot"):
            raise BadInput("the path names another pilot", code="range", field="pilot")
        self._check_speaker(call, said)
        call.rest()
        pilot = self.service.engine.state.pilots.get(said.pilot)
        if pilot is not None:
            check_exchange(said, pilot)  # before anything here looks through what it says
        if pilot is not None and said.protocol < NONCES_SINCE:
            said = complete(self.service.engine.state, pilot, said)
        if pilot is not None:
            self._claim_results(said, pilot)
        said = self._hold_checkpoints(said)
        reply = await self.service.exchange(said)
        self.context.metrics.exchanges += 1
        return answer(reply if said.protocol == PROTOCOL else for_protocol("Reply", reply, said.protocol))

    def _claim_results(self, said: Exchange, pilot: Pilot) -> None:
        """Large results are blobs, which their run holds from here on: if the report may count at all."""
        state = self.service.engine.state
        if pilot.session != digest(said.session):
            return  # it is refused
        named: dict[int, list[str]] = {}
        results = [(report.attempt, 0, report.result) for report in said.reports]
        results += [(batch.attempt, at, text) for batch in said.batches for at, text in enumerate(batch.result)]
        proofs = Proofs(state.lease_key, pilot.names, said.proofs)
        for first, at, text in results:
            if text.startswith("sha256:"):
                attempt = shift(parse_attempt(first), at)
                if may_report(state, pilot, attempt, proofs):
                    named.setdefault(attempt.run, []).append(text)
        for number, digests in named.items():
            run = state.runs.get(number)
            with contextlib.suppress(NotFound):  # whoever reads the result will be told that its blob is not there
                if run is not None:
                    self.context.blobs.claim(run.owner, number, digests)

    def _hold_checkpoints(self, said: Exchange) -> Exchange:
        """Checkpoints are held for as long as their tasks need them; one that has lost a blob is none."""
        pilot = self.service.engine.state.pilots.get(said.pilot)
        if pilot is None or pilot.session != digest(said.session):
            return said
        for report in said.reports:
            if report.files and pilot.holds(parse_attempt(report.attempt)):
                self._is_here(pilot, report.attempt, report.files)
        if not said.checkpoints:
            return said
        good = [one for one in said.checkpoints if self._is_here(pilot, one.attempt, one.files)]
        return replace(said, checkpoints=good)

    def _is_here(self, pilot: Pilot, attempt: str, files: Mapping[str, str]) -> bool:
        number, state = parse_attempt(attempt).run, self.service.engine.state
        run = state.runs.get(number)
        if run is None or not state.serves(pilot, run.owner):
            return False
        return self.context.blobs.keep_checkpoint(run.owner, number, files.values())

    def _is_made_up(self, caller: Caller) -> bool:
        """A session that no pilot has or lately had: not worth the eight megabytes that may follow."""
        if not caller.is_claim:
            return False
        mine = digest(caller.secret)
        return all(gone.session != mine for gone in self.service.engine.state.gone.values())

    def _check_speaker(self, call: Call, said: Exchange) -> None:
        """A session speaks for its own pilot."""
        state, caller = self.service.engine.state, call.caller
        pilot = state.pilots.get(said.pilot)
        if said.session != caller.secret or (caller.pilot and caller.pilot != said.pilot):
            raise unauthorised()
        gone = state.gone.get(said.pilot)
        if pilot is None and gone is not None and self.service.clock() - gone.ended > LONGEST[SESSION]:
            raise unauthorised()

    async def zip(self, call: Call) -> web.Response:
        """The pilot itself, for the joining line and for renewal."""
        if not await self.context.pilot_digest():
            raise NotFound("the pilot could not be built", code="not_ready", hint="see the server's status")
        data = await asyncio.to_thread(self.context.pilot_path.read_bytes)
        return web.Response(
            body=data, content_type="application/zip", headers={"X-Shoal-SHA256": self.context.pilot_sha256}
        )

    # --- what people ask about them
    async def list_pilots(self, call: Call) -> web.Response:
        """List pilots, newest first, with what those that live hold."""
        limit, state = call.number("limit"), call.text("state")
        holders = self.context.access.holders(call.caller)
        rows = await self.service.look(lambda r: r.pilots(limit=limit, state=state, holders=holders))
        living = self.service.engine.state.pilots
        for row in rows:
            pilot = living.get(row["pilot"])
            if pilot is not None:
                row |= self._as_matching_sees(pilot)
            row["live"] = len(pilot.live) if pilot is not None else 0
            row["free"] = max(0, pilot.free.cores) if pilot is not None else 0
            row["suspect"] = pilot.suspect if pilot is not None else False
            row["seen"] = pilot.seen if pilot is not None else row["ended"]
            row["state"] = str(pilot.state) if pilot is not None else row["state"]
            row["group"] = row.pop("grp")
            for secret in SECRETS:
                del row[secret]
        return answer({"pilots": rows})

    def _as_matching_sees(self, pilot: Pilot) -> dict[str, Any]:
        """What expressions read of a pilot at this moment, which its row of the database does not know; and the ban that
        keeps work from it, in words."""
        seen, ban = self.service.engine.view_pilot(pilot.name, self.service.clock())
        facts = {name: value for name, value in seen.items() if pilot.tags.get(name) != value}
        words = f"{ban.kind} {ban.name}: {ban.reason}" if ban is not None else ""
        until = None if ban is None or ban.probing else ban.until
        return {"tags": dict(pilot.tags), "facts": facts, "banned": words, "banned_until": until}

    async def list_hosts(self, call: Call) -> web.Response:
        """Hosts, the one seen last first, with what they did over all their pilots."""
        holders, limit = self.context.access.holders(call.caller), call.number("limit")
        rows = await self.service.look(lambda r: r.hosts(limit=limit, holders=holders))
        living: dict[HostKey, int] = {}
        for pilot in self.service.engine.state.pilots.values():
            living[key_of(pilot)] = living.get(key_of(pilot), 0) + 1
        for row in rows:
            row["group"] = row.pop("grp")
            row["living"] = living.get((row.pop("identity"), row["owner"], row["group"], row["site"]), 0)
        return answer({"hosts": rows})

    async def drain(self, call: Call) -> web.Response:
        """Ask pilots to end."""
        asked = await call.body(DrainRequest)
        self.service.check_whole()
        living = self.service.engine.state.pilots
        for name in asked.pilots:
            if not is_pilot(name):
                raise BadInput(f"{echo(name)!r} is not a pilot", code="bad_id", field="pilots", hint='e.g. ["p3f9c"]')
            self.context.check_pilot(call.caller, name, to_end=True)
            if name not in living:
                raise NotFound(f"no pilot {name} is connected", code="unknown_pilot", hint="see `shoal pilots`")
        names = asked.pilots or [name for name in living if self._may_end(call.caller, name)]
        call.request["about"] = " ".join(names[:8])
        why = asked.why[:200] or "drained by the user"
        return answer(await self.service.command(Drain(tuple(names), why)))

    def _may_end(self, caller: Caller, name: str) -> bool:
        try:
            self.context.check_pilot(caller, name, to_end=True)
        except NotFound:
            return False
        return True
