"""The oracle of a false world: a second, independent account of what was promised and what happened.

It is fed by committed events, by what clients were told and by what payloads did, never by the engine's own
indexes, and complains at once: the message names the rule that was broken.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import Any

from shoal.db.sqlite import Database
from shoal.engine.changes import Change, ChunkRow, RunRow, SpanDrop, SpanRow, Successes, TaskRow
from shoal.engine.state import State
from shoal.model.event import Event
from shoal.model.ids import AttemptId, TaskId, parse_attempt
from shoal.model.states import FINAL
from shoal.wire.messages import Lease

_FINAL = {state.value for state in FINAL}


# What is as the database is, and goes back with it.
_RECORDED = (
    "accepted", "final", "nonces", "cancelled", "failures", "reruns", "parents", "last_seq", "expected", "leases",
)  # fmt: skip


class Broken(AssertionError):
    """A promise was broken; the first words name it."""


class Ledger:
    """Promises and deeds."""

    def __init__(self) -> None:
        self.accepted: dict[int, int] = {}  # run -> tasks, as clients were told
        self.final: dict[TaskId, tuple[str, str]] = {}  # committed: state, winner
        self.nonces: dict[int, str] = {}  # committed: run -> what names it in this history
        self.numbers: dict[tuple[int, str, int, int], str] = {}  # run, nonce, element, number -> attempt that began
        self.cancelled: set[TaskId] = set()
        self.started: Counter[TaskId] = Counter()
        self.living: dict[TaskId, set[tuple[str, str]]] = {}
        self.failures: Counter[TaskId] = Counter()
        self.published: Counter[TaskId] = Counter()
        self.reruns: dict[int, dict[int, str]] = {}  # run -> element -> its re-run class
        self.parents: dict[int, dict[int, set[int]]] = {}  # run -> element -> parents' elements
        self.last_seq = 0
        self.expected: set[TaskId] = set()  # a person said retry
        self.frozen: set[str] = set()  # hosts on which nothing moves
        self.successes: set[str] = set()  # attempts whose payload ended well
        self.forgotten: set[int] = set()  # incarnations before the history was last rolled back
        self.refused: dict[str, int] = {}  # attempt -> how often the server itself refused an exchange with its report
        self.leases: dict[TaskId, list[tuple[AttemptId, str]]] = {}  # committed: live attempts and their pilots

    # --- what became durable
    def committed(self, changes: list[Change]) -> None:
        """A transaction is safe."""
        for change in changes:
            if isinstance(change, RunRow):
                self.nonces[change.run] = change.nonce
            elif isinstance(change, Successes):
                for row in change.rows():
                    self._row(row)
                for event in change.events():
                    self._event(event)
            elif isinstance(change, TaskRow):
                self._row(change)
            elif isinstance(change, ChunkRow):
                for element in range(change.low, change.high):
                    attempt = AttemptId(change.run, element, change.number, change.incarnation, self.nonces[change.run])
                    self.leases[attempt.task] = [(attempt, change.pilot)]
            elif isinstance(change, SpanRow):
                for element in range(change.low, change.high):
                    self._finish(TaskId(change.run, element), change.state, "")
            elif isinstance(change, SpanDrop):
                for element in range(change.low, change.high):
                    self._reset(TaskId(change.run, element))
            elif isinstance(change, Event):
                self._event(change)

    def _row(self, row: TaskRow) -> None:
        task = TaskId(row.run, row.element)
        self.leases[task] = [
            (AttemptId(row.run, row.element, number, incarnation, self.nonces[row.run]), pilot)
            for number, incarnation, pilot, stage, _ in json.loads(row.live or "[]")
            if stage != "lost"
        ]
        if row.state in _FINAL:
            self._finish(task, row.state, row.winner)
            attempt = f"{task}#{row.winner}~{self.nonces[task.run]}"
            if (
                row.state == "succeeded"
                and row.last_line != "ok"
                and not row.result
                and self.refused.get(attempt, 0) < 2
            ):
                raise Broken(f"a refusal cost the last line: {attempt} has {row.last_line!r}")
        elif task in self.final:
            self._reset(task)
        if row.retries > self.failures[task]:
            raise Broken(f"retry burnt without a failure: {task} has {row.retries}, failed {self.failures[task]}")

    def _finish(self, task: TaskId, state: str, winner: str) -> None:
        before = self.final.get(task)
        self.leases.pop(task, None)
        if state == "succeeded" and f"{task}#{winner}~{self.nonces[task.run]}" not in self.successes:
            raise Broken(f"success of nobody: {task} is recorded for {winner}, whose payload did not end well")
        if before is not None and before != (state, winner):
            raise Broken(f"recorded twice: {task} was {before}, now {(state, winner)}")
        self.final[task] = (state, winner)

    def _reset(self, task: TaskId) -> None:
        before = self.final.pop(task, ("", ""))[0]
        if before == "succeeded" or task not in self.expected:
            raise Broken(f"terminal state overwritten: {task} was {before}")
        self.expected.discard(task)
        self.cancelled.discard(task)
        self.started.pop(task, None)
        self.published.pop(task, None)
        self.failures.pop(task, None)

    def _event(self, event: Event) -> None:
        if event.seq <= self.last_seq:
            raise Broken(f"journal out of order: {event.seq} after {self.last_seq}")
        if event.seq != self.last_seq + 1:
            raise Broken(f"journal has a gap: {event.seq} after {self.last_seq}")
        self.last_seq = event.seq

    # --- what clients were told
    def told_accepted(self, run: int, tasks: int) -> None:
        """A client got its 2xx."""
        self.accepted[run] = tasks

    def told_cancelled(self, targets: list[TaskId]) -> None:
        """A client was told that these are cancelled, or final already."""
        for task in targets:
            if task not in self.final:
                raise Broken(f"cancel acknowledged but not durable: {task}")
            self.cancelled.add(task)

    # --- what payloads did
    def began(self, lease: Lease, host: str) -> None:
        """A payload started."""
        attempt = parse_attempt(lease.attempt)
        task = attempt.task
        living = self.living.setdefault(task, set())
        if (host, lease.attempt) in living:
            raise Broken(f"one attempt started twice: {attempt} on {host}")
        living.add((host, lease.attempt))
        if attempt.incarnation in self.forgotten:
            return  # the pilot has not yet heard that this history is over
        self.started[task] += 1
        number = (attempt.run, attempt.nonce, attempt.element, attempt.number)
        if self.numbers.setdefault(number, lease.attempt) != lease.attempt:
            raise Broken(f"one number started twice: {self.numbers[number]} and {attempt}")
        known = {host for host, name in living if parse_attempt(name).incarnation not in self.forgotten}
        if lease.rerun == "exclusive" and len(known - self.frozen) > 1:
            raise Broken(f"exclusive overlap: {task} lives as {sorted(living)}")
        if lease.rerun == "never" and self.started[task] > 1:
            raise Broken(f"never started twice: {task}")
        for parent in self.parents.get(task.run, {}).get(task.element, ()):
            if self.final.get(TaskId(task.run, parent), ("", ""))[0] != "succeeded":
                raise Broken(f"child before parent: {task} started, r{task.run}.{parent} has not succeeded")

    def stopped(self, lease: Lease, host: str, well: bool) -> None:
        """A payload ended."""
        if well:
            self.successes.add(lease.attempt)
        self.living[parse_attempt(lease.attempt).task].discard((host, lease.attempt))

    def failed(self, attempt: str) -> None:
        """A payload ended badly by itself."""
        self.failures[parse_attempt(attempt).task] += 1

    def settled(self, attempt: str, accepted: bool) -> None:
        """A pilot was told what became of its report; an accepted success may be published [contract 3]."""
        if not accepted or attempt not in self.successes:
            return  # only a success has something to publish
        said: AttemptId = parse_attempt(attempt)
        if said.incarnation in self.forgotten:
            return  # the answer is of a history that is over by now
        state, winner = self.final.get(said.task, ("", ""))
        if state == "succeeded" and winner != said.winner:
            raise Broken(f"two winners: {said} was accepted, the record says {winner}")
        if state == "succeeded":
            self.published[said.task] += 1
            if self.published[said.task] > 1:
                raise Broken(f"published twice: {said.task}")
        else:
            raise Broken(f"acknowledged before durable: {said}")

    # --- another history
    def copy(self) -> dict[str, Any]:
        """What is promised and recorded now, as a copy of the database has it."""
        return {name: copy.deepcopy(getattr(self, name)) for name in _RECORDED}

    def rewind(self, recorded: dict[str, Any], lives: list[int]) -> None:
        """The database was rolled back: what was promised since then is lost with it, and nobody can know what the lives
        of the server before handed out. What payloads did stays: nothing of it may be recorded for a run that it was
        not done for."""
        fresh = Ledger()
        for name in _RECORDED:
            setattr(self, name, copy.deepcopy(recorded[name]) if recorded else getattr(fresh, name))
        self.numbers.clear()
        self.started.clear()
        self.published.clear()
        self.forgotten.update(lives)

    # --- after a crash, and at the end
    def check_restart(self, database: Database) -> None:
        """What was acknowledged is still there."""
        snapshot = database.snapshot()
        open_runs = {row.run: row.total for row in snapshot.runs}
        for run, total in self.accepted.items():
            if run in open_runs:
                if open_runs[run] != total:
                    raise Broken(f"accepted run changed: r{run} had {total}, has {open_runs[run]}")
            elif database.load_run(run) is None:
                raise Broken(f"accepted run lost: r{run}")

    def check_leases(self, state: State) -> None:
        """What was durably with a pilot that lives is with it after a restart [I7]."""
        for held in self.leases.values():
            for attempt, name in held:
                pilot = state.pilots.get(name)
                if pilot is not None and not pilot.holds(attempt):
                    raise Broken(f"lease forgotten: {attempt} is with {name}, which lives")

    def check_end(self, counts: dict[int, dict[str, int]]) -> None:
        """Everything accepted is final, once, and adds up."""
        for run, total in self.accepted.items():
            mine: Counter[str] = Counter(state for task, (state, _) in self.final.items() if task.run == run)
            if sum(mine.values()) != total:
                raise Broken(f"not all final: r{run} has {sum(mine.values())} of {total}")
            theirs = {state: n for state, n in counts[run].items() if n and state in _FINAL}
            if dict(mine) != theirs:
                raise Broken(f"counts differ: r{run} is {dict(mine)}, recorded {theirs}")
        for task, (state, _) in self.final.items():
            if state == "lost" and self.reruns[task.run][task.element] != "never":
                raise Broken(f"lost without rerun=never: {task}")
        still = {str(task): sorted(names) for task, names in self.living.items() if names}
        if still:
            raise Broken(f"payloads left behind: {still}")
