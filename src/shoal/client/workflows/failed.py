"""What is raised when a vertex of a workflow did not succeed; each error names its vertex."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shoal.client.executor.outcome import TaskFailed
from shoal.model.errors import ShoalError, echo
from shoal.model.quantities import many

SHOWN = 3  # vertices that are named
BELOW = "dependency_failed"  # the cause of what never ran


class WorkflowFailed(ShoalError):
    """Some vertices of a workflow did not succeed: `failures` has the exception of each that failed of itself."""

    code = "workflow_failed"

    def __init__(self, message: str = "", failures: Mapping[str, BaseException] | None = None) -> None:
        self.failures = dict(failures or {})
        super().__init__(message)


class End(NamedTuple):
    """How a task ended."""

    state: str
    cause: str = ""
    message: str = ""
    last_line: str | None = None  # None: not read yet


def never_ran(name: str, parent: str) -> TaskFailed:
    """The exception of a vertex that waited for one that did not succeed."""
    return TaskFailed(f"{echo(name)} never ran: {echo(parent)} did not succeed", cause=BELOW)


def failed(name: str, task: str, end: End) -> TaskFailed:
    """The exception of a command that did not succeed."""
    reason = end.message if not end.cause or end.cause in end.message else f"{end.cause}: {end.message}".rstrip(": ")
    return TaskFailed(f"{echo(name)} ({task}) {end.state}: {reason}", task=task, cause=end.cause, state=end.state)


def named(error: BaseException, name: str, run: str) -> BaseException:
    """The same exception with a note that names the vertex that raised it."""
    error.add_note(f"raised by {name!r} of the workflow {run}".rstrip())
    return error


def of_workflow(run: str, total: int, failures: Mapping[str, BaseException], skipped: int) -> WorkflowFailed:
    """The exception of a whole workflow."""
    shown = "; ".join(str(error).partition("\n")[0] or type(error).__name__ for error in [*failures.values()][:SHOWN])
    more = f" and {len(failures) - SHOWN} more" if len(failures) > SHOWN else ""
    names = ", ".join(echo(name) for name in [*failures][:SHOWN])
    waited = f", and {many(skipped, 'vertex', 'vertices')} that waited for them" if skipped else ""
    return WorkflowFailed(
        f"{run}: {len(failures)} of {many(total, 'vertex', 'vertices')} failed ({names}{more}){waited}: {shown}",
        failures,
    )
