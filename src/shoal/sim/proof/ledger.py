"""The oracle of a simulated world: a second, independent account of what was promised and what happened.

Its input is what was committed, what clients were answered and what payloads did, never the engine's own indexes. It
raises at once, with a message that names the broken rule.
"""

from __future__ import annotations

import copy
import hashlib
import json
from bisect import bisect_right
from collections import Counter
from typing import Any

from shoal.db.sqlite import Database
from shoal.engine.changes import (
    ArrayRow,
    ArrayTable,
    Change,
    ChunkRow,
    RunRow,
    SpanDrop,
    SpanRow,
    Successes,
    TaskRow,
)
from shoal.engine.state import State
from shoal.model.event import Event
from shoal.model.ids import AttemptId, TaskId, parse_attempt
from shoal.model.states import FINAL
from shoal.model.timing import Timing
from shoal.sim.proof.units_ledger import UnitsLedger
from shoal.wire.messages import Checkpoint, Lease

_SLACK = 1.0  # seconds between the time on the server and the time that is noted here
_FINAL = {state.value for state in FINAL}


# The fields that follow the database, and are rolled back with it.
_RECORDED = (
    "accepted", "final", "nonces", "cancelled", "failures", "reruns", "parents", "last_seq", "expected", "leases",
    "kept", "saved_at", "totals", "units", "waiting_for",
)  # fmt: skip


class BrokenPromise(AssertionError):
    """A promise was broken; the first words of the message name it."""


class Ledger:
    """What was promised, what was recorded, and what payloads did."""

    def __init__(self, timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        self.exchanges: dict[str, list[float]] = {}  # pilot -> when the server received its exchanges
        self.resumptions = [0.0]  # when the server was restarted or thawed
        self.accepted: dict[int, int] = {}  # run -> tasks, as clients were answered
        self.final: dict[TaskId, tuple[str, str]] = {}  # committed: state, winner
        self.nonces: dict[int, str] = {}  # committed, by run
        self.numbers: dict[tuple[int, str, int, int], str] = {}  # run, nonce, element, number -> attempt that began
        self.cancelled: set[TaskId] = set()
        self.started: Counter[tuple[TaskId, str]] = Counter()  # by task and nonce of its run
        self.living: dict[TaskId, set[tuple[str, str]]] = {}
        self.failures: Counter[TaskId] = Counter()
        self.published: Counter[TaskId] = Counter()
        self.reruns: dict[int, dict[int, str]] = {}  # run -> element -> its re-run class
        self.parents: dict[int, dict[int, set[int]]] = {}  # run -> element -> parents' elements
        self.last_seq = 0
        self.certain_end: dict[
            str, bool
        ] = {}  # pilot -> True if its host ends everything when pilot and guard die together
        self.expected: set[TaskId] = set()  # tasks that a user retried
        self.frozen: set[str] = set()  # hosts on which nothing moves
        self.begun: set[tuple[str, str]] = set()  # host and attempt
        self.successes: set[str] = set()  # attempts whose payload succeeded
        self.succeeded_at: set[tuple[str, int, int, str]] = set()  # host, and run, element and nonce of each of them
        self.forgotten: set[int] = set()  # incarnations before the history was last rolled back
        self.refused: dict[str, int] = {}  # attempt -> how often the server itself refused an exchange with its report
        self.steps: dict[
            str, tuple[AttemptId, int]
        ] = {}  # checkpoints by digest: the attempt that wrote it, and its step
        self.kept: dict[TaskId, str] = {}  # committed: the checkpoint that a task resumes from
        self.saved_at: dict[TaskId, int] = {}  # the last step that was acknowledged to a pilot
        self.leases: dict[TaskId, list[tuple[AttemptId, str]]] = {}  # committed: live attempts and their pilots
        self.totals: dict[int, int] = {}  # committed: tasks by run
        self.units = UnitsLedger()
        self.ran: dict[str, tuple[int, int]] = {}  # attempt -> first unit and count that its payload was given
        self.waiting_for: dict[int, dict[str, list[int]]] = {}  # run -> name of a table -> elements that wait for it

    # --- what was committed
    def committed(self, changes: list[Change]) -> None:
        """A transaction was committed."""
        self._check_certain([change for change in changes if isinstance(change, Event)])
        for change in changes:
            if isinstance(change, RunRow):
                self.nonces[change.run] = change.nonce
                self.totals[change.run] = change.total
                if change.run in self.accepted and self.units.is_divisible(change.run):
                    self.accepted[change.run] = change.total  # each piece is one more task
            elif isinstance(change, (ArrayRow, ArrayTable)):
                self._units(change)
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
        self._check_order(changes)

    def _check_order(self, changes: list[Change]) -> None:
        """No success is durable before those of the tasks that it waited for."""
        for change in changes:
            rows = change.rows() if isinstance(change, Successes) else (change,) if isinstance(change, TaskRow) else ()
            for row in rows:
                for parent in self.parents.get(row.run, {}).get(row.element, ()) if row.state == "succeeded" else ():
                    if self.final.get(TaskId(row.run, parent), ("", ""))[0] != "succeeded":
                        raise BrokenPromise(
                            f"child before parent: r{row.run}.{row.element} is recorded, .{parent} is not"
                        )

    def _units(self, change: ArrayRow | ArrayTable) -> None:
        """A piece of divisible work is a task: who waits for that work waits for it, too."""
        name = self.units.committed(change)
        if name is None:
            return
        self.reruns.setdefault(change.run, {})[change.first] = json.loads(change.task).get("rerun", "safe")
        for element in self.waiting_for.get(change.run, {}).get(name, ()):
            self.parents[change.run][element].add(change.first)

    def _check_certain(self, events: list[Event]) -> None:
        """A task that must not run twice starts where its end is certain, or an event warns that it is not."""
        warned = {(event.run, event.task, event.attempt) for event in events if event.kind == "end_uncertain"}
        for event in events:
            if event.kind != "tasks_started" or self.certain_end.get(event.pilot or "", True):
                continue
            for attempt in map(parse_attempt, event.data["attempts"]):
                is_safe = self.reruns.get(attempt.run, {}).get(attempt.element, "safe") == "safe"
                if not is_safe and (attempt.run, attempt.element, attempt.number) not in warned:
                    raise BrokenPromise(
                        f"started without a warning that its end is not certain: {attempt} on {event.pilot}"
                    )

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
            has_no_output = row.state == "succeeded" and row.last_line != "ok" and not row.result
            if has_no_output and self.refused.get(attempt, 0) < 2:
                raise BrokenPromise(f"a refusal cost the last line: {attempt} has {row.last_line!r}")
        elif task in self.final:
            self._reset(task)
        if row.special:
            for digest in json.loads(row.special)["files"].values():
                self._keep(task, digest)
        if row.retries > self.failures[task]:
            raise BrokenPromise(
                f"retry burnt without a failure: {task} has {row.retries}, failed {self.failures[task]}"
            )

    def _keep(self, task: TaskId, digest: str) -> None:
        """A task will resume from this checkpoint, which must be its own and of the newest attempt."""
        writer, _ = self.steps[digest]
        newest = max((live.number for live, _ in self.leases[task]), default=0)
        if writer.task != task:
            raise BrokenPromise(f"checkpoint of another task: {task} would resume from one of {writer}")
        if self.kept.get(task) != digest and writer.number < newest:
            raise BrokenPromise(f"checkpoint of an older copy: {writer} wrote it, attempt {newest} is under way")
        self.kept[task] = digest

    def _finish(self, task: TaskId, state: str, winner: str) -> None:
        before = self.final.get(task)
        self.leases.pop(task, None)
        if state == "succeeded" and f"{task}#{winner}~{self.nonces[task.run]}" not in self.successes:
            raise BrokenPromise(f"success of nobody: {task} is recorded for {winner}, whose payload did not succeed")
        if before is not None and before != (state, winner):
            raise BrokenPromise(f"recorded twice: {task} was {before}, now {(state, winner)}")
        self.final[task] = (state, winner)

    def _reset(self, task: TaskId) -> None:
        before = self.final.pop(task, ("", ""))[0]
        if before == "succeeded" or task not in self.expected:
            raise BrokenPromise(f"terminal state overwritten: {task} was {before}")
        self.expected.discard(task)
        self.cancelled.discard(task)
        self.started.pop((task, self.nonces[task.run]), None)
        self.published.pop(task, None)
        self.failures.pop(task, None)
        self.kept.pop(task, None)
        self.saved_at.pop(task, None)

    def _event(self, event: Event) -> None:
        if event.seq <= self.last_seq:
            raise BrokenPromise(f"journal out of order: {event.seq} after {self.last_seq}")
        if event.seq != self.last_seq + 1:
            raise BrokenPromise(f"journal has a gap: {event.seq} after {self.last_seq}")
        self.last_seq = event.seq
        self._check_pauses(event)

    def _check_pauses(self, event: Event) -> None:
        """Time in which the server did not run counts against no pilot and no task [protocol 5.7]."""
        resumed = _last(self.resumptions, event.time)  # an event may be committed long after it happened
        ended = event.data.get("reason") if event.kind == "pilot_gone" else None
        if ended is not None and str(ended).startswith("silent"):
            silent = event.time - max(_last(self.exchanges.get(event.pilot or "", []), event.time), resumed)
            if silent < self.timing.lease - _SLACK:
                raise BrokenPromise(f"lost by the server's own time: {event.pilot} was silent for {silent:.1f} s of it")
        is_given_back = str(event.data.get("message", "")).startswith(
            "its pilot ended while it ran"
        )  # as the pilot reported
        if event.kind == "task_finished" and event.data.get("state") == "lost" and not is_given_back:
            after = event.time - resumed
            if after < self.timing.lease - _SLACK:
                raise BrokenPromise(
                    f"lost by the server's own time: r{event.run}.{event.task}, {after:.1f} s after its return"
                )

    def exchange_received(self, pilot: str, at: float) -> None:
        """The server received an exchange of a pilot."""
        self.exchanges.setdefault(pilot, []).append(at)

    def server_resumed(self, at: float) -> None:
        """The server was restarted or thawed."""
        self.resumptions.append(at)

    # --- what clients were answered
    def run_acknowledged(self, run: int, tasks: int) -> None:
        """A client was answered that its run is accepted."""
        self.accepted[run] = self.totals[run] if self.units.is_divisible(run) else tasks

    def cancel_acknowledged(self, targets: list[TaskId]) -> None:
        """A client was answered that these tasks are cancelled, or final already."""
        for task in targets:
            if task not in self.final:
                raise BrokenPromise(f"cancel acknowledged but not durable: {task}")
            self.cancelled.add(task)

    # --- what payloads did
    def payload_started(self, lease: Lease, host: str) -> None:
        """A payload started."""
        attempt = parse_attempt(lease.attempt)
        task = attempt.task
        living = self.living.setdefault(task, set())
        if (host, lease.attempt) in living:
            raise BrokenPromise(f"one attempt started twice: {attempt} on {host}")
        living.add((host, lease.attempt))
        if (host, lease.attempt) in self.begun:
            raise BrokenPromise(f"one attempt begun again where it ran: {attempt} on {host}")
        self.begun.add((host, lease.attempt))
        if attempt.incarnation in self.forgotten:
            return  # the pilot does not know yet that the database was rolled back
        self.started[task, attempt.nonce] += 1
        if lease.rerun != "safe" and self.nonces.get(task.run) != attempt.nonce:
            raise BrokenPromise(f"started before its submission is durable: {attempt}, rerun={lease.rerun}")
        if wrong := self.units.wrong_start(attempt, lease.env):
            raise BrokenPromise(f"units not durable: {attempt} {wrong}")
        if "SHOAL_COUNT" in lease.env:
            self.ran[lease.attempt] = int(lease.env["SHOAL_FIRST"]), int(lease.env["SHOAL_COUNT"])
        number = (attempt.run, attempt.nonce, attempt.element, attempt.number)
        if self.numbers.setdefault(number, lease.attempt) != lease.attempt:
            raise BrokenPromise(f"one number started twice: {self.numbers[number]} and {attempt}")
        known = {host for host, name in living if parse_attempt(name).incarnation not in self.forgotten}
        if lease.rerun == "exclusive" and len(known - self.frozen) > 1:
            raise BrokenPromise(f"exclusive overlap: {task} runs as {sorted(living)}")
        if lease.rerun == "never" and self.started[task, attempt.nonce] > 1:
            raise BrokenPromise(f"never started twice: {task}")
        for parent in self.parents.get(task.run, {}).get(task.element, ()):
            if self.final.get(TaskId(task.run, parent), ("", ""))[0] == "succeeded":
                continue
            # Of a chain it need only have succeeded where this one starts: its pilot keeps the report [ADR 0064].
            if not lease.parents or (host, task.run, parent, attempt.nonce) not in self.succeeded_at:
                raise BrokenPromise(f"child before parent: {task} started, r{task.run}.{parent} has not succeeded")

    # --- tasks that write checkpoints
    def step_of(self, lease: Lease) -> int:
        """The step at which a payload begins: that of its task's last acknowledged checkpoint, or a later one."""
        attempt, step = parse_attempt(lease.attempt), 0
        for digest in lease.restored.values():
            writer, step = self.steps[digest]
            if writer.task != attempt.task:
                raise BrokenPromise(f"checkpoint of another task: {attempt} resumes from one of {writer}")
        least = self.saved_at.get(attempt.task, 0)
        if step < least and attempt == self._newest(attempt.task):
            raise BrokenPromise(
                f"acknowledged checkpoint not used: {attempt} begins at {step}, {least} was acknowledged"
            )
        return step

    def _newest(self, task: TaskId) -> AttemptId | None:
        """The newest of the attempts of a task that are committed as live."""
        return max((live for live, _ in self.leases.get(task, ())), key=lambda live: live.number, default=None)

    def checkpoint_written(self, lease: Lease, step: int) -> dict[str, str]:
        """A payload wrote a checkpoint; its files."""
        digest = "sha256:" + hashlib.sha256(f"{lease.attempt}/{step}".encode()).hexdigest()
        self.steps[digest] = parse_attempt(lease.attempt), step
        return dict.fromkeys(lease.checkpoint, digest)

    def checkpoint_acknowledged(self, checkpoint: Checkpoint) -> None:
        """A pilot was answered that a checkpoint is kept. It counts for the newest live attempt only."""
        attempt = parse_attempt(checkpoint.attempt)
        if attempt != self._newest(attempt.task) or attempt.incarnation in self.forgotten:
            return
        for digest in checkpoint.files.values():
            _, step = self.steps[digest]
            kept = self.kept.get(attempt.task)
            if kept is None or self.steps[kept][1] < step:
                raise BrokenPromise(f"checkpoint acknowledged before durable: {attempt} at {step}")
            self.saved_at[attempt.task] = step

    def payload_ended(self, lease: Lease, host: str, succeeded: bool) -> None:
        """A payload ended."""
        if succeeded:
            self.successes.add(lease.attempt)
            name = parse_attempt(lease.attempt)
            self.succeeded_at.add((host, name.run, name.element, name.nonce))
        self.living[parse_attempt(lease.attempt).task].discard((host, lease.attempt))

    def payload_failed(self, attempt: str) -> None:
        """A payload failed by itself."""
        self.failures[parse_attempt(attempt).task] += 1

    def report_settled(self, attempt: str, accepted: bool) -> None:
        """A pilot got the verdict on its report; an accepted success may be published [protocol 3]."""
        if not accepted or attempt not in self.successes:
            return  # only a success has something to publish
        name: AttemptId = parse_attempt(attempt)
        if name.incarnation in self.forgotten:
            return  # the verdict may come from before the database was rolled back
        state, winner = self.final.get(name.task, ("", ""))
        if state == "succeeded" and winner != name.winner:
            raise BrokenPromise(f"two winners: {name} was accepted, {winner} is recorded")
        if state == "succeeded":
            self.published[name.task] += 1
            if self.published[name.task] > 1:
                raise BrokenPromise(f"published twice: {name.task}")
        else:
            raise BrokenPromise(f"acknowledged before durable: {name}")

    # --- rollbacks of the database
    def backup(self) -> dict[str, Any]:
        """What is promised and recorded now, as a copy of the database has it."""
        return {name: copy.deepcopy(getattr(self, name)) for name in _RECORDED}

    def roll_back(self, recorded: dict[str, Any], incarnations: list[int]) -> None:
        """The database was rolled back: what was promised since then is lost with it, and so is the knowledge of what
        earlier incarnations of the server leased. What payloads did stays: it may not be recorded for another run."""
        fresh = Ledger()
        for name in _RECORDED:
            setattr(self, name, copy.deepcopy(recorded[name]) if recorded else getattr(fresh, name))
        self.numbers.clear()
        self.started.clear()
        self.published.clear()
        self.forgotten.update(incarnations)

    # --- after a crash, and at the end
    def check_restart(self, database: Database) -> None:
        """Every acknowledged run is in the database."""
        snapshot = database.snapshot()
        open_runs = {row.run: row.total for row in snapshot.runs}
        for run, total in self.accepted.items():
            if run in open_runs:
                if open_runs[run] != total:
                    raise BrokenPromise(f"accepted run changed: r{run} had {total}, has {open_runs[run]}")
            elif database.load_run(run) is None:
                raise BrokenPromise(f"accepted run lost: r{run}")

    def check_leases(self, state: State) -> None:
        """A living pilot holds after a restart every lease that was committed [promise I7]."""
        for held in self.leases.values():
            for attempt, name in held:
                pilot = state.pilots.get(name)
                if pilot is not None and not pilot.holds(attempt):
                    raise BrokenPromise(f"lease forgotten: {attempt} is with {name}, which is alive")

    def check_end(self, counts: dict[int, dict[str, int]]) -> None:
        """Every task of an acknowledged run is final, and the recorded counts are right."""
        for run, total in self.accepted.items():
            mine: Counter[str] = Counter(state for task, (state, _) in self.final.items() if task.run == run)
            if sum(mine.values()) != total:
                raise BrokenPromise(f"not all final: r{run} has {sum(mine.values())} of {total}")
            if self.units.is_divisible(run):
                succeeded = {
                    task: f"{task}#{winner}~{self.nonces[run]}"
                    for task, (state, winner) in self.final.items()
                    if task.run == run and state == "succeeded"
                }
                if wrong := self.units.check_end(run, succeeded, self.ran):
                    raise BrokenPromise(f"units: {wrong}")
            theirs = {state: n for state, n in counts[run].items() if n and state in _FINAL}
            if dict(mine) != theirs:
                raise BrokenPromise(f"counts differ: r{run} is {dict(mine)}, recorded {theirs}")
        for task, (state, _) in self.final.items():
            if state == "lost" and self.reruns[task.run][task.element] != "never":
                raise BrokenPromise(f"lost without rerun=never: {task}")
        still = {str(task): sorted(names) for task, names in self.living.items() if names}
        if still:
            raise BrokenPromise(f"payloads left behind: {still}")


def _last(times: list[float], before: float) -> float:
    """The last of these times that is not after `before`; 0 if there is none."""
    at = bisect_right(times, before)
    return times[at - 1] if at else 0.0
