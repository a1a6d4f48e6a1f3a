"""Calls of provisioners: what is wanted, and what happens at a person's sites."""

from __future__ import annotations

from shoal.engine.commands import ReportSite
from shoal.model.ids import parse_run
from shoal.model.people import check_name
from shoal.server.context import CallHandler
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer
from shoal.wire.http.requests import SiteStatus


class SitesHandler(CallHandler):
    """Calls about getting machines."""

    async def demand(self, call: Call) -> Response:
        """What the caller's ready tasks need, and the pilots that serve the caller."""
        self.service.check_whole()
        found = self.service.engine.demand(call.caller.owner, self.service.clock())
        return answer(
            {
                "needs": [need._asdict() for need in found.needs],
                "pilots": [pilot._asdict() for pilot in found.pilots],
                "unfinished": found.unfinished,
                "sites": found.sites,
            }
        )

    async def weather(self, call: Call) -> Response:
        """The weather of the sites that the caller may use."""
        self.service.check_whole()
        return answer({"sites": self.service.engine.weather(call.caller.owner, self.service.clock())})

    async def machines(self, call: Call) -> Response:
        """Where the tasks of a run run, what they take, and what is asked of its owner's sites."""
        number = parse_run(call.path_part("run"))
        found = self.service.engine.machines(number, self.service.clock())
        return answer({"running": found.running, "learned": found.learned, "sites": found.sites})

    async def report(self, call: Call) -> Response:
        """Take what the caller's provisioner reports of a site."""
        status = await call.body(SiteStatus)
        site = check_name(status.site, "site")
        self.access.check_site(site, call.caller.owner)
        call.about = site
        if status.queued or status.running:
            self.service.last_request = self.service.clock()  # an embedded server stays while machines are on their way
        await self.service.command(ReportSite(call.caller.owner, site, status))
        return answer({"ok": True})
