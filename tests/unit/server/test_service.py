"""The service around the engine: pauses of the server itself, with a real database and writer, without sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shoal.db.sqlite import Database
from shoal.engine.changes import Outcome
from shoal.engine.commands import Command, Resume
from shoal.engine.engine import Engine
from shoal.model.timing import Timing
from shoal.server import service as module
from shoal.server.disk_reserve import Reserve
from shoal.server.service import STALL, PauseDetector, Service


def test_a_gap_is_told_once_and_small_delays_are_none() -> None:
    time = PauseDetector(100.0)
    assert time.gap(100.0 + 0.9 * STALL) == 0.0
    assert time.gap(190.9) == 190.9 - 100.0 - 0.9 * STALL
    assert time.gap(190.9) == 0.0


def test_ticks_that_pause_after_a_defect_are_no_pause_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would put off every deadline, again and again: a silent pilot would never be given up."""
    gaps: list[float] = []
    handle = Engine.handle

    def watched(self: Engine, command: Command, now: float) -> Outcome:
        if isinstance(command, Resume):
            gaps.append(round(command.gap, 3))
        return handle(self, command, now)

    def fail(state: Any) -> None:
        raise ZeroDivisionError("planted")

    async def story() -> None:
        database = Database.open(tmp_path / "shoal.db", durability="normal")
        service = Service(database, tmp_path, Timing(), "own", Reserve(tmp_path))
        now = service.clock()
        monkeypatch.setattr(service, "clock", lambda: now)
        try:
            service.tick()  # from here on the clock stands where the test puts it
            gaps.clear()
            with monkeypatch.context() as planted:
                planted.setattr("shoal.engine.pilots.losses.watch", fail)
                service.tick()
            while service.is_rebuilding:
                await asyncio.sleep(0.01)
            for _ in range(50):
                now += 0.2
                service.tick()
            assert service.contained == 1 and gaps == [], "it ran all the time"
            now += 7.0
            service.tick()
            service.tick()
            assert gaps == [7.0], "a pause while ticks pause counts, once"
        finally:
            await service.close()

    monkeypatch.setattr(Engine, "handle", watched)
    monkeypatch.setattr(module, "TICK_PAUSES", (60.0,))
    asyncio.run(story())
