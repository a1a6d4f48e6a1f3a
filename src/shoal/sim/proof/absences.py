"""A site in mode `distributed` whose server is away at times: the real engine with its database, the agents of its pilots and
the members of their mesh, on one virtual clock [promise I18; ADR 0056].

Site(seed, plan, absences).run() works through one bag of tasks and tells when the server knew of its end. Exchanges go to the
server itself: what a leader hands on is the same (`tests/property/test_bundles.py`).
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from shoal.dht.peers import PEER_TAG
from shoal.engine.changes import Change
from shoal.engine.commands import Accept, Enrol, SetPolicy, Submit, Talk
from shoal.engine.pilots.mesh import peer_id
from shoal.engine.windows import leaders
from shoal.model.errors import ShoalError
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.timing import Timing
from shoal.pilot.agent.events import Assigned, Contact, Event, Join, NoAnswer, Reserved
from shoal.pilot.leader import events as decide
from shoal.pilot.leader.member import Member
from shoal.pilot.mesh.links import ANSWER_WITHIN
from shoal.sim.clock import Alarm, Clock
from shoal.sim.host import OWNER, TIMEOUT, Host
from shoal.sim.planning.outcome import Recorder
from shoal.sim.proof.server import CrashingServer
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Leadership, Lease, Register, Registered, Reply
from shoal.wire.policy import parse_policy
from shoal.wire.submission import parse_submission

MODE = {"data": {"mode": "distributed"}}
WAN, LAN = 0.02, 0.001  # seconds that a message takes to the server, and between pilots
KILLED, ASLEEP = "killed", "asleep"  # ways to be away
STUCK = 20.0  # times as long as all tasks take, after which they never end


class Absence(NamedTuple):
    """A time in which the server is away: killed and started again on its database, or on a machine that sleeps."""

    start: float  # seconds since the work began
    length: float
    how: str = KILLED


class Plan(NamedTuple):
    """A site and its work."""

    pilots: int = 6
    slots: int = 2  # of each
    tasks: int = 2_000
    median: float = 450.0  # seconds of a task
    spread: float = 0.5  # deviation of the logarithm of its duration


class Outcome(NamedTuple):
    """How the work went."""

    seconds: float  # until the server knew that all had ended
    succeeded: int
    begun_away: int  # tasks of windows that pilots began
    begun_again: int  # how often a task began that had begun before
    idle: float  # share of the slots' time until then in which nothing ran


class Mesh:
    """The members of a mesh, and the messages between them."""

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock, self._rng = clock, rng
        self.members: dict[str, MeshHost] = {}
        self._tickets: dict[int, Callable[[Any], None]] = {}
        self._ticket = itertools.count(1)

    def named(self, host: MeshHost, leadership: Leadership | None, timing: Timing) -> None:
        """The server told a pilot who leads."""
        if leadership is None:
            return
        if host.member is None and leadership.id:
            host.member = Member(host.peer, host.address, timing.beat, host.rng, self._clock.now)
            self.members[host.peer] = host
        self.feed(host, decide.Named(leadership))

    def feed(self, host: MeshHost, event: decide.Event) -> None:
        """Have a member take an event, and perform what it decides."""
        member = host.member
        if member is None:
            return
        for action in member.handle(event, self._clock.now):
            if isinstance(action, decide.Ask):
                self._ask(host, action)
            elif isinstance(action, decide.Say):
                deliver = self._tickets.pop(action.ticket, None)
                if deliver is not None:
                    deliver(action.message)
            elif isinstance(action, decide.Start):
                host.later(Assigned(action.leases))
            elif isinstance(action, decide.Kept):
                host.later(Reserved(*action))
        due = member.deadline(self._clock.now)
        host.member_alarm.set(max(due, self._clock.now + LAN) if due is not None else None)

    def _ask(self, host: MeshHost, action: decide.Ask) -> None:
        done: list[bool] = []
        ticket = next(self._ticket)

        def fail() -> None:
            if not done:
                done.append(True)
                self._tickets.pop(ticket, None)
                self.feed(host, decide.Failed(action.to, action.message))

        def answered(reply: Any) -> None:
            if not done:
                done.append(True)
                self.feed(host, decide.Answered(action.to, action.message, reply))

        def arrive() -> None:
            to = self.members.get(action.to)
            if to is None:
                self._after(fail)
                return
            self._tickets[ticket] = lambda reply: self._after(lambda: answered(reply))
            self.feed(to, decide.Asked(host.peer, host.address, action.message, ticket))

        self._clock.after(action.hold + ANSWER_WITHIN, fail)
        self._after(arrive)

    def _after(self, do: Callable[[], None]) -> None:
        self._clock.after(LAN * self._rng.uniform(0.5, 2.0), do)


class MeshHost(Host):
    """A pilot that is a member of its mesh."""

    member: Member | None = None
    peer = ""  # its id as a peer
    mesh: Mesh

    def __init__(self, world: Site, number: int, slots: int) -> None:
        self.address = f"10.0.{number // 250}.{number % 250 + 1}:7000"
        self.mesh = world.mesh
        self.member_alarm = Alarm(world.clock, lambda: self.mesh.feed(self, decide.Tick()))
        self._told = Capacity()
        super().__init__(world, number, Capacity(slots, 1 << 40, 1 << 44, 0))

    def later(self, event: Event) -> None:
        """Have the agent take an event of the mesh, as by its loop."""
        self.world.clock.after(0.0, lambda: self.handle(event))

    def handle(self, event: Event) -> None:
        """Pass an event to the agent; the mesh hears what is free then."""
        super().handle(event)
        if self.member is not None and self.agent.free != self._told:
            self._told = self.agent.free
            self.mesh.feed(self, decide.State(self._told, {}, bool(self.agent.leaving)))

    def _do(self, action: object) -> None:
        super()._do(action)
        if isinstance(action, Contact):
            self.mesh.feed(self, decide.Contact(action.at))

    def joined(self, registered: Registered) -> None:
        """The server registered this pilot, and told it of its mesh."""
        assert self.member is None, "no pilot registers twice here"
        self.peer = registered.peer
        self.mesh.named(self, registered.leader, self.world.timing)
        super().joined(registered)

    def answered(self, reply: Reply) -> None:
        """The reply to an exchange arrived."""
        self.mesh.named(self, reply.leader, self.world.timing)
        if reply.gone:
            self.mesh.feed(self, decide.Ended(tuple(reply.gone)))
        if reply.window_number:
            granted = decide.Granted(reply.window_number, tuple(reply.window), tuple(reply.window_gone))
            self.mesh.feed(self, granted)
        super().answered(reply)


class Site:
    """One site, its work and its server."""

    def __init__(self, seed: int, plan: Plan, absences: Sequence[Absence] = ()) -> None:
        self.seed, self.plan, self.absences = seed, plan, absences
        self.clock, self.timing = Clock(), Timing()
        self._began = self.clock.now
        self.ledger = Recorder(self.clock)
        self.server = CrashingServer(self.clock, Random(f"{seed}/server"), self.timing, self._committed)
        self.mesh = Mesh(self.clock, Random(f"{seed}/mesh"))
        self.hosts: list[MeshHost] = []
        self._run, self._end = 0, 0.0
        self._open: dict[tuple[str, int], Callable[[], None]] = {}  # exchanges on connections to this server
        self._succeeded = 0

    def run(self) -> Outcome:
        """Work until the server knows that all has ended."""
        self.server.start()
        self.server.apply(SetPolicy(parse_policy(MODE), json.dumps(MODE), OWNER))
        self._submit()
        for number in range(self.plan.pilots):
            self.hosts.append(MeshHost(self, number, self.plan.slots))
        for absence in self.absences:
            self.clock.at(self._began + absence.start, lambda a=absence: self._leave(a))  # type: ignore[misc]  # bound now
        latest = self._began + STUCK * self.plan.tasks * self.plan.median / (self.plan.pilots * self.plan.slots)
        while not self._end and self.clock.now < latest and self.clock.step():
            pass
        assert self._end, "not everything has ended"
        self.server.database.close()
        return self._outcome()

    def _outcome(self) -> Outcome:
        attempts = self.ledger.record.attempts
        begun = Counter(one.task for one in attempts)
        seconds = self._end - self._began
        busy = sum(min(one.end, seconds) - one.start for one in attempts)
        idle = 1.0 - busy / (seconds * self.plan.pilots * self.plan.slots)
        taken = sum(len(host.member.taken) for host in self.hosts if host.member is not None)
        return Outcome(seconds, self._succeeded, taken, sum(begun.values()) - len(begun), idle)

    # --- the work
    def _submit(self) -> None:
        table = {"command": ["payload"], "array": f"1-{self.plan.tasks}", "rerun": "safe"}
        submission = parse_submission({"tasks": [table], "cwd": "/"})

        def accepted(result: dict[str, Any]) -> None:
            self._run = int(str(result["run"]).lstrip("r"))
            self.ledger.add_run(self._run, self.plan.tasks, self.plan.tasks)
            self.server.apply(Accept(self._run))

        def refused(error: ShoalError) -> None:
            raise error

        self.server.request(Submit(submission, OWNER, "work"), accepted, refused)

    def _committed(self, changes: list[Change]) -> None:
        engine = self.server.engine
        run = engine.state.runs.get(self._run) if engine is not None else None
        if run is not None and run.finished is not None and not self._end:
            self._end, self._succeeded = self.clock.now, run.finals["succeeded"]

    def run_time(self, host: Host, lease: Lease) -> tuple[float, bool]:
        """A task takes as long at each attempt, on each host and under each server."""
        element = parse_attempt(lease.attempt).element
        rng = Random(f"{self.seed}/{element}")
        return self.plan.median * rng.lognormvariate(0.0, self.plan.spread), False

    def steps_of(self, attempt: AttemptId) -> tuple[int, float, bool, bool]:
        """No task here writes checkpoints."""
        return 0, 0.0, False, False

    def payload_failed(self, attempt: str) -> None:
        """No task here fails by itself."""

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.ledger.note(text)

    def pilot_ended(self, host: Host) -> None:
        """No pilot may end: the server comes back."""
        raise AssertionError(f"{host.name} ended at {self.clock.now - self._began:.0f}")

    # --- the server
    def _leave(self, absence: Absence) -> None:
        if self._end:
            return
        if absence.how == ASLEEP:
            self.server.freeze()
        else:
            self.server.crash()
            broken, self._open = self._open, {}
            for lost in broken.values():
                self.clock.after(WAN, lost)
        self.clock.after(absence.length, lambda: self._return(absence))

    def _return(self, absence: Absence) -> None:
        if absence.how == ASLEEP:
            self.server.thaw()
        else:
            self.server.start()

    def _carry(self, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        """Carry a request: a machine that sleeps says nothing, one whose server was killed refuses."""

        def come() -> None:
            if self.server.engine is None:
                self.clock.after(WAN, lost)
            elif self.server.frozen is None:
                arrive()
            else:
                self.clock.after(TIMEOUT, lost)

        self.clock.after(WAN, come)

    def join(self, host: Host, action: Join) -> None:
        """Carry the registration of a pilot, and the answer."""
        assert isinstance(host, MeshHost)
        register = Register(
            PROTOCOL, "0", host.hostname, host.identity, host.capacity, nonce=action.nonce, former=action.former,
            tags={PEER_TAG: host.address, "certain_end": True},
        )  # fmt: skip

        def lost() -> None:
            host.handle(NoAnswer(0))

        def answer(registered: Registered) -> None:
            assert self.server.engine is not None
            state = self.server.engine.state
            told = replace(
                registered,
                peer=peer_id(state, registered.pilot),
                leader=leaders.tell(state, state.pilots[registered.pilot], 0),
            )
            self.note(f"{host.name} joined")
            self.clock.after(WAN, lambda: host.joined(told))

        def arrive() -> None:
            self.server.request(Enrol(register, OWNER, host.site, bound=True), answer, lambda error: lost())

        self._carry(arrive, lost)

    def send(self, host: Host, exchange: Exchange) -> None:
        """Carry an exchange, and the reply. A connection that breaks is noticed at once, silence after a while."""
        key = (exchange.pilot, exchange.seq)
        over: list[bool] = []

        def lost() -> None:
            if not over:
                over.append(True)
                self._open.pop(key, None)
                host.handle(NoAnswer(exchange.seq))

        def arrive() -> None:
            self._open[key] = lost
            self.clock.after(self.timing.beat + TIMEOUT, lost)
            self.server.exchange(Talk(exchange), answer, refuse)

        def come(deliver: Callable[[], None]) -> None:
            def deliver_once() -> None:
                if not over:
                    over.append(True)
                    deliver()

            self._open.pop(key, None)
            self.clock.after(WAN, deliver_once)

        def answer(reply: Reply) -> None:
            come(lambda: host.answered(reply))

        def refuse(error: ShoalError) -> None:
            come(lambda: host.refused(exchange, error))

        self._carry(arrive, lost)
