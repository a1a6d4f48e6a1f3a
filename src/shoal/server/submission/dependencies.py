"""What a submission or a retry waits for outside of its own run: may the caller see it, and how did it end?"""

from __future__ import annotations

import json
from collections.abc import Iterable

from shoal.db.reader import Reader
from shoal.engine.commands import Outcomes
from shoal.engine.tasks.dependencies import Target, is_open, outside_of
from shoal.model.ids import TaskId
from shoal.model.states import TaskState
from shoal.model.task.spec import Spec
from shoal.server.service import Service


def targets_of(specs: Iterable[Spec]) -> list[Target]:
    """The runs and tasks of other runs that these specs of one run wait for."""
    tables = list(specs)
    names = {spec.name for spec in tables if spec.name}
    return list(dict.fromkeys(target for spec in tables for target in outside_of(spec, names)))


async def outcomes_of(service: Service, targets: Iterable[Target]) -> Outcomes:
    """How those that are over ended. Nothing may be awaited between this and the command that uses it.

    What ended just now may not be in the database yet: then its commit is waited for.
    """
    wanted = list(targets)
    while True:
        over = [target for target in wanted if not is_open(service.engine.state, target)]
        found = {target: outcome(service.reader, target) for target in over}
        if None not in found.values():
            return {target: bool(good) for target, good in found.items()}
        await service.writer.settled()


def outcome(reader: Reader, target: Target) -> bool | None:
    """True if a run or task succeeded, False if it ended otherwise or was deleted; None while it is not over."""
    if isinstance(target, TaskId):
        row = reader.task_row(*target)
        spans = [] if row is not None else reader.spans(target.run)
        state = row.state if row is not None else None
        state = next((span.state for span in spans if span.low <= target.element < span.high), state)
        if state is None:
            return None if reader.run_row(target.run) is not None else False
        return state == TaskState.SUCCEEDED.value if TaskState(state).final else None
    run = reader.run_row(target)
    if run is None:
        return False
    return json.loads(run.counts).get("succeeded", 0) == run.total if run.finished is not None else None
