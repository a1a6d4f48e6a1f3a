"""The journal over HTTP; callers see the events of what is theirs."""

from __future__ import annotations

from shoal.model.event import KINDS
from shoal.model.ids import parse_run
from shoal.model.limits import MAX_LOOK, MAX_WAIT
from shoal.server.context import CallHandler
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer

LARGE = 50  # tasks of a run that are not final


class EventsHandler(CallHandler):
    """Calls about the journal."""

    async def read(self, call: Call) -> Response:
        """Events after a number; waits for new ones if there are none. Continue with `after=last`."""
        after, limit = call.number("after"), call.number("limit")
        named, kind = call.text("run"), call.text("kind")
        run = parse_run(named) if named is not None else None
        if run is not None:
            self.context.check_run(call.caller, run)
        kinds = kind.split(",") if kind is not None else None
        is_known = kinds is None or all(one in KINDS for one in kinds)  # else the database refuses them
        holders = self.context.access.holders(call.caller)
        end = self.service.clock() + min(call.number("wait"), MAX_WAIT)
        patient = False  # a caller that waits already is not refused
        if not self._is_large(run):
            self.service.events.follow(end)
        while True:
            until = after + MAX_LOOK
            recent = self.service.events.of_run(run, after, limit, kinds) if run is not None and is_known else None

            # The end first: an event committed between the two queries must not be skipped.
            last, found = recent or await self.service.query(
                lambda r, a=after, u=until: (  # type: ignore[misc]  # bound now
                    r.last_seq(),
                    r.events(after=a, limit=limit, run=run, kinds=kinds, holders=holders, until=u, raw=True),
                ),
                patient=patient,
            )
            reached = (
                found[-1]["seq"] if len(found) == limit else max(last if run is not None else min(last, until), after)
            )
            left = end - self.service.clock()
            if found or left <= 0 or reached < last:
                return answer({"events": found, "last": reached})
            after = reached
            call.rest()
            patient = True
            await self.service.wait_for_commit(left, gather=self._is_large(run))

    def _is_large(self, run: int | None) -> bool:
        """True if so many events are to come that a query for each is too expensive; of a small run each is sent at once."""
        if run is None:
            return True
        found = self.service.engine.state.runs.get(run)
        return found is not None and found.total - found.settled > LARGE
