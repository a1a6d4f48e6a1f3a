"""Shoal: pilots that pull tasks, over any batch system, with one small server."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` takes longer to import than all of this file
if TYPE_CHECKING:
    from collections.abc import Mapping

__version__ = "0.1.0"

# Public name -> its module, imported when first used: pilots, runners and servers import this file, too.
_PUBLIC = {
    "results": "report.results",
    "partial": "report.partial",
    "Executor": "client.executor.executor",
    "attach": "client.executor.attach",
    "Attached": "client.executor.attach",
    "Workflow": "client.workflows.workflow",
    "WorkflowFailed": "client.workflows.failed",
    "Run": "client.executor.hooks",
    "Task": "client.executor.hooks",
    "TaskFailed": "client.executor.outcome",
    "UntrustedResult": "client.unpickle.rules",
    "Ref": "wire.payload",
}
__all__ = [*_PUBLIC, "CurrentTask", "current_task", "emit"]  # names of the table above


class CurrentTask:
    """The task that this process works on: `run`, `task`, `attempt` (a number), `seed`, `index`."""

    __slots__ = ("attempt", "index", "run", "seed", "task")

    def __init__(self, run: str, task: str, attempt: int, seed: int | None, index: int) -> None:
        self.run, self.task, self.attempt, self.seed, self.index = run, task, attempt, seed, index

    def __repr__(self) -> str:
        return f"<{self.task}#{self.attempt}>"


def current_task() -> CurrentTask | None:
    """The task that calls this, in a function or in a command; None outside of Shoal."""
    env = os.environ
    task = env.get("SHOAL_TASK", "")
    if not task:
        return None
    run, _, element = task.partition(".")
    attempt = env.get("SHOAL_ATTEMPT", "").rpartition("#")[2]
    seed, index = env.get("SHOAL_SEED", ""), env.get("SHOAL_INDEX", "")
    return CurrentTask(
        run,
        task,
        int(attempt) if attempt.isdecimal() else 1,
        int(seed) if seed.isdecimal() else None,
        int(index) if index.isdecimal() else int(element),
    )


def emit(values: Mapping[str, object] | None = None, /, **named: object) -> None:
    """Have values of the task that calls this counted while it runs: `shoal.emit(E=3.2, n=17)`. A value is a number, a
    truth value, a text, or a list of those. The answers are merged for the whole run (`shoal partial`). Outside of Shoal
    it does nothing. ValueError: a name is none that values are counted under."""
    found = {**(values or {}), **named}
    import importlib

    # When first used, as the names of the table above.
    names = importlib.import_module(f"{__name__}.sched.partial.contribution")
    wrong = next((name for name in found if not names.is_name(str(name))), None)
    if wrong is not None:
        raise ValueError(f"shoal.emit: {wrong!r} is no name of a value; a name is {names.NAME_RULE}")
    path = os.environ.get("SHOAL_EMIT", "")
    if not path:
        return
    import json

    line = json.dumps(found, default=_listed).encode() + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def _listed(value: object) -> object:
    """Numbers and arrays of numpy and its kin as plain ones."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"shoal.emit takes numbers, texts and lists of them, not {type(value).__name__}")


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet: for `dir(shoal)` and completion."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def __getattr__(name: str) -> object:
    """`shoal.Executor`, `shoal.results(run)` and the others."""
    if name in _PUBLIC:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
