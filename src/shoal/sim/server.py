"""The server of a simulated world: the real engine, with a group commit that takes time.

It keeps nothing on disk, and the engine gets its periodic step as from the real server. `sim/proof/server.py` adds the database,
and everything that can go wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from shoal.engine.changes import Answer, Change, Outcome
from shoal.engine.commands import Accept, Command, Rest, Talk, Tick
from shoal.engine.engine import Engine
from shoal.engine.snapshot import Snapshot
from shoal.model.errors import ShoalError
from shoal.model.timing import Timing
from shoal.sim.clock import Alarm, Clock
from shoal.sim.distributions import Distribution, Uniform
from shoal.wire.messages import Reply

Deliver = Callable[[Reply], None]
COMMIT = Uniform(0.001, 0.05)  # seconds that a group commit takes
TICK = 1.0  # seconds between two periodic steps; while nothing happens they come when the engine has something to do,
IDLE_TICK = 60.0  # and at least so often


class SimServer:
    """One server process; it runs if it has an engine."""

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        timing: Timing,
        on_commit: Callable[[list[Change]], None],
        commit_time: Distribution = COMMIT,
    ) -> None:
        self.clock, self.rng, self.timing = clock, rng, timing
        self.on_commit, self._commit_time = on_commit, commit_time
        self.engine: Engine | None = None
        self._pending: list[Change] = []
        self._after_commit: list[Callable[[], None]] = []  # answers that wait for the next commit
        self._waiting: dict[tuple[str, int], list[Deliver]] = {}
        self._committing = False
        self._is_idle = False  # nothing was asked since the last step
        self._ticks = Alarm(clock, self._tick)

    def start(self) -> Engine:
        """Start with nothing, and step periodically."""
        self.engine = Engine(Snapshot(), self.timing, self.rng, self.clock.now)
        self._perform(self.engine.started(self.clock.now))
        return self.engine

    def _tick(self) -> None:
        assert self.engine is not None
        was_idle, self._is_idle = self._is_idle, True
        self._perform(self.engine.handle(Tick(), self.clock.now))
        now, due = self.clock.now, self.engine.deadline() if was_idle else None
        self._ticks.set(now + TICK if not was_idle else min(max(due or math.inf, now + TICK), now + IDLE_TICK))

    @property
    def uncommitted(self) -> int:
        """Changes that are not durable yet."""
        return len(self._pending)

    def request(self, command: Command, answer: Callable[[Any], None], refuse: Callable[[ShoalError], None]) -> None:
        """Handle a request of a client or of a pilot that registers; it is answered after the commit."""
        try:
            outcome = self._handle(command)
        except ShoalError as error:
            refuse(error)
            return
        self._perform(outcome)
        self._release(lambda: answer(outcome.result), durable=True)

    def apply(self, command: Command) -> None:
        """Handle a command that nobody waits for."""
        self._perform(self._handle(command))

    def exchange(self, command: Talk, deliver: Deliver, refuse: Callable[[ShoalError], None]) -> None:
        """Handle an exchange of a pilot; the engine decides when it is answered."""
        key = (command.exchange.pilot, command.exchange.seq)
        self._waiting.setdefault(key, []).append(deliver)
        try:
            outcome = self._handle(command)
        except ShoalError as error:
            self._waiting[key].remove(deliver)
            refuse(error)
            return
        self._perform(outcome)
        if isinstance(outcome.result, ShoalError):
            self._waiting.pop(key, None)
            refuse(outcome.result)

    def _handle(self, command: Command) -> Outcome:
        assert self.engine is not None
        self._is_idle = False
        self._ticks.set(self.clock.now + TICK)
        return self.engine.handle(command, self.clock.now)

    def _perform(self, outcome: Outcome) -> None:
        self._pending += outcome.changes
        for answer in outcome.answers:
            self._release(lambda a=answer: self._deliver(a), durable=answer.durable)  # type: ignore[misc]  # bound now
        for run, first, count in outcome.offers:
            self._release(partial(self._accept, run, first, count), durable=True)
        if self._pending and not self._committing:
            self._committing = True
            self._schedule_commit(self._commit_time.draw(self.rng))

    def _accept(self, run: int, first: int, count: int) -> None:
        if self.engine is not None:
            self.apply(Accept(run, first, count))

    def _schedule_commit(self, delay: float) -> None:
        self.clock.after(delay, self._commit)

    def _release(self, do: Callable[[], None], durable: bool) -> None:
        if durable and self._pending:
            self._after_commit.append(do)
        else:
            do()

    def _deliver(self, answer: Answer) -> None:
        if answer.rests and self._rests(answer):
            return
        for deliver in self._waiting.pop((answer.pilot, answer.seq), []):
            deliver(answer.reply)

    def _rests(self, answer: Answer) -> bool:
        """True if an exchange whose reports are durable now waits for work, or got some at once."""
        if self.engine is None:
            return False
        try:
            outcome = self._handle(Rest(answer.pilot, answer.seq))
        except ShoalError:
            return False  # the engine is being rebuilt
        self._perform(outcome)
        return bool(outcome.result)

    def _commit(self) -> None:
        changes, self._pending = self._pending, []
        answers, self._after_commit = self._after_commit, []
        self._committing = False
        self.on_commit(changes)
        for do in answers:
            do()
