"""The oracle's own account of divisible work: which units each task has by what was committed, and which its payloads had."""

from __future__ import annotations

import json
from typing import Any

from shoal.engine.changes import ArrayRow, ArrayTable
from shoal.model.ids import AttemptId, TaskId
from shoal.model.task.units import Units, read_units


class UnitsLedger:
    """The units of tasks; it follows the database, and is rolled back with it."""

    def __init__(self) -> None:
        self.totals: dict[int, dict[str, int]] = {}  # run -> name of a divisible table -> its units, as submitted
        self.tasks: dict[TaskId, Units] = {}  # committed
        self._names: dict[TaskId, str] = {}

    def submitted(self, run: int, name: str, units: int) -> None:
        """A user submitted divisible work."""
        self.totals.setdefault(run, {})[name] = units

    def is_divisible(self, run: int) -> bool:
        """True if a run has divisible work."""
        return run in self.totals

    def committed(self, row: ArrayRow | ArrayTable) -> str | None:
        """Divisible work was cut; the name of its table if this is a new task of it, else None."""
        table: dict[str, Any] = json.loads(row.task)
        if table.get("units") is None:
            return None
        task = TaskId(row.run, row.first)
        self.tasks[task], self._names[task] = read_units(table["units"], "units"), table.get("name", "")
        return self._names[task] if isinstance(row, ArrayRow) else None

    def elements(self, run: int, name: str) -> set[int]:
        """The tasks of divisible work, by their elements."""
        return {task.element for task, of in self._names.items() if task.run == run and of == name}

    def wrong_start(self, attempt: AttemptId, env: dict[str, str]) -> str:
        """What is wrong with the units that a payload was given; empty if they are those of a piece that is durable."""
        units = self.tasks.get(attempt.task)
        given = (env.get("SHOAL_FIRST"), env.get("SHOAL_COUNT"))
        if units is None or (units.is_cut and given == (str(units.first), str(units.size))):
            return ""
        return f"started with units {given[0]}+{given[1]}, committed are {units}"

    def check_end(self, run: int, succeeded: dict[TaskId, str], ran: dict[str, tuple[int, int]]) -> str:
        """What is wrong with the units of a run that is over: each is in one task, and was done by the attempt that made
        this task succeed. `succeeded`: tasks and these attempts; empty if all is well."""
        for name, total in self.totals[run].items():
            reach = 0
            own = [(units, task) for task, units in self.tasks.items() if task.run == run and self._names[task] == name]
            for units, task in sorted(own):
                if units.first != reach:
                    return f"units {min(units.first, reach)} .. of r{run} {name} are in two tasks, or in none"
                reach = units.first + units.size
                if task in succeeded and ran.get(succeeded[task]) != (units.first, units.size):
                    return f"{succeeded[task]} did {ran.get(succeeded[task])}, recorded are {units}"
            if reach != total:
                return f"r{run} {name} has {reach} units, {total} were submitted"
        return ""
