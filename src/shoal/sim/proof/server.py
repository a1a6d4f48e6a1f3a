"""The server of a world with faults: the real database, too, and everything that can go wrong.

A frozen server does nothing; messages that arrive meanwhile wait for it, as in the buffers of its sockets.
A crash drops what is not committed. A crash at a commit comes after the data is safe and before anybody is answered;
a crash in the gap comes while changes wait for a commit and replies that need not wait are already sent [protocol 10].

A command that meets a defect ends half-way by an exception: the server then refuses everything, commits what it has
sent out, and continues with a state that it reads back from the database [ADR 0016].
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random

from shoal.db.reader import Reader
from shoal.db.sqlite import Database
from shoal.engine.changes import Change, ChunkRow, Outcome, RunRow, TaskRow
from shoal.engine.commands import Command, Resume, Tick
from shoal.engine.engine import Engine
from shoal.engine.restore import restore
from shoal.engine.snapshot import Snapshot
from shoal.model.errors import InternalError, TooBusy
from shoal.model.timing import Timing
from shoal.sim.clock import Alarm, Clock
from shoal.sim.proof.failing_commands import InjectedDefect, call_with_defect
from shoal.sim.server import SimServer
from shoal.wire.messages import Reply


class CrashingServer(SimServer):
    """One server process; it runs if it has an engine."""

    def __init__(self, clock: Clock, rng: Random, timing: Timing, on_commit: Callable[[list[Change]], None]) -> None:
        super().__init__(clock, rng, timing, on_commit)
        self.database = Database.open(":memory:")
        self._reader = Reader.on(self.database)
        self.generation = 0  # rises with each start and crash
        self._alarm = Alarm(clock, lambda: self.apply(Tick()), self.when_running)
        self.frozen: float | None = None  # since when it is frozen
        self._backlog: list[Callable[[], None]] = []  # what it will do when it runs again
        self.crash_at_commit = False
        self.incarnations: list[int] = []  # so far, of all histories of the database
        self.fail_at_line = 0  # not 0: the next command that runs so many lines of the engine's rules fails there
        self.may_fail: Callable[[Command], bool] = lambda command: True
        self.rebuilding = False  # the engine's state is half changed: every command is refused
        self.on_failure: Callable[[str], None] = lambda where: None
        self.on_rebuilt: Callable[[], None] = lambda: None
        self.changed = False  # True if the engine handled a command since its last check

    def start(self) -> Engine:
        """Start: raise the incarnation durably and restore the engine."""
        self.generation += 1
        self.incarnations.append(self.database.raise_incarnation(self.clock.now, self.rng.getrandbits(32)))
        self.engine = Engine(self.database.snapshot(), self.timing, self.rng, self.clock.now)
        self._perform(self.engine.started(self.clock.now))
        return self.engine

    def crash(self) -> None:
        """Lose what is not committed, and stop."""
        self.generation += 1
        self.engine = None
        self._pending, self._after_commit, self._waiting = [], [], {}
        self._committing = self.rebuilding = False
        self._alarm.clear()
        self.frozen, self._backlog = None, []

    def freeze(self) -> None:
        """Stop running: neither timers nor messages are handled."""
        self.frozen = self.clock.now

    def thaw(self) -> None:
        """Run again, and handle what piled up, in order."""
        assert self.frozen is not None
        gap, self.frozen = self.clock.now - self.frozen, None
        backlog, self._backlog = self._backlog, []
        generation = self.generation
        if self.engine is not None:
            self.apply(Resume(gap))
        for do in backlog:
            if self.generation == generation:
                do()

    def when_running(self, do: Callable[[], None]) -> None:
        """Do something on the server: now, or when it is thawed."""
        if self.frozen is None:
            do()
        else:
            self._backlog.append(do)

    def backup(self) -> bytes:
        """A copy of the committed data."""
        return self.database.connection.serialize()

    def roll_back(self, image: bytes | None) -> None:
        """Crash, and replace the database by an older copy, or by an empty one."""
        self.crash()
        self.database.close()
        self.database = Database.open(":memory:")
        if image is not None:
            self.database.connection.deserialize(image)
        self._reader = Reader.on(self.database)

    @property
    def uncommitted_leases(self) -> int:
        """Leases among them that pilots already have."""
        singles = sum(1 for change in self._pending if isinstance(change, TaskRow) and change.state == "leased")
        return singles + sum(1 for change in self._pending if isinstance(change, ChunkRow))

    @property
    def undoes_begun(self) -> bool:
        """True if a crash would undo a submission of which pilots already have leases [ADR 0034]."""
        runs = {change.run for change in self._pending if isinstance(change, RunRow)}
        begun = {change.run for change in self._pending if isinstance(change, (TaskRow, ChunkRow))}
        return any(self._reader.run_row(run) is None for run in runs & begun)

    def apply(self, command: Command) -> None:
        """Handle a command that nobody waits for; dropped while the engine is rebuilt, for the database has its cause."""
        if not self.rebuilding:
            with contextlib.suppress(InternalError):
                self._perform(self._handle(command))

    def find_key(self, owner: str, key: str) -> tuple[int, int] | None:
        """The committed run of an idempotency key, and its size: the real server looks there first."""
        found = self._reader.find_key(owner, key)
        row = self._reader.run_row(found.run) if found is not None else None
        return (row.run, row.total) if row is not None else None

    def _perform(self, outcome: Outcome) -> None:
        self.changed = True
        super()._perform(outcome)
        assert self.engine is not None
        self._alarm.set(self.engine.deadline())

    def _schedule_commit(self, delay: float) -> None:
        generation = self.generation
        self.clock.after(delay, lambda: self.when_running(lambda: self._commit_in(generation)))

    def _commit_in(self, generation: int) -> None:
        if generation == self.generation:
            self._commit()

    def _commit(self) -> None:
        changes, self._pending = self._pending, []
        answers, self._after_commit = self._after_commit, []
        self._committing = False
        self.database.apply(changes)
        self.on_commit(changes)
        if self.crash_at_commit:
            self.crash_at_commit = False
            self.crash()
            return
        for do in answers:
            do()

    # --- commands that meet a defect
    def _handle(self, command: Command) -> Outcome:
        assert self.engine is not None
        if self.rebuilding:
            raise TooBusy("the server rebuilds its memory", code="rebuilding")
        engine, line = self.engine, self.fail_at_line
        if not line or not self.may_fail(command):
            return engine.handle(command, self.clock.now)
        try:
            return call_with_defect(lambda: engine.handle(command, self.clock.now), line)
        except InjectedDefect as error:
            self.fail_at_line = 0
            self.on_failure(f"{type(command).__name__} in {error}")
            self.rebuilding, self.changed = True, False
            generation = self.generation
            self.clock.after(self.rng.choice([0.001, 0.01, 0.5]), lambda: self._rebuild(generation))
            raise InternalError from error

    def _read_back(self, generation: int) -> Snapshot:
        """Everything sent out is committed first, so that what is read lacks nothing but the failed command."""
        self._commit_in(generation)
        return self.database.snapshot()

    def _rebuild(self, generation: int) -> None:
        if generation != self.generation:
            return
        snapshot = self._read_back(generation)
        if generation != self.generation or self.engine is None:
            return  # it crashed at that commit
        now = self.clock.now
        state = restore(snapshot, self.timing, self.rng, now)
        outcome = self.engine.rebuild(state, now, "defect")
        self.rebuilding = False
        parked, self._waiting = self._waiting, {}
        self._alarm.clear()
        self.on_rebuilt()
        self._perform(outcome)
        for (_, seq), waiting in parked.items():
            for deliver in waiting:
                deliver(Reply(seq, state.incarnation, hold=self.timing.beat))
