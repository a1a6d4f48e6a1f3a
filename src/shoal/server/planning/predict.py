"""Prediction: when the run will end, and the chance of its deadline, by earlier runs of its command [SPHINX S6; ADR 0054]."""

from __future__ import annotations

import asyncio
from typing import Any

from shoal.db.reader import Reader
from shoal.engine.records import Run
from shoal.model.file_names import DATABASE
from shoal.server.planning.deadline_watch import ReaderRows
from shoal.server.planning.steps import Found
from shoal.server.service import Service


class Predict:
    """Takes a run from `unpredicted`."""

    async def take(self, service: Service, run: Run) -> Found:
        """State how long its largest table takes on the slots that are here, and with what chance that is in time."""
        array = max(run.arrays, key=lambda array: len(array.todo), default=None)
        unknown: dict[str, Any] = {"due": run.due, "chance": None, "p50": None, "p90": None}
        if array is None or not run.total - run.settled:
            return Found(unknown)
        slots = service.engine.slots_for(run.owner, array.spec.needs)
        path, left, spec = str(service.state_dir / DATABASE), run.total - run.settled, array.spec
        if not slots or spec.function or any(other.spec.after or other.spec.after_any for other in run.arrays):
            return Found(unknown | {"slots": slots})
        in_time = run.due - service.clock() if run.due is not None else 0.0
        found = await asyncio.to_thread(_predict, path, run.owner, spec.command, spec.shell, left, slots, in_time)
        found |= {"chance": None} if run.due is None else {}
        return Found(unknown | found | {"slots": slots})


def _predict(
    path: str, owner: str, command: tuple[str, ...], shell: str | None, tasks: int, slots: int, in_time: float
) -> dict[str, Any]:
    """The forecast as data; nothing if no such task has run here. On a thread of its own, with numpy."""
    from shoal.sched.vector.deadline import state_fresh
    from shoal.sched.vector.time_left import Observed

    observed = Observed()
    with Reader(path) as reader:
        for number in reader.alike(owner, command, shell):
            row = reader.run(number)
            if row is not None:
                observed.read(ReaderRows(reader), {**row, "run": f"r{number}"})
    stated = state_fresh(observed.fresh(tasks, slots), in_time)
    if stated is None:
        return {}
    return {"chance": round(stated.chance, 4), "p50": round(stated.p50, 3), "p90": round(stated.p90, 3)}
