"""Retention while the server runs: the database in slices on the writer's thread, files beside it on another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from shoal.db.retention import drop_logs, runs_over
from shoal.server.service import Service
from shoal.server.writer import RETRY_FULL


async def prune(service: Service, older_than: float, budget: int, release: Callable[[int], int]) -> dict[str, int]:
    """Delete events and logs older than so many seconds, then the oldest over the budget; old runs release their blobs."""
    before, events, freed, after_run, more = service.clock() - older_than, 0, 0, 0, True
    if service.writer.stuck_for:
        # The database can take nothing, not even that something is deleted: logs first, and the rest once they made space.
        freed = await _drop_over(service, budget)
        await asyncio.sleep(2 * RETRY_FULL)
        if service.writer.stuck_for:
            return {"events": 0, "log_bytes": freed}
    while more:
        done: Any = await service.writer.ask(lambda db, a=after_run: db.prune(before, budget, after_run=a))  # type: ignore[misc]  # bound now
        events, more = events + done.events, done.more
        for run in done.runs:
            freed += await _drop(service, run)
            if run not in service.engine.state.runs:
                release(run)
            after_run = run
    while await service.writer.ask(lambda db: db.drop_tasks()):
        pass  # what a crash left of runs that were removed
    return {"events": events, "log_bytes": freed + await _drop_over(service, budget)}


async def _drop_over(service: Service, budget: int) -> int:
    runs = await service.query(lambda reader: runs_over(reader, service.state_dir, budget), patient=True)
    return sum([await _drop(service, run) for run in runs])


async def _drop(service: Service, run: int) -> int:
    if run in service.engine.state.runs:
        return 0  # it has just finished, or was reopened
    return await asyncio.to_thread(drop_logs, service.state_dir, run)
