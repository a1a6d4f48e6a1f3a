"""What the paper's task queue knows: tasks that wait, and which host has which of their files [LBO II, III.C].

Hosts stand for the caches on their disks. The best task of a pilot is one of which its host has most files; else one that
reads nothing; else the oldest, unless an idle pilot has its files and it is to wait for that one [CMS IV.E].
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Set

from shoal.data.catalogue import Catalogue
from shoal.model.policy import IDLE, DataRule
from shoal.sched.hold import Holder, Presence, hold
from shoal.sim.papers.lbo.workflow import Workflow

MB = 1_000_000
WAIT_FOR_DATA = DataRule(IDLE, longest=math.inf)  # the paper gives no bound


class TaskQueue:
    """Tasks that wait, with an index of the hosts that have files of theirs."""

    def __init__(self, workflow: Workflow, caches: Iterable[Catalogue], sites: int, file_mb: int) -> None:
        self._workflow, self._file_bytes = workflow, file_mb * MB
        self._caches = list(caches)  # of hosts
        self.first: deque[int] = deque(range(workflow.first))
        self.second: list[dict[int, None]] = [{} for _ in range(sites)]  # by age
        self._near: list[dict[int, int]] = [{} for _ in self._caches]  # tasks that wait -> files that the host has
        self._holders: dict[int, list[int]] = {}  # hosts that have a file
        self._readers: dict[int, list[int]] = {}  # tasks that wait for a pilot, and read a file

    def __len__(self) -> int:
        return len(self.first) + sum(map(len, self.second))

    def add(self, task: int) -> None:
        """A task of the second step is ready."""
        known = self._workflow.tasks[task]
        assert known.site is not None
        self.second[known.site][task] = None
        for file in known.inputs:
            self._readers.setdefault(file, []).append(task)
            for host in self._holders.get(file, ()):
                self._near[host][task] = self._near[host].get(task, 0) + 1

    def take(self, task: int | None) -> int:
        """A task goes to a pilot; None: the oldest of those that read nothing."""
        if task is None:
            return self.first.popleft()
        known = self._workflow.tasks[task]
        assert known.site is not None
        del self.second[known.site][task]
        for file in known.inputs:
            self._readers[file].remove(task)
            for host in self._holders.get(file, ()):
                self._near[host].pop(task, None)
        return task

    def keep(self, host: int, file: int, now: float) -> int:
        """A host gets a file; returns how many others went for it."""
        if str(file) in self._caches[host]:
            return 0
        going = self._caches[host].admit(str(file), self._file_bytes, now)
        if going is None:
            return 0
        for other in map(int, going):
            self._holders[other].remove(host)
            for task in self._readers.get(other, ()):
                self._near[host][task] -= 1
                if not self._near[host][task]:
                    del self._near[host][task]
        self._holders.setdefault(file, []).append(host)
        for task in self._readers.get(file, ()):
            self._near[host][task] = self._near[host].get(task, 0) + 1
        return len(going)

    def read(self, host: int, file: int, now: float) -> bool:
        """True if the disk of a host has a file, which is used."""
        if str(file) not in self._caches[host]:
            return False
        self._caches[host].use(str(file), now)
        return True

    def near(self, host: int) -> dict[int, int]:
        """Tasks that wait and of which the host has files -> how many."""
        return self._near[host]

    def best(self, host: int, site: int, idle: Set[int], waits: bool) -> int | None:
        """The task for a pilot of a host, taken from the queue. `idle`: hosts with idle pilots, for which a task may wait that
        has more files there."""
        near = self._near[host]
        for task in sorted(near, key=lambda task: (-near[task], task)):
            if not (waits and self._is_held(task, host, idle)):
                return self.take(task)
        if self.first:
            return self.take(None)
        for task in self.second[site]:
            if task not in near and not (waits and self._is_held(task, host, idle)):
                return self.take(task)
        return None

    def _is_held(self, task: int, host: int, idle: Set[int]) -> bool:
        count = len(self._workflow.tasks[task].inputs)
        here = self._near[host].get(task, 0)
        holders = {one for file in self._workflow.tasks[task].inputs for one in self._holders.get(file, ())} & idle
        if not holders:
            return False
        files = [(one, self._near[one][task]) for one in sorted(holders)]
        found = [Holder(str(one), self._presence(near, count), near * self._file_bytes, 0.0) for one, near in files]
        return hold(WAIT_FOR_DATA, self._presence(here, count), found, 0.0) is not None

    def _presence(self, here: int, count: int) -> Presence:
        return Presence(here, count - here, (count - here) * self._file_bytes)
