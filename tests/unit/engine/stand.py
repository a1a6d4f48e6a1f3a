"""An engine on a test stand: the real database in memory beside it, and pilots that say what a test has them say."""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import AcctAdd, Answer, Change, Outcome, Successes, TaskRow
from shoal.engine.commands import (
    Accept,
    Bury,
    Cancel,
    Command,
    Drain,
    Enrol,
    Regroup,
    Retry,
    SetFields,
    SetPolicy,
    Submit,
    Talk,
    Tick,
)
from shoal.engine.engine import Engine
from shoal.engine.records import Attempt, Task
from shoal.engine.why.reason import Reason
from shoal.model.event import Event
from shoal.model.ids import AttemptId, TaskId, parse_task, start_count
from shoal.model.states import TaskState
from shoal.model.timing import Timing
from shoal.pilot.agent.lease_proofs import LeaseProofs
from shoal.wire.chunk import single
from shoal.wire.messages import (
    PROTOCOL,
    Capacity,
    Exchange,
    FormerPilot,
    Held,
    Lease,
    Order,
    Published,
    Register,
    Registered,
    Reply,
    Report,
    TagValue,
)
from shoal.wire.policy import parse_policy
from shoal.wire.submission import canonical, parse_submission

OWNER = "ann"


def brief(text: str) -> str:
    """An attempt, or a winner, with the start of the server that it is of, and without what is random in its name."""
    return re.sub(r"@(\d+)(~[0-9a-f]+)?", lambda found: f"@{start_count(int(found[1]))}", text)


class Stand:
    """One server's thought and memory, and a clock that stands still until it is told to move."""

    def __init__(self, timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        self.rng = Random(7)
        self.now = 1_000.0
        self.database = Database.open(":memory:", durability="normal")
        weakref.finalize(self, self.database.close)  # tests make stands by the dozen and never say good-bye
        self.reader = Reader.on(self.database)
        self.pending: list[Change] = []  # not yet committed
        self.journal: list[Event] = []
        self.answers: list[Answer] = []
        self.accounts: list[AcctAdd] = []
        self.groups: dict[str, str] = {}
        self.last = Outcome()
        self.lives: list[int] = []  # incarnations so far
        self.engine = self._start()

    def _start(self) -> Engine:
        self.lives.append(self.database.raise_incarnation(self.now, self.rng.getrandbits(32)))
        snapshot = replace(self.database.snapshot(), groups=self.groups)  # people are the server's edge's
        engine = Engine(snapshot, self.timing, self.rng, self.now)
        self._take(engine.started(self.now))
        return engine

    def _take(self, outcome: Outcome) -> Outcome:
        self.last = outcome
        self.pending += outcome.changes
        for change in outcome.changes:
            if isinstance(change, Event):
                self.journal.append(change)
            elif isinstance(change, Successes):
                self.journal += change.events()
            elif isinstance(change, AcctAdd):
                self.accounts.append(change)
        self.answers += outcome.answers
        return outcome

    def full(self, text: str) -> str:
        """The full name of an attempt of a run that is here, as of now or of the start that `@` names."""
        task, _, rest = text.partition("#")
        number, _, start = rest.partition("@")
        lives = [self.engine.state.incarnation, *self.lives]
        life = next((one for one in lives if start_count(one) == int(start or start_count(one))), int(start or 1))
        return str(AttemptId(*parse_task(task), int(number), life, self.engine.state.runs[parse_task(task).run].nonce))

    # --- time and disk
    def do(self, command: Command) -> Outcome:
        """Hand the engine a command."""
        return self._take(self.engine.handle(command, self.now))

    def commit(self) -> None:
        """Make durable what is not yet."""
        self.database.apply(self.pending)
        self.pending = []

    def restart(self) -> None:
        """Stop in order and start again."""
        self.commit()
        self.database.end_in_order()
        self.engine = self._start()

    def crash(self) -> None:
        """Die with what is not committed, and start again."""
        lost = {change.seq for change in self.pending if isinstance(change, Event)}
        lost |= {event.seq for change in self.pending if isinstance(change, Successes) for event in change.events()}
        self.journal = [event for event in self.journal if event.seq not in lost]
        self.pending = []
        self.engine = self._start()

    def pass_time(self, seconds: float) -> Outcome:
        """Let time pass, and have the engine notice."""
        self.now += seconds
        return self.do(Tick())

    # --- people
    def submit(self, *tasks: dict[str, Any], owner: str = OWNER, **more: Any) -> int:
        """Submit these, have them accepted, and return the run's number."""
        run = int(self.send_run(*tasks, owner=owner, **more)["run"][1:])
        early = self.last.answers
        self.commit()
        self.do(Accept(run))
        self.last.answers[:0] = early  # what began before the commit
        return run

    def send_run(self, *tasks: dict[str, Any], owner: str = OWNER, **more: Any) -> dict[str, Any]:
        """Submit as the server's edge does; the tasks are handed out only after `Accept`."""
        body = {"tasks": [{"command": ["true"], **task} for task in tasks], **more}
        digest = hashlib.sha256(canonical(body).encode()).hexdigest()
        result: dict[str, Any] = self.do(Submit(parse_submission(body), owner, digest)).result
        return result

    def cancel(self, *targets: int | TaskId) -> dict[str, int]:
        """Cancel, as a person would."""
        result: dict[str, int] = self.do(Cancel(tuple(targets))).result
        return result

    def retry(self, run: int, element: int | None = None) -> int:
        """Retry, as the server's edge does it: rows from the database."""
        self.commit()
        loaded = self.database.load_run(run)
        assert loaded is not None
        rows, spans = self.database.failed_rows(run, element)
        self.engine.load(loaded)
        return int(self.do(Retry(run, tuple(rows), tuple(spans))).result["tasks"])

    def set(self, target: int | TaskId, **fields: Any) -> dict[str, int]:
        """Other fields for what is queued, as the server's edge does it: tables from the database."""
        self.commit()
        run = self.reader.run(target if isinstance(target, int) else target.run)
        tables = {a["first"]: json.dumps({**a["task"], **fields}) for a in run["arrays"]} if run is not None else {}
        result: dict[str, int] = self.do(SetFields(target, fields, tables)).result
        return result

    def policy(self, **document: Any) -> None:
        """Another policy, as an administrator writes it: `quota=[{...}]`, `share={...}`, `licences={...}`, ..."""
        self.do(SetPolicy(parse_policy(document), json.dumps(document), "root"))

    def group(self, group: str, *owners: str) -> None:
        """These people are in that group from now on."""
        for owner in owners:
            self.groups = {**self.groups, owner: group}
            self.do(Regroup(owner, group))

    def drain(self, *pilots: FakePilot, why: str = "maintenance") -> None:
        """Ask pilots to end."""
        self.do(Drain(tuple(p.name for p in pilots), why))

    def bury(self, pilot: FakePilot) -> None:
        """A pilot's process is known to be dead."""
        self.do(Bury(pilot.name, "its process ended"))

    # --- pilots
    def pilot(self, cores: int = 1, *, former: FakePilot | None = None, **more: Any) -> FakePilot:
        """Take a pilot in."""
        was = FormerPilot(former.name, former.session) if former is not None else None
        room = more.pop("room", Capacity(cores, 8 << 30, 1 << 40, more.pop("gpus", 0)))
        terms = {
            name: more.pop(name) for name in ("owner", "site", "group", "token", "max_pilots", "bound") if name in more
        }
        identity, protocol = more.pop("identity", "id"), more.pop("protocol", PROTOCOL)
        if "group" in terms:
            terms.setdefault("owner", "")
        register = Register(protocol, "0", more.pop("host", "host"), identity, room, former=was, **more)
        registered: Registered = self.do(Enrol(register, **{"owner": OWNER, "site": "local", **terms})).result
        pilot = FakePilot(self, registered, room, protocol)
        if former is not None:
            pilot.held, pilot.seq = dict(former.held), former.seq
        return pilot

    # --- looking
    def task(self, run: int, element: int = 1) -> Task:
        """A task that is in memory."""
        array = self.engine.state.runs[run].array_of(element)
        assert array is not None
        chunk = array.chunk_of(element)
        if chunk is None:
            return array.tasks[element]
        attempt = Attempt(chunk.attempt(element), chunk.pilot, chunk.leased, reply_seq=chunk.reply_seq)
        return Task(array, element, TaskState.LEASED, chunk.number, live={attempt.id: attempt})

    def state(self, run: int, element: int = 1) -> str:
        """A task's state, wherever it rests; a final one is looked up in the committed rows."""
        self.commit()
        array = self.engine.state.runs[run].array_of(element) if run in self.engine.state.runs else None
        where = array.state_of(element) if array is not None else None
        if where is not None:
            return str(where)
        spans = [span.state for span in self.reader.spans(run) if span.low <= element < span.high]
        found = self.reader.task(run, element)
        assert (found is not None) != bool(spans), "final in one place"
        return str(found["state"] if found is not None else spans[0])

    def row(self, run: int, element: int = 1) -> TaskRow:
        """A task's committed row."""
        self.commit()
        connection = self.database.connection
        return TaskRow._make(
            connection.execute("SELECT * FROM tasks WHERE run = ? AND element = ?", (run, element)).fetchone()
        )

    def why(self, run: int, element: int = 1) -> Reason:
        """Why a task stands where it stands."""
        _, reasons = self.engine.why(TaskId(run, element), self.now)
        return reasons[0]

    def live(self, owner: str, *sites: str) -> int:
        """Cores of an owner's live attempts on these sites (all, if none is named), counted one by one."""
        state, cores = self.engine.state, 0
        for pilot in state.pilots.values():
            if sites and pilot.site not in sites:
                continue
            chunks = [(chunk.array, len(chunk.left)) for chunk in pilot.chunks.values()]
            arrays = [(state.task_of(attempt).array, 1) for attempt in pilot.live]
            cores += sum(a.spec.needs.cores * count for a, count in chunks + arrays if a.run.owner == owner)
        return cores

    def events(self, kind: str) -> list[Event]:
        """The journal's lines of one kind."""
        return [event for event in self.journal if event.kind == kind]

    def sound(self) -> bool:
        """Does everything add up? Fails with what does not."""
        assert self.engine.check() == []
        return True


class FakePilot:
    """A pilot by hand: it holds what it was leased until a test says how that ended."""

    def __init__(self, stand: Stand, registered: Registered, room: Capacity, protocol: int = PROTOCOL) -> None:
        self.stand, self.room, self.protocol = stand, room, protocol
        self.name, self.session = registered.pilot, registered.session
        self.seq = 0
        self.ack = 0
        self.held: dict[str, str] = {}  # attempt -> stage
        self.proofs = LeaseProofs()
        self.sent: dict[int, Exchange] = {}
        self.exchange: Exchange | None = None

    def make(self, reports: Sequence[Report] = (), **more: Any) -> Exchange:
        """The next exchange, not yet sent."""
        self.seq += 1
        held = more.pop("held", None)
        held = self.held if held is None else held
        fields: dict[str, Any] = {
            "protocol": self.protocol, "pilot": self.name, "session": self.session, "seq": self.seq, "ack": self.ack,
            "free": self.room, "held": [Held(a, s) for a, s in held.items()], "reports": list(reports),
            "proofs": list(self.proofs.to_send()),
        }  # fmt: skip
        self.exchange = Exchange(**{**fields, **more})
        return self.exchange

    def send(self, exchange: Exchange) -> Answer | None:
        """Send an exchange; its answer, if it was not parked."""
        outcome = self.stand.do(Talk(exchange))
        found = [a for a in outcome.answers if (a.pilot, a.seq) == (self.name, exchange.seq)]
        return found[0] if found else None

    def talk(self, *reports: Report, **more: Any) -> Reply:
        """Say and hear: leases are taken, reported attempts forgotten. Nothing new is an empty reply."""
        known = self.stand.engine.state.pilots.get(self.name)
        if known is not None and known.may_be_stale and self.ack not in known.replies:
            self.say_hello()
        for report in reports:
            self.held.pop(report.attempt, None)
        exchange = self.make(reports, **more)
        answer = self.send(exchange)
        reply = self.hear(answer.reply) if answer is not None else Reply(exchange.seq, 0)
        # An exchange with reports lets the one before it wait on, and work comes with that one's answer.
        late = [self.hear(a.reply) for a in self.stand.last.answers if a.pilot == self.name and a.seq < exchange.seq]
        return replace(reply, leases=[*(lease for other in late for lease in other.leases), *reply.leases])

    def say_hello(self) -> None:
        """The first exchange with a server that restarted is answered at once: only what comes after it is sure to be new."""
        answer = self.send(self.make(held={}))
        assert answer is not None
        self.hear(answer.reply)

    def hear(self, reply: Reply) -> Reply:
        """Take a reply in; what was leased together is taken apart, as a pilot does it."""
        self.ack = max(self.ack, reply.seq)
        for lease in reply.leases:
            self.proofs.take(lease)
        leases = [single(lease, at) for lease in reply.leases for at in range(lease.count)]
        for lease in leases:
            self.held.setdefault(lease.attempt, "leased")
        return replace(reply, leases=leases)

    def pull(self, **more: Any) -> list[Lease]:
        """Ask for work."""
        return self.talk(**more).leases

    def work(self) -> str:
        """Ask for work, start the first of it, and say so; its attempt."""
        (lease, *_) = self.pull()
        self.run(lease.attempt)
        return lease.attempt

    def run(self, *attempts: str) -> Reply:
        """Say that attempts have begun (all, if none is named)."""
        for attempt in attempts or list(self.held):
            self.held[attempt] = "running"
        return self.talk()

    def publish(self, attempt: str, **tags: TagValue) -> Reply:
        """Tell what a task wrote to its pipe."""
        return self.talk(published=[Published(attempt, tags)])

    def wait(self) -> None:
        """Ask for work where there is none, and wait for it; what comes is in `took`."""
        assert self.pull() == []
        assert self.stand.engine.state.pilots[self.name].parked is not None

    def took(self) -> list[Lease]:
        """What came while it waited, with the last thing that was done."""
        return [lease for a in self.stand.last.answers if a.pilot == self.name for lease in self.hear(a.reply).leases]

    def verdict(self, report: Report) -> str:
        """Report, and hear what became of it."""
        (found,) = self.talk(report).verdicts
        assert found.attempt == report.attempt
        return found.verdict

    def orders(self, kind: str, **more: Any) -> list[Order]:
        """The orders of one kind that an exchange brings."""
        return [order for order in self.talk(**more).orders if order.kind == kind]


def good(attempt: str, **more: Any) -> Report:
    """It succeeded."""
    return Report(attempt, "succeeded", **{"exit_code": 0, "started": 1.0, "duration": 5.0, **more})


def bad(attempt: str, **more: Any) -> Report:
    """It failed."""
    return Report(attempt, "failed", **{"cause": "task_error", "exit_code": 1, "started": 1.0, "duration": 5.0, **more})


def no_memory(attempt: str, **more: Any) -> Report:
    """It ran out of memory."""
    return bad(attempt, **{"cause": "signal", "signal": 9, "exit_code": None, "evidence": "oom_kill", **more})


def later(attempt: str, part: str, **more: Any) -> Report:
    """It wrote its checkpoint and goes on later."""
    return Report(attempt, "checkpointed", **{"started": 1.0, "duration": 5.0, "files": {"state": part}, **more})


def back(attempt: str, **more: Any) -> Report:
    """The pilot gives it back."""
    return Report(attempt, "returned", **{"message": "the pilot ends", **more})


def tables(row: TaskRow) -> list[Any]:
    """The live copies that a row remembers."""
    return list(json.loads(row.live)) if row.live else []
