"""Refusals in a simulated world: by a proxy between pilot and server, and by the server itself, once or repeatedly.

The pilot's own code reads each refusal.
"""

from __future__ import annotations

import json
from random import Random

from shoal.model.ids import parse_attempt
from shoal.pilot.agent.events import Event
from shoal.pilot.uplink.uplink import Answer, read_answer
from shoal.sim.proof.faults import Plan, Tally
from shoal.wire.chunk import shift
from shoal.wire.messages import Exchange

_PAGE = b"<html><body><h1>Not here</h1></body></html>"
_PROXY_STATUS = (400, 401, 403, 404, 413, 415, 422, 500, 502, 503)
_SERVER_ERROR = json.dumps(
    {"error": {"code": "range", "message": "refused by the simulator", "field": "", "hint": ""}}
).encode()
MAX_REFUSALS = 6  # of one report: more than it takes until a pilot gives its report up


class Refusals:
    """Which exchanges are refused, and how often a report was."""

    def __init__(self, plan: Plan, rng: Random, tally: Tally) -> None:
        self._plan, self._rng, self._tally = plan, rng, tally
        self._left: dict[str, int] = {}  # attempt -> how often its report will still be refused
        self.refused: dict[str, int] = {}  # attempt -> how often the server itself refused an exchange with its report

    def by_proxy(self, seq: int) -> Event | None:
        """The refusal that a proxy sends for an exchange; None: it passes."""
        if self._rng.random() >= self._plan.proxy_refusals:
            return None
        self._tally.note("proxy_refusal")
        return read_answer(Answer(self._rng.choice(_PROXY_STATUS), _PAGE), seq)

    def by_server(self, exchange: Exchange) -> Event | None:
        """The refusal that the server sends because of one of the reports; None: it accepts them."""
        attempts = [report.attempt for report in exchange.reports]
        for batch in exchange.batches:
            attempts += [str(shift(parse_attempt(batch.attempt), at)) for at in range(batch.count)]
        for attempt in attempts:
            if attempt not in self._left:
                bad = self._rng.random() < self._plan.server_refusals
                self._left[attempt] = self._rng.randint(1, MAX_REFUSALS) if bad else 0
        found = [attempt for attempt in attempts if self._left[attempt]]
        if not found:
            return None
        for attempt in found:
            self._left[attempt] -= 1
        for attempt in attempts:
            self.refused[attempt] = self.refused.get(attempt, 0) + 1
            if self.refused[attempt] > 1:
                self._tally.note("repeated_refusal")
        return read_answer(Answer(400, _SERVER_ERROR), exchange.seq)
