"""The workflows of two steps as they come into being: a task of the second step is made when its files are there, at the site
where they are [LBO IV].

A pure account: which tasks there are, which files they read, and which of them are ready. A file has the number of the task that
made it.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from shoal.sim.planning.workloads import MERGING, SPLITTING

READERS = 2  # of a file if splitting, and files of a task if merging


class Task(NamedTuple):
    """A task: its duration, and the files that it reads."""

    seconds: float
    inputs: tuple[int, ...] = ()
    site: int | None = None  # where its files are; None: anywhere


class Next(NamedTuple):
    """A task of the second step that can be made."""

    files: tuple[int, ...]
    site: int


class Workflow:
    """All tasks of one workflow, numbered as they are made."""

    def __init__(self, kind: str, tasks: int, mean: float, spread: float, seed: str) -> None:
        self.kind, self._mean, self._spread = kind, mean, spread
        self._rng = Random(f"{seed}/tasks")
        first = {MERGING: tasks * 2 // 3, SPLITTING: tasks // 3}.get(kind, tasks // 2)
        self.first = first
        self.tasks = [self._task() for _ in range(first)]
        self._unmerged: dict[int, list[int]] = {}  # files of a site that wait for another one
        self._ended = 0  # of the first step
        self._left = first  # tasks that are not done

    @property
    def is_over(self) -> bool:
        """True if every task is done, and there will be no more."""
        return self._left == 0

    def done(self, task: int, site: int) -> list[Next]:
        """A task is done at a site; returns the tasks to be made now."""
        self._left -= 1
        if task >= self.first:
            return []
        self._ended += 1
        found = self._next(task, site)
        if self._ended == self.first:  # what was to be merged with another file, and there is none
            found += [Next(tuple(files), other) for other, files in sorted(self._unmerged.items()) if files]
            self._unmerged = {}
        self._left += len(found)
        return found

    def _next(self, task: int, site: int) -> list[Next]:
        if self.kind != MERGING:
            return [Next((task,), site)] * (READERS if self.kind == SPLITTING else 1)
        waiting = self._unmerged.setdefault(site, [])
        waiting.append(task)
        if len(waiting) < READERS:
            return []
        self._unmerged[site] = []
        return [Next(tuple(waiting), site)]

    def add(self, made: Next) -> int:
        """Make a task of the second step; returns its number."""
        self.tasks.append(self._task(made.files, made.site))
        return len(self.tasks) - 1

    def _task(self, inputs: tuple[int, ...] = (), site: int | None = None) -> Task:
        return Task(max(1.0, self._rng.gauss(self._mean, self._spread * self._mean)), inputs, site)
