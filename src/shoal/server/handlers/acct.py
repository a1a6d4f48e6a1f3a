"""The accounting call [GWP G12]: sums of what the caller may see."""

from __future__ import annotations

import math

from shoal.db.accounts import AccountQuery
from shoal.server.context import CallHandler
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer


class AcctHandler(CallHandler):
    """Calls about accounting."""

    async def read(self, call: Call) -> Response:
        """Sums over the owners whom the caller sees, and the time of the pilots whom the caller sees."""
        access, now, until = self.access, self.service.clock(), call.number_or_none("until")
        since = float(call.number("since"))
        query = AccountQuery(
            call.text("by") or "", since, math.inf if until is None else float(until),
            access.seen_by(call.caller), access.holders(call.caller), self._running(now, since),
        )  # fmt: skip
        return answer(await self.service.query(lambda reader: reader.acct(query, now)))

    def _running(self, now: float, since: float) -> dict[str, float]:
        """Core seconds of attempts under way, by pilot: they are in no row yet, and not idle either."""
        return {
            pilot.name: sum(
                attempt.needs.cores * max(0.0, now - max(since, attempt.leased, attempt.started or 0.0))
                for attempt in running
            )
            for pilot in self.service.engine.state.pilots.values()
            if (running := [attempt for attempt in pilot.live.values() if attempt.running])
        }
