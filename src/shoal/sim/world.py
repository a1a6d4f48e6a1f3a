"""A whole false world from one seed: a server, hosts, a network, clients and faults, checked after every step.

World(seed).run()      raises Broken with the seed in its words, or returns the trace's hash
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from random import Random
from sqlite3 import IntegrityError
from typing import Any, NamedTuple

from shoal.engine.changes import Change
from shoal.engine.commands import Command, Enrol, Talk
from shoal.model.errors import ShoalError
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.timing import Timing
from shoal.pilot.agent.events import Join
from shoal.sim.clock import Clock
from shoal.sim.faults import Plan, Tally
from shoal.sim.host import OWNER, TIMEOUT, Host, Where
from shoal.sim.ledger import Broken, Ledger
from shoal.sim.lying_pilot import LyingPilot
from shoal.sim.refusals import Refusals
from shoal.sim.server import SimServer
from shoal.sim.users import SimUsers
from shoal.sim.workload import draw_checkpointed, draw_submissions
from shoal.wire import codec_fast
from shoal.wire.messages import PROTOCOL, Capacity, Exchange, Proof, Register, Registered, Reply

STEPS = 200_000  # a world that needs more does not end
CALM = 3_000.0  # seconds of faults before everything heals


class Image(NamedTuple):
    """A copy of the database, and what had been promised when it was made."""

    database: bytes
    ledger: dict[str, Any]
    told: dict[str, str]


class World:
    """Everything there is."""

    def __init__(self, seed: int, plan: Plan | None = None, steps: int = STEPS) -> None:
        self.seed = seed
        self.rng = Random(f"{seed}/world")
        self.plan = plan if plan is not None else Plan.draw(self.rng)
        self.timing = Timing()
        self.clock = Clock()
        self.tally = Tally()
        self.ledger = Ledger(self.timing)
        self.server = SimServer(self.clock, Random(f"{seed}/hub"), self.timing, self._committed)
        self.server.on_poison, self.server.on_rebuilt = self._poisoned, self._rebuilt
        self.hosts: list[Host] = []
        self.refusals = Refusals(self.plan, Random(f"{seed}/refusals"), self.tally)
        self.ledger.refused = self.refusals.refused
        self.liars: list[LyingPilot] = []
        self.proofs: list[Proof] = []  # all that went to pilots
        self.seen_attempts: list[AttemptId] = []  # all that went to pilots
        self.history = 0  # how often the database was rolled back
        self._images: list[Image] = []
        self.healed = False
        self._empty = 0  # machines whose next pilot is on its way
        self.steps, self._most = 0, steps
        self.people = SimUsers(self)
        self._arrivals: dict[tuple[str, str], float] = {}  # when the last of what was sent so far arrives
        self._trace = hashlib.sha256()
        self.story: list[str] = []

    # --- the story
    def note(self, text: str) -> None:
        """A line of the trace."""
        line = f"{self.clock.now:.3f} {text}"
        self._trace.update(line.encode() + b"\n")
        self.story.append(line)

    def run(self) -> str:
        """Play the world to its end; its trace's hash."""
        try:
            self._play()
        except (Broken, ShoalError, AssertionError, KeyError, IntegrityError) as error:
            tail = "\n".join(self.story[-30:])
            again = f"replay: python -m shoal.sim --seed {self.seed}"
            raise Broken(f"{error!r} in seed {self.seed} at {self.clock.now:.3f}\n{tail}\n{again}") from error
        finally:
            self.server.database.close()
        return self._trace.hexdigest()

    def _play(self) -> None:
        self.server.start()
        self.make_hosts()
        for at, tables in self.draw_work():
            self.people.unsent += 1
            self.clock.after(at, lambda t=tables, a=at: self.people.submit(t, f"key{a}"))  # type: ignore[misc]  # bound now
        self._set_faults()
        for number in range(self.plan.liars):
            self.liars.append(
                LyingPilot(self, number, OWNER if number % 2 == 0 else "bert", is_stranger=number % 2 == 1)
            )
        self.clock.after(CALM, self._heal)
        while self.clock.step():
            self.steps += 1
            self.check()
            if self.steps > self._most:
                raise Broken(f"stuck: {self.steps} steps and no end")
            if self.healed and self._over():
                break
        else:
            raise Broken("stuck: nothing more will happen, but not everything is final")
        self._check_end()

    def check(self) -> None:
        """`check_world`: every index re-derivable, every waiting thing has a reason; the ledger checks the rest."""
        if self.server.engine is not None and self.server.touched:
            self.server.touched = False
            wrong = self.server.engine.check()
            if wrong:
                raise Broken(f"index: {wrong[0]}")

    def _over(self) -> bool:
        if self.people.unsent or self.server.engine is None or self.server.uncommitted:
            return False
        total = sum(self.ledger.accepted.values())
        done = sum(1 for task in self.ledger.final if task.run in self.ledger.accepted)
        if any(h.orphans for h in self.hosts) and self._empty:
            return False  # who comes next on that machine will end them
        return done >= total and not any(h.payloads for h in self.hosts)

    def _check_end(self) -> None:
        counts: dict[int, dict[str, int]] = {}
        for run in self.ledger.accepted:
            loaded = self.server.database.load_run(run)
            if loaded is None:
                raise Broken(f"accepted run lost: r{run}")
            counts[run] = json.loads(loaded.run.counts)
        self.ledger.check_end(counts)

    def _committed(self, changes: list[Change]) -> None:
        self.note(f"commit {len(changes)}")
        self.ledger.committed(changes)

    # --- what there is at first
    def make_hosts(self) -> None:
        """The first pilots."""
        for _ in range(self.rng.randint(2, 4)):
            self._new_host()

    def draw_work(self) -> list[tuple[float, list[dict[str, Any]]]]:
        """What is submitted, and when."""
        return [*draw_submissions(self.rng), *draw_checkpointed(Random(f"{self.seed}/checkpoints"))]

    # --- payloads
    def script_on(self, host: Host, attempt: AttemptId) -> tuple[float, bool]:
        """The same on a host, which may have to do with it."""
        return self.script(attempt)

    def script(self, attempt: AttemptId) -> tuple[float, bool]:
        """How long an attempt takes and whether it fails: the same in every replay."""
        rng = Random(f"{self.seed}/{attempt.task}/{attempt.number}")
        length = rng.choice([0.05, 1.0, 20.0, 200.0]) * rng.uniform(0.5, 1.5)
        return length, rng.random() < self.plan.failing

    def steps_of(self, attempt: AttemptId) -> tuple[int, float, bool, bool]:
        """Of a task that writes checkpoints: how many steps it has, how long one takes, and whether this attempt ends
        after one step to go on later, or fails."""
        rng = Random(f"{self.seed}/{attempt.task}/steps")
        steps, seconds = rng.randint(3, 20), rng.uniform(5.0, 30.0)
        rng = Random(f"{self.seed}/{attempt.task}/{attempt.number}/steps")
        return steps, seconds, rng.random() < 0.1, rng.random() < self.plan.failing

    # --- the network
    def carry(self, kind: str, who: str, go: Callable[[], None], lost: Callable[[], None]) -> None:
        """Carry a message to or from somebody: it may be lost, doubled, slow, or overtake one sent before it."""
        if self.healed:
            self.clock.after(0.001, go)
            return
        if self.rng.random() < self.plan.loss:
            self.tally.note(f"lose_{kind}")
            self.clock.after(TIMEOUT, lost)
            return
        latest = before = self._arrivals.get((kind, who), 0.0)
        for copy in range(2 if self.rng.random() < self.plan.duplicate else 1):
            delay = self.rng.uniform(0.001, 0.02)
            if copy:
                self.tally.note(f"duplicate_{kind}")
            if self.rng.random() < self.plan.slow:
                self.tally.note("delay")
                delay = self.rng.uniform(0.5, 25.0)
            arrival = self.clock.now + delay
            if arrival < before:
                self.tally.note("reorder")
            latest = max(latest, arrival)
            self.clock.at(arrival, go)
        self._arrivals[kind, who] = latest

    def join(self, host: Host, action: Join) -> None:
        """A pilot registers."""
        ended = [] if action.former is not None else host.ended
        if ended:
            self.tally.note("neighbour_tells")
        register = Register(
            PROTOCOL,
            "0",
            host.claims,
            host.identity,
            host.room,
            tags={"certain_end": host.certain},
            former=action.former,
            nonce=action.nonce,
            ended=ended,
        )
        life = host.agent

        def lost() -> None:
            if host.agent is life:
                host.unanswered(0)

        def arrive() -> None:
            if self.server.engine is None:
                self.clock.after(0.01, lost)
                return
            self.server.ask(Enrol(register, host.owner, host.site), told, lambda error: lost())

        def told(registered: Registered) -> None:
            self.note(f"{host.name} joined as {registered.pilot}")
            self.ledger.certain[registered.pilot] = host.certain
            self.carry("reply", host.name, lambda: host.joined(registered), lost)

        self.carry("request", host.name, lambda: self.reach(arrive, lost), lost)

    def send(self, host: Host, exchange: Exchange) -> None:
        """A pilot's exchange goes to the server and its answer comes back, as bytes, or not."""
        body = codec_fast.encode(exchange)
        gave_up: list[bool] = []  # the connection is closed: what the server says to it reaches nobody

        def lost() -> None:
            host.unanswered(exchange.seq)

        def hang_up() -> None:
            gave_up.append(True)
            lost()

        def arrive() -> None:
            if self.server.engine is None:
                self.clock.after(0.01, lost)
                return
            refusal = None if self.healed else self.refusals.foreign(exchange.seq) or self.refusals.own(exchange)
            if refusal is not None:
                self.note(f"{host.name} #{exchange.seq} hears {type(refusal).__name__}")
                self.carry("reply", host.name, lambda: host.see(refusal), lost)
                return
            life = self.server.life
            self.clock.after(TIMEOUT, lambda: lost() if self.server.life != life else None)
            self.ledger.hear(exchange.pilot, self.clock.now)
            self.server.exchange(Talk(codec_fast.decode(Exchange, body)), back, refuse)

        def back(reply: Reply) -> None:
            if gave_up:
                return
            text = codec_fast.encode(reply)
            for lease in reply.leases:
                self.seen_attempts.append(parse_attempt(lease.attempt))
                if lease.proof:
                    self.proofs.append(Proof(lease.attempt, lease.count, lease.proof))
            self.note(f"{host.name} #{reply.seq} {len(reply.leases)} leases {len(reply.orders)} orders")
            self.carry("reply", host.name, lambda: host.answered(codec_fast.decode(Reply, text)), lost)

        def refuse(error: ShoalError) -> None:
            if gave_up:
                return
            self.note(f"{host.name} #{exchange.seq} refused {error.code}")
            self.carry("reply", host.name, lambda: host.refused(exchange, error), lost)

        self.carry("request", host.name, lambda: self.reach(arrive, hang_up), lost)

    def reach(self, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        """Have the server take a message in. While it is frozen most of them pile up and are handled later, though
        whoever sent one has long given up; the others find no place."""
        if self.server.frozen is None:
            arrive()
            return
        if self.rng.random() < 0.3:
            self.clock.after(TIMEOUT, lost)
            return
        waits = [True]

        def take_in() -> None:
            waits.clear()
            arrive()

        def give_up() -> None:
            if waits:
                lost()

        self.server.when_awake(take_in)
        self.clock.after(TIMEOUT, give_up)

    # --- faults and healing
    def _set_faults(self) -> None:
        plan, rng = self.plan, self.rng
        deeds: list[tuple[int, Callable[[], None]]] = [
            (plan.deaths, self._kill),
            (plan.freezes, lambda: self._freeze(False)),
            (plan.host_freezes, lambda: self._freeze(True)),
            (plan.drains, self._drain),
            (plan.crashes, self._crash),
            (2 * plan.rollbacks, self._back_up),
            (plan.rollbacks, self._roll_back),
            (plan.cancels, self.people.cancel),
            (plan.retries, self.people.retry),
            (plan.server_freezes, self._freeze_server),
            (plan.both, self._kill_both),
            (plan.poisons, self._poison),
        ]
        for count, deed in deeds:
            for _ in range(count):
                self.clock.after(rng.uniform(0.5, CALM * rng.choice([0.02, 0.1, 0.9])), deed)

    def _pick(self) -> Host | None:
        able = [h for h in self.hosts if h.alive and not h.frozen and not h.host_frozen]
        return self.rng.choice(able) if able else None

    def _new_host(self, where: Where | None = None, before: Host | None = None, knows_end: bool = False) -> None:
        room = Capacity(self.rng.randint(2, 3), 8 << 30, 8 << 30, 0)  # every task of the workload fits every host
        drawn = Random(f"{self.seed}/certain{len(self.hosts)}").random() < self.plan.certain
        certain = before.certain if before is not None else drawn
        if before is not None:
            self._empty -= 1
        self.hosts.append(Host(self, len(self.hosts), room, where, certain, before, knows_end))

    def left(self, host: Host) -> None:
        """A pilot is no more; a new one comes after a while on the same machine, and may know how the last one ended."""
        self._empty += 1
        knows_end = host.died and Random(f"{self.seed}/{host.name}/again").random() < 0.7
        self.clock.after(self.rng.uniform(1.0, 60.0), lambda: self._new_host(before=host, knows_end=knows_end))

    def _kill(self) -> None:
        host = self._pick()
        if host is not None:
            self.tally.note("pilot_death")
            self.note(f"kill {host.name}")
            host.die()

    def _kill_both(self) -> None:
        host = self._pick()
        if host is not None:
            self.tally.note("pilot_and_guard_death")
            self.note(f"kill {host.name} and its guard, {'certain' if host.certain else 'uncertain'}")
            host.die_with_guard()

    def _freeze(self, whole_host: bool) -> None:
        host = self._pick()
        if host is not None:
            self.tally.note("host_freeze" if whole_host else "pilot_freeze")
            self.note(f"freeze {host.name} {'host' if whole_host else 'pilot'}")
            host.freeze(whole_host)
            self.clock.after(self.rng.choice([5.0, 60.0, 300.0, 1500.0]), lambda: self._thaw(host))

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
            life = self.server.life
            length = self.rng.choice([20.0, 60.0, 90.0, 300.0, 1800.0])
            self.clock.after(length, lambda: self._thaw_server(life))

    def _thaw_server(self, life: int) -> None:
        if self.server.frozen is not None and self.server.life == life:
            self.note("the server runs again")
            self.ledger.returned(self.clock.now)
            self.server.thaw()

    def _drain(self) -> None:
        host = self._pick()
        if host is not None:
            self.tally.note("pilot_drain")
            self.note(f"drain {host.name}")
            host.drain()

    def _crash(self) -> None:
        """Crash at the next commit, or while changes wait for one."""
        if self.rng.random() < 0.5:
            self.server.crash_at_commit = True
            self.clock.after(30.0, self._see_crash)
        else:
            self._crash_in_gap(5_000)

    def _crash_in_gap(self, tries: int) -> None:
        # The worst gap has leases in it that pilots already hold: wait a while for one before taking any.
        waits = self.server.uncommitted_leases or (tries < 2_500 and self.server.uncommitted)
        if self.server.engine is not None and waits:
            self._crash_now("server_crash_in_gap")
        elif tries and not self.healed:
            self.clock.after(0.002, lambda: self._crash_in_gap(tries - 1))

    def _back_up(self) -> None:
        """Somebody copies the database: what is committed now is in the copy."""
        self._images.append(Image(self.server.copy(), self.ledger.copy(), dict(self.people.told)))

    def _roll_back(self) -> None:
        """The server dies, and comes back with an older copy of its database, or with none: another history begins."""
        image = self.rng.choice(self._images) if self._images and self.rng.random() < 0.7 else None
        self.tally.note("history_rolled_back" if image is not None else "history_emptied")
        self.note(f"roll back {'to a copy' if image is not None else 'to nothing'}")
        self.history += 1
        self._images = [image] if image is not None else []
        self.server.roll_back(image.database if image is not None else None)
        self.ledger.rewind(image.ledger if image is not None else {}, self.server.lives)
        self.people.rewind(image.told if image is not None else {})
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
            self.ledger.returned(self.clock.now)
            self.note("server up")

    def _poison(self) -> None:
        """The next command that is long enough ends half-way, at any line of the engine's rules: mostly one that brings
        reports, for those change most."""
        self.server.poison_at = int(2 ** self.rng.uniform(1.0, 10.5))
        self.server.poison_for = _brings_reports if self.rng.random() < 0.7 else lambda command: True

    def _poisoned(self, where: str) -> None:
        self.tally.note("poisonous_command")
        self.note(f"poison: {where}, {self.server.uncommitted} wait")

    def _rebuilt(self) -> None:
        assert self.server.engine is not None
        self.ledger.check_restart(self.server.database)
        self.ledger.check_leases(self.server.engine.state)
        self.note("engine rebuilt")

    def _heal(self) -> None:
        """No more faults: from here everything must come to its end."""
        self.note("heal")
        self.healed = True
        self.server.crash_at_commit, self.server.poison_at = False, 0
        self._restart()
        self._thaw_server(self.server.life)
        for host in list(self.hosts):
            self._thaw(host)


def _brings_reports(command: Command) -> bool:
    return isinstance(command, Talk) and bool(command.exchange.reports or command.exchange.batches)
