"""The control process: takes each run that is being planned from its state to the next by the step that is for it [SPHINX S1].

It remembers nothing: the state of a run is in the database before the next step begins, so a server that was killed anywhere
goes on with the step that it was in.
"""

from __future__ import annotations

import asyncio
import logging
import time

from shoal.engine.commands import AdvancePlan
from shoal.engine.records import Run
from shoal.model.errors import ShoalError
from shoal.model.ids import run_text
from shoal.model.states import UNREDUCED
from shoal.server.planning.steps import next_stage, step_of
from shoal.server.service import Service

log = logging.getLogger(__name__)
LOOK = 0.25  # seconds between two looks for runs to be planned
AGAIN = 1.0  # seconds after which a step that waits is taken again, and
AFTER_ERROR = 10.0  # one that went wrong
MOST_STEPS = 20  # of one run in a row


class Planner:
    """Plans runs, one step after another."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._next: dict[int, float] = {}

    async def run(self) -> None:
        """Look for runs that are being planned."""
        while True:
            await asyncio.sleep(LOOK)
            if self._service.is_rebuilding:
                continue
            due = [run.number for run in self._service.engine.state.runs.values() if _is_due(run)]
            self._next = {number: at for number, at in self._next.items() if number in due}
            for number in due:
                if time.monotonic() >= self._next.get(number, 0.0):
                    self._next[number] = time.monotonic() + await self._plan(number)

    async def _plan(self, number: int) -> float:
        """Take one run as far as it goes now; returns seconds until it is looked at again."""
        for _ in range(MOST_STEPS):
            # Looked up each time: after a defect the state is another one, and so are its runs.
            run = self._service.engine.state.runs.get(number)
            if run is None or not _is_due(run):
                return 0.0
            pause = await self._step(run)
            if pause:
                return pause
        return AGAIN

    async def _step(self, run: Run) -> float:
        """Take one run a step further; returns seconds until the next."""
        assert run.plan is not None
        stage, engine = run.plan.stage, self._service.engine
        step = step_of(stage)
        try:
            if step is None:  # a step that another package brought is here no more: the others may have needed it
                await self._service.command(AdvancePlan(run.number, stage, UNREDUCED, {"without": stage}))
                return 0.0
            found = await step.take(self._service, run)
            if found.waits:
                engine.note_plan(run.number, found.waits)
                return AGAIN
            to = found.to or next_stage(stage)
            await self._service.command(AdvancePlan(run.number, stage, to, found.data, found.reused))
            return 0.0
        except ShoalError as error:
            engine.note_plan(run.number, f"its step went wrong: {error.line}")
        except Exception as error:  # a step that goes wrong must not end the server
            engine.note_plan(run.number, f"its step went wrong: {type(error).__name__}: {error}")
            log.error("planning %s at %s: %s: %s", run_text(run.number), stage, type(error).__name__, error)
        return AFTER_ERROR


def _is_due(run: Run) -> bool:
    return run.finished is None and run.is_planning
