"""The queue against a model of dicts: random submissions, pilots, lost replies, silence, cancels, retries and crashes;
several owners under changing quotas and licences, requirements and ranks over tags that change.

The model keeps, per task, what was promised [promise I2-I4, I8, I11, I14, I19, I20]. Pilots are bodies: what they hold,
they run, until they end it, die, or their guard kills it. The journal tells what the engine did; the model judges it.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shoal.engine.changes import Answer, Outcome, TaskRow
from shoal.engine.commands import Accept, Cancel, Drain, Submit, Talk, Tick
from shoal.model.errors import BadInput, Conflict
from shoal.model.event import KINDS, Event
from shoal.model.ids import AttemptId, TaskId, parse_attempt
from shoal.model.policy import outward
from shoal.model.timing import Timing
from shoal.wire.chunk import shift, single
from shoal.wire.messages import Capacity, Exchange, Published, Report, TagValue
from shoal.wire.submission import canonical, parse_submission
from tests.unit.engine.stand import FakePilot, Stand, bad, good

TIMING = Timing()
HAPPENED: Counter[str] = Counter()  # over all examples: events, and what the wires did
MUST_HAPPEN = {
    "crash with changes lost", "enrolled again", "key refused", "reply lost", "retry refused", "retry over quota",
    "report_refused", "run_reopened",
    "task_adopted late success", "task_adopted living copy", "task_adopted pilot came back", "task_finished cancelled",
    "task_finished failed", "task_finished lost", "task_finished succeeded", "task_lost_pilot ready again",
    "task_lost_pilot waits for its hold to end", "task_retried", "task_returned", "tasks_closed cancelled",
    "tasks_closed dependency_failed", "tasks_released", "tasks_reset",
    "at a limit", "over a lowered limit", "policy_changed", "submission refused", "tags_published", "task for its tag",
    "task at the cost of its host", "tasks_changed",
}  # fmt: skip
FINALS = ("succeeded", "failed", "cancelled", "lost")
_END = st.sampled_from(["succeeded", "succeeded", "failed", "returned"])
_RARE = st.integers(0, 3)  # a rule that would drown the others acts only on a 3
_RERUN = st.sampled_from(["safe", "safe", "exclusive", "never"])
GROUPS = {"ann": "g", "bob": "g.inner", "cid": "g.inner"}
_OWNER = st.sampled_from(sorted(GROUPS))
SITES = ("s", "s.a", "t")
# Requirements, and what they ask for: the oracle is plain Python over the tags that the server knows.
Tags = Mapping[str, TagValue]
REQUIRE: dict[str, Callable[[Tags, str], bool]] = {
    "": lambda tags, owner: True,
    "x >= 1": lambda tags, owner: tags.get("x", -1) >= 1,  # type: ignore[operator]
    "x == 0 and not (site == 't')": lambda tags, owner: tags.get("x") == 0 and tags["site"] != "t",
    "my.y == 1": lambda tags, owner: tags.get(f"{owner}.y") == 1,
    "has(x) or my.y == 1": lambda tags, owner: "x" in tags or tags.get(f"{owner}.y") == 1,
}
_REQUIRE = st.sampled_from(["", "x >= 1", *REQUIRE])
_RANK = st.sampled_from(["", "", "x", "0 - x", "free_cores", "my.y"])
_LICENCES = st.sampled_from([0, 0, 1, 2])
_WHO = st.sampled_from(["*", "ann", "bob", "@g", "@g.inner"])
_QUOTA = st.builds(
    lambda who, site, cores: {"who": who, "site": site, "cores": cores},
    _WHO, st.sampled_from(["*", *SITES]), st.integers(0, 4),
) | st.builds(lambda who, queued: {"who": who, "queued": queued}, _WHO, st.sampled_from([0, 1, 3, 6]))  # fmt: skip


@dataclass
class Fate:
    """What the model knows of one task."""

    rerun: str
    retries: int
    parents: list[TaskId]
    owner: str = ""
    require: str = ""
    cores: int = 1
    licences: int = 0
    final: str = ""
    highest: int = 0
    failures: int = 0  # since it was submitted or last retried by a person
    free: int = 0  # failures that cost it no retry
    begun: str = ""  # never: the attempt that had its one chance
    live: set[AttemptId] = field(default_factory=set)


@dataclass
class Model:
    """What was promised to people, as of now; a crash takes it back to the last commit."""

    tasks: dict[TaskId, Fate] = field(default_factory=dict)
    limits: dict[int, list[tuple[range, int]]] = field(default_factory=dict)  # run -> throttled elements
    at_once: dict[int, int] = field(default_factory=dict)  # run -> its max_running
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)  # key -> digest, run
    seq: int = 0
    adopted: set[int] = field(default_factory=set)  # runs in which a living copy was taken back
    quotas: list[dict[str, Any]] = field(default_factory=list)
    licences: int = 0
    used: list[int] = field(default_factory=lambda: [0])  # of each limit after the last command; the licences last


@dataclass
class Body:
    """A pilot as a machine in the world: what it runs, what it has sent, what it has still to say."""

    pilot: FakePilot
    running: dict[str, str] = field(default_factory=dict)  # attempt -> leased or running
    ended: dict[str, Report] = field(default_factory=dict)  # reports not acknowledged
    flights: dict[int, tuple[Exchange, float]] = field(default_factory=dict)
    unanswered: set[int] = field(default_factory=set)  # flights whose reply was lost: sent again unchanged
    seen: set[str] = field(default_factory=set)
    rerun: dict[str, str] = field(default_factory=dict)
    contact: float = 0.0
    leaving: str = ""
    terms: dict[str, Any] = field(default_factory=dict)  # site, host and tags, as it enrols with them
    news: dict[str, TagValue] = field(default_factory=dict)  # tags to be told


class QueueMachine(RuleBasedStateMachine):
    """Rules are what may happen; `digest` is what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.stand = Stand(TIMING)
        self.model = Model()
        self.bodies: list[Body] = []
        self.successes: set[str] = set()  # attempts for which a success was ever reported
        self.later: list[Answer] = []  # answers that wait for the commit
        self.lose_next = False
        self.sites: dict[str, str] = {}  # pilot -> site
        self.digest(self.stand.last)
        for owner, group in GROUPS.items():
            self.stand.group(group, owner)
        self._set_policy([], 3, "strict")
        self.digest(self.stand.last)
        self.stand.commit()
        self.saved = copy.deepcopy(self.model)

    def teardown(self) -> None:
        self.commit()
        for (run, element), fate in self.model.tasks.items():
            if fate.final:
                assert self.stand.state(run, element) == fate.final
        self.stand.database.close()

    # --- the engine's doings, judged
    def digest(self, outcome: Outcome) -> None:
        """Take in what a command led to."""
        rows = {(c.run, c.element): c for c in outcome.changes if isinstance(c, TaskRow)}
        for change in outcome.changes:
            if isinstance(change, Event):
                self._event(change, rows)
        for row in rows.values():
            self._row(row)
        self._limits()
        for answer in outcome.answers:
            if answer.durable:
                self.later.append(answer)
            else:
                self._deliver(answer)

    def _event(self, event: Event, rows: dict[tuple[int, int], TaskRow]) -> None:
        HAPPENED[event.kind] += 1
        for word in ("how", "cause", "next", "state"):
            if event.data.get(word):
                HAPPENED[f"{event.kind} {event.data[word]}"] += 1
        self.model.seq += 1
        assert event.seq == self.model.seq, "the journal has a gap"
        assert event.kind in KINDS
        task = TaskId(event.run, event.task) if event.run is not None and event.task is not None else None
        if event.kind == "tasks_leased":
            attempts = [parse_attempt(text) for text in event.data["attempts"]]
            for text, count in event.data.get("chunks", ()):
                attempts += [shift(parse_attempt(text), at) for at in range(count)]
            for attempt in attempts:
                self._leased(attempt)
                self._may_run(attempt, event.pilot or "")
        elif event.kind == "task_finished":
            assert task is not None
            self._final(task, event.data["state"])
        elif event.kind == "tasks_closed":
            assert event.run is not None
            for low, high in event.data["ranges"]:
                for element in range(low, high + 1):
                    self._final(TaskId(event.run, element), event.data["state"])
        elif task is not None and event.attempt is not None:
            self._attempt_event(event, task)

    def _attempt_event(self, event: Event, task: TaskId) -> None:
        fate, number = self.model.tasks[task], event.attempt or 0
        gone = {a for a in fate.live if a.number == number}
        if event.kind == "task_retried":
            fate.failures += event.data["burnt"]
            fate.free += not event.data["burnt"]
            HAPPENED["task at the cost of its host"] += not event.data["burnt"]
            assert fate.failures <= fate.retries, "more retries than were granted"
            assert fate.free <= 3, "more free tries than there are"
            fate.live -= gone
        elif event.kind == "task_backed_up":
            assert fate.rerun == "safe"
            assert number > fate.highest
            fate.highest = number
            self._may_run(
                AttemptId(*task, number, self.stand.engine.state.incarnation, self._nonce(task)), event.pilot or ""
            )
        elif event.kind == "task_returned":
            fate.live -= gone
            if not event.data["started"] and fate.begun in {str(a) for a in gone}:
                fate.begun = ""
        elif event.kind == "task_lost_pilot" and event.data["next"] == "ready again":
            fate.live -= gone
        elif event.kind == "task_adopted" and event.data["how"] == "living copy":
            assert fate.rerun == "safe"
            assert not fate.final
            fate.highest = max(fate.highest, number)
            self.model.adopted.add(task.run)

    def _leased(self, attempt: AttemptId) -> None:
        fate = self.model.tasks[attempt.task]
        assert not fate.final, f"{attempt} was leased, and its task is {fate.final}"
        assert attempt.number > fate.highest, "attempt numbers only grow"
        fate.highest = attempt.number
        for parent in fate.parents:
            assert self.model.tasks[parent].final == "succeeded", f"{attempt} leased before {parent} succeeded"
        if fate.rerun != "safe":
            assert not fate.live, f"{attempt} beside {fate.live}"
            self._alone(attempt)
        if fate.rerun == "never":
            assert not fate.begun, f"{attempt} after {fate.begun} had its chance"
            fate.begun = str(attempt)
        fate.live.add(attempt)

    def _nonce(self, task: TaskId) -> str:
        """What names the run of a task; of one that is over and forgotten, nothing does."""
        run = self.stand.engine.state.runs.get(task[0])
        return run.nonce if run is not None else ""

    def _may_run(self, attempt: AttemptId, pilot: str) -> None:
        """Does what it requires hold there?"""
        fate, known = self.model.tasks[attempt.task], self.stand.engine.state.pilots[pilot]
        HAPPENED["task for its tag"] += bool(fate.require)
        assert REQUIRE[fate.require]({**known.tags, "site": known.site}, fate.owner), f"{attempt} on {known.tags}"

    def _limits(self) -> None:
        """Count by hand what runs where, against every limit: nothing starts beyond one, also where it was lowered below
        what runs [promise I14; input E75]."""
        running: list[tuple[str, str, int, int]] = []  # owner, site, cores, licences
        for run in self.stand.engine.state.runs.values():
            for array in run.arrays:
                for task in array.tasks.values():
                    fate = self.model.tasks[task.id]
                    running += [
                        (fate.owner, self.sites[a.pilot], fate.cores, fate.licences) for a in task.live.values()
                    ]
                for chunk in array.chunks:
                    fate = self.model.tasks[TaskId(run.number, chunk.low)]
                    running += [(fate.owner, self.sites[chunk.pilot], fate.cores, fate.licences)] * len(chunk.left)
        used = [
            sum(cores for owner, site, cores, _ in running if _covers(rule, owner, site))
            if "cores" in rule
            else sum(1 for fate in self.model.tasks.values() if not fate.final and _covers(rule, fate.owner, "*"))
            for rule in self.model.quotas
        ]
        used.append(sum(licences for *_, licences in running))
        most = [int(rule["cores"] if "cores" in rule else rule["queued"]) for rule in self.model.quotas] + [
            self.model.licences
        ]
        for at, (now, limit, before) in enumerate(zip(used, most, self.model.used, strict=True)):
            kind = self.model.quotas[at] if at < len(self.model.quotas) else "licences"
            # A copy whose pilot came back runs whatever the limit says: it is taken as it is.
            assert now <= max(limit, before), f"{now} of {limit}, before it were {before}: {kind}"
            HAPPENED["at a limit"] += 0 < now == limit
            HAPPENED["over a lowered limit"] += now > limit
        self.model.used = used

    def _alone(self, attempt: AttemptId) -> None:
        """No body still runs another copy: it ended it, or its guard did for want of contact [promise I3]."""
        for body in self.bodies:
            for text in body.running:
                other = parse_attempt(text)
                if other.task == attempt.task and other != attempt:
                    dead = self.stand.now - body.contact > TIMING.kill_after
                    assert dead or body.rerun[text] == "never", f"{attempt} while {text} lives on {body.pilot.name}"

    def _final(self, task: TaskId, state: str) -> None:
        fate = self.model.tasks[task]
        assert not fate.final, f"{task} was {fate.final} and became {state}: recorded twice"
        assert state in FINALS
        assert state != "lost" or fate.rerun == "never", f"{task} is {fate.rerun} and ended lost"
        fate.final = state
        fate.live.clear()

    def _row(self, row: TaskRow) -> None:
        fate = self.model.tasks[TaskId(row.run, row.element)]
        assert (row.state if row.state in FINALS else "") == fate.final
        assert row.retries == fate.failures, "a retry was burnt by something else than a failure"
        assert (row.cause == "poison") <= (row.losses >= 3)
        if row.state == "succeeded":
            nonce = self.stand.engine.state.runs[row.run].nonce
            winner = f"r{row.run}.{row.element}#{row.winner}~{nonce}"
            assert winner in self.successes, "nobody reported that success"
        if row.state == "ready" and row.run not in self.model.adopted:
            assert row.losses < 3, "it took three pilots with it, and goes on"

    # --- the wires
    def _deliver(self, answer: Answer) -> None:
        for body in self.bodies:
            if body.pilot.name == answer.pilot and answer.seq in body.flights:
                if self.lose_next:
                    HAPPENED["reply lost"] += 1
                    self.lose_next = False
                    body.unanswered.add(answer.seq)
                    return
                self._hear(body, answer)

    def _hear(self, body: Body, answer: Answer) -> None:
        exchange, sent = body.flights.pop(answer.seq)
        body.unanswered.discard(answer.seq)
        body.contact = max(body.contact, sent)
        body.pilot.ack = max(body.pilot.ack, answer.seq)
        for report in exchange.reports:
            assert report.attempt in {v.attempt for v in answer.reply.verdicts}, "a report without a verdict"
            body.ended.pop(report.attempt, None)
        for lease in [single(chunk, at) for chunk in answer.reply.leases for at in range(chunk.count)]:
            if lease.attempt not in body.seen:
                body.seen.add(lease.attempt)
                body.running[lease.attempt] = "leased"
                body.rerun[lease.attempt] = lease.rerun
                if lease.rerun != "safe" and self.stand.now - sent > TIMING.kill_after:
                    self._end(body, lease.attempt, "returned")  # too long on the way: another may run it by now
        for order in answer.reply.orders:
            if order.kind == "cancel" and order.attempt in body.running:
                self._end(body, order.attempt, "cancelled")
            elif order.kind == "drain":
                body.leaving = order.why

    def _end(self, body: Body, attempt: str, outcome: str) -> None:
        stage = body.running.pop(attempt)
        begun = 1.0 if stage == "running" else None
        if outcome == "succeeded":
            body.ended[attempt] = good(attempt)
        elif outcome == "failed":
            body.ended[attempt] = bad(attempt)
        else:
            body.ended[attempt] = Report(attempt, outcome, started=begun)

    def commit(self) -> None:
        """Make everything durable and release what waited for that."""
        self.stand.commit()
        self.saved = copy.deepcopy(self.model)
        waiting, self.later = self.later, []
        for answer in waiting:
            self._deliver(answer)

    def do(self, command: Any, durable: bool = True) -> Outcome:
        """Hand a command over and judge what follows."""
        outcome = self.stand.do(command)
        self.digest(outcome)
        if durable:
            self.commit()
        return outcome

    # --- people
    @rule(
        width=st.integers(1, 5), rerun=_RERUN, retries=st.integers(0, 2), throttle=st.none() | st.integers(1, 2),
        cores=st.sampled_from([1, 1, 2]), chain=st.integers(0, 2), max_fail=st.none() | st.integers(1, 2),
        key=st.sampled_from(["", "", "a", "b"]), owner=_OWNER, require=_REQUIRE, rank=_RANK, licences=_LICENCES,
        own=st.booleans(), max_running=st.none() | st.integers(1, 3),
    )  # fmt: skip
    def submit(
        self,
        width: int,
        rerun: str,
        retries: int,
        throttle: int | None,
        cores: int,
        chain: int,
        max_fail: int | None,
        key: str,
        owner: str,
        require: str,
        rank: str,
        licences: int,
        own: bool,
        max_running: int | None = None,
    ) -> None:
        if len(self.model.tasks) > 40:
            return
        owner = "ann" if key else owner  # who uses one key twice
        array = f"1-{width}" + (f"%{throttle}" if throttle else "")
        first: dict[str, Any] = {"command": ["x", "{i}"], "name": "t0", "array": array, "rerun": rerun, "cores": cores}
        if rerun != "never":
            first["retries"] = retries
        for name, value in (("require", require), ("rank", rank), ("cwd", "own" if own else "")):
            if value:
                first[name] = value
        if licences:
            first["licences"] = {"k": licences}
        tasks = [first]
        for at in range(1, chain + 1):
            tasks.append({"command": ["y"], "name": f"t{at}", "after": [f"t{at - 1}"], "rerun": rerun})
        body = {"tasks": tasks, "max_fail": max_fail, "max_running": max_running, "key": key}
        digest = hashlib.sha256(canonical(body).encode()).hexdigest()
        submission = parse_submission(body)
        found = self.stand.reader.find_key(owner, key) if key else None
        if found is not None and found.run not in self.stand.engine.state.runs:
            return  # the server's edge answers for runs that only the database knows
        known = self.model.keys.get(f"{owner} {key}")
        if known is not None and known[0] != digest:
            try:
                self.stand.do(Submit(submission, owner, digest))
            except BadInput as error:
                assert error.code == "key_reused"
                HAPPENED["key refused"] += 1
                return
            raise AssertionError("a key was used for something else")
        expected = known[1] if known is not None else f"r{self.stand.engine.state.next_run}"
        run = int(expected[1:])
        if known is None and self._is_too_much(owner, submission.count):
            try:
                self.stand.do(Submit(submission, owner, digest))
            except Conflict as error:
                assert error.code == "over_quota"
                HAPPENED["submission refused"] += 1
                return
            raise AssertionError("more was queued than may be")
        if known is None:
            self._promise(run, submission.specs, owner)
            if max_running is not None:
                self.model.at_once[run] = max_running
        outcome = self.do(Submit(submission, owner, digest))
        assert outcome.result["run"] == expected
        assert outcome.result["again"] == (known is not None)
        if key:
            self.model.keys[f"{owner} {key}"] = (digest, expected)
        self.do(Accept(run))

    def _is_too_much(self, owner: str, count: int) -> bool:
        """Would a limit of what is queued be exceeded?"""
        waiting = [fate.owner for fate in self.model.tasks.values() if not fate.final]
        return any(
            sum(1 for name in waiting if _covers(rule, name, "*")) + count > rule["queued"]
            for rule in self.model.quotas
            if "queued" in rule and _covers(rule, owner, "*")
        )

    def _promise(self, run: int, specs: Any, owner: str) -> None:
        first, names = 1, dict[str, list[TaskId]]()
        for spec in specs:
            mine = [TaskId(run, first + k) for k in range(spec.count)]
            parents = [task for name in spec.after for task in names[name]]
            for task in mine:
                counts = spec.needs.cores, sum(count for _, count in spec.needs.licences)
                self.model.tasks[task] = Fate(spec.rerun.value, spec.retries, parents, owner, spec.require, *counts)
            if spec.throttle is not None:
                self.model.limits.setdefault(run, []).append((range(first, first + spec.count), spec.throttle))
            names[spec.name] = mine
            first += spec.count

    @precondition(lambda self: self.model.tasks)
    @rule(data=st.data(), whole=st.booleans(), dice=_RARE)
    def cancel(self, data: st.DataObject, whole: bool, dice: int) -> None:
        if whole and dice < 3:
            return
        task = data.draw(st.sampled_from(sorted(self.model.tasks)))
        mine = [t for t in self.model.tasks if t.run == task.run] if whole else [task]
        before = {t: self.model.tasks[t].final for t in mine}
        self.do(Cancel((task.run if whole else task,)))
        for each, final in before.items():
            now = self.model.tasks[each].final
            if task.run in self.stand.engine.state.runs:
                assert now == (final or "cancelled"), "cancel is final, and so was what was final before"

    @precondition(lambda self: self.model.tasks)
    @rule(
        data=st.data(), whole=st.booleans(), priority=st.sampled_from([-1, 0, 5]), memory=st.sampled_from(["", "1M", "600M"])
    )  # fmt: skip
    def set_fields(self, data: st.DataObject, whole: bool, priority: int, memory: str) -> None:
        """A person gives what is queued another priority, and perhaps other needs, while some of it runs."""
        task = data.draw(st.sampled_from(sorted(self.model.tasks)))
        fields: dict[str, Any] = {"priority": priority, **({"memory": memory} if memory else {})}
        before = dict(self.model.tasks)
        try:
            self.stand.set(task.run if whole else task, **fields)
        except Conflict:
            mine = [fate for t, fate in before.items() if (t.run == task.run if whole else t == task)]
            assert all(fate.final for fate in mine), "only what is over cannot be changed"
            return
        self.digest(self.stand.last)
        self.commit()

    @precondition(lambda self: any(fate.final for fate in self.model.tasks.values()))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        self._retry(data.draw(st.sampled_from(sorted({t.run for t, f in self.model.tasks.items() if f.final}))))

    @precondition(lambda self: self.model.tasks and self.bodies)
    @rule(data=st.data(), heard=st.booleans(), dice=_RARE)
    def change_of_mind(self, data: st.DataObject, heard: bool, dice: int) -> None:
        """A run at work is cancelled and retried while its copies may still be dying, and perhaps over a new quota."""
        self.start_all(2)
        run = data.draw(st.sampled_from(sorted({t.run for t in self.model.tasks})))
        self.do(Cancel((run,)))
        if heard:
            self.start_all(1)
        if dice == 3:
            self.set_policy([{"who": "*", "queued": 1}], 1, "strict", 3)
        self._retry(run)

    def _retry(self, run: int) -> None:
        self.commit()
        again = [t for t, f in self.model.tasks.items() if t.run == run and f.final not in ("", "succeeded")]
        kept = copy.deepcopy(self.model)
        is_too_much = bool(again) and self._is_too_much(self.model.tasks[again[0]].owner, len(again))
        for task in again:
            fate = self.model.tasks[task]
            fate.final, fate.failures, fate.free, fate.begun = "", 0, 0, ""
        try:
            count = self.stand.retry(run)
        except Conflict as error:
            self.model = kept
            if error.code == "over_quota":
                assert is_too_much
                HAPPENED["retry over quota"] += 1
                return
            assert error.code == "still_stopping"
            HAPPENED["retry refused"] += 1
            assert any(kept.tasks[t].rerun != "safe" for t in again)
            return
        assert not is_too_much or not again
        assert count == len(again)
        self.digest(self.stand.last)
        self.commit()

    # --- administrators
    @rule(
        quotas=st.lists(_QUOTA, max_size=3), licences=st.integers(0, 3), order=st.sampled_from(["strict", "weighted"]),
        dice=_RARE,
    )  # fmt: skip
    def set_policy(self, quotas: list[dict[str, Any]], licences: int, order: str, dice: int) -> None:
        if dice < 1:
            return
        self._set_policy(quotas, licences, order)
        self.digest(self.stand.last)
        self.commit()

    def _set_policy(self, quotas: list[dict[str, Any]], licences: int, order: str) -> None:
        self.model.quotas, self.model.licences = quotas, licences
        everything = 10**6  # what runs may go on, however much it is
        self.model.used = [everything] * (len(quotas) + 1)
        self._limits()
        self.stand.policy(quota=quotas, licences={"k": licences}, order={"policy": order, "waiting": 1.0, "share": 0.5})

    # --- pilots
    @initialize(cores=st.integers(1, 3), width=st.integers(2, 5), rerun=_RERUN, retries=st.integers(0, 2))
    def first_pilot_and_first_run(self, cores: int, width: int, rerun: str, retries: int) -> None:
        self.enrol(cores, "s", 1, "h0")
        self.submit(width, rerun, retries, None, 1, 1, None, "", "ann", "", "", 0, False)

    @precondition(lambda self: len(self.bodies) < 4)
    @rule(
        cores=st.integers(1, 3), site=st.sampled_from(SITES), x=st.none() | st.integers(0, 1),
        host=st.sampled_from(["h0", "h0", "h1"]),
    )  # fmt: skip
    def enrol(self, cores: int, site: str, x: int | None, host: str) -> None:
        terms = {"site": site, "host": host, "group": "g", "tags": {} if x is None else {"x": x}}
        body = Body(self._enrol(Capacity(cores, 1 << 30, 1 << 30), None, terms), contact=self.stand.now, terms=terms)
        self.bodies.append(body)
        self.commit()

    def _enrol(self, room: Capacity, former: FakePilot | None, terms: dict[str, Any]) -> FakePilot:
        pilot = self.stand.pilot(room=room, former=former, **terms)
        self.sites[pilot.name] = terms["site"]
        self.digest(self.stand.last)
        return pilot

    @precondition(lambda self: self.bodies)
    @rule(data=st.data(), x=st.sampled_from([0, 1, 1, ""]), require=st.sampled_from(sorted(REQUIRE)), owner=_OWNER)
    def change_tag(self, data: st.DataObject, x: int | str, require: str, owner: str) -> None:
        """Something about a host is different; its pilot says so with its next word, and a task comes that may ask."""
        body = data.draw(st.sampled_from(self.bodies))
        body.news["x"] = x
        self._turn(body, False, True, True, [])
        self.submit(1, "safe", 0, None, 1, 0, None, "", owner, require, "", 0, False)
        self._turn(body, False, True, True, ["succeeded"])

    def known(self) -> list[Body]:
        """The bodies that the server knows by their present name."""
        return [body for body in self.bodies if body.pilot.name in self.stand.engine.state.pilots]

    def _re_enrol(self, body: Body) -> None:
        """The server does not know us any more: the same machine under a new name."""
        body.flights.clear()
        body.unanswered.clear()
        former = body.pilot
        former.held = {}
        body.pilot = self._enrol(former.room, former, body.terms)
        body.contact = self.stand.now
        self.commit()

    def _guard(self, body: Body) -> None:
        """The guard beside the payloads kills exclusive ones that lost contact."""
        if self.stand.now - body.contact > TIMING.kill_after:
            for attempt in [a for a in body.running if body.rerun[a] == "exclusive"]:
                self._end(body, attempt, "returned")

    @precondition(lambda self: self.bodies)
    @rule(
        data=st.data(), lose=st.booleans(), durable=st.booleans(), start=st.booleans(), ends=st.lists(_END, max_size=3)
    )  # fmt: skip
    def talk(self, data: st.DataObject, lose: bool, durable: bool, start: bool, ends: list[str]) -> None:
        """A pilot starts and ends what it likes and says so; its reply may be lost, then it says the same again."""
        self._turn(data.draw(st.sampled_from(self.bodies)), lose, durable, start, ends)

    @precondition(lambda self: self.bodies)
    @rule(rounds=st.integers(1, 4), pause=st.sampled_from([0.0, 1.0, 10.0]), ends=st.lists(_END, max_size=3))
    def work(self, rounds: int, pause: float, ends: list[str]) -> None:
        """An ordinary while: every pilot speaks in turn."""
        for _ in range(rounds):
            for body in list(self.bodies):
                self._turn(body, False, True, True, ends)
            self.tick(pause)

    @precondition(lambda self: self.bodies)
    @rule(end=_END, durable=st.booleans())
    def finish_one(self, end: str, durable: bool) -> None:
        """Whoever runs something ends the oldest of it."""
        for body in list(self.bodies):
            if "running" in body.running.values():
                self._turn(body, False, durable, True, [end])

    @precondition(lambda self: self.bodies)
    @rule(rounds=st.integers(1, 3))
    def start_all(self, rounds: int) -> None:
        """Every pilot gets work and begins it; nothing ends."""
        for _ in range(rounds):
            for body in list(self.bodies):
                self._turn(body, False, True, True, [])

    def _turn(self, body: Body, lose: bool, durable: bool, start: bool, ends: list[str]) -> None:
        if body not in self.bodies:
            return  # it left in an earlier turn of the same rule
        if start:
            body.running = dict.fromkeys(body.running, "running")
        begun = [a for a, stage in body.running.items() if stage == "running"]
        for attempt, end in zip(begun, ends, strict=False):
            self._end(body, attempt, end)
        if body.leaving:
            for attempt in [a for a, stage in body.running.items() if stage == "leased"]:
                self._end(body, attempt, "returned")
        if body.unanswered:
            exchange, _ = body.flights[min(body.unanswered)]
            body.unanswered.discard(exchange.seq)
        elif len(body.flights) < 2:
            exchange = self._compose(body)
        else:
            return
        body.flights[exchange.seq] = (exchange, self.stand.now)
        self.lose_next = lose
        self._say(body, exchange, durable)
        self.lose_next = False

    def _compose(self, body: Body) -> Exchange:
        riding = {r.attempt for exchange, _ in body.flights.values() for r in exchange.reports}
        fresh = [report for attempt, report in body.ended.items() if attempt not in riding]
        self.successes |= {r.attempt for r in fresh if r.outcome == "succeeded"}
        held = {**body.running, **dict.fromkeys(body.ended, "done")}
        news, body.news = body.news, {}
        said = [
            Published(attempt, {"y": len(attempt) % 2}) for attempt, stage in body.running.items() if stage == "running"
        ]
        return body.pilot.make(fresh, leaving=body.leaving, held=held, tags=news, published=said[:1])

    def _say(self, body: Body, exchange: Exchange, durable: bool) -> None:
        try:
            self.do(Talk(exchange), durable)
        except Conflict as error:
            if error.code == "re_enrol":
                if body.leaving and not body.running and not body.ended:
                    self.bodies.remove(body)
                else:
                    HAPPENED["enrolled again"] += 1
                    self._re_enrol(body)
            else:
                assert error.code == "replay"
                HAPPENED["replay refused"] += 1
                del body.flights[exchange.seq]
                body.unanswered.discard(exchange.seq)

    @precondition(lambda self: any(body.flights for body in self.bodies))
    @rule(data=st.data())
    def duplicate(self, data: st.DataObject) -> None:
        """The network delivers an exchange that is still open once more."""
        body = data.draw(st.sampled_from([b for b in self.bodies if b.flights]))
        exchange, _ = data.draw(st.sampled_from(list(body.flights.values())))
        self._say(body, exchange, durable=True)

    @precondition(lambda self: self.known() and self.model.tasks)
    @rule(
        data=st.data(), number=st.integers(1, 4), back=st.integers(0, 2),
        outcome=st.sampled_from(["succeeded", "failed", "returned"]),
    )  # fmt: skip
    def babble(self, data: st.DataObject, number: int, back: int, outcome: str) -> None:
        """A pilot reports an attempt that it does not run: late, doubled, another's, or of nobody."""
        body = data.draw(st.sampled_from(self.known()))
        task = data.draw(st.sampled_from(sorted(self.model.tasks)))
        lives = self.stand.lives
        attempt = str(AttemptId(*task, number, lives[max(0, len(lives) - 1 - back)], self._nonce(task)))
        if attempt in body.running or attempt in body.ended or len(body.flights) >= 2 or body.unanswered:
            return
        if parse_attempt(attempt) in self.stand.engine.state.pilots[body.pilot.name].live:
            return  # the reply that brings it is under way: not even this pilot lies about what it will run
        body.ended[attempt] = Report(attempt, outcome, started=1.0)
        exchange = self._compose(body)
        body.flights[exchange.seq] = (exchange, self.stand.now)
        self._say(body, exchange, durable=True)

    @precondition(lambda self: self.bodies)
    @rule(data=st.data(), known=st.booleans(), dice=_RARE)
    def die(self, data: st.DataObject, known: bool, dice: int) -> None:
        """A pilot's machine is gone, with everything on it."""
        if dice < 2:
            return
        body = data.draw(st.sampled_from(self.bodies))
        self.bodies.remove(body)
        if known:
            self.stand.bury(body.pilot)
            self.digest(self.stand.last)
            self.commit()

    @precondition(lambda self: self.bodies)
    @rule(data=st.data(), dice=_RARE)
    def drain(self, data: st.DataObject, dice: int) -> None:
        if dice < 3:
            return
        body = data.draw(st.sampled_from(self.bodies))
        self.do(Drain((body.pilot.name,), "maintenance"))

    # --- time and the server
    @rule(jump=st.sampled_from([0.01, 1.0, 1.0, 9.0, 9.0, 11.0, 16.0, 31.0, 76.0, 300.0, 920.0]))
    def tick(self, jump: float) -> None:
        self.stand.now += jump
        for body in self.bodies:
            self._guard(body)
        self.do(Tick())
        due = self.stand.engine.deadline()
        assert due is None or due > self.stand.now, "a deadline that has passed: a loop without rest"

    @rule(clean=st.booleans(), dice=_RARE, soon=st.booleans())
    def restart(self, clean: bool, dice: int, soon: bool) -> None:
        """The server ends, in order or by a crash that takes what was not committed, and starts again."""
        if dice < 2:
            return
        if clean:
            self.commit()
            self.stand.restart()
        else:
            HAPPENED.update(["crash with changes lost"] if self.stand.pending else [])
            self.later = []
            self.model = copy.deepcopy(self.saved)
            self.stand.crash()
        for body in self.bodies:
            body.unanswered |= set(body.flights)  # every connection broke
        self.digest(self.stand.last)
        self.commit()
        for body in list(self.bodies) if soon else []:
            self._turn(body, False, True, True, [])

    @precondition(lambda self: self.bodies)
    @rule(seconds=st.sampled_from([80.0, 120.0, 850.0]), ends=st.lists(_END, max_size=1))
    def cut(self, seconds: float, ends: list[str]) -> None:
        """The network is cut while everybody works, long enough to be given up; then all come back."""
        self.start_all(2)
        self.tick(seconds)
        for _ in range(2):
            for body in list(self.bodies):
                self._turn(body, False, True, True, ends)

    @precondition(lambda self: self.bodies)
    @rule(ends=st.lists(_END, max_size=2), soon=st.booleans())
    def crash_in_gap(self, ends: list[str], soon: bool) -> None:
        """Pilots speak, what needs no commit goes out, and the server dies before the rest is on disk."""
        for body in list(self.bodies):
            if body.pilot.name in self.stand.engine.state.pilots:
                self._turn(body, False, False, True, ends)
        self.restart(False, 3, soon)

    # --- always
    @invariant()
    def every_index_adds_up(self) -> None:
        assert self.stand.engine.check() == []

    @invariant()
    def the_engine_agrees_on_what_is_final(self) -> None:
        for run in self.stand.engine.state.runs.values():
            for array in run.arrays:
                for element in range(array.first, array.first + array.count):
                    assert (array.state_of(element) is None) == bool(
                        self.model.tasks[TaskId(run.number, element)].final
                    )

    @invariant()
    def everything_that_waits_has_a_reason(self) -> None:
        for task, fate in self.model.tasks.items():
            if not fate.final:
                state, reasons = self.stand.engine.why(task, self.stand.now)
                assert state not in ("final", "finished")
                assert all(reason.text for reason in reasons)
                assert reasons

    @invariant()
    def no_array_runs_more_than_it_allows(self) -> None:
        for run, limits in self.model.limits.items():
            if run in self.stand.engine.state.runs and run not in self.model.adopted:
                for elements, most in limits:
                    array = self.stand.engine.state.runs[run].array_of(elements.start)
                    assert array is not None
                    assert sum(1 for task in array.tasks.values() if task.live) <= most

    @invariant()
    def no_run_runs_more_than_it_allows(self) -> None:
        for number, most in self.model.at_once.items():
            run = self.stand.engine.state.runs.get(number)
            if run is not None and number not in self.model.adopted:
                assert sum(1 for array in run.arrays for task in array.tasks.values() if task.live) <= most

    @invariant()
    def nothing_waits_for_what_cannot_happen(self) -> None:
        for task, fate in self.model.tasks.items():
            if not fate.final:
                bad_parents = [p for p in fate.parents if self.model.tasks[p].final not in ("", "succeeded")]
                assert not bad_parents, f"{task} waits for {bad_parents}"


def _covers(rule: Mapping[str, Any], owner: str, site: str) -> bool:
    who, where = rule["who"], rule.get("site", "*")
    names = {"*", owner, *(f"@{group}" for group in outward(GROUPS[owner]))}
    return who in names and (where == "*" or where in outward(site))


def test_the_queue_keeps_its_promises_whatever_happens() -> None:
    HAPPENED.clear()
    enough = max(40, settings().max_examples)
    run_state_machine_as_test(QueueMachine, settings=settings(stateful_step_count=40, max_examples=enough))
    if missing := MUST_HAPPEN - set(HAPPENED):  # by chance, once in some dozen changes of the engine: play others, too
        run_state_machine_as_test(
            QueueMachine,
            settings=settings(stateful_step_count=40, max_examples=max(200, 2 * enough), derandomize=False),
        )
        missing = MUST_HAPPEN - set(HAPPENED)
    assert not missing, f"{missing}: a run in which these never happened proves little"
