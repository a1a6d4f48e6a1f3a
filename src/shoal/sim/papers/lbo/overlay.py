"""The three architectures of the paper on the virtual clock: `tracked` (the queue knows all files and matches), `central` (pilots
find files by their table, the queue matches) and `distributed` (a leader at each site matches by rounds) [LBO III, IV].

A model: one server with service times, pilots that ask and wait for its answers. What a pilot bids and what its leader makes of
the bids is the product's own `sched/leader/bids.py`. What is counted is counted when it happens: requests when they arrive, reads
when a task begins.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from random import Random
from typing import Any, NamedTuple

from shoal.data.catalogue import Catalogue
from shoal.model.lazy_dataclass import dataclass
from shoal.sched.leader.bids import Answer, Bid, Listed, assign_bids, best_bids
from shoal.sim.clock import Clock
from shoal.sim.papers.lbo import requests
from shoal.sim.papers.lbo.table_replay import FileEvent
from shoal.sim.papers.lbo.task_queue import MB, TaskQueue
from shoal.sim.papers.lbo.workflow import Next, Workflow
from shoal.sim.planning.central_queue import CentralServer

TRACKED, CENTRAL, DISTRIBUTED = "tracked", "central", "distributed"
LOCAL, PEER, STORAGE = "local", "peer", "storage"  # where a task found a file
SITES = 2


class Sample(NamedTuple):
    """The state of things at a time."""

    at: float
    running: int
    waiting: int  # requests that the queue has not begun
    requests: int  # since the start


@dataclass
class Outcome:
    """What came of a workflow."""

    tasks: int = 0
    turnaround: float = 0.0
    all_begun: float = 0.0  # when the last pilot had its first task
    requests: Counter[str] = field(default_factory=Counter)
    reads: Counter[str] = field(default_factory=Counter)
    # Seconds from the end of a task to the begin of the next one of its pilot, if there was one for it: the paper says that there
    # always was [LBO IV.A].
    delays: array[float] = field(default_factory=lambda: array("d"))
    samples: list[Sample] = field(default_factory=list)


class _Pilot:
    """A pilot, its site and host."""

    def __init__(self, number: int, site: int, host: int, turn: int) -> None:
        self.number, self.site, self.host = number, site, host
        self.turn = turn  # its place among the pilots of its site
        self.is_idle = True
        self.ended: float | None = None  # when its last task did
        self.is_starved = False  # since then there was no task for it


class Overlay:
    """One workflow in one architecture, with so many pilots that start together."""

    def __init__(
        self, settings: Mapping[str, Any], architecture: str, kind: str, pilots: int, tasks: int, seed: str,
        journal: list[FileEvent] | None = None,
    ) -> None:  # fmt: skip
        """`journal`: gets what pilots publish and look for."""
        self._settings, self._architecture = settings, architecture
        self._clock = Clock(0.0)
        self._workflow = Workflow(kind, tasks, settings["task_s"], settings["task_spread"], seed)
        self._phases = Random(f"{seed}/phases")
        slots, half = int(settings["host_slots"]), (pilots + 1) // SITES
        per_site = -(-half // slots)  # hosts
        self._pilots = [
            _Pilot(number, number // half, number // half * per_site + number % half // slots, number % half)
            for number in range(pilots)
        ]
        self._neighbours = Counter(pilot.host for pilot in self._pilots)
        self._idle = Counter(pilot.host for pilot in self._pilots)  # idle pilots of each host that has some
        caches = [
            Catalogue(int(settings["cache_mb"]) * MB * slots, int(settings["reserve_mb"]) * MB)
            for _ in range(per_site * SITES)
        ]
        self._queue = TaskQueue(self._workflow, caches, SITES, int(settings["file_mb"]))
        self._server = CentralServer(self._clock, settings["request_s"], settings["scan_s"])
        self._published: dict[int, tuple[float, int]] = {}  # file -> since when peers find it, and its site
        self._journal = journal
        self._unbegun = pilots  # pilots that had no task yet
        self._running = 0
        self._found = Outcome()

    @property
    def pilots(self) -> list[tuple[int, int]]:
        """The number and the site of each pilot."""
        return [(pilot.number, pilot.site) for pilot in self._pilots]

    def run(self) -> Outcome:
        """Let the workflow run to its end."""
        self._found.requests[requests.REGISTER] = len(self._pilots)  # they wait when it is submitted
        if self._architecture == DISTRIBUTED:
            for site in range(SITES):
                self._clock.at(site * self._settings["list_s"] / SITES, partial(self._list, site))
        else:
            for pilot in self._pilots:
                self._ask(pilot)
        for _ in self._pilots if self._architecture != DISTRIBUTED else range(SITES):
            self._clock.at(self._phases.uniform(0.0, self._settings["beat_s"]), self._beat)
        self._sample()
        while not self._workflow.is_over and self._clock.step():
            pass
        self._found.requests[requests.SHUTDOWN] = len(self._pilots)
        self._found.tasks, self._found.turnaround = len(self._workflow.tasks), self._clock.now
        return self._found

    def _request(self, kind: str, then: Callable[[], None] = lambda: None, items: int = 0) -> None:
        self._found.requests[kind] += 1
        self._server.request(then, items)

    def _beat(self) -> None:
        self._request(requests.HEARTBEAT)
        self._clock.after(self._settings["beat_s"], self._beat)

    def _sample(self) -> None:
        self._found.samples.append(
            Sample(self._clock.now, self._running, self._server.waiting, self._found.requests.total())
        )
        self._clock.after(self._settings["sample_s"], self._sample)

    # --- matching by the queue
    def _ask(self, pilot: _Pilot) -> None:
        self._request(requests.GET_TASK, lambda: self._match(pilot), len(self._queue))

    def _match(self, pilot: _Pilot) -> None:
        """The queue looked at all tasks, for a pilot that asked."""
        task = self._queue.best(pilot.host, pilot.site, self._idle.keys(), bool(self._settings["waits"]))
        if task is None:
            pilot.is_starved = True
            self._clock.after(self._settings["pull_s"], lambda: self._ask(pilot))
        else:
            self._give(pilot, task)

    # --- matching by the site
    def _list(self, site: int) -> None:
        self._request(
            requests.TASK_LIST, lambda: self._clock.after(self._settings["gather_s"], lambda: self._assign(site))
        )
        self._clock.after(self._settings["list_s"], lambda: self._list(site))

    def _assign(self, site: int) -> None:
        """The answers of the idle pilots are in."""
        idle = [pilot for pilot in self._pilots if pilot.is_idle and pilot.site == site]
        tasks: list[int | None] = [None, *self._queue.second[site]]  # the first column is all tasks that read nothing
        listed = [Listed(len(self._queue.first)), *(Listed() for _ in tasks[1:])]
        columns = {task: column for column, task in enumerate(tasks) if task is not None}
        answers = {
            f"{pilot.number:05}": Answer(1, self.bids(pilot.host, pilot.turn, listed, tasks, columns)) for pilot in idle
        }
        given = assign_bids(listed, answers, is_exact=False)
        if given:
            self._request(requests.MAPPING)
        for one in given:
            self._give(self._pilots[int(one.pilot)], self._queue.take(tasks[one.column]))
        for pilot in idle:
            pilot.is_starved |= pilot.is_idle

    def bids(
        self, host: int, turn: int, listed: Sequence[Listed], tasks: Sequence[int | None], columns: Mapping[int, int]
    ) -> tuple[Bid, ...]:
        """What a pilot bids. It ranks only tasks near it and as many others as it may bid for: those that would be its best if
        it ranked all."""
        most, count = int(self._settings["bids"]), len(tasks)
        seen = {columns[task] for task in self._queue.near(host)}
        # Some of those that follow may be near, and the first column may have no tasks.
        seen.update(at % count for at in range(turn, turn + min(count, most + len(seen) + 1)))
        fits = [Bid(column, self._rank(host, tasks[column])) for column in {0, *seen} if listed[column].tasks]
        return best_bids(fits, listed, most, turn)

    def _rank(self, host: int, task: int | None) -> float:
        """The files that are here; of equal ones fewer that are not."""
        if task is None or not self._settings["ranks"]:
            return 0.0
        near = self._queue.near(host).get(task, 0)
        return near - (len(self._workflow.tasks[task].inputs) - near) / 1_000

    # --- the life of a task
    def _give(self, pilot: _Pilot, task: int) -> None:
        pilot.is_idle = False
        self._idle[pilot.host] -= 1
        if not self._idle[pilot.host]:
            del self._idle[pilot.host]
        self._request(requests.DOWNLOAD, lambda: self._begin(pilot, task))

    def _begin(self, pilot: _Pilot, task: int) -> None:
        now, known = self._clock.now, self._workflow.tasks[task]
        if pilot.ended is None:
            self._unbegun -= 1
            if not self._unbegun:
                self._found.all_begun = now
        elif not pilot.is_starved:
            self._found.delays.append(now - pilot.ended)
        pilot.is_starved = False
        self._running += 1
        for file in known.inputs:
            self._read(pilot, file)
        self._clock.after(known.seconds, lambda: self._end(pilot, task))

    def _read(self, pilot: _Pilot, file: int) -> None:
        if self._queue.read(pilot.host, file, self._clock.now):
            self._found.reads[LOCAL] += 1
            return
        self._note(pilot, file, is_lookup=True)
        since, site = self._published.get(file, (float("inf"), -1))
        is_found = self._settings["peers"] and self._architecture != TRACKED
        if is_found and site == pilot.site and since <= self._clock.now:
            self._found.reads[PEER] += 1
            self._note(pilot, file)
            self._queue.keep(pilot.host, file, self._clock.now)
        else:
            self._found.reads[STORAGE] += 1

    def _note(self, pilot: _Pilot, file: int, is_lookup: bool = False) -> None:
        if self._journal is not None:
            self._journal.append(FileEvent(self._clock.now, pilot.site, pilot.number, file, is_lookup))

    def _end(self, pilot: _Pilot, task: int) -> None:
        self._running -= 1
        pilot.ended = self._clock.now
        gone = self._queue.keep(pilot.host, task, self._clock.now)
        self._note(pilot, task)
        self._published[task] = (self._clock.now + self._settings["publish_s"], pilot.site)
        if self._architecture == TRACKED:  # its own file, a link for each other pilot of the host, and what went for it
            for _ in range(self._neighbours[pilot.host] + gone):
                self._request(requests.FILE)
        for _ in range(int(self._settings["notices"])):
            self._request(requests.NOTICE)
        self._clock.after(
            self._settings["between_s"],
            lambda: self._request(requests.COMPLETED, lambda: self._completed(pilot, task)),
        )

    def _completed(self, pilot: _Pilot, task: int) -> None:
        """The queue knows that a task is done; its pilot goes on."""
        for one in self._workflow.done(task, pilot.site):
            self._clock.after(self._settings["create_s"], partial(self._create, one))
        self._request(requests.REPORT, lambda: self._free(pilot))

    def _create(self, one: Next) -> None:
        self._queue.add(self._workflow.add(one))

    def _free(self, pilot: _Pilot) -> None:
        pilot.is_idle = True
        self._idle[pilot.host] += 1
        if self._architecture != DISTRIBUTED:
            self._ask(pilot)
