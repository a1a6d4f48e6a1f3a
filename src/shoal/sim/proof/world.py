"""A whole simulated world from one seed: a server, hosts, a network, clients and faults, checked after every step.

World(seed).run()      raises BrokenPromise with the seed in its message, or returns the trace's hash
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from sqlite3 import IntegrityError
from typing import Any, NamedTuple

from shoal.engine.changes import Change
from shoal.engine.commands import Command, Enrol, Talk
from shoal.model.errors import ShoalError
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.timing import Timing
from shoal.pilot.agent.events import Join, NoAnswer
from shoal.sim.clock import Clock
from shoal.sim.distributions import Constant, Uniform
from shoal.sim.host import OWNER, TIMEOUT, Host, Placement
from shoal.sim.network import REPLY, REQUEST, Link, Network
from shoal.sim.proof.faults import Plan, Tally
from shoal.sim.proof.ledger import BrokenPromise, Ledger
from shoal.sim.proof.lying_pilot import LyingPilot
from shoal.sim.proof.refused_messages import Refusals
from shoal.sim.proof.server import CrashingServer
from shoal.sim.proof.users import SimUsers
from shoal.sim.proof.workload import DIVISIBLE, SHORT, draw_checkpointed, draw_divisible, draw_short, draw_submissions
from shoal.wire import codec_fast
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Lease, Proof, Register, Registered, Reply

MAX_STEPS = 200_000  # a world that needs more does not end
STUCK_STEPS = 20_000  # nor does one in which no payload began and no task ended for so many
BEST_GAP, ANY_GAP, NO_GAP = 2.0, 5.0, 10.0  # seconds that a crash waits for the worst gap, for one at all, and at most
FAULTS_END = 3_000.0  # seconds of faults; then everything is healed


class Backup(NamedTuple):
    """A copy of the database, and what had been promised when it was made."""

    database: bytes
    ledger: dict[str, Any]
    answered: dict[str, str]


class World:
    """A server, its hosts and users, and the network between them."""

    def __init__(self, seed: int, plan: Plan | None = None, steps: int = MAX_STEPS) -> None:
        self.seed = seed
        self.rng = Random(f"{seed}/world")
        self._cuts = Random(f"{seed}/cuts")
        self.plan = plan or replace(Plan.draw(self.rng), cuts=self._cuts.choice([0, 0, 0, 2, 4]))
        self.timing = Timing()
        self.clock = Clock()
        self.tally = Tally()
        self.ledger = Ledger(self.timing)
        self.server = CrashingServer(self.clock, Random(f"{seed}/hub"), self.timing, self._committed)
        self.server.on_failure, self.server.on_rebuilt = self._command_failed, self._rebuilt
        self.hosts: list[Host] = []
        self._guards = Random(f"{seed}/guards")
        self.refusals = Refusals(self.plan, Random(f"{seed}/refusals"), self.tally)
        self.ledger.refused = self.refusals.refused
        self.proofs: list[Proof] = []  # all that were sent to pilots
        self.seen_attempts: list[AttemptId] = []  # all that were leased
        self.history = 0  # how often the database was rolled back
        self._backups: list[Backup] = []
        self.healed = False
        self._gap_wanted: float | None = None  # since when the server is to crash before a commit
        self._vacant = 0  # machines whose next pilot has not started yet
        self.steps, self._max_steps = 0, steps
        self._progress, self._moved = (0, 0), 0  # how many payloads began and tasks ended, and at which step the last
        self.users = SimUsers(self)
        self._healed_link = Link(Constant(0.001))
        self._faulty_link = Link(
            Uniform(0.001, 0.02), 0.0, self.plan.loss, self.plan.duplicate, self.plan.slow, Uniform(0.5, 25.0)
        )
        self.network = Network(self.clock, self.rng, self._link, TIMEOUT, self.tally.note)
        self.trace: list[str] = []

    def note(self, text: str) -> None:
        """Append a line to the trace."""
        self.trace.append(f"{self.clock.now:.3f} {text}")

    def run(self) -> str:
        """Simulate the world to its end; the hash of its trace."""
        try:
            self._run()
        except (BrokenPromise, ShoalError, AssertionError, KeyError, IntegrityError) as error:
            tail = "\n".join(self.trace[-30:])
            again = f"replay: python -m shoal.sim --seed {self.seed}"
            raise BrokenPromise(f"{error!r} in seed {self.seed} at {self.clock.now:.3f}\n{tail}\n{again}") from error
        finally:
            self.server.database.close()
        return hashlib.sha256("".join(f"{line}\n" for line in self.trace).encode()).hexdigest()

    def _run(self) -> None:
        self.server.start()
        self.make_hosts()
        for at, tables in self.draw_work():
            self.users.unanswered += 1
            self.clock.after(at, lambda t=tables, a=at: self.users.submit(t, f"key{a}"))  # type: ignore[misc]  # bound now
        self._set_faults()
        for number in range(self.plan.liars):
            is_stranger = number % 2 == 1
            LyingPilot(self, number, "bert" if is_stranger else OWNER, is_stranger)
        self.clock.after(FAULTS_END, self._heal)
        while self.clock.step():
            self.steps += 1
            self.check()
            if self._gap_wanted is not None:
                self._crash_in_gap(self.clock.now - self._gap_wanted)
            if self.steps > self._max_steps:
                raise BrokenPromise(f"stuck: {self.steps} steps and no end")
            self._check_progress()
            if self.healed and self._over():
                break
        else:
            raise BrokenPromise("stuck: nothing more will happen, but not everything is final")
        self._check_end()

    def _check_progress(self) -> None:
        """Something must begin or end now and then, unless there is no server, or nothing left to do."""
        progress = (len(self.ledger.started), len(self.ledger.final))
        if progress != self._progress or self.server.engine is None:
            self._progress, self._moved = progress, self.steps
        elif self.steps - self._moved > STUCK_STEPS:
            if not self._over():
                raise BrokenPromise(f"stuck: {STUCK_STEPS:,} steps in which nothing began or ended")
            self._moved = self.steps

    def check(self) -> None:
        """Check the engine: its indexes agree with what they index, and whatever waits has a reason."""
        if self.server.engine is not None and self.server.changed:
            self.server.changed = False
            wrong = self.server.engine.check()
            if wrong:
                raise BrokenPromise(f"index: {wrong[0]}")

    def _over(self) -> bool:
        if self.users.unanswered or self.server.engine is None or self.server.uncommitted:
            return False
        total = sum(self.ledger.accepted.values())
        done = sum(1 for task in self.ledger.final if task.run in self.ledger.accepted)
        if any(h.orphans for h in self.hosts) and self._vacant:
            return False  # the next pilot on that machine will end them
        return done >= total and not any(h.payloads for h in self.hosts)

    def _check_end(self) -> None:
        counts: dict[int, dict[str, int]] = {}
        for run in self.ledger.accepted:
            loaded = self.server.database.load_run(run)
            if loaded is None:
                raise BrokenPromise(f"accepted run lost: r{run}")
            counts[run] = json.loads(loaded.run.counts)
        self.ledger.check_end(counts)

    def _committed(self, changes: list[Change]) -> None:
        self.note(f"commit {len(changes)}")
        self.ledger.committed(changes)

    # --- the initial pilots and the work
    def make_hosts(self) -> None:
        """Start the first pilots."""
        for _ in range(self.rng.randint(2, 4)):
            self._new_host()

    def draw_work(self) -> list[tuple[float, list[dict[str, Any]]]]:
        """The submissions, each with its time."""
        apart = [*draw_checkpointed(Random(f"{self.seed}/checkpoints")), *draw_short(Random(f"{self.seed}/short"))]
        return [*draw_submissions(self.rng), *apart, *draw_divisible(Random(f"{self.seed}/divisible"))]

    # --- payloads
    def run_time(self, host: Host, lease: Lease) -> tuple[float, bool]:
        """How long a payload takes on a host, and whether it fails."""
        if lease.command[:1] == [DIVISIBLE]:
            duration, fails = self.script_piece(host, lease)
        else:
            script = self.script_short if lease.command == SHORT else self.script
            duration, fails = script(host, parse_attempt(lease.attempt))
        return duration, fails

    def script(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """How long an attempt takes on a host and whether it fails there: the same in every replay."""
        rng = Random(f"{self.seed}/{attempt.task}/{attempt.number}")
        length = rng.choice([0.05, 1.0, 20.0, 200.0]) * rng.uniform(0.5, 1.5)
        return length, rng.random() < self.plan.failing

    def script_short(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """The same for a short command: one in a hundred is not short after all."""
        rng = Random(f"{self.seed}/{attempt.task}/{attempt.number}")
        length = 30.0 if rng.random() < 0.01 else rng.uniform(0.001, 0.004)
        return length, rng.random() < self.plan.failing / 5

    def payload_failed(self, attempt: str) -> None:
        """Count it."""
        self.tally.note("task_failure")
        self.ledger.payload_failed(attempt)

    def script_piece(self, host: Host, lease: Lease) -> tuple[float, bool]:
        """The same for a piece of divisible work, by its units; hosts differ in speed by up to eight times."""
        attempt = parse_attempt(lease.attempt)
        rng = Random(f"{self.seed}/{attempt.task}/{attempt.number}")
        slowness = Random(f"{self.seed}/{host.name}/slowness").choice([0.5, 1.0, 1.0, 4.0]) * rng.uniform(0.8, 1.2)
        fixed, cost = map(float, lease.command[1:])
        return fixed + int(lease.env["SHOAL_COUNT"]) * cost * slowness, rng.random() < self.plan.failing

    def steps_of(self, attempt: AttemptId) -> tuple[int, float, bool, bool]:
        """Of a task that writes checkpoints: its steps, the seconds of one, and whether this attempt ends after one step
        to continue later, or fails."""
        rng = Random(f"{self.seed}/{attempt.task}/steps")
        steps, seconds = rng.randint(3, 20), rng.uniform(5.0, 30.0)
        rng = Random(f"{self.seed}/{attempt.task}/{attempt.number}/steps")
        return steps, seconds, rng.random() < 0.1, rng.random() < self.plan.failing

    # --- the network
    def _link(self, end: str) -> Link:
        return self._healed_link if self.healed else self._faulty_link

    def transmit(self, kind: str, who: str, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        """Transmit a message: it may be lost, duplicated, delayed, or overtake one sent before it."""
        self.network.send(kind, who, arrive, lost)

    def join(self, host: Host, action: Join) -> None:
        """Transmit the registration of a pilot, and the answer."""
        ended = [] if action.former is not None else host.ended
        if ended:
            self.tally.note("death_reported_by_successor")
        register = Register(
            PROTOCOL,
            "0",
            host.hostname,
            host.identity,
            host.capacity,
            tags={"certain_end": host.certain_end},
            former=action.former,
            nonce=action.nonce,
            ended=ended,
        )

        def lost() -> None:
            host.handle(NoAnswer(0))

        def arrive() -> None:
            if self.server.engine is None:
                self.clock.after(0.01, lost)
                return
            self.server.request(Enrol(register, host.owner, host.site), answer, lambda error: lost())

        def answer(registered: Registered) -> None:
            self.note(f"{host.name} joined as {registered.pilot}")
            self.ledger.certain_end[registered.pilot] = host.certain_end
            self.transmit("reply", host.name, lambda: host.joined(registered), lost)

        self.transmit("request", host.name, lambda: self.receive(arrive, lost), lost)

    def send(self, host: Host, exchange: Exchange) -> None:
        """Transmit an exchange of a pilot as bytes, and the reply."""
        body = codec_fast.encode(exchange)
        gave_up: list[bool] = []  # the connection is closed: the reply cannot be delivered

        def lost() -> None:
            host.handle(NoAnswer(exchange.seq))

        def hang_up() -> None:
            gave_up.append(True)
            lost()

        def arrive() -> None:
            if self.server.engine is None:
                self.clock.after(0.01, lost)
                return
            refusal = None if self.healed else self.refusals.by_proxy(exchange.seq) or self.refusals.by_server(exchange)
            if refusal is not None:
                self.note(f"{host.name} #{exchange.seq} gets {type(refusal).__name__}")
                self.transmit("reply", host.name, lambda: host.handle(refusal), lost)
                return
            generation = self.server.generation
            self.clock.after(TIMEOUT, lambda: lost() if self.server.generation != generation else None)
            self.ledger.exchange_received(exchange.pilot, self.clock.now)
            self.server.exchange(Talk(codec_fast.decode(Exchange, body)), answer, refuse)

        def answer(reply: Reply) -> None:
            if gave_up:
                return
            text = codec_fast.encode(reply)
            for lease in reply.leases:
                self.seen_attempts.append(parse_attempt(lease.attempt))
                if lease.proof:
                    self.proofs.append(Proof(lease.attempt, lease.count, lease.proof))
            self.note(f"{host.name} #{reply.seq} {len(reply.leases)} leases {len(reply.orders)} orders")
            self.transmit("reply", host.name, lambda: host.answered(codec_fast.decode(Reply, text)), lost)

        def refuse(error: ShoalError) -> None:
            if gave_up:
                return
            self.note(f"{host.name} #{exchange.seq} refused {error.code}")
            self.transmit("reply", host.name, lambda: host.refused(exchange, error), lost)

        self.transmit("request", host.name, lambda: self.receive(arrive, hang_up), lost)

    def receive(self, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        """Have the server receive a message. While it is frozen most messages pile up in its buffers and are handled
        later, when their senders have long given up; the others are lost."""
        if self.server.frozen is None:
            arrive()
            return
        if self.rng.random() < 0.3:
            self.clock.after(TIMEOUT, lost)
            return
        is_waiting = [True]

        def take() -> None:
            is_waiting.clear()
            arrive()

        def give_up() -> None:
            if is_waiting:
                lost()

        self.server.when_running(take)
        self.clock.after(TIMEOUT, give_up)

    # --- faults and healing
    def _set_faults(self) -> None:
        plan, rng = self.plan, self.rng
        faults: list[tuple[int, Callable[[], None]]] = [
            (plan.deaths, lambda: self._hit("pilot_death", "kill {host.name}", Host.die)),
            (plan.freezes, lambda: self._freeze(False)),
            (plan.host_freezes, lambda: self._freeze(True)),
            (plan.drains, lambda: self._hit("pilot_drain", "drain {host.name}", Host.drain)),
            (plan.crashes, self._crash),
            (2 * plan.rollbacks, self._back_up),
            (plan.rollbacks, self._roll_back),
            (plan.cancels, self.users.cancel),
            (plan.retries, self.users.retry),
            (plan.server_freezes, self._freeze_server),
            (plan.guard_deaths, self._kill_guard),
            (plan.failing_commands, self._fail_command),
        ]
        for count, fault in faults:
            for _ in range(count):
                self.clock.after(rng.uniform(0.5, FAULTS_END * rng.choice([0.02, 0.1, 0.9])), fault)
        for _ in range(plan.cuts):
            self.clock.after(self._cuts.uniform(0.5, FAULTS_END * 0.3), self._cut)

    def _cut(self) -> None:
        """Cut some hosts off for a while: no message passes, or none in one direction."""
        able = [host.name for host in self.hosts if host.alive]
        if self.healed or not able:
            return
        ends = self._cuts.sample(able, self._cuts.randint(1, len(able)))
        kinds = self._cuts.choice([(REQUEST, REPLY), (REQUEST,), (REPLY,)])
        self.tally.note("partition" if len(kinds) > 1 else "one_way_cut")
        self.note(f"cut {' '.join(kinds)} of {' '.join(ends)}")
        self.network.cut(ends, kinds)
        self.clock.after(self._cuts.choice([5.0, 40.0, 120.0, 1_200.0]), lambda: self.network.mend(ends))

    def _new_host(
        self, placement: Placement | None = None, previous: Host | None = None, reports_death: bool = False
    ) -> None:
        capacity = Capacity(self.rng.randint(2, 3), 8 << 30, 8 << 30, 0)  # every task of the workload fits every host
        drawn = Random(f"{self.seed}/certain{len(self.hosts)}").random() < self.plan.certain_end
        certain_end = previous.certain_end if previous is not None else drawn
        if previous is not None:
            self._vacant -= 1
        self.hosts.append(Host(self, len(self.hosts), capacity, placement, certain_end, previous, reports_death))

    def pilot_ended(self, host: Host) -> None:
        """Start another pilot on the same machine after a while; it may report the death of this one."""
        self._vacant += 1
        reports_death = host.died and Random(f"{self.seed}/{host.name}/again").random() < 0.7
        self.clock.after(self.rng.uniform(1.0, 60.0), lambda: self._new_host(None, host, reports_death))

    def _hit(self, kind: str, text: str, act: Callable[[Host], None]) -> None:
        """Inject a fault on one of the hosts that run."""
        able = [host for host in self.hosts if host.alive and not host.frozen and not host.host_frozen]
        if able:
            host = self.rng.choice(able)
            self.tally.note(kind)
            self.note(text.format(host=host))
            act(host)

    def _kill_guard(self) -> None:
        """Kill a guard, more often than not together with its pilot."""
        if self._guards.random() < 0.3:
            self._hit("guard_death", "kill the guard of {host.name}", Host.lose_guard)
            return
        words = "kill {host.name} and its guard, certain end: {host.certain_end}"
        self._hit("pilot_and_guard_death", words, Host.die_with_guard)

    def _freeze(self, whole_host: bool) -> None:
        def freeze(host: Host) -> None:
            host.freeze(whole_host)
            self.clock.after(self.rng.choice([5.0, 60.0, 300.0, 1500.0]), lambda: self._thaw(host))

        what = "host" if whole_host else "pilot"
        self._hit(f"{what}_freeze", f"freeze {{host.name}} {what}", freeze)

    def _thaw(self, host: Host) -> None:
        if host.frozen or host.host_frozen:
            self.note(f"thaw {host.name}")
            host.thaw()

    def _freeze_server(self) -> None:
        """The server's process is stopped, or its machine sleeps."""
        if self.server.engine is not None and self.server.frozen is None and not self.healed:
            self.tally.note("server_freeze")
            self.note("freeze the server")
            self.server.freeze()
            generation = self.server.generation
            length = self.rng.choice([20.0, 60.0, 90.0, 300.0, 1800.0])
            self.clock.after(length, lambda: self._thaw_server(generation))

    def _thaw_server(self, generation: int) -> None:
        if self.server.frozen is not None and self.server.generation == generation:
            self.note("the server runs again")
            self.ledger.server_resumed(self.clock.now)
            self.server.thaw()

    def _crash(self) -> None:
        """Crash at the next commit, or while changes wait for one."""
        if self.rng.random() < 0.5:
            self.server.crash_at_commit = True
            self.clock.after(30.0, self._see_crash)
        else:
            if self.rng.random() < 0.5:
                self.users.submit_one_more()  # so that there is one to be undone
            self._gap_wanted = self.clock.now

    def _crash_in_gap(self, waited: float) -> None:
        """Crash if changes wait for a commit. The worst gap has leases in it that pilots already hold, at best with their
        submission: wait a while for one before any gap will do."""
        waits = self.server.uncommitted_leases and (waited > BEST_GAP or self.server.undoes_begun)
        if self.server.engine is not None and (waits or (waited > ANY_GAP and self.server.uncommitted)):
            self._gap_wanted = None
            if self.server.undoes_begun:
                self.tally.note("submission_undone")
            self._crash_now("server_crash_in_gap")
        elif waited > NO_GAP or self.healed:
            self._gap_wanted = None

    def _back_up(self) -> None:
        """Copy the database as it is committed now."""
        self._backups.append(Backup(self.server.backup(), self.ledger.backup(), dict(self.users.answered)))

    def _roll_back(self) -> None:
        """The server crashes, and restarts with an older copy of its database, or an empty one: another history begins."""
        backup = self.rng.choice(self._backups) if self._backups and self.rng.random() < 0.7 else None
        self.tally.note("history_rolled_back" if backup is not None else "history_emptied")
        self.note(f"roll back {'to a copy' if backup is not None else 'to nothing'}")
        self.history += 1
        self._backups = [backup] if backup is not None else []
        self.server.roll_back(backup.database if backup is not None else None)
        self.ledger.roll_back(backup.ledger if backup is not None else {}, self.server.incarnations)
        self.users.roll_back(backup.answered if backup is not None else {})
        self._restart_later()

    def _see_crash(self) -> None:
        if self.server.engine is None and not self.server.crash_at_commit:
            self.tally.note("server_crash_after_commit")
            self._restart_later()
        self.server.crash_at_commit = False

    def _crash_now(self, kind: str) -> None:
        self.tally.note(kind)
        self.note(f"{kind} losing {self.server.uncommitted}")
        self.server.crash()
        self._restart_later()

    def _restart_later(self) -> None:
        self.clock.after(self.rng.choice([0.5, 5.0, 40.0, 400.0]), self._restart)

    def _restart(self) -> None:
        if self.server.engine is None:
            self.ledger.check_restart(self.server.database)
            self.ledger.check_leases(self.server.start().state)
            self.ledger.server_resumed(self.clock.now)
            self.note("server up")

    def _fail_command(self) -> None:
        """Have the next command that is long enough end half-way, at any line of the engine's rules: mostly one with
        reports, for those change most."""
        self.server.fail_at_line = int(2 ** self.rng.uniform(1.0, 10.5))
        self.server.may_fail = _has_reports if self.rng.random() < 0.7 else lambda command: True

    def _command_failed(self, where: str) -> None:
        self.tally.note("failing_command")
        self.note(f"defect: {where}, {self.server.uncommitted} uncommitted")

    def _rebuilt(self) -> None:
        assert self.server.engine is not None
        self.ledger.check_restart(self.server.database)
        self.ledger.check_leases(self.server.engine.state)
        self.note("engine rebuilt")

    def _heal(self) -> None:
        """End all faults: from here on every task must become final."""
        self.note("heal")
        self.healed = True
        self.network.mend([host.name for host in self.hosts])
        self.server.crash_at_commit, self.server.fail_at_line = False, 0
        self._restart()
        self._thaw_server(self.server.generation)
        for host in list(self.hosts):
            self._thaw(host)


def _has_reports(command: Command) -> bool:
    return isinstance(command, Talk) and bool(command.exchange.reports or command.exchange.batches)
