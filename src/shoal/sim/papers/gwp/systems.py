"""The three pilot systems of the first experiment, as the paper describes and configures them [GWP 5, 6.1, table 4].

Factories are the policies of `sched`; matching, pulling and the applications' scripts are models on the virtual clock.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque

from shoal.model.lazy_dataclass import dataclass
from shoal.sched.factory import FactoryRule, missing, next_submission
from shoal.sched.provisioning.guided_factory import GuidedRule, wanted
from shoal.sim.papers.gwp.pilots import GridTest, Pilot, PilotSystem
from shoal.sim.papers.gwp.workload import output_bytes
from shoal.sim.planning.central_queue import CentralServer

GROUP = 100  # tasks of one command of a script


@dataclass(frozen=True)
class DianeOptions:
    """First come, first served; the application is inside the master."""

    submission: float = 3.6  # seconds of each, one after another
    request: float = 1.0 / 115.0  # seconds of the master for a request
    pull_delay: float = 0.2
    retry: float = 10.0  # seconds after which an idle pilot asks again
    idle_limit: float = 600.0
    drops: bool = True  # a pilot whose task failed


class Diane(PilotSystem):
    """A master with the application in it: a task that ends is replaced at once."""

    def __init__(self, grid: GridTest, seed: int, options: DianeOptions) -> None:
        super().__init__(grid, seed)
        self.options, self.drops = options, options.drops
        self._rule = FactoryRule(grid.managed, grid.managed, options.submission)
        self._latest: float | None = None
        self._is_submitting = False
        self._master = CentralServer(self.clock, options.request)
        self._back: deque[int] = deque()

    def begin(self) -> None:
        self.wants_pilots()

    def wants_pilots(self) -> None:
        due = next_submission(self._rule, len(self.up), self.pending, self._latest, self.clock.now)
        if due is not None and not self._is_submitting:
            self._is_submitting = True
            self.clock.at(due, self._submit)

    def _submit(self) -> None:
        self._is_submitting = False
        if self.is_over or missing(self._rule, len(self.up), self.pending) == 0:
            return
        self._latest = self.clock.now
        self.submit()
        self.wants_pilots()

    def enrol(self, pilot: Pilot) -> None:
        self._ask(pilot)

    def ended(self, pilot: Pilot, task: int) -> None:
        self._ask(pilot)

    def go_on(self, pilot: Pilot) -> None:
        self._ask(pilot)

    def returned(self, task: int) -> None:
        self._back.append(task)

    def _ask(self, pilot: Pilot) -> None:
        self.later(self.options.pull_delay, lambda: self._master.request(lambda: self._answer(pilot)))

    def _answer(self, pilot: Pilot) -> None:
        if not pilot.is_up or self.is_over:
            return
        task = self._back.popleft() if self._back else self.next_task()
        if task is not None:
            self.arrived[task] = self.dispatched[task] = self.clock.now
            self.start_task(pilot, task)
        elif self.clock.now - pilot.idle_since >= self.options.idle_limit:
            self.end_pilot(pilot)
        else:
            self.later(self.options.retry, lambda: self._ask(pilot))


@dataclass(frozen=True)
class ScriptOptions:
    """The script that submits tasks by commands and looks for those that have ended [GWP 6.2.1]."""

    command: float  # seconds of a command
    per_task: float  # seconds more for each task that it is about
    commands: int  # about a group of ended tasks: of their outputs, and the submission of as many new ones
    checks_groups: bool  # it asks for the states of a group of tasks; else of all at once
    pause: float = 60.0  # when nothing has ended


class ScriptedSystem(PilotSystem):
    """A system whose tasks come from a script that runs one command after another. Pilots whose task failed always end, and
    new ones are asked for at intervals."""

    def __init__(self, grid: GridTest, seed: int, script: ScriptOptions) -> None:
        super().__init__(grid, seed)
        self.script = script
        self.managed = 0  # tasks that the script has submitted and not seen the end of
        self._commands = CentralServer(self.clock, script.command, script.per_task)
        self._visible: list[float] = []  # when the tasks ended whose end the script can see

    @abstractmethod
    def accept(self, task: int) -> None:
        """The script has submitted a task."""

    def begin(self) -> None:
        self._next_group([0.0] * self.grid.managed, 0)

    def go_on(self, pilot: Pilot) -> None:
        raise AssertionError("a pilot whose task failed ends here")

    def wants_pilots(self) -> None:
        return

    def show_end(self, since: float) -> None:
        """From now on the script can see that a task has ended."""
        self._visible.append(since)

    def _check(self) -> None:
        """Ask for the states of the tasks, one group after another."""
        if not self.is_over:
            self._check_next(-(-self.managed // GROUP) if self.script.checks_groups else 1)

    def _check_next(self, left: int) -> None:
        if left > 0:
            items = min(GROUP, self.managed) if self.script.checks_groups else 0
            self._commands.request(lambda: self._check_next(left - 1), items)
        elif self._visible:
            ended, self._visible = self._visible, []
            self.managed -= len(ended)
            self._next_group(ended, self.script.commands - 1)
        else:
            self.later(self.script.pause, self._check)

    def _next_group(self, ended: list[float], before: int) -> None:
        """Run the commands about the outputs of a group of tasks, then submit as many new ones, then the next group."""
        if ended:
            self._command(ended[:GROUP], ended[GROUP:], before, before)
        else:
            self._check()

    def _command(self, group: list[float], rest: list[float], before: int, left: int) -> None:
        if left > 0:
            self._commands.request(lambda: self._command(group, rest, before, left - 1), len(group))
        else:
            self._commands.request(lambda: self._submitted(group, rest, before), len(group))

    def _submitted(self, group: list[float], rest: list[float], before: int) -> None:
        for ended in group:
            task = self.next_task()
            if task is None:
                continue
            self.managed += 1
            self.arrived[task] = self.clock.now
            if self.created > self.grid.managed:
                self.application.append(self.clock.now - ended)
            self.accept(task)
        self._next_group(rest, before)


@dataclass(frozen=True)
class GwpilotOptions:
    """Matching at intervals, and pilots that pull [GWP table 3, table 4]."""

    interval: float = 10.0
    chunk: int = 100  # tasks, and pilots to submit, of one interval
    pulling: float = 30.0
    tries: int = 20  # after which an idle pilot ends
    transfer: float = 2.0  # seconds that a file transfer takes beside its bytes
    bandwidth: float = 1e6  # bytes a second
    over: int = 0  # pilots that are submitted beyond the tasks that there are


class Gwpilot(ScriptedSystem):
    """GridWay's scheduler gives tasks to pilots at intervals; each pilot finds its own at its next request."""

    def __init__(self, grid: GridTest, seed: int, options: GwpilotOptions, script: ScriptOptions) -> None:
        super().__init__(grid, seed, script)
        self.options = options
        self._rule = GuidedRule(
            grid.managed + options.over, options.over, per_round=options.chunk, suspension=self.suspension or 0.0
        )
        self._queue: deque[int] = deque()
        self._idle: dict[
            int, Pilot
        ] = {}  # pilots without a task, by number: the first that was enrolled is matched first

    def begin(self) -> None:
        super().begin()
        self._schedule()

    def accept(self, task: int) -> None:
        self._queue.append(task)

    def returned(self, task: int) -> None:
        self._queue.append(task)

    def _schedule(self) -> None:
        """One interval of the scheduler: tasks to pilots, and pilots to sites."""
        count = min(self.options.chunk, len(self._queue), len(self._idle))
        for number in sorted(self._idle)[:count]:
            pilot, task = self._idle.pop(number), self._queue.popleft()
            pilot.assigned = task
            self.dispatched[task] = self.clock.now
            waited = (self.clock.now - pilot.idle_since) % self.options.pulling
            self.clock.after(self.options.pulling - waited, lambda p=pilot, t=task: self._pull(p, t))  # type: ignore[misc]  # bound now
        for _ in range(wanted(self._rule, self.managed, len(self.up) + self.pending)):
            self.submit()
        self.later(self.options.interval, self._schedule)

    def _pull(self, pilot: Pilot, task: int) -> None:
        out = self.options.transfer + output_bytes(self.grid.test, task) / self.options.bandwidth
        self.start_task(pilot, task, self.options.transfer, out)

    def enrol(self, pilot: Pilot) -> None:
        self._wait(pilot)

    def ended(self, pilot: Pilot, task: int) -> None:
        self.show_end(self.clock.now)
        self._wait(pilot)

    def _wait(self, pilot: Pilot) -> None:
        self._idle[pilot.number] = pilot
        since = pilot.idle_since
        self.later(self.options.tries * self.options.pulling, lambda: self._give_up_idle(pilot, since))

    def _give_up_idle(self, pilot: Pilot, since: float) -> None:
        if pilot.number in self._idle and pilot.idle_since == since:
            del self._idle[pilot.number]
            self.end_pilot(pilot)


@dataclass(frozen=True)
class DiracOptions:
    """Classified queues, a pilot for each waiting task, and pilots that ask again after two minutes [GWP table 4]."""

    submission_delay: float = 10.0  # before a pilot asks for a task
    retry: float = 120.0  # after a request that found the queue empty
    failed_matches: int = 10  # after which a pilot ends
    most_matches: int = 100  # tasks and failed requests of one pilot
    classify: float = 60.0  # seconds from the acceptance of a task until it can be matched
    complete: float = 60.0  # seconds from the end of a task until its output can be downloaded
    match: float = 0.01  # seconds of the matcher for a request
    iteration: float = 10.0  # seconds between two rounds of the director
    per_iteration: int = 100
    extra_pilots: int = 2


class Dirac(ScriptedSystem):
    """Many modules around queues of classified tasks."""

    suspension = None  # a pilot waits in a queue for up to a day

    def __init__(self, grid: GridTest, seed: int, options: DiracOptions, script: ScriptOptions) -> None:
        super().__init__(grid, seed, script)
        self.options = options
        self._queue: deque[int] = deque()
        self._matcher = CentralServer(self.clock, options.match)
        self._rule = GuidedRule(
            grid.managed + options.extra_pilots, options.extra_pilots, per_round=options.per_iteration
        )

    def begin(self) -> None:
        super().begin()
        self._direct()

    def accept(self, task: int) -> None:
        self.clock.after(self.options.classify, lambda: self._queue.append(task))

    def returned(self, task: int) -> None:
        self.accept(task)

    def _direct(self) -> None:
        """The director submits a pilot for each task that waits and has none on its way."""
        for _ in range(wanted(self._rule, len(self._queue), self.pending)):
            self.submit()
        self.later(self.options.iteration, self._direct)

    def enrol(self, pilot: Pilot) -> None:
        self._ask(pilot, self.options.submission_delay)

    def ended(self, pilot: Pilot, task: int) -> None:
        since = self.clock.now
        self.clock.after(self.options.complete, lambda: self.show_end(since))
        self._ask(pilot, self.options.submission_delay)

    def _ask(self, pilot: Pilot, delay: float) -> None:
        self.later(delay, lambda: self._matcher.request(lambda: self._matched(pilot)))

    def _matched(self, pilot: Pilot) -> None:
        if self.is_over:
            return
        if self._queue:
            task = self._queue.popleft()
            self.dispatched[task] = self.clock.now
            self.start_task(pilot, task)
            return
        pilot.failed_matches += 1
        all_matches = pilot.completed + pilot.failed_matches
        if pilot.failed_matches >= self.options.failed_matches or all_matches >= self.options.most_matches:
            self.end_pilot(pilot)
        else:
            self._ask(pilot, self.options.retry)
