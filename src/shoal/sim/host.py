"""A host of a false world: the real agent, with hands that pretend to run payloads.

The pilot may die (its guard then kills the payloads), die together with its guard (payloads then run on for ever, unless
the host ends them for certain, until the next pilot of that machine sweeps), freeze alone (payloads run on, the guard still ends
exclusive ones), or freeze with its whole host (nothing moves, and the guard acts at once on thawing).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from shoal.model.credentials import digest
from shoal.model.errors import ShoalError
from shoal.model.ids import parse_attempt
from shoal.pilot.agent.agent import Agent
from shoal.pilot.agent.events import (
    Answered,
    Begin,
    Called,
    Contact,
    Disowned,
    Ended,
    Event,
    Finish,
    Join,
    Joined,
    Leave,
    NoAnswer,
    Outdated,
    Recall,
    Saved,
    Send,
    Settle,
    Started,
    Stop,
    Tick,
)
from shoal.wire.chunk import part
from shoal.wire.messages import Batch, Capacity, Checkpoint, Exchange, Lease, Registered, Reply, Report

if TYPE_CHECKING:
    from shoal.sim.world import World

TIMEOUT = 30.0
OWNER = "anna"


@dataclass
class Payload:
    """A pretended process."""

    lease: Lease
    started: float
    dead: bool = False
    piece: Lease | None = None  # it is a call: of this piece,
    at: int = 0  # at this place
    step: int = 0  # how far a task is that writes checkpoints
    files: dict[str, str] = field(default_factory=dict)  # the last one that it wrote


class Where(NamedTuple):
    """Whose a pilot is and where it says that it is."""

    claims: str  # the host's name
    site: str = "local"
    owner: str = OWNER


class Host:
    """One pilot process on its host."""

    def __init__(
        self,
        world: World,
        number: int,
        room: Capacity,
        where: Where | None = None,
        certain: bool = True,
        before: Host | None = None,
        knows_end: bool = False,
    ) -> None:
        self.world, self.number, self.room, self.certain = world, number, room, certain
        self.orphans: dict[str, Payload] = {}  # payloads that nobody watches
        if before is not None:
            before.sweep()  # what a pilot does first of all on its machine
        self.rng = Random(f"{world.seed}/host{number}")
        self.agent = Agent(room, self.rng)
        self.alive, self.died = True, False
        self.frozen = False  # the pilot process
        self.host_frozen = False
        self.payloads: dict[str, Payload] = {}
        self._lined: dict[str, Lease] = {}  # commands that the guard has
        self._outputs: set[str] = set()  # attempts that ended well and wait for the server's word
        self._followers: dict[str, Lease] = {}  # attempt -> the command behind it
        self._checkpoints: dict[int, list[Checkpoint]] = {}  # by the exchange that carries them
        self._inbox: list[Event] = []  # what a frozen pilot will see when it thaws
        self._later: list[Callable[[], None]] = []  # what a frozen host will do when it thaws
        self._contact = world.clock.now
        self._kill_after = world.timing.kill_after
        self._tick_at: float | None = None
        self.name = f"host{number}"
        self.claims, self.site, self.owner = where or Where(self.name)
        self.identity: str = before.identity if before is not None else f"id{number}"
        # A pilot that was killed on the same host: its lock tells whoever comes next that it is dead.
        registered = before.agent.registered if before is not None and knows_end else None
        self.ended = [digest(registered.session)] if registered is not None else []
        self.see(Tick())

    # --- the agent and its hands
    def see(self, event: Event) -> None:
        """Something happened to the pilot."""
        if not self.alive:
            return
        if self.frozen or self.host_frozen:
            self._inbox.append(event)
            return
        for action in self.agent.handle(event, self.world.clock.now):
            self._do(action)
        self._set_tick()

    def _do(self, action: object) -> None:
        if isinstance(action, Join):
            self.world.join(self, action)
        elif isinstance(action, Send):
            if action.exchange.checkpoints:
                self._checkpoints[action.exchange.seq] = action.exchange.checkpoints
            self.world.send(self, action.exchange)
        elif isinstance(action, Begin) and action.lease.function:
            self._call(action.lease, 0)
        elif isinstance(action, Begin) and action.after in self._lined:
            self._lined[action.lease.attempt] = action.lease
            self._followers[action.after] = action.lease
        elif isinstance(action, Begin):
            self._lined[action.lease.attempt] = action.lease
            self._begin(action.lease)
        elif isinstance(action, (Stop, Recall)) and self._leave_line(action.attempt):
            report = Report(action.attempt, "failed", "cancelled", "stopped")
            self.world.clock.after(0.001, lambda: self.see(Ended(report)))
        elif isinstance(action, Stop):
            how = "kept" if action.keep else "stopped"
            self._finish(action.attempt, how, delay=self.rng.uniform(0.0, 2.0))
        elif isinstance(action, Settle):
            if action.attempt in self._outputs:  # what was thrown away cannot be published later
                self._outputs.discard(action.attempt)
                self.world.ledger.settled(action.attempt, action.accepted)
        elif isinstance(action, Contact):
            self._contact = max(self._contact, action.at)
        elif isinstance(action, Finish):
            self.alive = False
            self.world.note(f"{self.name} ends: {action.why}")
            self.world.left(self)

    def _set_tick(self) -> None:
        due = self.agent.deadline()
        if due is None or (self._tick_at is not None and self.world.clock.now < self._tick_at <= due):
            return
        due = max(due, self.world.clock.now + 0.001)
        self._tick_at = due
        self.world.clock.at(due, lambda: self._tick(due))

    def _tick(self, due: float) -> None:
        if self._tick_at == due:
            self._tick_at = None
            self.see(Tick())

    # --- the line of commands in the guard
    def _leave_line(self, attempt: str) -> bool:
        """One that has not begun shall not begin; whoever stands behind it stands behind the one before it."""
        before = next((name for name, lease in self._followers.items() if lease.attempt == attempt), None)
        if before is None:
            return False
        del self._followers[before], self._lined[attempt]
        if attempt in self._followers:
            self._followers[before] = self._followers.pop(attempt)
        return True

    def _step_up(self, attempt: str) -> None:
        self._lined.pop(attempt, None)
        follower = self._followers.pop(attempt, None)
        if follower is not None and self.alive:
            self._begin(follower)

    # --- payloads
    def _begin(self, lease: Lease) -> None:
        self._run(Payload(lease, self.world.clock.now))
        self.world.clock.after(0.002, lambda: self.see(Started(lease.attempt)))
        if lease.rerun == "exclusive":
            self._guard(lease.attempt)

    def _call(self, piece: Lease, at: int) -> None:
        """A runner makes the calls of a piece one after another."""
        if self.host_frozen:
            self._later.append(lambda: self._call(piece, at))
        elif self.alive:
            self._run(Payload(part(piece, at, at + 1), self.world.clock.now, piece=piece, at=at))

    def _run(self, payload: Payload) -> None:
        attempt = payload.lease.attempt
        if payload.lease.checkpoint:
            payload.step = self.world.ledger.step_of(payload.lease)
            self.payloads[attempt] = payload
            self.world.ledger.began(payload.lease, self.name)
            self._go_on(attempt)
            return
        duration, fails = self.world.script_on(self, parse_attempt(attempt))
        self.payloads[attempt] = payload
        self.world.ledger.began(payload.lease, self.name)
        limit = payload.lease.time
        if limit is not None and duration > limit:
            self.world.clock.after(limit, lambda: self._finish(attempt, "over_time"))
            return
        self.world.clock.after(duration, lambda: self._finish(attempt, "failed" if fails else "succeeded"))

    def _go_on(self, attempt: str) -> None:
        """The next step of a task that writes down how far it is after each."""
        steps, seconds, _, _ = self.world.steps_of(parse_attempt(attempt))
        left = steps - self.payloads[attempt].step
        self.world.clock.after(seconds if left > 0 else 0.1, lambda: self._step(attempt))

    def _step(self, attempt: str) -> None:
        payload = self.payloads.get(attempt)
        if payload is None or payload.dead:
            return
        if self.host_frozen:
            self._later.append(lambda: self._step(attempt))
            return
        steps, _, pauses, fails = self.world.steps_of(parse_attempt(attempt))
        if payload.step < steps:
            payload.step += 1
            payload.files = self.world.ledger.wrote(payload.lease, payload.step)
            self.see(Saved(attempt, payload.files))
        if payload.step >= steps:
            self._finish(attempt, "failed" if fails else "succeeded")
        elif pauses:
            self._finish(attempt, "kept")
        else:
            self._go_on(attempt)

    def _guard(self, attempt: str) -> None:
        """The guard process: looks again whenever the contact may have run out."""
        payload = self.payloads.get(attempt)
        if payload is None or payload.dead:
            return
        if self.host_frozen:
            self._later.append(lambda: self._guard(attempt))
            return
        left = self._contact + self._kill_after - self.world.clock.now
        if left <= 0:
            self._finish(attempt, "contact")
        else:
            self.world.clock.after(left + 0.001, lambda: self._guard(attempt))

    def _finish(self, attempt: str, how: str, delay: float = 0.0) -> None:
        if delay:
            self.world.clock.after(delay, lambda: self._finish(attempt, how))
            return
        payload = self.payloads.get(attempt)
        if payload is None or payload.dead:
            return
        if self.host_frozen:
            self._later.append(lambda: self._finish(attempt, how))
            return
        payload.dead = True
        del self.payloads[attempt]
        self._step_up(attempt)
        self.world.ledger.stopped(payload.lease, self.name, how == "succeeded")
        started, length = payload.started, self.world.clock.now - payload.started
        if how == "kept" and payload.files:
            files, words = payload.files, "wrote its checkpoint"
            report = Report(
                attempt, "checkpointed", message=words, exit_code=85, started=started, duration=length, files=files
            )
        elif how == "succeeded":
            report = Report(attempt, "succeeded", exit_code=0, started=started, duration=length, last_line="ok")
        elif how == "contact":
            report = Report(
                attempt, "returned", "pilot_lost", "killed without contact", started=started, duration=length
            )
        else:
            code = 1 if how == "failed" else None
            if how in ("failed", "over_time"):
                self.world.tally.note("task_failure")
                self.world.ledger.failed(attempt)
            cause = how if how == "over_time" else "task_error"
            report = Report(attempt, "failed", cause, how, exit_code=code, started=started, duration=length)
        if payload.piece is None:
            self._outputs.update([attempt] if how == "succeeded" else [])
            self.see(Ended(report))
        else:
            self._tell_call(payload, payload.piece, report)

    def _tell_call(self, payload: Payload, piece: Lease, report: Report) -> None:
        """What a runner tells of a call. One that was ended took its runner along: the rest of the piece never began."""
        last = payload.at + 1 == piece.count
        stopped = report.message in ("stopped", "killed")
        batch = None
        if report.outcome == "succeeded":
            batch = Batch(report.attempt, 1, [payload.started], [report.duration], result=["gAU="])
        self.see(Called(piece.attempt, batch, () if batch is not None else (report,), last or stopped))
        if not last and not stopped:
            self._call(piece, payload.at + 1)

    # --- faults
    def die(self) -> None:
        """The pilot is killed; its guard kills the payloads within moments."""
        self.alive, self.died = False, True
        for attempt in list(self.payloads):
            self._finish(attempt, "killed", delay=0.05)
        self.world.left(self)

    def die_with_guard(self) -> None:
        """Pilot and guard are killed in the same moment; a host that is certain has its kernel end the payloads."""
        self.alive = False
        for attempt, payload in list(self.payloads.items()):
            if self.certain:
                self._finish(attempt, "killed")
            else:
                del self.payloads[attempt]
                self.orphans[attempt] = payload
        self.world.left(self)

    def sweep(self) -> None:
        """The next pilot of this machine ends what was left running."""
        for attempt, payload in list(self.orphans.items()):
            del self.orphans[attempt]
            payload.dead = True
            self.world.ledger.stopped(payload.lease, self.name, False)

    def freeze(self, whole_host: bool) -> None:
        """Stop the pilot process, or everything on the host."""
        self.frozen = not whole_host
        self.host_frozen = whole_host
        if whole_host:
            self.world.ledger.frozen.add(self.name)

    def thaw(self) -> None:
        """Go on; the guard of a thawed host acts before the payload can."""
        self.frozen = self.host_frozen = False
        self.world.ledger.frozen.discard(self.name)
        later, self._later = self._later, []
        for attempt, payload in list(self.payloads.items()):
            if payload.lease.rerun == "exclusive":
                self._guard(attempt)
        for do in later:
            do()
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            self.see(event)
        self.see(Tick())

    def drain(self) -> None:
        """A polite request to end, or the one signal of a batch system."""
        self.see(Leave("told to drain", checkpoint=self.rng.random() < 0.5))

    # --- network outcomes
    def joined(self, registered: Registered) -> None:
        """The server took us in."""
        self._kill_after = registered.kill_after
        self.see(Joined(registered))

    def answered(self, reply: Reply) -> None:
        """A reply came."""
        for one in self._checkpoints.pop(reply.seq, ()):
            self.world.ledger.saved(one)
        self.see(Answered(reply))

    def unanswered(self, seq: int) -> None:
        """None came."""
        self.see(NoAnswer(seq))

    def refused(self, exchange: Exchange, error: ShoalError) -> None:
        """The server said no."""
        if error.code == "re_enrol":
            self.see(Disowned(exchange.seq))
        elif error.code == "replay":
            self.see(Outdated(exchange.seq))
        elif error.code in ("internal_error", "rebuilding"):
            self.see(NoAnswer(exchange.seq))
        else:
            raise error  # the agent sent something the engine calls wrong: a defect
