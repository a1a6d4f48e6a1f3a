"""Placement: where the tasks of a run go is guided by the plan of all classes of tasks and sites, which is made anew all the
time; a run need not wait for it, since nothing is pinned [SPHINX S5]. So this step lets every run pass."""

from __future__ import annotations

from shoal.engine.records import Run
from shoal.server.planning.steps import Found
from shoal.server.service import Service


class PlaceTasks:
    """Takes a run from `unplanned`."""

    async def take(self, service: Service, run: Run) -> Found:
        """Let it start: late binding chooses among the pilots that there are then."""
        return Found()
