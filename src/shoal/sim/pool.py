"""A simulated pool without faults: the real engine, and pilots with the real agent that only pretend to run their tasks,
on a virtual clock. `fair` and `shares` measure with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from shoal.engine.changes import Outcome
from shoal.engine.commands import Accept, Command, Enrol, Submit, Talk, Tick
from shoal.engine.engine import Engine
from shoal.engine.snapshot import Snapshot
from shoal.model.ids import parse_run
from shoal.model.timing import Timing
from shoal.pilot.agent import events
from shoal.pilot.agent.agent import Agent
from shoal.sim.clock import Alarm, Clock
from shoal.sim.command_pieces import CommandPiece
from shoal.sim.guard_queue import GuardQueue
from shoal.wire.chunk import part
from shoal.wire.messages import PROTOCOL, Batch, Capacity, Exchange, Lease, Register, Registered, Reply, Report
from shoal.wire.old_protocol import for_protocol
from shoal.wire.submission import parse_submission

GROUP = "lab"  # whose pilots they are
LATENCY = 0.002  # seconds that a message takes
CALL = "gAU="
SHORT_CALL = 0.02  # seconds: a runner reports several shorter calls at once


class SimPilot:
    """A pilot: the real agent, and slots that are busy for as long as the pool decides."""

    def __init__(self, pool: SimPool, number: int) -> None:
        self.pool, self.number = pool, number
        self._agent = Agent(pool.capacity, Random(f"{pool.seed}/{number}"))
        self._queue = GuardQueue()
        self._running: set[str] = set()
        self._pieces: dict[str, CommandPiece] = {}
        self._alarm = Alarm(pool.clock, lambda: self.handle(events.Tick()))
        self.handle(events.Tick())

    def handle(self, event: events.Event) -> None:
        """Pass an event to the agent and carry out what it decides."""
        clock = self.pool.clock
        for action in self._agent.handle(event, clock.now):
            if isinstance(action, events.Join):
                clock.after(LATENCY, self._join)
            elif isinstance(action, events.Send):
                clock.after(LATENCY, lambda e=action.exchange: self.pool.exchange(e))  # type: ignore[misc]  # bound now
            elif isinstance(action, events.Begin):
                if any(action.after in known for known in (self._running, self._queue, self._pieces)):
                    self._queue.add(action.lease, action.after)
                else:
                    self._begin(action.lease)
            elif isinstance(action, events.Shorten) and action.piece in self._pieces:
                self._handle_later(events.Shortened(action.piece, self._pieces[action.piece].shorten()))
            elif isinstance(action, events.Recall) and self._queue.is_piece(action.attempt):
                self._queue.remove(action.attempt)
                self._handle_later(events.Called(action.attempt, over=True))
            elif isinstance(action, (events.Recall, events.Stop)) and self._queue.remove(action.attempt):
                self._handle_later(events.Ended(Report(action.attempt, "failed", "cancelled", "recalled")))
        due = self._agent.deadline()
        self._alarm.set(max(due, clock.now + 0.001) if due is not None else None)

    def _handle_later(self, event: events.Event) -> None:
        self.pool.clock.after(0.0, lambda: self.handle(event))

    def _join(self) -> None:
        host = f"host{self.number}"
        register = Register(self.pool.protocol, "0", host, f"id{self.number}", self.pool.capacity)
        self.handle(events.Joined(self.pool.enrol(register, self)))

    def _begin(self, lease: Lease) -> None:
        if lease.function:
            length = self.pool.started(part(lease, 0, 1))
            count = lease.count if length < SHORT_CALL else 1
            for at in range(1, count):
                self.pool.started(part(lease, at, at + 1))
            self.pool.clock.after(count * length, lambda: self._called(lease, 0, count, length))
            return
        if lease.count > 1:
            self._pieces[lease.attempt] = CommandPiece(lease)
            self._go_on(self._pieces[lease.attempt])
            return
        length = self.pool.started(lease)
        self._running.add(lease.attempt)
        self._handle_later(events.Started(lease.attempt))
        self.pool.clock.after(length, lambda: self._end(lease, length))

    def _go_on(self, piece: CommandPiece) -> None:
        """The guard begins the next command of a piece, or what is queued behind it."""
        lease = piece.next()
        if lease is not None:
            length = self.pool.started(lease)
            self.pool.clock.after(length, lambda: self._ran(piece, lease, length))
            return
        del self._pieces[piece.name]
        following = self._queue.pop(piece.name)
        if following is not None:
            self._begin(following)
        self.handle(events.Called(piece.name, piece.tell(), (), over=True))

    def _ran(self, piece: CommandPiece, lease: Lease, length: float) -> None:
        self.pool.ended(lease)
        piece.add(Report(lease.attempt, "succeeded", exit_code=0, started=1.0, duration=length))
        if length >= SHORT_CALL:
            self.handle(events.Called(piece.name, piece.tell()))
        self._go_on(piece)

    def _called(self, calls: Lease, at: int, count: int, length: float) -> None:
        """Some calls of a lease ended; the next one begins."""
        done = part(calls, at, at + count)
        self.pool.ended(done)
        batch = Batch(done.attempt, count, [0.0] * count, [length] * count, result=[CALL] * count)
        is_last = at + count == calls.count
        self.handle(events.Called(calls.attempt, batch, (), is_last))
        if not is_last:
            after = self.pool.started(part(calls, at + count, at + count + 1))
            self.pool.clock.after(after, lambda: self._called(calls, at + count, 1, after))

    def _end(self, lease: Lease, length: float) -> None:
        self._running.discard(lease.attempt)
        self.pool.ended(lease)
        following = self._queue.pop(lease.attempt)
        if following is not None:
            self._begin(following)
        self.handle(events.Ended(Report(lease.attempt, "succeeded", exit_code=0, started=1.0, duration=length)))


class SimPool(ABC):
    """The engine and its pilots. A subclass decides how long each task takes and records what it measures."""

    def __init__(self, seed: int, pilots: int, slots: int, protocol: int = PROTOCOL) -> None:
        self.seed, self.protocol, self.capacity = seed, protocol, Capacity(slots, 1 << 36, 1 << 40, 0)
        self.clock = Clock()
        self.engine = Engine(Snapshot(), Timing(), Random(seed), self.clock.now)
        self.returned = 0  # tasks that were fetched ahead and given back
        self._count = pilots
        self._pilots: dict[str, SimPilot] = {}
        self._alarm = Alarm(self.clock, lambda: self.do(Tick()))

    @abstractmethod
    def started(self, lease: Lease) -> float:
        """A task starts; how many seconds it will take."""

    @abstractmethod
    def ended(self, lease: Lease) -> None:
        """A task ended, or several calls of one lease."""

    def do(self, command: Command) -> Any:
        """Have the engine handle a command, and deliver its replies; the command's result."""
        outcome: Outcome = self.engine.handle(command, self.clock.now)
        for answer in outcome.answers:
            pilot, reply = self._pilots[answer.pilot], self._in_protocol(answer.reply)
            self.clock.after(LATENCY, lambda p=pilot, r=reply: p.handle(events.Answered(r)))  # type: ignore[misc]  # bound now
        self._alarm.set(self.engine.deadline())
        return outcome.result

    def _in_protocol(self, reply: Reply) -> Reply:
        """The reply as pilots of the pool's protocol read it."""
        if self.protocol == PROTOCOL:
            return reply
        plain = for_protocol("Reply", reply, self.protocol)
        assert not any("precedence" in lease for lease in plain["leases"])
        return replace(reply, leases=[replace(one, precedence=0) for one in reply.leases])

    def enrol(self, register: Register, pilot: SimPilot) -> Registered:
        """Register a pilot."""
        registered: Registered = self.do(Enrol(register, "", "here", GROUP))
        self._pilots[registered.pilot] = pilot
        return registered

    def exchange(self, exchange: Exchange) -> None:
        """An exchange of a pilot arrives."""
        self.returned += sum(report.outcome == "returned" for report in exchange.reports)
        self.do(Talk(replace(exchange, protocol=self.protocol)))

    def start_pilots(self) -> None:
        """Start all pilots, and wait until they have registered."""
        for number in range(self._count):
            SimPilot(self, number)
        self.run_until(lambda: len(self._pilots) == self._count, 60.0)

    def submit(self, owner: str, table: dict[str, Any]) -> int:
        """Submit and accept a run of one table; its number."""
        submission = parse_submission({"tasks": [table], "cwd": "/"})
        run = parse_run(self.do(Submit(submission, owner, f"{owner}{self.clock.now}"))["run"])
        self.do(Accept(run))
        return run

    def run_until(self, done: Callable[[], bool], limit: float) -> None:
        """Let time pass until something is true, or a time limit."""
        over: list[bool] = []
        self.clock.after(limit, lambda: over.append(True))
        while not done() and not over and self.clock.step():
            pass

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        self.run_until(lambda: False, seconds)

    def check(self) -> None:
        """Fail if an index of the engine is wrong."""
        wrong = self.engine.check()
        assert not wrong, wrong[0]
