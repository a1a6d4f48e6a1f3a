"""What the three systems of the first experiment share: pilots that wait in the grid's queues, run tasks and fail, and the
account of it. Models on the virtual clock; the systems themselves are in `systems`."""

from __future__ import annotations

import binascii
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from shoal.model.lazy_dataclass import dataclass
from shoal.sim.clock import Clock
from shoal.sim.papers.gwp.workload import seconds_of

HALF_HOUR = 1_800.0


@dataclass(frozen=True)
class GridTest:
    """What a test of table 6 is, apart from the system: the work, and how the grid treats the pilots."""

    test: str
    tasks: int
    managed: int  # tasks at once in a system, and pilots that it wants
    starts: float  # chance that a submitted pilot starts within half an hour
    fails: float  # chance that an execution fails
    slow_share: float  # of hosts, that are as the slower reference machine
    limit: float = 400 * 3600.0  # seconds of virtual time after which the run is given up


class TaskTimes(NamedTuple):
    """The parts of the turnaround of a task that was done [GWP figure 8]."""

    computing: float
    scheduling: float  # from its arrival in the system until a pilot is chosen for it
    pilot: float  # from then until its end, less the computing


class Life(NamedTuple):
    """From when to when a pilot was up."""

    start: float
    end: float  # infinite: it was up at the end
    machine: str
    was_dropped: bool  # because a task failed


class Pilot:
    """A pilot that was enrolled."""

    __slots__ = ("assigned", "completed", "failed_matches", "idle_since", "is_up", "machine", "number", "start", "task")

    def __init__(self, number: int, machine: str, now: float) -> None:
        self.number, self.machine, self.start = number, machine, now
        self.is_up = True
        self.task: int | None = None  # that it runs
        self.assigned: int | None = None  # that it will fetch
        self.idle_since = now
        self.completed = self.failed_matches = 0


class PilotSystem(ABC):
    """A pilot system on a grid, from the first submission until the last task is done."""

    suspension: float | None = HALF_HOUR  # after which a pilot in a queue is given up
    drops = True  # a pilot whose task failed

    def __init__(self, grid: GridTest, seed: int) -> None:
        self.grid, self.clock = grid, Clock(0.0)
        self._queues, self._hosts, self._failures = (
            Random(f"{seed}/{name}") for name in ("queues", "hosts", "failures")
        )
        self._rate = -math.log(1.0 - min(grid.starts, 0.999)) / HALF_HOUR  # waits without memory
        self.submitted = self.pending = self.enrolled = self.failed = 0
        self.up: dict[int, Pilot] = {}
        self.active = self.done = self.created = 0
        self.ends = bytearray(grid.tasks)  # how often each task was done
        self.times: list[TaskTimes] = []
        self.application: list[float] = []  # seconds from the end of a task until the application has put another in
        self.arrived: dict[int, float] = {}  # when a task came into the system
        self.dispatched: dict[int, float] = {}
        self.lives: list[Life] = []  # of pilots that ended
        self.trace = 0
        self._area_up = self._area_active = self._since = 0.0
        self._measured: tuple[float, float, float] | None = None
        self.makespan = math.nan

    # --- what a system decides
    @abstractmethod
    def begin(self) -> None:
        """Start the application and the factory."""

    @abstractmethod
    def enrol(self, pilot: Pilot) -> None:
        """A pilot has started."""

    @abstractmethod
    def ended(self, pilot: Pilot, task: int) -> None:
        """A pilot is done with its task."""

    @abstractmethod
    def returned(self, task: int) -> None:
        """A task failed and is put back."""

    @abstractmethod
    def go_on(self, pilot: Pilot) -> None:
        """A pilot whose task failed is kept."""

    # --- the run
    def run(self) -> PilotSystem:
        """Let time pass until the last task is done."""
        self.begin()
        while self.done < self.grid.tasks and self.clock.now < self.grid.limit and self.clock.step():
            pass
        return self

    @property
    def is_over(self) -> bool:
        """True when all tasks are done."""
        return self.done >= self.grid.tasks

    @property
    def mean_up(self) -> float:
        """Pilots that were up on average, until as many tasks were left as may be managed at once."""
        up, _, seconds = self._window()
        return up / seconds if seconds else 0.0

    @property
    def filling(self) -> float:
        """The part of their time in which pilots had a task, over the same time."""
        up, active, _ = self._window()
        return active / up if up else 0.0

    def _window(self) -> tuple[float, float, float]:
        return self._measured or (self._area_up, self._area_active, self._since)

    def count(self) -> None:
        """Add up the areas until now; before every change of `up` and `active`."""
        passed, self._since = self.clock.now - self._since, self.clock.now
        self._area_up += passed * len(self.up)
        self._area_active += passed * self.active

    # --- pilots
    def submit(self) -> None:
        """A pilot goes into a queue of the grid."""
        self.submitted += 1
        self.pending += 1
        wait = self._queues.expovariate(self._rate)
        if self.suspension is not None and wait > self.suspension:
            self.clock.after(self.suspension, self._give_up)
        else:
            self.clock.after(wait, self._start)

    def _give_up(self) -> None:
        self.pending -= 1
        self.wants_pilots()

    @abstractmethod
    def wants_pilots(self) -> None:
        """There may be room for another pilot."""

    def _start(self) -> None:
        self.pending -= 1
        self.enrolled += 1
        machine = "E5620" if self._hosts.random() < self.grid.slow_share else "X5365"
        pilot = Pilot(self.enrolled, machine, self.clock.now)
        self.count()
        self.up[pilot.number] = pilot
        self.enrol(pilot)

    def all_lives(self) -> list[Life]:
        """The lives of all pilots, by their start."""
        still = [Life(pilot.start, math.inf, pilot.machine, False) for pilot in self.up.values()]
        return sorted([*self.lives, *still])

    def end_pilot(self, pilot: Pilot, was_dropped: bool = False) -> None:
        """A pilot ends by itself, or is dropped."""
        if not pilot.is_up:
            return
        self.count()
        pilot.is_up = False
        del self.up[pilot.number]
        self.lives.append(Life(pilot.start, self.clock.now, pilot.machine, was_dropped))
        self.wants_pilots()

    # --- tasks
    def next_task(self) -> int | None:
        """The application makes a task; None if it has made them all."""
        if self.created >= self.grid.tasks:
            return None
        self.created += 1
        return self.created - 1

    def start_task(self, pilot: Pilot, task: int, staging_in: float = 0.0, staging_out: float = 0.0) -> None:
        """A pilot begins a task: it fetches the input, computes, and brings the output back."""
        assert pilot.is_up and pilot.task is None, "a pilot runs one task at a time"
        self.count()
        pilot.task, pilot.assigned = task, None
        self.active += 1
        computing = seconds_of(self.grid.test, task, pilot.machine)
        if self._failures.random() < self.grid.fails:
            self.clock.after(staging_in + computing * self._failures.random(), lambda: self._fail(pilot, task))
        else:
            seconds = staging_in + computing + staging_out
            self.clock.after(seconds, lambda: self._end(pilot, task, computing))

    def _fail(self, pilot: Pilot, task: int) -> None:
        self.count()
        self.active -= 1
        self.failed += 1
        pilot.task = None
        self._note(task, pilot)
        self.returned(task)
        if self.drops:
            self.end_pilot(pilot, was_dropped=True)
        else:
            self.go_on(pilot)

    def _end(self, pilot: Pilot, task: int, computing: float) -> None:
        self.count()
        self.active -= 1
        self.done += 1
        self.ends[task] += 1
        pilot.task, pilot.idle_since = None, self.clock.now
        pilot.completed += 1
        now, arrived = self.clock.now, self.arrived.pop(task, self.clock.now)
        dispatched = self.dispatched.pop(task, now)
        self.times.append(TaskTimes(computing, dispatched - arrived, now - dispatched - computing))
        self._note(task, pilot)
        if self._measured is None and self.grid.tasks - self.done <= self.grid.managed:
            self._measured = (self._area_up, self._area_active, self.clock.now)
        if self.is_over:
            self.makespan = self.clock.now
        self.ended(pilot, task)

    def _note(self, task: int, pilot: Pilot) -> None:
        self.trace = binascii.crc32(f"{task} {pilot.number} {self.clock.now:.6f}".encode(), self.trace)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Schedule what is to be done only while there is work."""
        self.clock.after(seconds, lambda: None if self.is_over else do())
