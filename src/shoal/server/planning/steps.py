"""The list of planning steps: each takes a run from one planning state, and knows nothing of the others [SPHINX S1; ADR 0059].

Another package adds a step by an entry point of the group `shoal.planning`, named for the state that it takes a run from:

    [project.entry-points."shoal.planning"]
    unaudited = "my_package:Audit"

`Audit()` has `take`, as `Step` describes it, and `before`: the state in front of which its own is put, such as "unplanned".
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import field
from functools import cache
from typing import Any, Protocol

from shoal.engine.records import Run
from shoal.engine.tasks.runs import Reused
from shoal.model.errors import BadInput, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.model.states import UNACCEPTED, UNFINISHED, UNPLANNED, UNPREDICTED, UNREDUCED
from shoal.server.service import Service

log = logging.getLogger(__name__)
GROUP = "shoal.planning"
_STATE = re.compile(r"[a-z][a-z_]{1,39}")


@dataclass(frozen=True)
class Found:
    """What a step found. `to`: another planning state than the next one; a step that `waits` is taken again in a while."""

    data: dict[str, Any] = field(default_factory=dict)
    reused: Reused = ()
    to: str = ""
    waits: str = ""  # for what; empty: the step is done


class Step(Protocol):
    """One planning step."""

    async def take(self, service: Service, run: Run) -> Found:
        """Do it. It may be interrupted by a crash at any point and done again; only what it returns is kept, and once."""


@dataclass(frozen=True)
class Place:
    """A step and the state that it takes runs from."""

    stage: str
    step: Step


@cache
def steps() -> tuple[Place, ...]:
    """Every step, in order."""
    import importlib.metadata  # it takes many modules; few servers plan anything

    from shoal.server.planning.accept import Accept
    from shoal.server.planning.place import PlaceTasks
    from shoal.server.planning.predict import Predict
    from shoal.server.planning.reduce import Reduce

    found = [
        Place(UNREDUCED, Reduce()), Place(UNPREDICTED, Predict()), Place(UNACCEPTED, Accept()), Place(UNPLANNED, PlaceTasks()),
    ]  # fmt: skip
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found = _with(found, point.name, point.load()())
        except Exception as error:  # whatever the other package raises; runs are planned without it
            log.error("the planning step %s is left out: %s: %s", point.name, type(error).__name__, error)
    return tuple(found)


def _with(places: Sequence[Place], stage: str, step: Any) -> list[Place]:
    """The list with another step in front of the state that it names."""
    stages = [place.stage for place in places]
    if not _STATE.fullmatch(stage) or stage in (*stages, UNFINISHED):
        raise BadInput(f"{echo(stage)} cannot be a planning state", code="range", hint="small letters, and a new one")
    before = str(getattr(step, "before", UNPLANNED))
    if before not in (*stages, UNFINISHED) or before == UNREDUCED:
        raise BadInput(f"there is no state {echo(before)} to come before", code="range", hint=", ".join(stages[1:]))
    at = stages.index(before) if before in stages else len(stages)
    return [*places[:at], Place(stage, step), *places[at:]]


def step_of(stage: str) -> Step | None:
    """The step that takes a run from a state; None if there is none any more."""
    return next((place.step for place in steps() if place.stage == stage), None)


def next_stage(stage: str) -> str:
    """The state after another."""
    stages = [*(place.stage for place in steps()), UNFINISHED]
    return stages[stages.index(stage) + 1]
