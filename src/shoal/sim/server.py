"""The server of a false world: the real engine and the real database, with a group commit that takes time.

A frozen server does nothing; what comes meanwhile waits for it, as in the buffers of its sockets.
A crash drops what is not committed. `crash` at a commit falls after the data is safe and before anybody hears of
it; in the gap it falls while changes wait and answers that need not wait are already out [protocol 10].

A poisonous command ends half-way by an exception: the server then refuses everything, commits what it has handed out,
and goes on with a state that it reads back from the database [ADR 0016].
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import Answer, Change, ChunkRow, Outcome, TaskRow
from shoal.engine.commands import Command, Resume, Talk, Tick
from shoal.engine.engine import Engine
from shoal.engine.restore import restore
from shoal.engine.snapshot import Snapshot
from shoal.model.errors import InternalError, ShoalError, TooBusy
from shoal.model.timing import Timing
from shoal.sim.clock import Clock
from shoal.sim.failing_commands import FailingCommands, poisoned
from shoal.wire.messages import Reply

Deliver = Callable[[Reply], None]


class SimServer:
    """One server process, alive or not."""

    def __init__(self, clock: Clock, rng: Random, timing: Timing, on_commit: Callable[[list[Change]], None]) -> None:
        self.clock, self.rng, self.timing, self.on_commit = clock, rng, timing, on_commit
        self.database = Database.open(":memory:")
        self._reader = Reader.on(self.database)
        self.engine: Engine | None = None
        self.life = 0
        self._pending: list[Change] = []
        self._releases: list[Callable[[], None]] = []  # answers that wait for the next commit
        self._waiting: dict[tuple[str, int], list[Deliver]] = {}
        self._committing = False
        self._tick_at: float | None = None
        self.frozen: float | None = None  # since when it does not run
        self._backlog: list[Callable[[], None]] = []  # what it will do when it runs again
        self.crash_at_commit = False
        self.lives: list[int] = []  # incarnations so far, of all histories
        self.poison_at = 0  # not 0: a command ends by an exception after so many lines of the engine's rules
        self.poison_for: Callable[[Command], bool] = lambda command: True  # which commands it may be
        self.rebuilding = False  # the engine's state is half changed: nothing may be asked of it
        self.on_poison: Callable[[str], None] = lambda where: None
        self.on_rebuilt: Callable[[], None] = lambda: None
        self.touched = False  # has the engine done anything since someone last looked?

    def start(self) -> Engine:
        """Come up: raise the incarnation durably, restore, go on."""
        self.life += 1
        self.lives.append(self.database.raise_incarnation(self.clock.now, self.rng.getrandbits(32)))
        self.engine = Engine(self.database.snapshot(), self.timing, self.rng, self.clock.now)
        self._perform(self.engine.started(self.clock.now))
        return self.engine

    def crash(self) -> None:
        """Die at once."""
        self.life += 1
        self.engine = None
        self._pending, self._releases, self._waiting = [], [], {}
        self._committing = self.rebuilding = False
        self._tick_at = None
        self.frozen, self._backlog = None, []

    def freeze(self) -> None:
        """Stop running: neither the clock nor a message moves it."""
        self.frozen = self.clock.now

    def thaw(self) -> float:
        """Run again, and do what piled up, in order; returns how long it had stood still."""
        assert self.frozen is not None
        gap, self.frozen = self.clock.now - self.frozen, None
        backlog, self._backlog = self._backlog, []
        life = self.life
        if self.engine is not None:
            self.tell(Resume(gap))
        for do in backlog:
            if self.life == life:
                do()
        return gap

    def when_awake(self, do: Callable[[], None]) -> None:
        """Do something on the server: now, or when it runs again."""
        if self.frozen is None:
            do()
        else:
            self._backlog.append(do)

    def copy(self) -> bytes:
        """What is committed, as a backup takes it."""
        return self.database.connection.serialize()

    def roll_back(self, image: bytes | None) -> None:
        """Die, and find an older copy of the database in its place, or none."""
        self.crash()
        self.database.close()
        self.database = Database.open(":memory:")
        if image is not None:
            self.database.connection.deserialize(image)
        self._reader = Reader.on(self.database)

    @property
    def uncommitted(self) -> int:
        """Changes that a crash would lose now."""
        return len(self._pending)

    @property
    def uncommitted_leases(self) -> int:
        """Leases among them that are already out."""
        singles = sum(1 for change in self._pending if isinstance(change, TaskRow) and change.state == "leased")
        return singles + sum(1 for change in self._pending if isinstance(change, ChunkRow))

    def ask(self, command: Command, answer: Callable[[Any], None], refuse: Callable[[ShoalError], None]) -> None:
        """A client's or a registering pilot's request; answered after the commit."""
        try:
            outcome = self._handle(command)
        except ShoalError as error:
            refuse(error)
            return
        self._perform(outcome)
        self._release(lambda: answer(outcome.result), durable=True)

    def tell(self, command: Command) -> None:
        """Something nobody waits for; while the engine is rebuilt it is not news, for the database has it."""
        if not self.rebuilding:
            with contextlib.suppress(InternalError):
                self._perform(self._handle(command))

    def known_key(self, owner: str, key: str) -> tuple[int, int] | None:
        """The committed run of an idempotency key, and its size: what the server's edge looks up first."""
        found = self._reader.find_key(owner, key)
        row = self._reader.run_row(found.run) if found is not None else None
        return (row.run, row.total) if row is not None else None

    def exchange(self, command: Talk, deliver: Deliver, refuse: Callable[[ShoalError], None]) -> None:
        """A pilot's exchange; answered when the engine says so."""
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

    def _perform(self, outcome: Outcome) -> None:
        self.touched = True
        self._pending += outcome.changes
        for answer in outcome.answers:
            self._release(lambda a=answer: self._hand_out(a), durable=answer.durable)  # type: ignore[misc]  # bound now
        if self._pending and not self._committing:
            self._committing = True
            life = self.life
            self.clock.after(self.rng.uniform(0.001, 0.05), lambda: self.when_awake(lambda: self._commit(life)))
        self._set_tick()

    def _release(self, do: Callable[[], None], durable: bool) -> None:
        if durable and self._pending:
            self._releases.append(do)
        else:
            do()

    def _hand_out(self, answer: Answer) -> None:
        for deliver in self._waiting.pop((answer.pilot, answer.seq), []):
            deliver(answer.reply)

    def _commit(self, life: int) -> None:
        if life != self.life:
            return
        changes, self._pending = self._pending, []
        releases, self._releases = self._releases, []
        self._committing = False
        self.database.apply(changes)
        self.on_commit(changes)
        if self.crash_at_commit:
            self.crash_at_commit = False
            self.crash()
            return
        for do in releases:
            do()

    def _set_tick(self) -> None:
        assert self.engine is not None
        due = self.engine.deadline()
        if due is None or (self._tick_at is not None and self.clock.now < self._tick_at <= due):
            return
        self._tick_at = due
        life = self.life
        self.clock.at(due, lambda: self.when_awake(lambda: self._tick(life, due)))

    def _tick(self, life: int, due: float) -> None:
        if life != self.life or self.engine is None or self._tick_at != due:
            return
        self._tick_at = None
        self.tell(Tick())

    # --- poisonous commands
    def _handle(self, command: Command) -> Outcome:
        assert self.engine is not None
        if self.rebuilding:
            raise TooBusy("the server rebuilds its memory", code="rebuilding")
        engine, line = self.engine, self.poison_at
        if not line or not self.poison_for(command):
            return engine.handle(command, self.clock.now)
        try:
            return poisoned(lambda: engine.handle(command, self.clock.now), line)
        except FailingCommands as error:
            self.poison_at = 0
            self.on_poison(f"{type(command).__name__} in {error}")
            self.rebuilding, self.touched = True, False
            life = self.life
            self.clock.after(self.rng.choice([0.001, 0.01, 0.5]), lambda: self._rebuild(life))
            raise InternalError from error

    def _read_back(self, life: int) -> Snapshot:
        """Everything handed out is committed first, so what is read lacks nothing but the poisonous command."""
        self._commit(life)
        return self.database.snapshot()

    def _rebuild(self, life: int) -> None:
        if life != self.life:
            return
        snapshot = self._read_back(life)
        if life != self.life or self.engine is None:
            return  # it crashed at that commit
        now = self.clock.now
        state = restore(snapshot, self.timing, self.rng, now)
        outcome = self.engine.rebuild(state, now, "poison")
        self.rebuilding = False
        parked, self._waiting = self._waiting, {}
        self._tick_at = None
        self.on_rebuilt()
        self._perform(outcome)
        for (_, seq), waiting in parked.items():
            for deliver in waiting:
                deliver(Reply(seq, state.incarnation, hold=self.timing.beat))
