"""Shoal: pilots that pull tasks, over any batch system, with one small server."""

from __future__ import annotations

import os

__version__ = "0.1.0"

# Public name -> its module, imported when first used: pilots, runners and servers import this file, too.
_PUBLIC = {
    "results": "report.results",
    "Executor": "client.executor.executor",
    "attach": "client.executor.attach",
    "Attached": "client.executor.attach",
    "Run": "client.executor.hooks",
    "Task": "client.executor.hooks",
    "TaskFailed": "client.executor.outcome",
    "UntrustedResult": "client.unpickle.rules",
    "Ref": "wire.payload",
}
__all__ = [*_PUBLIC, "CurrentTask", "current_task"]  # names of the table above


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


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet: for `dir(shoal)` and completion."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def __getattr__(name: str) -> object:
    """`shoal.Executor`, `shoal.results(run)` and the others."""
    if name in _PUBLIC:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
