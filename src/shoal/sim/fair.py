"""How soon does a task start that goes first, while pilots fetch short ones ahead?
[protocol 5.3; promise I13; ADR 0019]

    story = play(setting)     the real engine and real agents, a virtual clock, hands that pretend to run
    story.wait                seconds from the urgent task's acceptance to its start
    story.turnover            seconds until a slot turned over for the first time after it came

The urgent task is one of a higher priority, or the first one of an owner who comes later.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from shoal.engine.changes import Outcome
from shoal.engine.commands import Accept, Command, Enrol, Regroup, Submit, Talk, Tick
from shoal.engine.engine import Engine
from shoal.engine.snapshot import Snapshot
from shoal.model.ids import parse_attempt
from shoal.model.timing import Timing
from shoal.pilot.agent.agent import Agent
from shoal.pilot.agent.events import (
    Answered,
    Begin,
    Called,
    Ended,
    Event,
    Join,
    Joined,
    Recall,
    Send,
    Started,
    Stop,
)
from shoal.pilot.agent.events import Tick as Look
from shoal.sim.clock import Clock
from shoal.wire.chunk import part
from shoal.wire.messages import PROTOCOL, Batch, Capacity, Exchange, Lease, Register, Reply, Report
from shoal.wire.old_protocol import for_protocol
from shoal.wire.submission import parse_submission

LATENCY = 0.002  # seconds of a message
POOL, FIRST, SECOND = "lab", "ann", "bob"
TICK = 0.2  # seconds, as the server's
WARM = 1.2  # seconds before the urgent task comes, of one pilot; with many, a part of it is enough to fill them
MOST = 100_000  # tasks in the queue: as many calls as one table holds
CALL = "gAU="


@dataclass(frozen=True)
class Setting:
    """A queue of equal tasks, and what comes then."""

    length: float  # seconds of each task in the queue
    pilots: int = 1
    slots: int = 2
    calls: bool = False
    newcomer: bool = False  # the urgent one is another owner's; else it has a higher priority
    urgent: int = 1  # tasks
    urgent_length: float = 0.01
    rerun: str = "safe"
    cores: int = 1
    protocol: int = PROTOCOL
    spread: float = 0.0  # of the logarithm of lengths
    after: float = 0.0  # seconds that are played after the urgent task has started
    seed: int = 1


@dataclass
class Story:
    """What happened."""

    wait: float = math.inf
    turnover: float = math.inf
    starts: list[tuple[float, str]] = field(default_factory=list)  # time since the urgent task came, attempt
    begun: Counter[str] = field(default_factory=Counter)  # by task
    finished: int = 0
    returned: int = 0


class _Pilot:
    """A real agent with hands that pretend."""

    def __init__(self, pool: _Pool, number: int) -> None:
        self.pool, self.number = pool, number
        self.room = Capacity(pool.setting.slots, 1 << 36, 1 << 40, 0)
        self._agent = Agent(self.room, Random(f"{pool.setting.seed}/{number}"))
        self._followers: dict[str, Lease] = {}  # attempt -> the command that stands behind it
        self._running: set[str] = set()
        self._look_at: float | None = None
        self._see(Look())

    def _see(self, event: Event) -> None:
        clock = self.pool.clock
        for action in self._agent.handle(event, clock.now):
            if isinstance(action, Join):
                clock.after(LATENCY, self._join)
            elif isinstance(action, Send):
                clock.after(LATENCY, lambda e=action.exchange: self.pool.talk(self, e))  # type: ignore[misc]  # bound now
            elif isinstance(action, Begin) and action.after in self._running | set(self._lined()):
                self._followers[action.after] = action.lease
            elif isinstance(action, Begin):
                self._begin(action.lease)
            elif isinstance(action, (Recall, Stop)):
                self._drop(action.attempt)
        due = self._agent.deadline()
        if due is not None and (self._look_at is None or due < self._look_at or self._look_at <= clock.now):
            self._look_at = due = max(due, clock.now + 0.001)
            clock.at(due, lambda: self._look(due))

    def _look(self, due: float) -> None:
        if self._look_at == due:
            self._look_at = None
            self._see(Look())

    def _join(self) -> None:
        register = Register(self.pool.setting.protocol, "0", f"host{self.number}", f"id{self.number}", self.room)
        self._see(Joined(self.pool.enrol(register, self)))

    def hear(self, reply: Reply) -> None:
        """An answer arrives."""
        self._see(Answered(reply))

    # --- hands
    def _lined(self) -> list[str]:
        return [lease.attempt for lease in self._followers.values()]

    def _begin(self, lease: Lease) -> None:
        length = self.pool.start(lease.attempt)
        if lease.function:
            count = lease.count if length < 0.02 else 1  # a runner tells of several short calls at once
            for at in range(1, count):
                self.pool.start(part(lease, at, at + 1).attempt)
            self.pool.clock.after(count * length, lambda: self._called(lease, lease, 0, count, length))
            return
        self._running.add(lease.attempt)
        self._see_later(Started(lease.attempt))
        self.pool.clock.after(length, lambda: self._end(lease.attempt, length))

    def _see_later(self, event: Event) -> None:
        self.pool.clock.after(0.0, lambda: self._see(event))

    def _called(self, piece: Lease, calls: Lease, at: int, count: int, length: float) -> None:
        self.pool.ended(count)
        first = part(calls, at, at + count)
        batch = Batch(first.attempt, count, [0.0] * count, [length] * count, result=[CALL] * count)
        is_over = at + count == calls.count
        self._see(Called(piece.attempt, batch, (), is_over))
        if not is_over:
            after = self.pool.start(part(calls, at + count, at + count + 1).attempt)
            self.pool.clock.after(after, lambda: self._called(piece, calls, at + count, 1, after))

    def _end(self, attempt: str, length: float) -> None:
        self._running.discard(attempt)
        self.pool.ended(1)
        follower = self._followers.pop(attempt, None)
        if follower is not None:
            self._begin(follower)
        self._see(Ended(Report(attempt, "succeeded", exit_code=0, started=1.0, duration=length)))

    def _drop(self, attempt: str) -> None:
        """One that stands in line shall not begin; who is behind it stands behind the one before it."""
        before = next((name for name, lease in self._followers.items() if lease.attempt == attempt), None)
        if before is not None:
            del self._followers[before]
            if attempt in self._followers:
                self._followers[before] = self._followers.pop(attempt)
            self._see_later(Ended(Report(attempt, "failed", "cancelled", "called back")))


class _Pool:
    """The engine, its pilots and two people."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.clock, self.story = setting, Clock(), Story()
        self._rng = Random(setting.seed)
        self.engine = Engine(Snapshot(), Timing(), Random(setting.seed), self.clock.now)
        self._pilots: dict[str, _Pilot] = {}
        self._urgent = 0
        self._came = math.inf

    def do(self, command: Command) -> Outcome:
        """Tell the engine, and carry its answers."""
        outcome = self.engine.handle(command, self.clock.now)
        for answer in outcome.answers:
            pilot, reply = self._pilots[answer.pilot], answer.reply
            if self.setting.protocol < PROTOCOL:
                plain = for_protocol("Reply", reply, self.setting.protocol)
                reply = replace(reply, leases=[replace(one, precedence=0) for one in reply.leases])
                assert not any("precedence" in lease for lease in plain["leases"])
            self.clock.after(LATENCY, lambda p=pilot, r=reply: p.hear(r))  # type: ignore[misc]  # bound now
        return outcome

    def enrol(self, register: Register, pilot: _Pilot) -> Any:
        """A pilot comes."""
        registered = self.do(Enrol(register, "", "here", POOL)).result
        self._pilots[registered.pilot] = pilot
        return registered

    def talk(self, pilot: _Pilot, exchange: Exchange) -> None:
        """An exchange arrives."""
        self.story.returned += sum(report.outcome == "returned" for report in exchange.reports)
        self.do(Talk(replace(exchange, protocol=self.setting.protocol)))

    def submit(self, owner: str, count: int, **more: Any) -> int:
        """Submit so many equal tasks."""
        if self.setting.calls:
            table: dict[str, Any] = {"function": CALL, "calls": [CALL] * count, **more}
        else:
            table = {"command": ["work"], **more, **({"array": f"1-{count}"} if count > 1 else {})}
        body = {"tasks": [table], "cwd": "/"}
        run = int(self.do(Submit(parse_submission(body), owner, f"{owner}{self.clock.now}")).result["run"][1:])
        self.do(Accept(run))
        return run

    def start(self, attempt: str) -> float:
        """A task starts: how long it takes."""
        parsed = parse_attempt(attempt)
        self.story.begun[str(parsed.task)] += 1
        self.story.starts.append((self.clock.now - self._came, attempt))
        if parsed.run == self._urgent:
            self.story.wait = min(self.story.wait, self.clock.now - self._came)
            return self.setting.urgent_length
        length, spread = self.setting.length, self.setting.spread
        return length * self._rng.lognormvariate(-(spread**2) / 2, spread) if spread else length

    def ended(self, count: int) -> None:
        """Tasks ended: a slot turned over."""
        self.story.finished += count
        if self._came < math.inf:
            self.story.turnover = min(self.story.turnover, self.clock.now - self._came)

    def until(self, done: Callable[[], bool], limit: float) -> None:
        """Let time pass."""
        end = self.clock.now + limit
        while not done() and self.clock.now < end and self.clock.step():
            pass

    def _tick(self) -> None:
        self.do(Tick())
        self.clock.after(TICK, self._tick)

    def play(self) -> Story:
        """From the first pilot to the start of the urgent task."""
        setting, slots = self.setting, self.setting.slots * self.setting.pilots
        for owner in (FIRST, SECOND):
            self.do(Regroup(owner, POOL))
        self._tick()
        for number in range(setting.pilots):
            _Pilot(self, number)
        self.until(lambda: len(self._pilots) == setting.pilots, 60.0)
        warm = WARM if setting.pilots < 10 else WARM / 4
        wanted = slots * (warm + 8.0) / setting.length + 10 * slots
        self.submit(FIRST, int(min(MOST, wanted)))
        warm += min(2.0, 2 * setting.length) + self._rng.uniform(0.0, min(1.0, setting.length))
        self.until(lambda: False, warm)
        more: dict[str, Any] = {"cores": setting.cores, "rerun": setting.rerun}
        self._came = self.clock.now
        self._urgent = -1
        if setting.newcomer:
            self._urgent = self.submit(SECOND, setting.urgent, **more)
        else:
            self._urgent = self.submit(FIRST, setting.urgent, priority=10, **more)
        self.until(lambda: self.story.wait < math.inf, 5.0 + 2 * setting.length)
        self.until(lambda: False, setting.after)
        wrong = self.engine.check()
        assert not wrong, wrong[0]
        return self.story


def play(setting: Setting) -> Story:
    """Play a setting through engine and agents."""
    return _Pool(setting).play()
