"""The control process of planning: a state that is made anew under it does not keep the server from everything else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shoal.server.planning import planner
from shoal.server.planning.planner import AGAIN, Planner
from shoal.server.service import Service


def test_a_run_that_does_not_move_is_left_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a defect the engine has other runs: a step that moves one of those must not be taken on the old one for ever."""
    run = SimpleNamespace(number=1, finished=None, is_planning=True, plan=SimpleNamespace(stage="unplanned"))
    taken: list[Any] = []

    async def command(advance: Any) -> dict[str, Any]:
        taken.append(advance)
        return {"advanced": False}

    async def take(service: Any, run: Any) -> Any:
        return SimpleNamespace(waits="", to="", data={}, reused=())

    service = SimpleNamespace(engine=SimpleNamespace(state=SimpleNamespace(runs={1: run})), command=command)
    monkeypatch.setattr(planner, "step_of", lambda stage: SimpleNamespace(take=take))
    assert asyncio.run(Planner(cast(Service, service))._plan(1)) == AGAIN
    assert len(taken) == planner.MOST_STEPS
    service.engine.state.runs = {}
    assert asyncio.run(Planner(cast(Service, service))._plan(1)) == 0.0 and len(taken) == planner.MOST_STEPS
