"""Calls about the server itself: status, stop, retention, metrics, OpenAPI, its certificate, its health."""

from __future__ import annotations

import asyncio
from collections import Counter

from shoal import __version__
from shoal.db.retention import KEEP_BYTES, KEEP_SECONDS
from shoal.engine.pilots.site_reports import sites_in_use
from shoal.engine.why.pilots_and_sites import waits_for_space
from shoal.model.errors import NotFound
from shoal.model.quantities import parse_duration, parse_size
from shoal.server.context import CallHandler, Context
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer
from shoal.server.metrics import CONTENT_TYPE, Gauges
from shoal.server.retention import prune
from shoal.wire.http.requests import Nothing, PruneRequest

GREETING = """\
This is a Shoal server. It is used with the command `shoal`, not with a browser:
ask whoever runs it for a login string, then type `shoal login -` and `shoal ps`.
"""


class ServerHandler(CallHandler):
    """Calls about the server itself."""

    async def health(self, call: Call) -> Response:
        """The health check. No version, no names: anyone may call it."""
        return answer({"ok": True})

    async def greet(self, call: Call) -> Response:
        """A line for a person who looks here with a browser. No version, no names: anyone may call it."""
        return Response(GREETING.encode(), content_type="text/plain; charset=utf-8")

    async def ca(self, call: Call) -> Response:
        """The CA certificate, which a joining pilot compares with the fingerprint before it trusts it."""
        if self.context.authority is None:
            raise NotFound("this server is not reached over TLS", code="no_tls")
        return Response(self.context.authority.ca_pem.encode(), content_type="application/x-pem-file")

    async def server(self, call: Call) -> Response:
        """The status of the server; to those who are not administrators, only what concerns them."""
        context = self.context
        public: dict[str, object] = {
            "mode": context.service.mode,
            "since": context.service.started,
            "version": __version__,
        }
        if context.authority is not None:
            ends = context.authority.ends
            public |= {"addresses": context.addresses, "fingerprint": context.authority.fingerprint}
            public |= {"certificate_ends": ends.leaf, "ca_ends": ends.ca}
        sites = sites_in_use(context.service.engine.state, call.caller.owner)
        state, me = context.service.engine.state, call.caller.owner
        mine = (pilot for pilot in state.pilots.values() if state.serves(pilot, me))
        public["outputs_wait"] = next(filter(None, (waits_for_space(pilot, state.now) for pilot in mine)), "")
        public["sites"] = [site._asdict() for site in sites]
        if not call.caller.is_admin:
            return answer({**public, **self._own(call)})
        facts = {**await context.service.query(lambda r: r.server_facts()), **context.service.facts(), **public}
        if context.authority is not None and context.authority.trouble and not facts["trouble"]:
            facts["trouble"] = context.authority.trouble
        return answer(facts)

    def _own(self, call: Call) -> dict[str, int]:
        """The figures for a person who is no administrator: their runs, and the pilots that serve them."""
        state, me = self.service.engine.state, call.caller.owner
        pilots = [pilot for pilot in state.pilots.values() if state.serves(pilot, me)]
        mine = [run for run in state.runs.values() if run.owner == me]
        return {
            "open_runs": sum(1 for run in mine if run.finished is None),
            "pilots": len(pilots),
            "slots": sum(pilot.room.cores for pilot in pilots),
            "live": sum(run.live for run in mine),
            "last_seq": state.next_seq - 1,
        }

    async def stop(self, call: Call) -> Response:
        """Stop this server; running tasks go on, and their pilots come back to the next one."""
        await call.body(Nothing)
        self.context.stop()
        return answer({"stopping": True})

    async def tunnel(self, call: Call) -> Response:
        """Serve TLS on a Unix socket from now on; idempotent."""
        await call.body(Nothing)
        assert self.context.tunnel is not None  # made before the server listens
        path, fingerprint = await self.context.tunnel.open()
        return answer({"socket": str(path), "fingerprint": fingerprint})

    async def prune(self, call: Call) -> Response:
        """Delete old events and logs now."""
        request = await call.body(PruneRequest)
        age = parse_duration(KEEP_SECONDS if request.older_than is None else request.older_than, "older_than")
        keep = parse_size(KEEP_BYTES if request.keep is None else request.keep, "keep")
        return answer(await prune(self.service, age, keep, self.context.blobs.release))

    async def metrics(self, call: Call) -> Response:
        """The metrics for Prometheus; rendered on a thread, since many series take a while."""
        text = await asyncio.to_thread(self.context.metrics.render, collect(self.context))
        return Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, call: Call) -> Response:
        """The OpenAPI description of this interface."""
        from shoal.server.http.openapi import describe  # a hundred types that most servers never load

        return answer(describe())


def collect(context: Context) -> Gauges:
    """The server's gauges at this moment."""
    state, writer = context.service.engine.state, context.service.writer
    pilots, counts = state.pilots.values(), context.connections.counts
    return Gauges(
        tasks_finished=dict(state.finished),
        tasks_live=sum(pilot.held for pilot in pilots),
        tasks_ready=sum(len(array.todo) for run in state.runs.values() for array in run.arrays if not array.waiting),
        runs_open=sum(1 for run in state.runs.values() if run.finished is None),
        pilots=Counter(pilot.state.value for pilot in pilots),
        slots=sum(pilot.room.cores for pilot in pilots),
        slots_free=sum(max(0, pilot.free.cores) for pilot in pilots),
        commits=writer.commits,
        commit_wait=context.service.commit_wait,
        report_wait=context.service.report_wait,
        events=state.next_seq - 1,
        connections={"open": counts.open, "unknown": counts.unknown},
        cut={"refused": counts.refused, "slow": counts.slow},
        loop_lag=context.rate_limit.lag,
        contained=context.service.contained,
        locked_out=len(context.lockouts),
    )
