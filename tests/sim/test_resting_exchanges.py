"""Exchanges that bring the reports of calls and wait for work at once [ADR 0066]: a pilot is told of a report when it is
durable, and of each. Bugs planted in that are caught."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from shoal.engine.commands import Talk
from shoal.engine.pilots import long_poll
from shoal.model.errors import ShoalError
from shoal.model.ids import AttemptId, parse_attempt
from shoal.sim.host import Host
from shoal.sim.proof.ledger import BrokenPromise
from shoal.sim.proof.world import World
from shoal.wire.chunk import names
from shoal.wire.messages import Exchange, Reply
from tests.sim.planting import plant
from tests.sim.test_planted_bugs import first_complaint
from tests.sim.test_worlds import CALM_PLAN


class _Calls(World):
    """Short calls, one after another or close together, and pilots and servers that die among them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, replace(CALM_PLAN, crashes=4, deaths=3), 60_000)
        self.rested = 0  # exchanges whose answer brought work, or came when the wait was over
        handle = self.server.exchange

        def exchange(command: Talk, deliver: Callable[[Reply], None], refuse: Callable[[ShoalError], None]) -> None:
            sent, since = command.exchange, self.clock.now

            def told(reply: Reply) -> None:
                self._check(sent, reply)
                self.rested += sent.asks and (bool(reply.leases) or self.clock.now - since >= long_poll.RESTS)
                deliver(reply)

            handle(command, told, refuse)

        self.server.exchange = exchange  # type: ignore[method-assign]

    def _check(self, sent: Exchange, reply: Reply) -> None:
        verdicts = {attempt: verdict.verdict for verdict in reply.verdicts for attempt in names(verdict)}
        for attempt in (attempt for batch in sent.batches for attempt in names(batch)):
            if attempt not in verdicts:
                raise BrokenPromise(f"a report without a verdict: {attempt}")
            state, _ = self.ledger.final.get(parse_attempt(attempt).task, ("", ""))
            if verdicts[attempt] == "recorded" and state != "succeeded":
                raise BrokenPromise(f"acknowledged before durable: {attempt}")

    def draw_work(self) -> list[tuple[float, list[dict[str, Any]]]]:
        """One call after another, some of them before the commit of the one before."""
        rng, at, found = Random(self.seed), 0.0, []
        for _ in range(60):
            at += rng.choice([0.004, 0.01, 0.02, 0.2, 2.0])
            found.append((at, [{"function": "gAU=", "calls": ["gAU="]}]))
        return found

    def script(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """They end before their pilot asks for more work."""
        return 0.001, False


# name -> (function, what stands there, what the bug makes of it, how the world must complain)
BUGS: dict[str, tuple[Callable[..., Any], str, str, str]] = {
    "": (long_poll.rest, "", "", ""),  # none: these worlds themselves break nothing
    "an exchange waits for work before its reports are durable": (
        long_poll.answer,
        "durable or bool(verdicts or unsealed), rests",
        "durable or (bool(verdicts or unsealed) and not rests), rests",
        "acknowledged before durable",
    ),
    "work comes without the verdicts": (
        long_poll.give_parked,
        "told=_told(pilot, seq)",
        "told=()",
        "a report without a verdict",
    ),
    "the end of the wait comes without the verdicts": (
        long_poll.unpark,
        "told = _told(pilot, pilot.parked)",
        "told = []",
        "a report without a verdict",
    ),
    "the verdicts of another exchange are told": (
        long_poll._told,
        "pilot.replies[seq].verdicts if seq in pilot.replies else []",
        "next((reply.verdicts for reply in pilot.replies.values()), [])",
        "a report without a verdict",
    ),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BUGS, ids=[name or "sound" for name in BUGS])
def test_a_bug_planted_among_resting_exchanges_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, old, new, words = BUGS[name]
    if name:
        plant(monkeypatch, function, old, new)
    worlds = [_Calls(seed) for seed in range(20 if name else 4)]
    complaint = first_complaint(worlds)
    assert re.search(words, complaint) if name else not complaint, complaint
    assert name or sum(world.rested for world in worlds) > 20
