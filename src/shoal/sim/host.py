"""A host of a simulated world: the real agent, and payloads that only pretend to run.

The pilot may die (its guard then kills the payloads), lose its guard (it gives everything back and ends), die together
with its guard (payloads then run on until the next pilot of that machine sweeps, unless the host ends them for certain),
freeze alone (payloads run on, the guard still ends exclusive ones), or freeze with its whole host (nothing moves, and
the guard acts at once on thawing).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from random import Random
from typing import NamedTuple, Protocol

from shoal.model.credentials import alias
from shoal.model.errors import ShoalError
from shoal.model.ids import AttemptId, parse_attempt
from shoal.model.lazy_dataclass import dataclass
from shoal.model.timing import Timing
from shoal.pilot.agent.agent import Agent
from shoal.pilot.agent.events import (
    Answered,
    Begin,
    CacheChanged,
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
    Shorten,
    Shortened,
    Started,
    Stop,
    Tick,
)
from shoal.pilot.executor import GUARD_GONE, given_back
from shoal.sim.clock import Alarm, Clock
from shoal.sim.command_pieces import CommandPiece
from shoal.sim.guard_queue import GuardQueue
from shoal.sim.host_files import SIZE, HostFiles
from shoal.wire.chunk import names, part
from shoal.wire.messages import Batch, Capacity, Checkpoint, Exchange, Lease, Registered, Reply, Report

TIMEOUT = 30.0  # seconds after which a request without an answer is given up
TOLD_LATE = 0.05  # seconds that a guard keeps the successes of a piece to itself at most
OWNER = "anna"


@dataclass
class Payload:
    """A simulated process."""

    lease: Lease
    started: float
    calls: Lease | None = None  # of a function call: the lease that it belongs to,
    at: int = 0  # and its index in it
    piece: CommandPiece | None = None  # of a short command: those that it is one of
    step: int = 0  # of a task that writes checkpoints: the steps done
    files: dict[str, str] = field(default_factory=dict)  # of its last checkpoint


class Placement(NamedTuple):
    """The owner of a pilot, and the host and site that it reports."""

    hostname: str
    site: str = "local"
    owner: str = OWNER


class Observer(Protocol):
    """What is told of payloads as they begin and end."""

    frozen: set[str]  # hosts on which nothing moves

    def payload_started(self, lease: Lease, host: str) -> None:
        """A payload began."""

    def payload_ended(self, lease: Lease, host: str, succeeded: bool) -> None:
        """It ended."""

    def report_settled(self, attempt: str, accepted: bool) -> None:
        """The server judged the report of its success."""

    def step_of(self, lease: Lease) -> int:
        """Of a task that writes checkpoints: the step from which it goes on."""

    def checkpoint_written(self, lease: Lease, step: int) -> dict[str, str]:
        """It wrote a checkpoint; the files of it."""

    def checkpoint_acknowledged(self, checkpoint: Checkpoint) -> None:
        """The server has a checkpoint."""


class HostWorld(Protocol):
    """The world as a host sees it."""

    clock: Clock
    seed: int
    timing: Timing

    @property
    def ledger(self) -> Observer:
        """Who is told of payloads."""

    def run_time(self, host: Host, lease: Lease) -> tuple[float, bool]:
        """How long a payload takes on a host, and whether it fails."""

    def steps_of(self, attempt: AttemptId) -> tuple[int, float, bool, bool]:
        """Of a task that writes checkpoints: steps, seconds of one, whether this attempt pauses, whether it fails."""

    def payload_failed(self, attempt: str) -> None:
        """A payload failed by itself."""

    def join(self, host: Host, action: Join) -> None:
        """Carry the registration of a pilot to the server."""

    def send(self, host: Host, exchange: Exchange) -> None:
        """Carry an exchange to the server."""

    def note(self, text: str) -> None:
        """Write into the trace."""

    def pilot_ended(self, host: Host) -> None:
        """The pilot of a host ended."""


class Host:
    """One pilot process on its host; `previous` is the one before it on the same machine."""

    def __init__(
        self,
        world: HostWorld,
        number: int,
        capacity: Capacity,
        placement: Placement | None = None,
        certain_end: bool = True,
        previous: Host | None = None,
        reports_death: bool = False,
    ) -> None:
        self.world, self.capacity, self.certain_end = world, capacity, certain_end
        self.orphans: dict[str, Payload] = {}  # payloads that no guard watches
        if previous is not None:
            previous.sweep()  # what a pilot does first of all on its machine
        self.rng = Random(f"{world.seed}/host{number}")
        self.agent = Agent(capacity, self.rng)
        self.files: HostFiles = previous.files if previous is not None else HostFiles()
        self.alive, self.died = True, False
        self.frozen = False  # the pilot process
        self.host_frozen = False
        self.payloads: dict[str, Payload] = {}
        self._queue = GuardQueue()
        self._pieces: dict[str, CommandPiece] = {}  # that run
        self._outputs: set[str] = set()  # attempts that succeeded and wait for the server's verdict
        self._checkpoints: dict[int, list[Checkpoint]] = {}  # by the exchange that carries them
        self._inbox: list[Event] = []  # what a frozen pilot will handle when it thaws
        self._later: list[Callable[[], None]] = []  # what a frozen host will do when it thaws
        self._contact = world.clock.now
        self._kill_after = world.timing.kill_after
        self._alarm = Alarm(world.clock, lambda: self.handle(Tick()))
        self.name = f"host{number}"
        self.hostname, self.site, self.owner = placement or Placement(self.name)
        self.identity: str = previous.identity if previous is not None else f"id{number}"
        # The lock file of a pilot that was killed on the same host shows its successor that it is dead.
        registered = previous.agent.registered if previous is not None and reports_death else None
        self.ended = [alias(registered.session)] if registered is not None else []
        self.agent.cache.change(((digest, SIZE) for digest in self.files.here), ())
        self.handle(Tick())

    # --- the agent and its actions
    def handle(self, event: Event) -> None:
        """Pass an event to the agent and carry out what it decides; a frozen pilot does so when it thaws."""
        if not self.alive:
            return
        if self.frozen or self.host_frozen:
            self._inbox.append(event)
            return
        for action in self.agent.handle(event, self.world.clock.now):
            self._do(action)
        due = self.agent.deadline()
        self._alarm.set(max(due, self.world.clock.now + 0.001) if due is not None else None)

    def _do(self, action: object) -> None:
        if isinstance(action, Send):
            if action.exchange.checkpoints:
                self._checkpoints[action.exchange.seq] = action.exchange.checkpoints
            self.world.send(self, action.exchange)
        elif isinstance(action, Contact):
            self._contact = max(self._contact, action.at)
        elif isinstance(action, Join):
            self.world.join(self, action)
        elif isinstance(action, Begin) and action.lease.function:
            self._call(action.lease, 0)
        elif isinstance(action, Begin) and any(
            action.after in known for known in (self.payloads, self._queue, self._pieces)
        ):
            self._queue.add(action.lease, action.after)
        elif isinstance(action, Begin):
            self._begin(action.lease)
        elif isinstance(action, Shorten):
            self._shorten(action.piece)
        elif isinstance(action, Stop) and self._stop_of_piece(action.attempt):
            pass
        elif isinstance(action, Recall) and self._queue.is_piece(action.attempt):
            self._queue.remove(action.attempt)
            self.world.clock.after(0.001, lambda: self.handle(Called(action.attempt, over=True)))
        elif isinstance(action, (Stop, Recall)) and self._queue.remove(action.attempt):
            report = Report(action.attempt, "failed", "cancelled", "stopped")
            self.world.clock.after(0.001, lambda: self.handle(Ended(report)))
        elif isinstance(action, Stop):
            how = "kept" if action.keep else "stopped"
            self._finish(action.attempt, how, delay=self.rng.uniform(0.0, 2.0))
        elif isinstance(action, Settle):
            if action.attempt in self._outputs:  # what was thrown away cannot be published later
                self._outputs.discard(action.attempt)
                self.world.ledger.report_settled(action.attempt, action.accepted)
        elif isinstance(action, Finish):
            self.alive = False
            self.world.note(f"{self.name} ends: {action.why}")
            self.world.pilot_ended(self)

    # --- payloads
    def _begin(self, lease: Lease) -> None:
        if lease.count > 1:
            self._pieces[lease.attempt] = CommandPiece(lease)
            self._go_on(self._pieces[lease.attempt])
            return
        self._run(Payload(lease, self.world.clock.now))
        self.world.clock.after(0.002, lambda: self.handle(Started(lease.attempt)))
        if lease.rerun == "exclusive":
            self._guard(lease.attempt)

    def _go_on(self, piece: CommandPiece) -> None:
        """The guard begins the next command of a piece, or what is queued behind it."""
        while (lease := piece.next()) is not None:
            if lease.attempt not in piece.stopped:
                self._run(Payload(lease, self.world.clock.now, piece=piece))
                return
            self._tell(piece, Report(lease.attempt, "failed", "cancelled", "stopped"))
        del self._pieces[piece.name]
        following = self._queue.pop(piece.name)
        if following is not None:
            self._begin(following)
        self.handle(Called(piece.name, piece.tell(), (), over=True))

    def _tell(self, piece: CommandPiece, report: Report | None = None) -> None:
        """The guard tells the pilot of what succeeded in a piece, then of one that is not as plain."""
        batch = piece.tell()
        if report is not None:
            piece.tell_one()
        if batch is not None or report is not None:
            self.handle(Called(piece.name, batch, () if report is None else (report,)))

    def _tell_late(self, piece: CommandPiece) -> None:
        if self.host_frozen:
            self._later.append(lambda: self._tell_late(piece))
        elif piece.name in self._pieces:
            self._tell(piece)

    def _shorten(self, name: str) -> None:
        piece = self._pieces.get(name)
        if piece is not None:
            count = piece.shorten()
            self.world.clock.after(0.0, lambda: self.handle(Shortened(name, count)))

    def _stop_of_piece(self, attempt: str) -> bool:
        """Keep one of a piece from beginning; False: it is in none, or runs."""
        if attempt in self.payloads:
            return False
        queued = self._queue.holding(attempt)
        piece = next((one for one in self._pieces.values() if one.has(attempt)), None)
        if piece is not None:
            piece.stopped.add(attempt)
        elif queued is not None:  # the guard would keep its place until it is its turn: the same to the pilot
            name = queued.attempt
            self._queue.remove(name)
            self.world.clock.after(0.001, lambda: self.handle(Called(name, over=True)))
        return piece is not None or queued is not None

    def _call(self, calls: Lease, at: int) -> None:
        """A runner makes the calls of a lease one after another."""
        if self.host_frozen:
            self._later.append(lambda: self._call(calls, at))
        elif self.alive:
            self._run(Payload(part(calls, at, at + 1), self.world.clock.now, calls=calls, at=at))

    def _run(self, payload: Payload) -> None:
        attempt = payload.lease.attempt
        if payload.lease.content:
            changed = CacheChanged(*self.files.read(text.partition(" ")[0] for text in payload.lease.content.values()))
            self.world.clock.after(0.001, lambda: self.handle(changed))
        if payload.lease.checkpoint:
            payload.step = self.world.ledger.step_of(payload.lease)
            self.payloads[attempt] = payload
            self.world.ledger.payload_started(payload.lease, self.name)
            self._set_step(attempt)
            return
        duration, fails = self.world.run_time(self, payload.lease)
        self.payloads[attempt] = payload
        self.world.ledger.payload_started(payload.lease, self.name)
        limit = payload.lease.time
        if limit is not None and duration > limit:
            self.world.clock.after(limit, lambda: self._finish(attempt, "over_time"))
            return
        self.world.clock.after(duration, lambda: self._finish(attempt, "failed" if fails else "succeeded"))

    def _running(self, attempt: str, retry: Callable[[], None]) -> Payload | None:
        """The payload of an attempt; None if it ended, or if the host is frozen, which calls `retry` when it thaws."""
        payload = self.payloads.get(attempt)
        if payload is not None and self.host_frozen:
            self._later.append(retry)
            return None
        return payload

    def _set_step(self, attempt: str) -> None:
        """Schedule the next step of a task that writes a checkpoint after each."""
        steps, seconds, _, _ = self.world.steps_of(parse_attempt(attempt))
        left = steps - self.payloads[attempt].step
        self.world.clock.after(seconds if left > 0 else 0.1, lambda: self._step(attempt))

    def _step(self, attempt: str) -> None:
        payload = self._running(attempt, lambda: self._step(attempt))
        if payload is None:
            return
        steps, _, pauses, fails = self.world.steps_of(parse_attempt(attempt))
        if payload.step < steps:
            payload.step += 1
            payload.files = self.world.ledger.checkpoint_written(payload.lease, payload.step)
            self.handle(Saved(attempt, payload.files))
        if payload.step >= steps:
            self._finish(attempt, "failed" if fails else "succeeded")
        elif pauses:
            self._finish(attempt, "kept")
        else:
            self._set_step(attempt)

    def _guard(self, attempt: str) -> None:
        """The guard process checks again whenever the contact may have run out."""
        if self._running(attempt, lambda: self._guard(attempt)) is None:
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
        payload = self._running(attempt, lambda: self._finish(attempt, how))
        if payload is None:
            return
        del self.payloads[attempt]
        following = self._queue.pop(attempt) if payload.piece is None else None
        if following is not None and self.alive:
            self._begin(following)
        self.world.ledger.payload_ended(payload.lease, self.name, how == "succeeded")
        started, length = payload.started, self.world.clock.now - payload.started
        if how == "kept" and payload.files:
            report = Report(
                attempt, "checkpointed", message="wrote its checkpoint", exit_code=85, started=started, duration=length,
                files=payload.files,
            )  # fmt: skip
        elif how == "succeeded":
            report = Report(attempt, "succeeded", exit_code=0, started=started, duration=length, last_line="ok")
        elif how == "contact":
            report = Report(
                attempt, "returned", "pilot_lost", "killed without contact", started=started, duration=length
            )
        else:
            code = 1 if how == "failed" else None
            if how in ("failed", "over_time"):
                self.world.payload_failed(attempt)
            cause = how if how == "over_time" else "task_error"
            report = Report(attempt, "failed", cause, how, exit_code=code, started=started, duration=length)
        piece = payload.piece
        if piece is not None:
            if report.outcome == "succeeded":
                piece.add(report)
                self.world.clock.after(TOLD_LATE, lambda: self._tell_late(piece))
            else:
                self._tell(piece, report)
            if self.alive:
                self._go_on(piece)
        elif payload.calls is None:
            self._outputs.update([attempt] if how == "succeeded" else [])
            self.handle(Ended(report))
        else:
            self._report_call(payload, payload.calls, report)

    def _report_call(self, payload: Payload, calls: Lease, report: Report) -> None:
        """The runner's report of a call. A call that was killed ended its runner too: the calls after it never began."""
        last = payload.at + 1 == calls.count
        stopped = report.message in ("stopped", "killed") or (bool(calls.parents) and report.outcome != "succeeded")
        batch = None
        if report.outcome == "succeeded":
            batch = Batch(report.attempt, 1, [payload.started], [report.duration], result=["gAU="])
        self.handle(Called(calls.attempt, batch, () if batch is not None else (report,), last or stopped))
        if not last and not stopped:
            self._call(calls, payload.at + 1)

    # --- faults
    def die(self) -> None:
        """The pilot is killed; its guard kills the payloads within moments."""
        self.alive, self.died = False, True
        for attempt in list(self.payloads):
            self._finish(attempt, "killed", delay=0.05)
        self.world.pilot_ended(self)

    def die_with_guard(self) -> None:
        """Pilot and guard are killed in the same moment; where the end is certain, the kernel ends the payloads."""
        self.alive = False
        for attempt, payload in list(self.payloads.items()):
            if self.certain_end:
                self._finish(attempt, "killed")
            else:
                del self.payloads[attempt]
                self.orphans[attempt] = payload
        self.world.pilot_ended(self)

    def lose_guard(self) -> None:
        """The guard dies alone, and everything with it: the pilot gives all of it back and leaves."""
        ended, queued, pieces = dict(self.payloads), self._queue.clear(), dict(self._pieces)
        self.payloads.clear()
        self._pieces.clear()
        for payload in ended.values():
            self.world.ledger.payload_ended(payload.lease, self.name, False)
        self.handle(Leave(GUARD_GONE))
        for name, piece in pieces.items():
            reports = tuple(given_back(attempt, GUARD_GONE, 0.0) for attempt in piece.untold)
            self.handle(Called(name, None, reports, over=True))
        for attempt, payload in ended.items():
            if payload.calls is not None:
                reports = tuple(given_back(left, GUARD_GONE, 0.0) for left in names(payload.calls)[payload.at :])
                self.handle(Called(payload.calls.attempt, None, reports, over=True))
            elif payload.piece is None:
                self.handle(Ended(given_back(attempt, GUARD_GONE, payload.started)))
        for lease in queued:
            if lease.count > 1:
                self.handle(Called(lease.attempt, over=True))
            else:
                self.handle(Ended(given_back(lease.attempt, GUARD_GONE, None)))

    def sweep(self) -> None:
        """The next pilot of this machine ends the payloads that were left running."""
        for attempt, payload in list(self.orphans.items()):
            del self.orphans[attempt]
            self.world.ledger.payload_ended(payload.lease, self.name, False)

    def freeze(self, whole_host: bool) -> None:
        """Stop the pilot process, or everything on the host."""
        self.frozen = not whole_host
        self.host_frozen = whole_host
        if whole_host:
            self.world.ledger.frozen.add(self.name)

    def thaw(self) -> None:
        """Run again; the guard of a thawed host acts before the payload can."""
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
            self.handle(event)
        self.handle(Tick())

    def drain(self) -> None:
        """The pilot is asked to end, or gets the one signal of a batch system."""
        self.handle(Leave("told to drain", checkpoint=self.rng.random() < 0.5))

    # --- network outcomes
    def joined(self, registered: Registered) -> None:
        """The server registered this pilot."""
        self._kill_after = registered.kill_after
        self.handle(Joined(registered))

    def answered(self, reply: Reply) -> None:
        """The reply to an exchange arrived."""
        for one in self._checkpoints.pop(reply.seq, ()):
            self.world.ledger.checkpoint_acknowledged(one)
        self.handle(Answered(reply))

    def refused(self, exchange: Exchange, error: ShoalError) -> None:
        """The server refused an exchange."""
        if error.code == "re_enrol":
            self.handle(Disowned(exchange.seq))
        elif error.code == "replay":
            self.handle(Outdated(exchange.seq))
        elif error.code in ("internal_error", "rebuilding"):
            self.handle(NoAnswer(exchange.seq))
        else:
            raise error  # the agent sent something that the engine rejects: a defect
