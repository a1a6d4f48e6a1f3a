"""Plans of where tasks go are made every interval of the policy, and when something happened, on a thread of their own: the
solution never stops the server [SPHINX S5; ADR 0057]. With one site nothing is planned, and nothing is imported for it.

What is minimised is one of Shoal's objectives, or one that another package brings as an entry point `shoal.objectives`: a
function of a `Question` and the work of its tasks that gives an `Objective` (`sched/vector/placement.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, cast

from shoal.engine.commands import UsePlan
from shoal.model.errors import BadInput, echo
from shoal.model.policy import OFF, PlacementRule
from shoal.sched.placement.question import OBJECTIVES, ROUND_ROBIN_HOW, Plan, Question, round_robin
from shoal.server.service import Service
from shoal.wire.did_you_mean import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from shoal.sched.vector.placement import Objectives

log = logging.getLogger(__name__)
GROUP = "shoal.objectives"
STEP = 1.0  # seconds between two looks whether something happened
SOONEST = 5.0  # seconds between two plans, whatever happens
SHARE = 20  # plans take at most one part in so many of the time


def _brought() -> dict[str, EntryPoint]:
    """Objectives of other packages."""
    from importlib import metadata  # not at the top: it loads much that a server without several sites never needs

    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def check_objective(name: str) -> None:
    """Refuse an objective that nobody brings."""
    if name not in OBJECTIVES and name not in (brought := _brought()):
        known = sorted({*OBJECTIVES, *brought})
        raise BadInput(
            f"there is no objective {echo(name)!r}", code="range", field="placement.objective",
            hint=did_you_mean(name, known),
        )  # fmt: skip


def _objective(name: str) -> Objectives:
    from shoal.sched.vector.placement import OBJECTIVE_FUNCTIONS

    if name in OBJECTIVE_FUNCTIONS:
        return OBJECTIVE_FUNCTIONS[name]
    return cast("Objectives", _brought()[name].load())


def make_plan(question: Question, rule: PlacementRule, turn: int) -> Plan:
    """The plan that a rule makes; takes numpy, and some tenths of a second where there is much. On a thread of its own."""
    if rule.by == ROUND_ROBIN_HOW:
        return round_robin(question, turn)
    from shoal.sched.vector.placement import plan

    return plan(question, _objective(rule.objective))


class PlacementLoop:
    """Makes a plan now and then, and has the engine use it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._next = self._soonest = 0.0
        self._seen: tuple[Any, ...] = ()
        self._turn = 0
        self.last: tuple[float, float] | None = None  # when the last plan was made, and the seconds that it took

    async def run(self) -> None:
        """Look each second whether a plan is due."""
        while True:
            await asyncio.sleep(STEP)
            if not self._service.is_rebuilding:
                try:
                    await self.step(self._service.clock())
                except Exception as error:  # a plan that goes wrong must not end the server
                    log.error("no plan was made: %s: %s", type(error).__name__, error)
                    self._next = self._soonest = self._service.clock() + SOONEST

    async def step(self, now: float) -> None:
        """Make a plan if it is time, or if tasks, pilots, sites or the policy changed since the last one."""
        engine = self._service.engine
        state, rule = engine.state, engine.state.accounting.policy.placement
        seen = (state.queue.arrivals, len(state.pilots), len(state.site_reports), state.policy_version)
        if now < self._soonest or (now < self._next and seen == self._seen):
            return
        self._seen = seen
        question = engine.placement_question(now) if rule.by != OFF else None
        if question is None:
            self._next = now + STEP
            if state.placed is not None:
                await self._service.command(UsePlan(None))
            return
        self._turn += 1
        began = time.monotonic()
        found = await asyncio.to_thread(make_plan, question, rule, self._turn)
        took = time.monotonic() - began
        self.last = (now, took)
        self._soonest = now + max(SOONEST, SHARE * took)
        self._next = now + max(rule.interval, SHARE * took)
        log.debug(
            "plan kinds=%d sites=%d seconds=%.3f by=%s", len(question.kinds), len(question.places), took, found.how
        )
        await self._service.command(UsePlan(found))
