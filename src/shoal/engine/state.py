"""The engine's whole state and the changes that all rules share: events, rows, elements, attempts."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field, replace
from itertools import islice
from random import Random
from typing import Any, NamedTuple

from shoal.engine.changes import (
    AcctAdd,
    ArrayRow,
    Change,
    Final,
    HostRow,
    NoticeRow,
    Outcome,
    PilotRow,
    ResultRow,
    RunRow,
    TaskRow,
)
from shoal.engine.ended_pilot import EndedPilot
from shoal.engine.locality.index import DataIndex
from shoal.engine.matching.classes import Queue, Sample
from shoal.engine.pilots.roster import Roster
from shoal.engine.policy.accounting import Accounting
from shoal.engine.records import Array, Attempt, Pilot, Run, Task
from shoal.engine.windows.site_window import SiteWindow
from shoal.model.event import Event
from shoal.model.ids import AttemptId, TaskId, parse_attempt, run_text
from shoal.model.lazy_dataclass import dataclass
from shoal.model.policy import Policy
from shoal.model.states import PilotState, TaskState, advance, advance_pilot
from shoal.model.task.spec import Needs
from shoal.model.timing import Timing
from shoal.sched.ban import Banned
from shoal.sched.batch_size import SHORT
from shoal.sched.fit import give, take
from shoal.sched.placement.question import Plan
from shoal.sched.placement.weather import Weather
from shoal.wire.http.requests import SiteStatus
from shoal.wire.messages import Order, Registered, Report

SETTLED_KEPT = 10_000  # final tasks remembered so that a repeated report gets the same verdict
HostKey = tuple[str, str, str, str]  # identity, owner, group, site
KEEP_FINISHED = 60.0  # seconds a finished run stays in memory for stragglers


class Settled(NamedTuple):
    """The attempt that settled a task, and the pilot that reported it; all empty where no report did."""

    winner: str  # number@incarnation
    nonce: str  # of the run
    pilot: str


class Reservation(NamedTuple):
    """A pilot whose capacity an owner waits for, since it has a task that needs more than is free at once."""

    pilot: str
    since: float


class WorkOff(NamedTuple):
    """The class for which a pilot works off what it has fetched ahead."""

    serial: int
    since: float


class SiteReport(NamedTuple):
    """What the provisioner of a person last reported of a site, and when."""

    status: SiteStatus
    time: float


class Placed:
    """The plan by which tasks are directed to sites, and what came of it so far."""

    __slots__ = ("given", "kept", "made", "plan")

    def __init__(self, plan: Plan, made: float) -> None:
        self.plan, self.made = plan, made
        self.given: dict[tuple[int, str], int] = {}  # tasks that a site got, by class
        self.kept: dict[int, float] = {}  # classes that are kept for a free slot of another site -> since when


class Stopping(NamedTuple):
    """A cancelled attempt that is not known to be dead yet: a retry must not overlap it."""

    task: Task
    attempt: Attempt


class Ended(NamedTuple):
    """Elements low .. high - 1 of a run became final; without a state, the run as a whole did."""

    run: int
    low: int = 0
    high: int = 0
    state: TaskState | None = None


# Arrays of other runs that wait: by run, then by what of it they wait for.
Dependents = dict[int, dict[int | TaskId, list[Array]]]


@dataclass
class State:
    """Everything the engine knows."""

    timing: Timing
    rng: Random
    incarnation: int
    next_run: int
    next_seq: int
    state_dir: str = ""
    runs: dict[int, Run] = field(default_factory=dict)
    pilots: dict[str, Pilot] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)  # digest of a living pilot's secret -> its name
    gone: OrderedDict[str, EndedPilot] = field(default_factory=OrderedDict)  # pilots that ended lately
    enrolled: OrderedDict[tuple[str, str], Registered] = field(default_factory=OrderedDict)  # by token and nonce
    meshes: dict[tuple[str, str], Roster] = field(default_factory=dict)  # by site, and owner or group
    windows: dict[tuple[str, str], SiteWindow] = field(
        default_factory=dict
    )  # likewise: its leader, and what it was granted
    hosts: dict[HostKey, HostRow] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)  # owner -> group
    keys: dict[tuple[str, str], Run] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    settled: dict[tuple[int, int], Settled] = field(default_factory=dict)  # by run and element, oldest first
    parked: dict[str, Pilot] = field(default_factory=dict)  # pilots whose exchange waits, in order of coming
    with_orders: dict[str, Pilot] = field(default_factory=dict)  # pilots for which there may be orders
    news: int = 0  # raised when a waiting pilot may get what it did not get before, other than by a class with new work
    looked: tuple[int, int] = (-1, -1)  # the news and arrivals at which the waiting pilots were last looked at
    unlooked: dict[str, Pilot] = field(default_factory=dict)  # those that were not, or have to be again
    slots: int = 0  # cores of all pilots that take tasks
    orphans: dict[AttemptId, Task] = field(
        default_factory=dict
    )  # with no pilot: it is gone (exclusive, never); in a window
    avoiding: dict[TaskId, Task] = field(default_factory=dict)  # tasks that shall not come back to some host or site
    suspects: dict[TaskId, Task] = field(default_factory=dict)  # tasks that must be alone on their pilot
    dying: dict[AttemptId, Stopping] = field(default_factory=dict)
    unreconciled: set[str] = field(default_factory=set)  # pilots that must send their held list before matching starts
    quarantine_until: float = 0.0
    ran_until: float = 0.0  # when this server is known to have run before it was started; 0: never
    settle_until: float = 0.0  # after a gap in the server's own time: nothing is judged by how long it runs
    pilot_zip: str = ""  # SHA-256 of the pilot this server hands out
    keeper: str = ""  # owner of the pilots that the server itself starts; only they see `trouble`
    trouble: str = ""  # why the server cannot start a pilot
    disk_full: str = ""  # why the server has no space for what new attempts bring; empty while it has
    finished: dict[str, int] = field(default_factory=dict)  # tasks by final state since this start
    out: Outcome = field(default_factory=Outcome)
    now: float = 0.0
    policy_version: int = 0
    last_round: float = 0.0  # of matching by interval
    assigned: str = ""  # how the last round with a choice assigned tasks to pilots
    reservations: dict[str, Reservation] = field(default_factory=dict)  # by owner
    lease_key: bytes = b""  # that proofs of leases are made with
    working_off: dict[str, WorkOff] = field(default_factory=dict)  # by pilot
    nested: dict[TaskId, list[int]] = field(default_factory=dict)  # task -> runs that it submitted
    overtaken: dict[str, float] = field(default_factory=dict)  # pilot -> when to look whether what it holds began
    dependents: Dependents = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)  # of runs with dependents, in the command that is handled
    ready_noops: list[Array] = field(default_factory=list)  # that do nothing, and wait for nothing any more
    unwritten: list[Array] = field(default_factory=list)  # that the command which is handled brought
    emitting: dict[int, bool] = field(
        default_factory=dict
    )  # runs whose tasks emitted something; True: it is to be written
    site_reports: dict[tuple[str, str], SiteReport] = field(default_factory=dict)  # by owner and site
    placed: Placed | None = None  # None: no plan is in force
    weathers: OrderedDict[tuple[str, str], Weather] = field(default_factory=OrderedDict)  # by holder and site
    observed: float = 0.0  # when the weather was
    accounting: Accounting = field(init=False)

    def __post_init__(self) -> None:
        self.accounting = Accounting(Policy(), self.groups)

    @property
    def data(self) -> DataIndex:
        """Which hosts have which files, and which ready tasks read them."""
        return self.queue.data

    def is_unwritten(self, array: Array) -> bool:
        """True if the command that is handled brought this array."""
        first = self.unwritten[0] if self.unwritten else None
        return first is not None and array.run is first.run and array.first >= first.first

    # --- what becomes durable
    def change(self, row: Change) -> None:
        """Have a row written with the next commit."""
        self.out.changes.append(row)

    def emit(
        self,
        kind: str,
        *,
        task: TaskId | None = None,
        run: int | None = None,
        attempt: int | None = None,
        pilot: Pilot | None = None,
        owner: str | None = None,
        **data: Any,
    ) -> None:
        """Write an event; it belongs to the owner of its run, else to its pilot's."""
        number = task.run if task is not None else run
        if owner is None:
            of = self.runs.get(number) if number is not None else None
            owner = of.owner if of is not None else pilot.holder if pilot is not None else ""
        if kind in ("task_finished", "tasks_closed"):
            self.finished[data["state"]] = self.finished.get(data["state"], 0) + data.get("count", 1)
        self.change(
            Event(
                self.next_seq, self.now, kind,
                number, task.element if task is not None else None, attempt,
                pilot.name if pilot is not None else None, pilot.site if pilot is not None else None, data, owner,
            )
        )  # fmt: skip
        self.next_seq += 1

    def notify(self, run: Run, what: str, text: str, **data: Any) -> None:
        """Have what a run notifies be told of the event that was emitted last. The rows are in its transaction: a crash
        forgets both or neither."""
        told = f"{run_text(run.number)}{f' ({run.name})' if run.name else ''} {text}"
        for target in run.notify:
            row = NoticeRow(self.next_seq - 1, target, run.number, run.owner, self.now, what, told, json.dumps(data))
            self.change(row)
            self.out.is_due = True

    def write_run(self, run: Run) -> None:
        """Have a run's row written, with how far it is."""
        counts = {**run.finals, "live": run.live} if run.live else run.finals
        if run.works:
            works = run.works.values()
            counts = {**counts, "units": sum(w.units for w in works), "units_done": sum(w.done for w in works)}
        text = ", ".join([f'"{name}": {count}' for name, count in counts.items()])  # JSON: a row for each report
        self.change(
            RunRow(
                run.number, run.owner, run.name, run.created, run.finished, run.total, f"{{{text}}}", run.cwd,
                run.seed, run.max_fail, run.key, run.digest, run.labels, run.signature, run.env_file, int(run.open),
                run.nonce, run.base, run.max_running, run.due, json.dumps(run.notify) if run.notify else "",
            )
        )  # fmt: skip

    def write_array(self, array: Array, table: str) -> None:
        """Have an array's row written."""
        self.change(ArrayRow(array.run.number, array.first, array.count, array.spec.name, table))

    def write_task(
        self,
        task: Task,
        report: Report | None = None,
        pilot: Pilot | None = None,
        *,
        winner: str = "",
        leased: float | None = None,
        live: Sequence[Attempt] | None = None,
    ) -> None:
        """Have a task's row written; `report` is the one that made it final, `live` the attempts that are not over if
        they are others than the task has."""
        final = task.state.final
        attempts = task.live.values() if live is None else live
        text = _live_text(task, attempts) if attempts or (task.past and not final) else ""
        said = report or _NO_REPORT
        began = said.started if final or report else next((one.started for one in attempts if one.running), None)
        name, host, site = (pilot.name, pilot.host, pilot.site) if pilot is not None else ("", "", "")
        self.change(
            TaskRow(
                task.array.run.number, task.element, task.state.value, task.number, winner, task.retries,
                task.losses, text, task.cause, task.note, said.exit_code, said.signal, leased, began,
                self.now if final else None, said.duration if report else None, said.cpu if report else None,
                said.max_rss if report else None, name, host, site, said.last_line,
                json.dumps(said.new_files) if said.new_files else "", "", said.result,
                _special_text(task) if task.special is not None else "",
            )
        )  # fmt: skip

    def announce_final(self, task: Task, report: Report | None = None, holder: str = "") -> None:
        """Have followers of an open run get the result; just before the task's last event."""
        if task.array.run.open:
            ended = report or Report("", "")
            row = ResultRow(
                task.element, task.state.value, ended.result, task.cause, task.note, task.number, ended.last_line,
                ended.out, ended.err,
            )  # fmt: skip
            self.out.finals.append(Final(task.array.run.number, self.next_seq, row, holder))

    def write_pilot(self, pilot: Pilot) -> None:
        """Have a pilot's row written."""
        room = pilot.room
        self.change(
            PilotRow(
                pilot.name, pilot.state.value, pilot.reason, pilot.owner, pilot.site, pilot.host, pilot.identity,
                pilot.session, json.dumps(pilot.former), room.cores, room.memory, room.disk, room.gpus, pilot.version,
                json.dumps(pilot.tags), pilot.joined, self.now if pilot.state is PilotState.GONE else None,
                pilot.group, pilot.token, int(pilot.revoked), pilot.ends, int(pilot.bound),
            )
        )  # fmt: skip

    # --- elements and attempts
    def task_at(self, array: Array, element: int) -> Task:
        """The Task object of an element, made when it first differs from its array."""
        task = array.tasks.get(element)
        if task is None:
            state = TaskState.WAITING if array.waiting else TaskState.READY
            task = array.enter_task(Task(array, element, state))
        return task

    def task_of(self, attempt: AttemptId) -> Task:
        """The task of a live attempt."""
        array = self.runs[attempt.run].array_of(attempt.element)
        assert array is not None
        return array.tasks[attempt.element]

    def hold(self, array: Array, attempt: Attempt, needs: Needs, pilot: Pilot) -> None:
        """An attempt takes capacity of a pilot and of its owner's quota."""
        owner = array.run.owner
        pilot.free = take(pilot.free, needs)
        if attempt.site is not None:  # it moved with its pilot, which came back under a new name
            self.accounting.strike(owner, attempt.site, attempt.needs, 1, attempt.reserved)
        cls = self.queue.class_of(array)
        attempt.site, attempt.reserved, attempt.needs = pilot.site, cls.expected, needs
        pilot.note_class(cls.serial, is_first=pilot.held == 1)
        self.accounting.enter(owner, pilot.site, needs, 1, attempt.reserved)

    def count_cores(self, array: Array, attempt: Attempt, began: float | None = None) -> None:
        """Its cores count as running for its owner's share."""
        if not attempt.cores:
            attempt.cores, attempt.counted = attempt.needs.cores, self.now if began is None else began
            self.accounting.tree.start(array.run.owner, self.now, attempt.cores, began)

    def lend(self, array: Array, attempt: Attempt, pilot: Pilot, lends: bool) -> None:
        """An attempt begins or ceases to wait for other tasks: meanwhile its cores are free, for its owner's quota, too."""
        if attempt.lends is lends:
            return
        attempt.lends, sign, cores = lends, 1 if lends else -1, attempt.needs.cores
        pilot.lending += sign
        pilot.lent += sign * cores
        pilot.free = replace(pilot.free, cores=pilot.free.cores + sign * cores)
        if attempt.site is not None:
            self.accounting.lend(array.run.owner, attempt.site, sign * cores, sign)

    def drop_attempt(self, task: Task, attempt: AttemptId) -> None:
        """An attempt is no longer live: its capacity is free again, and counts no more for its owner."""
        gone = task.live[attempt]
        pilot = self.pilots.get(gone.pilot)
        if gone.lends and pilot is not None:
            self.lend(task.array, gone, pilot, False)
        del task.live[attempt]
        if task.array.run.partial is not None:
            task.array.run.partial.live.pop(attempt, None)
        self.orphans.pop(attempt, None)
        owner, needs = task.array.run.owner, gone.needs
        if gone.site is not None:
            self.accounting.strike(owner, gone.site, needs, 1, gone.reserved)
            self.news += self.accounting.is_limited
        if gone.cores:
            self.accounting.tree.end(owner, self.now, gone.cores, gone.counted, gone.took)
        elif gone.took:
            self.accounting.tree.end(owner, self.now, 0, self.now, gone.took)
        if pilot is None:
            return
        if pilot.lone == attempt:
            pilot.lone = None
        if pilot.live.pop(attempt, None) is not None:
            pilot.free = give(pilot.free, needs)
            self.settle_pilot(pilot)

    def account(
        self,
        array: Array,
        pilot: Pilot,
        took: float,
        fate: str,
        tasks: int = 1,
        queued: float = 0.0,
        staging: float = 0.0,
    ) -> None:
        """Put attempts that ended into the accounts; `fate` is useful, failed, lost or duplicated."""
        run = array.run
        seen = self.weathers.get((pilot.holder, pilot.site))
        if seen is not None:
            seen.count(tasks, fate in ("failed", "lost"))
        self.accounting.spend(run.owner, pilot.site, self.now, took)
        amounts: dict[str, Any] = {fate: took, "tasks": tasks, "queued": queued, "staging": staging}
        hour = int(self.now // 3600.0)
        self.change(AcctAdd(hour, run.owner, pilot.site, pilot.host, pilot.name, run.number, **amounts))

    def update_activity(self) -> None:
        """Update the share with owners that got work, or have none any more."""
        for owner in self.queue.take_activity():
            if self.queue.owners[owner].order:
                self.accounting.tree.wake(owner, self.now)
            else:
                self.accounting.tree.rest(owner, self.now)

    def back_to_ready(self, task: Task) -> None:
        """The task has no live attempt and shall run again; one of a chain may have to wait for its parents once more."""
        array = task.array
        advance(task, TaskState.WAITING if array.waiting else TaskState.READY)
        array.count_live(-1, task.lane)
        task.lane = None
        array.put_todo(task.element, task.element + 1)
        self.offer_back(task)
        self.offer_more(array)
        self.write_task(task)

    def offer_back(self, task: Task) -> None:
        """Offer a ready task with a history: in its array's class, or in its own where matching has to treat it apart."""
        array = task.array
        if task.special is not None and task.special.is_apart:
            self.queue.offer_apart(array, task.element)
        elif array.sequence is not None:
            array.sequence.back(task.element)
        self.queue.offer(array)

    def make_final(self, task: Task, to: TaskState) -> None:
        """Move a task to its final state and out of memory; rows and events are the caller's."""
        array, element = task.array, task.element
        for attempt in list(task.live):
            self.drop_attempt(task, attempt)
        if element in array.todo:
            array.take_todo(element, element + 1)
            array.apart.pop(element, None)
        else:
            array.count_live(-1, task.lane)
            self.offer_more(array)
        advance(task, to)
        array.drop_task(element)
        self.count_final(array, element, element + 1, to)

    def offer_more(self, array: Array) -> None:
        """An attempt at something of an array ended: if it was throttled, it may go on."""
        if array.spec.throttle is not None:
            for element in array.apart:
                self.queue.offer_apart(array, element)
        self.queue.offer(array)
        self.queue.reopen(array.bound)

    def count_final(self, array: Array, low: int, high: int, to: TaskState) -> None:
        """Enter elements low .. high - 1 as final."""
        array.add_done(low, high)
        if to is TaskState.SUCCEEDED:
            array.succeeded += high - low
            if array.spec.units is not None:
                array.run.works[array.spec.name].done += array.spec.units.size
        elif to is not TaskState.CANCELLED:
            array.failed += high - low
        finals = array.run.finals
        finals[to.value] = finals.get(to.value, 0) + high - low
        if array.run.number in self.dependents:
            self.ended.append(Ended(array.run.number, low, high, to))
        self.accounting.ledger.queued(array.run.owner, low - high)

    def finish_run(self, run: Run) -> None:
        """The run is over; the caller writes its row."""
        run.finished = self.now
        self.emit("run_finished", run=run.number, counts=dict(run.finals), seconds=self.now - run.created)
        if run.notify:
            counts = ", ".join(f"{count:,} {state}" for state, count in run.finals.items())
            goal = run.partial.reached if run.partial is not None else ""
            text = f"is over: {counts or 'no task'}{f'; its goal is reached: {goal}' if goal else ''}"
            self.notify(run, "end", text, counts=dict(run.finals), seconds=self.now - run.created, goal=goal)
        if run.number in self.dependents:
            self.ended.append(Ended(run.number))

    def remember(self, task: TaskId, winner: str, nonce: str, pilot: str) -> None:
        """Keep which attempt settled a task, and who reported it, for a while."""
        self.settled.pop(task, None)
        self.settled[task] = Settled(winner, nonce, pilot)
        if len(self.settled) > SETTLED_KEPT:
            self._forget_settled()

    def remember_range(self, run: Run, low: int, high: int, winner: str, pilot: str) -> None:
        """The same for elements low .. high - 1, which were settled for the first time."""
        settled, number = Settled(winner, run.nonce, pilot), run.number
        self.settled.update({(number, element): settled for element in range(low, high)})
        if len(self.settled) > SETTLED_KEPT:
            self._forget_settled()

    def _forget_settled(self) -> None:
        """Drop the oldest, many at a time: one by one, each would skip the empty slots of those before it."""
        for key in list(islice(self.settled, len(self.settled) - SETTLED_KEPT + SETTLED_KEPT // 4)):
            del self.settled[key]

    def learn(self, array: Array, pilot: Pilot, sample: Sample, count: int = 1) -> None:
        """What tasks of its class take, and how fast this pilot is among those that run them [DIANE U8]."""
        cls, duration = self.queue.class_of(array), sample.duration
        if cls.mean is not None and cls.mean > 0.0 and duration > 0.0:
            kept = 0.95**count
            pilot.pace = kept * pilot.pace + (1.0 - kept) * min(10.0, max(0.1, duration / cls.mean))
        was_short = cls.mean is not None and cls.mean <= SHORT
        cls.learn(sample, count)
        if not was_short and cls.mean is not None and cls.mean <= SHORT:
            self.queue.owners[cls.key.owner].arrivals += 1  # full pilots may fetch it ahead from now on

    # --- pilots
    def count_slots(self, pilot: Pilot, sign: int) -> None:
        """A pilot takes tasks from now on, or no longer."""
        self.slots += sign * pilot.room.cores
        self.accounting.ledger.capacity(pilot.site, sign * pilot.room.cores)

    def settle_pilot(self, pilot: Pilot) -> None:
        """Idle or busy, by what it holds."""
        want = PilotState.BUSY if pilot.live or pilot.chunked else PilotState.IDLE
        if pilot.state in (PilotState.IDLE, PilotState.BUSY) and pilot.state is not want:
            advance_pilot(pilot, want)

    def order(self, pilot: Pilot, order: Order) -> None:
        """Send an order with the pilot's next reply; a waiting exchange is answered now."""
        pilot.orders.append(order)
        self.with_orders[pilot.name] = pilot

    def ban_of(self, pilot: Pilot) -> Banned | None:
        """Why nothing is sent to a pilot, its host or its site now: by what its own holder's pilots showed."""
        evidence = self.accounting.evidence.get(pilot.holder)
        if evidence is None or not evidence.places.streaks:
            return None
        return evidence.places.verdict(pilot.name, pilot.host, pilot.site, self.now)

    def serves(self, pilot: Pilot, owner: str) -> bool:
        """May this pilot run a person's tasks? It is bound to one owner or one group [security S6]."""
        if pilot.owner:
            return pilot.owner == owner
        group = self.groups.get(owner, "")
        return group == pilot.group or group.startswith(pilot.group + ".")  # groups nest by dots

    def by_owner(self, attempts: list[str]) -> dict[str, list[str]]:
        """Attempts by whose they are: a group's pilot holds those of several people, and each sees only their own."""
        found: dict[str, list[str]] = {}
        for text in attempts:
            found.setdefault(self.runs[parse_attempt(text).run].owner, []).append(text)
        return found


_NO_REPORT = Report("", "")


def _live_text(task: Task, attempts: Iterable[Attempt]) -> str:
    """The live attempts of a task for its row, as JSON, and while it is not final those that were given up, too."""
    texts = [
        f'[{a.id.number}, {a.id.incarnation}, "{a.pilot}", "{"running" if a.running else "leased"}", {a.leased!r}'
        f"{_other_needs(a, task)}]"
        for a in attempts
    ]
    if not task.state.final:
        texts += [f'[{a.number}, {a.incarnation}, "{pilot}", "lost", 0.0]' for a, pilot in task.past.items()]
    return f"[{', '.join(texts)}]"


def _other_needs(attempt: Attempt, task: Task) -> str:
    """What an attempt takes, for its row, if its task was given other needs since it was leased."""
    needs = task.needs
    return "" if attempt.needs is needs or attempt.needs == needs else f", {json.dumps(asdict(attempt.needs))}"


def _special_text(task: Task) -> str:
    """What makes a task differ from its array, for its row; of a final one only what a person gave it, for a retry."""
    if task.special is None:
        return ""
    if task.state.final:
        return json.dumps({"changed": task.special.changed}) if task.special.changed else ""
    return json.dumps(asdict(task.special))
